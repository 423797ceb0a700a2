"""Takes graphs that are already in memory, and tells what is wrong with things that are not graphs."""

from __future__ import annotations

import sys
from typing import Any

from joao.data.base import Dataset, shown
from joao.errors import UserError

_EXPECTED = "a list of torch_geometric Data or of networkx graphs, or a torch_geometric data set"


def from_objects(source: Any) -> Dataset:
    """Reads a sequence of torch-geometric or networkx graphs."""
    alone = _kind(source)
    if alone in ("Data", "networkx"):
        raise UserError(f"one {type(source).__name__}: graphs are read from a list. Write [graph].")
    if alone is not None:
        raise UserError(_refusal("the source", alone))
    graphs = _items(source)
    name = _name(source)
    if not graphs:
        raise UserError(f"{name}: no graphs in it.")
    kinds = [_kind(graph) for graph in graphs]
    for index, kind in enumerate(kinds):
        if kind not in ("Data", "networkx"):
            raise UserError(_refusal(f"{name}[{index}]", kind, graphs[index]))
        if kind != kinds[0]:
            raise UserError(
                f"{name}[{index}] is a {type(graphs[index]).__name__}, but {name}[0] is a "
                f"{type(graphs[0]).__name__}. Give graphs of one kind."
            )
    if kinds[0] == "networkx":
        from joao.data.networkx_graphs import from_networkx

        return from_networkx(graphs, name)
    from joao.data.geometric import from_geometric

    return from_geometric(graphs, name)


def _items(source: Any) -> list[Any]:
    """The members of anything with a length and numbered items; one by one, as numpy must never see graphs."""
    is_sequence = callable(getattr(source, "__len__", None)) and callable(getattr(source, "__getitem__", None))
    if not is_sequence or isinstance(source, dict | bytes):
        raise UserError(f"graphs cannot be read from a {type(source).__name__}. Give {_EXPECTED}.")
    return [source[index] for index in range(len(source))]


def _name(source: Any) -> str:
    """A data set's own name, or its class; of a plain list, ``graphs``."""
    if not _is(source, "torch_geometric.data", "Dataset"):
        return "graphs"
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name else type(source).__name__


def _kind(value: Any) -> str | None:
    for module, name in (
        ("torch_geometric.data", "HeteroData"),
        ("torch_geometric.data", "Batch"),
        ("torch_geometric.data", "Data"),
        ("networkx", "Graph"),
    ):
        if _is(value, module, name):
            return "networkx" if module == "networkx" else name
    return None


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
        return f"{place} is text ({shown(value)}). Give a name or path by itself, not in a list."
    return f"{place} is a {type(value).__name__}, not a graph. Give {_EXPECTED}."
