"""Takes graphs that are already in memory, and tells what is wrong with things that are not graphs."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from joao.core.errors import UserError, short_repr
from joao.data.dataset import Dataset
from joao.data.joining import concatenate_datasets
from joao.data.molecules.sets import ReadOptions, make_molecules

# The first that fits: a Batch is also Data.
_MODULES = dict.fromkeys(("HeteroData", "Batch", "Data"), "torch_geometric.data") | {"Graph": "networkx"}
_GRAPHS = ("Data", "Graph")
_EXPECTED = "a list of torch_geometric Data, of networkx graphs or of SMILES, or a torch_geometric data set"


def from_objects(source: Any, work: ReadOptions | None = None) -> Dataset:
    """Reads a sequence of torch-geometric or networkx graphs, of SMILES, or of data sets, which are joined."""
    alone = _kind(source)
    if alone in _GRAPHS:
        raise UserError(f"one {type(source).__name__}: graphs are read from a list. Write [graph].")
    if alone is not None:
        raise UserError(_refusal("the source", alone))
    graphs = _items(source)
    name = _name(source)
    if not graphs:
        raise UserError(f"{name}: no graphs in it.")
    if all(isinstance(graph, Dataset) for graph in graphs):
        return concatenate_datasets(graphs)
    if _is_smiles(graphs):
        # None and NaN are how tables in memory have their gaps.
        return make_molecules("molecules", ["" if _is_gap(text) else text for text in graphs], work=work)
    kinds = [_kind(graph) for graph in graphs]
    for index, kind in enumerate(kinds):
        if kind not in _GRAPHS:
            raise UserError(_refusal(f"{name}[{index}]", kind, graphs[index]))
        if kind != kinds[0]:
            raise UserError(
                f"{name}[{index}] is a {type(graphs[index]).__name__}, but {name}[0] is a "
                f"{type(graphs[0]).__name__}. Give graphs of one kind."
            )
    if kinds[0] == "Graph":
        from joao.data.formats.networkx_graphs import from_networkx

        return from_networkx(graphs, name)
    from joao.data.formats.geometric import from_geometric

    return from_geometric(graphs, name)


def _is_smiles(items: Sequence[Any]) -> bool:
    """Whether there is text among ``items``, and nothing but text and gaps."""
    return any(isinstance(item, str) for item in items) and all(
        isinstance(item, str) or _is_gap(item) for item in items
    )


def _is_gap(item: object) -> bool:
    return item is None or (isinstance(item, float) and math.isnan(item))


def _items(source: Any) -> list[Any]:
    """The members of anything with a length and numbered items; one by one, as numpy must never see graphs."""
    is_sequence = callable(getattr(source, "__len__", None)) and callable(getattr(source, "__getitem__", None))
    if not is_sequence or isinstance(source, dict | bytes):
        raise UserError(f"graphs cannot be read from a {type(source).__name__}. Give {_EXPECTED}.")
    if _is(source, "pandas", "Series"):
        return list(source)
    return [source[index] for index in range(len(source))]


def _name(source: Any) -> str:
    """A data set's own name, or its class; of a plain list, ``graphs``."""
    if not _is(source, "torch_geometric.data", "Dataset"):
        return "graphs"
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name else type(source).__name__


def _kind(value: Any) -> str | None:
    """Which of the known classes ``value`` is of."""
    return next((name for name, module in _MODULES.items() if _is(value, module, name)), None)


def _is(value: Any, module: str, name: str) -> bool:
    """Whether ``value`` is of a class whose module, if it is not loaded, cannot have made it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _refusal(place: str, kind: str | None, value: object = None) -> str:
    if kind == "HeteroData":
        return f"{place} is heterogeneous (HeteroData); only graphs with one type of nodes and edges are read."
    if kind == "Batch":
        return f"{place} is a Batch, several graphs in one. Write batch.to_data_list()."
    if isinstance(value, str):
        return f"{place} is text ({short_repr(value)}). Do not mix SMILES with other graphs in one list."
    return f"{place} is a {type(value).__name__}, not a graph. Give {_EXPECTED}."
