"""torch-geometric graphs: a list of ``Data``, or any data set of them, with the attributes of docs/data-formats.md.

For example, two molecules of carbon monoxide with atomic numbers as labels::

    molecule = Data(x=torch.tensor([[6], [8]]), edge_index=torch.tensor([[0, 1], [1, 0]]), y=1)
    joao.data.read([molecule, molecule])
"""

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from joao.core.errors import UserError, short_repr
from joao.core.graphs import GraphBatch
from joao.data.dataset import Array, Dataset
from joao.data.validation import make_dataset, parse_label


def from_geometric(graphs: Sequence[Any], name: str) -> Dataset:
    """Convert a list of ``Data``; messages call the third one ``name[2]``."""
    notices: list[str] = []
    sizes = _sizes(graphs, name, notices)
    edges = _edges(graphs, name, sizes)
    num_edges = [pair.shape[1] for pair in edges]
    shift = torch.repeat_interleave(torch.cumsum(sizes, 0) - sizes, torch.tensor(num_edges, dtype=torch.long))
    ends = torch.cat([torch.zeros(2, 0, dtype=torch.long), *edges], dim=1) + shift
    x = _stack(graphs, name, "x", sizes.tolist())
    parts = [_stack(graphs, name, key, num_edges) for key in ("edge_attr", "edge_weight")]
    edge_attr = [part.float() for part in parts if part is not None]
    is_label = x is not None and x.shape[1] == 1 and not x.is_floating_point() and x.dtype != torch.bool
    return make_dataset(
        name,
        sizes.numpy(),
        (ends[0].numpy(), ends[1].numpy()),
        node_labels=_array(x) if is_label else None,
        node_attributes=None if is_label else _array(x),
        edge_attr=_array(torch.cat(edge_attr, dim=1)) if edge_attr else None,
        graph_labels=_labels(graphs, name, notices),
        notices=notices,
    )


def graph_batch(batch: Any) -> GraphBatch:
    """Convert a torch-geometric ``Batch`` for a custom training loop (docs/custom-training-loop.md).

    Missing directions of edges are added, loops are removed, and the attributes of duplicates are averaged.
    """
    from torch_geometric.utils import remove_self_loops, to_undirected

    ends, edge_attr = remove_self_loops(batch.edge_index, batch.edge_attr)
    attributes = None if edge_attr is None else edge_attr.float().view(len(edge_attr), -1)
    ends, attributes = to_undirected(ends, attributes, num_nodes=batch.num_nodes, reduce="mean")
    # Sorted by source and then by target. As every edge has its reverse, swapping the ends sorts by target first.
    target, source = ends
    return GraphBatch(batch.x.float(), source, target, batch.batch, batch.num_graphs, attributes)


def _sizes(graphs: Sequence[Any], name: str, notices: list[str]) -> Tensor:
    """Number of nodes of each graph, ``(G,)``."""
    with warnings.catch_warnings(record=True) as guesses:
        warnings.simplefilter("always")
        sizes = [graph.num_nodes for graph in graphs]
    if None in sizes:
        raise UserError(f"{name}[{sizes.index(None)}]: has no x, num_nodes or edge_index. Set num_nodes.")
    for index, size in enumerate(sizes):
        if not isinstance(size, Integral | Tensor) or not 0 <= int(size) < 1 << 63 or int(size) != size:
            raise UserError(f"{name}[{index}]: num_nodes must be a non-negative integer, got {short_repr(size)}.")
    if guesses:
        notices.append(f"{name}: graphs have neither x nor num_nodes; numbers of nodes were inferred from the edges.")
    return torch.tensor([int(size) for size in sizes], dtype=torch.long)


