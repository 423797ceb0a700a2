"""Protein interaction networks as published by Hu et al. (ICLR 2020).

Each graph is the neighbourhood of a protein in the network of its species. All nodes have the attribute 1; edges have
nine attributes (seven kinds of evidence, and the flags "loop" and "masked", which are 0). There are two folders:

=================================================== ================================================================
``supervised/processed/…``                          proteins of 8 species with functions (GO terms)
``unsupervised/processed/…``                        proteins of 50 species without functions
=================================================== ================================================================

each with a ``geometric_data_processed.pt``: a ``Data`` object of an old torch-geometric with all graphs, and ``slices``
that separate them. The attributes ``x``, ``edge_index``, ``edge_attr`` and ``go_target_downstream`` are read. Unknown
functions count as absent, as published.

The file is a pickle. Only tensors and a stand-in for that one class are unpickled.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, user_error_on_failure
from joao.core.files import open_regular
from joao.data.dataset import Dataset, check_offsets
from joao.data.validation import make_dataset

FILE = Path("processed") / "geometric_data_processed.pt"
_OLD_CLASS = "torch_geometric.data.data.Data"


class _Data:
    """Stand-in for torch-geometric's ``Data`` of 2019, if torch-geometric is not loaded."""


def read_ppi(folder: Path) -> Dataset:
    """Read the folder ``supervised`` or ``unsupervised``, with functions as targets if the file has them."""
    path = folder / FILE
    values, slices = load_tensors(folder)
    x, attr = (get_array(path, values, name, 2, "iuf") for name in ("x", "edge_attr"))
    ends = get_array(path, values, "edge_index", 2).astype(np.int64)
    first_node, first_edge = _offsets(path, slices, "x", len(x)), _offsets(path, slices, "edge_index", ends.shape[1])
    if len(ends) != 2 or len(first_edge) != len(first_node) or len(attr) != ends.shape[1]:
        raise UserError(f"{path}: is damaged: 'x', 'edge_index' and 'edge_attr' do not agree.")
    num_edges = np.diff(first_edge)
    if ((ends < 0) | (ends >= np.repeat(np.diff(first_node), num_edges))).any():
        raise UserError(f"{path}: is damaged: 'edge_index' refers to a node outside its graph.")
    shift = np.repeat(first_node[:-1], num_edges)
    edges = (ends[0] + shift, ends[1] + shift)
    graphs = make_dataset(folder.name, np.diff(first_node), edges, node_attributes=x, edge_attr=attr)
    if values.get("go_target_downstream") is None:
        return graphs
    functions = get_array(path, values, "go_target_downstream", 1, "iuf")
    if len(functions) % len(graphs):
        raise UserError(f"{path}: is damaged: {len(functions)} functions for {len(graphs)} graphs.")
    targets = functions.reshape(len(graphs), -1).astype(np.float32)
    return replace(graphs, targets=targets, target_names=tuple(f"go_{task}" for task in range(targets.shape[1])))


def load_tensors(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load attributes and slices without executing code of the file."""
    import torch

    path = folder / FILE
    if not path.is_file():
        raise UserError(f"{folder}: {FILE} is missing. Give the published folder 'supervised' or 'unsupervised'.")
    try:
        with open_regular(path) as stream, torch.serialization.safe_globals([(_Data, _OLD_CLASS)]):
            loaded = torch.load(stream, map_location="cpu", weights_only=True)
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


def get_array(path: Path, values: Mapping[str, Any], name: str, num_axes: int, kinds: str = "iu") -> NDArray[Any]:
    """Return tensor ``name`` of the file as an array; ``kinds`` are those of its dtype (f: real numbers)."""
    from torch import Tensor

    value = values.get(name)
    if not isinstance(value, Tensor):
        raise UserError(f"{path}: is not the published file: tensor '{name}' is missing.")
    try:
        array: NDArray[Any] = value.detach().numpy()
        if array.ndim != num_axes or array.dtype.kind not in kinds:
            raise TypeError("wrong shape or type")
    except (TypeError, RuntimeError):  # not numpy's: sparse, quantised, without data ...
        found, what = f"{value.dim()} axes of {value.dtype}", "numbers" if "f" in kinds else "integers"
        raise UserError(f"{path}: is damaged: '{name}' has {found}, expected {num_axes} axes of {what}.") from None
    return array


def _offsets(path: Path, slices: Mapping[str, Any], name: str, length: int) -> NDArray[np.int64]:
    """``(G + 1,)`` offsets of the graphs in the list of nodes or edges."""
    with user_error_on_failure(f"{path}: is damaged: the slices of '{name}' do not fit it"):
        return check_offsets(get_array(path, slices, name, 1), length)
