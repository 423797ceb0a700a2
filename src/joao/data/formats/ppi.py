"""Protein interaction networks as published by Hu et al. (ICLR 2020).

Each graph is the neighbourhood of a protein in the network of its species. All nodes have the attribute 1; edges have
nine attributes (seven kinds of evidence, and the flags "loop" and "masked", which are 0). There are two folders:

=================================================== ================================================================
``supervised/processed/…``                          proteins of 8 species with functions (GO terms)
``unsupervised/processed/…``                        proteins of 50 species without functions
=================================================== ================================================================

each with a ``geometric_data_processed.pt``: a ``Data`` object of an old torch-geometric with all graphs, and ``slices``
that separate them. The attributes ``x``, ``edge_index``, ``edge_attr``, ``species_id``, ``center_node_idx`` and
``go_target_downstream`` are read. Unknown functions count as absent, as published. ``go_target_pretrain``, labels for
supervised pre-training, is not used.

The file is a pickle. Only tensors and a stand-in for that one class are unpickled.
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
    """Neighbourhoods of proteins.

    Attributes:
        graphs: the graphs, with functions as targets if the file has them.
        species: ``(G,)`` NCBI taxonomy numbers, such as 9606 for human.
        centre: ``(G,)`` number of the central protein inside its graph.
    """

    graphs: Dataset
    species: Indices
    centre: Indices


class _Data:
    """Stand-in for torch-geometric's ``Data`` of 2019, if torch-geometric is not loaded."""


def is_ppi(folder: Path) -> bool:
    """Whether ``folder`` is one of the two published folders."""
    return (folder / FILE).is_file()


def read_ppi(folder: Path) -> ProteinNetworks:
    """Read the folder ``supervised`` or ``unsupervised``."""
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"{folder}: {FILE} is missing. Give the published folder 'supervised' or 'unsupervised'.")
    values, slices = _load(path)
    first_node, first_edge = _offsets(path, values, slices, "x"), _offsets(path, values, slices, "edge_index")
    num_graphs = len(first_node) - 1
    edges, attr = values["edge_index"].numpy(), _get_tensor(path, values, "edge_attr")
    if len(first_edge) != len(first_node) or attr.dim() != 2 or len(attr) != edges.shape[1]:
        raise UserError(f"{path}: is damaged: nodes, edges and their attributes do not agree.")
    species, centre = (_per_graph(path, values, name, num_graphs) for name in ("species_id", "center_node_idx"))
    if ((centre < 0) | (centre >= np.diff(first_node))).any():
        raise UserError(f"{path}: is damaged: a central protein is not in its graph.")
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
    """Read the graphs without species and centres."""
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
    """Load attributes and slices without executing code of the file."""
    import torch

    try:
        with torch.serialization.safe_globals([(_Data, _OLD_CLASS)]):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file may raise anything
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it contains '{foreign.group(1)}', which is not allowed" if foreign else "it cannot be read"
        raise UserError(f"{path}: is damaged or not the published file: {reason}.") from error
    data, slices = loaded if isinstance(loaded, tuple) and len(loaded) == 2 else (None, None)
    values = data if isinstance(data, dict) else getattr(data, "__dict__", None)
    if not isinstance(values, dict) or not isinstance(slices, dict):
        raise UserError(f"{path}: is not the published file: it does not contain graphs and slices.")
    return values, slices


def _get_tensor(path: Path, values: Mapping[str, Any], name: str) -> Tensor:
    from torch import Tensor

    value = values.get(name)
    if not isinstance(value, Tensor):
        raise UserError(f"{path}: is not the published file: tensor '{name}' is missing.")
    return value


def _offsets(path: Path, values: Mapping[str, Any], slices: Mapping[str, Any], name: str) -> Indices:
    """``(G + 1,)`` offsets of the graphs in the list of nodes or edges."""
    value, first = _get_tensor(path, values, name), _get_tensor(path, slices, name).numpy()
    length = value.shape[1] if name == "edge_index" and value.dim() == 2 and len(value) == 2 else len(value)
    if first.ndim != 1 or len(first) < 2 or first[0] != 0 or first[-1] != length or (np.diff(first) < 0).any():
        raise UserError(f"{path}: is damaged: the slices of '{name}' do not fit it.")
    return first.astype(np.int64)


def _per_graph(path: Path, values: Mapping[str, Any], name: str, num_graphs: int) -> Indices:
    value = _get_tensor(path, values, name)
    if value.numel() != num_graphs:
        raise UserError(f"{path}: is damaged: {value.numel()} values of '{name}' for {num_graphs} graphs.")
    return value.flatten().numpy().astype(np.int64)