def _edges(graphs: Sequence[Any], name: str, sizes: Tensor) -> list[Tensor]:
    """Return the checked edges of each graph, ``(2, E)``."""
    edges = []
    for index, (graph, size) in enumerate(zip(graphs, sizes.tolist(), strict=True)):
        pair = graph.edge_index
        if pair is None:
            if "adj_t" in graph or "adj" in graph:
                raise UserError(f"{name}[{index}]: edges must be in edge_index, not in an adjacency matrix.")
            pair = torch.zeros(2, 0, dtype=torch.long)
        if not isinstance(pair, Tensor) or pair.ndim != 2 or pair.shape[0] != 2:
            shape = tuple(pair.shape) if isinstance(pair, Tensor) else type(pair).__name__
            raise UserError(f"{name}[{index}]: edge_index must be a tensor of shape (2, edges), got {shape}.")
        if pair.numel() and (pair.is_floating_point() or pair.is_complex() or pair.dtype == torch.bool):
            raise UserError(f"{name}[{index}]: edge_index must contain integers, got {pair.dtype}.")
        if pair.is_meta or pair.layout != torch.strided:
            raise UserError(f"{name}[{index}]: edge_index must be a dense tensor, got {pair.device}, {pair.layout}.")
        pair = pair.as_subclass(Tensor).detach().cpu().long()
        if pair.numel() and (int(pair.min()) < 0 or int(pair.max()) >= size):
            wrong = int(pair[(pair < 0) | (pair >= size)][0])
            raise UserError(f"{name}[{index}]: edge_index refers to node {wrong}, expected 0 to {size - 1}.")
        edges.append(pair)
    return edges


def _stack(graphs: Sequence[Any], name: str, key: str, rows: list[int]) -> Tensor | None:
    """Concatenate the rows of all graphs; None if no graph has ``key``. A graph without rows may lack it."""
    values = [graph.get(key, None) for graph in graphs]
    first = next((index for index, value in enumerate(values) if value is not None and rows[index]), None)
    if first is None:
        return None
    tables: list[Tensor] = []
    for index, (value, expected) in enumerate(zip(values, rows, strict=True)):
        if expected == 0:
            continue
        if value is None:
            raise UserError(f"{name}[{index}]: no {key}, but {name}[{first}] has it. Set it on all graphs or on none.")
        place = f"{name}[{index}]: {key}"
        tables.append(_table(value, place, expected))
        model, table = tables[0], tables[-1]
        if table.shape[1] != model.shape[1]:
            raise UserError(f"{place} has {table.shape[1]} columns, but {model.shape[1]} in {name}[{first}].")
        if table.dtype.is_floating_point != model.dtype.is_floating_point:
            raise UserError(f"{place} is {table.dtype}, but {model.dtype} in {name}[{first}].")
    return torch.cat(tables)


def _table(value: Any, place: str, rows: int) -> Tensor:
    """Convert to a tensor ``(rows, columns)`` on the CPU."""
    try:
        table = torch.as_tensor(value).detach().cpu()
        table = table.to_dense() if table.layout != torch.strided else table
        _array(table[:0])  # raises an error for quantised numbers
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{place} must be a tensor of numbers, got {type(value).__name__}.") from None
    if table.ndim not in (1, 2) or table.shape[0] != rows or table.is_complex():
        raise UserError(f"{place} must be a tensor of real numbers with {rows} rows, got {tuple(table.shape)}.")
    return table.reshape(rows, -1)


def _array(table: Tensor | None) -> Array | None:
    if table is None:
        return None
    array: Array = np.asarray((table.float() if table.is_floating_point() else table).numpy())
    return array


def _labels(graphs: Sequence[Any], name: str, notices: list[str]) -> list[int | str | None] | None:
    labels = [graph.y for graph in graphs]
    if all(y is None for y in labels):
        return None
    plain = [None if y is None else parse_label(_scalar(y)) for y in labels]
    odd = [index for index, y in enumerate(labels) if y is not None and plain[index] is None]
    if odd:
        notices.append(f"{name}: y of {name}[{odd[0]}] is not a single integer; labels are ignored.")
        return None
    return plain


def _scalar(value: Any) -> object:
    """The number in a tensor, array or list with one element."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        count = value.numel() if isinstance(value, Tensor) else value.size
        return value.item() if count == 1 else None
    return value[0] if isinstance(value, list) and len(value) == 1 else value
