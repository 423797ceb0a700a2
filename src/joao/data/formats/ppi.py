"""Protein interaction networks: the published files of the pre-training literature (Hu et al., ICLR 2020).

A graph is what surrounds a protein in the network of its species: all nodes carry the number 1, edges nine numbers
(seven kinds of evidence, and two that say "loop" and "masked", 0 in the files). The files are in two folders:

=================================================== ================================================================
``supervised/processed/…``                          proteins of eight species, with functions (terms of the GO)
``unsupervised/processed/…``                        proteins of fifty species, without
=================================================== ================================================================

each with a ``geometric_data_processed.pt``: ``Data`` of an old torch-geometric, all graphs side by side, and ``slices``
that tell them apart. Of its attributes ``x``, ``edge_index``, ``edge_attr``, ``species_id``, ``center_node_idx`` and
``go_target_downstream`` are read. A term that is not known of a protein counts as absent, as published.
``go_target_pretrain``, labels for another kind of pre-training, is not used.

The file is a pickle, of which nothing but tensors and that one class, by a stand-in, is let in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.data.dataset import Dataset
from joao.data.validation import make_dataset

if TYPE_CHECKING:
    from torch import Tensor

FILE = Path("processed") / "geometric_data_processed.pt"
_OLD_CLASS = "torch_geometric.data.data.Data"

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ProteinNetworks:
    """Networks around proteins.

    Attributes:
        graphs: with the functions as targets, if the file has them.
        species: ``(G,)`` numbers in the NCBI taxonomy, such as 9606 for human.
        centre: ``(G,)`` the number, inside its graph, of the protein that each is about.
    """

    graphs: Dataset
    species: Indices
    centre: Indices


class _Data:
    """Stands in for a class of torch-geometric as it was in 2019: a bag of attributes.

    Where torch-geometric is loaded, it allows its own class of that name, which is one, too.
    """


def is_ppi(folder: Path) -> bool:
    """Whether ``folder`` is one of the two published ones."""
    return (folder / FILE).is_file()


def read_ppi(folder: Path) -> ProteinNetworks:
    """Reads ``supervised`` or ``unsupervised``, as published."""
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"{folder}: has no {FILE}. Give the folder 'supervised' or 'unsupervised' as published.")
    values, slices = _load(path)
    first_node, first_edge = _offsets(path, values, slices, "x"), _offsets(path, values, slices, "edge_index")
    num_graphs = len(first_node) - 1
    edges, attr = values["edge_index"].numpy(), _get_tensor(path, values, "edge_attr")
    if len(first_edge) != len(first_node) or attr.dim() != 2 or len(attr) != edges.shape[1]:
        raise UserError(f"{path}: is damaged: nodes, edges and their attributes do not agree.")
    species, centre = (_per_graph(path, values, name, num_graphs) for name in ("species_id", "center_node_idx"))
    if ((centre < 0) | (centre >= np.diff(first_node))).any():
        raise UserError(f"{path}: is damaged: a centre is not in its graph.")
    shift = np.repeat(first_node[:-1], np.diff(first_edge))
    graphs = make_dataset(
        folder.name,
        np.diff(first_node),
        (edges[0] + shift, edges[1] + shift),
        node_attributes=values["x"].numpy(),
        edge_attr=attr.numpy(),
    )
    return ProteinNetworks(_with_functions(path, graphs, values), species, centre)


def read_ppi_graphs(folder: Path) -> Dataset:
    """Read the graphs alone."""
    return read_ppi(folder).graphs


def _with_functions(path: Path, graphs: Dataset, values: Mapping[str, Any]) -> Dataset:
    if values.get("go_target_downstream") is None:
        return graphs
    functions = _get_tensor(path, values, "go_target_downstream")
    if functions.numel() % len(graphs):
        raise UserError(f"{path}: is damaged: {functions.numel()} functions for {len(graphs)} graphs.")
    targets = functions.reshape(len(graphs), -1).numpy().astype(np.float32)
    return replace(graphs, targets=targets, target_names=tuple(f"go_{task}" for task in range(targets.shape[1])))


def _load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes and slices of a file, without running anything in it."""
    import torch

    try:
        with torch.serialization.safe_globals([(_Data, _OLD_CLASS)]):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file happens to raise
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds '{foreign.group(1)}', which is not run" if foreign else "it cannot be read"
        raise UserError(f"{path}: is damaged or not as published: {reason}.") from error
    data, slices = loaded if isinstance(loaded, tuple) and len(loaded) == 2 else (None, None)
    values = data if isinstance(data, dict) else getattr(data, "__dict__", None)
    if not isinstance(values, dict) or not isinstance(slices, dict):
        raise UserError(f"{path}: is not as published: it does not hold graphs and their slices.")
    return values, slices


def _get_tensor(path: Path, values: Mapping[str, Any], name: str) -> Tensor:
    from torch import Tensor

    value = values.get(name)
    if not isinstance(value, Tensor):
        raise UserError(f"{path}: is not as published: it has no tensor '{name}'.")
    return value


def _offsets(path: Path, values: Mapping[str, Any], slices: Mapping[str, Any], name: str) -> Indices:
    """``(G + 1,)`` where each graph's nodes or edges begin."""
    value, first = _get_tensor(path, values, name), _get_tensor(path, slices, name).numpy()
    length = value.shape[1] if name == "edge_index" and value.dim() == 2 and len(value) == 2 else len(value)
    if first.ndim != 1 or len(first) < 2 or first[0] != 0 or first[-1] != length or (np.diff(first) < 0).any():
        raise UserError(f"{path}: is damaged: the slices of '{name}' do not fit it.")
    return first.astype(np.int64)


def _per_graph(path: Path, values: Mapping[str, Any], name: str, num_graphs: int) -> Indices:
    """``(G,)``"""
    value = _get_tensor(path, values, name)
    if value.numel() != num_graphs:
        raise UserError(f"{path}: is damaged: {value.numel()} entries of '{name}' for {num_graphs} graphs.")
    return value.flatten().numpy().astype(np.int64)
