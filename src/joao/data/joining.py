"""Several data sets as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.data.dataset import Array, Dataset, sizes_to_offsets


def concatenate_datasets(datasets: Sequence[Dataset], name: str | None = None) -> Dataset:
    """The graphs of all ``datasets``, in order. Their nodes and edges must be described alike.

    Classes and tasks are those of all, by their names; a graph has no label of a task that its data set does not have.
    Names of graphs are kept where any has one, SMILES where all have them. Groups are not: of two data sets, the same
    number says nothing. Rows of the sources, and rows that gave no graph, count through all of them.
    """
    first = datasets[0]
    if len(datasets) == 1:
        return first if name is None else replace(first, name=name)
    for other in datasets[1:]:
        for what in ("kind", "node labels", "node attributes", "edge attributes"):
            one, another = (_describe_columns(dataset, what) for dataset in (first, other))
            if one != another:
                raise UserError(f"{first.name} and {other.name} cannot be joined: {what}: {one} and {another}.")
    class_names = _union(dataset.class_names for dataset in datasets)
    target_names = _union(dataset.target_names for dataset in datasets)
    rows = [len(dataset) + len(dataset.failures) for dataset in datasets]
    shifts = list(accumulate(rows, initial=0))[:-1]
    row_of_graph = [_row_of_graph(dataset) + shift for dataset, shift in zip(datasets, shifts, strict=True)]
    has_failures = any(dataset.failures for dataset in datasets)
    has_names = any(dataset.graph_names for dataset in datasets)
    has_smiles = all(dataset.smiles or not len(dataset) for dataset in datasets)
    alike = ("source", "target", "node_labels", "node_attributes", "edge_attr")
    return Dataset(
        name=first.name if name is None else name,
        first_node=sizes_to_offsets(_concatenate_arrays([np.diff(dataset.first_node) for dataset in datasets])),
        first_edge=sizes_to_offsets(_concatenate_arrays([np.diff(dataset.first_edge) for dataset in datasets])),
        **{array: _concatenate_arrays([getattr(dataset, array) for dataset in datasets]) for array in alike},
        classes=_concatenate_arrays([_classes(dataset, class_names) for dataset in datasets]) if class_names else None,
        class_names=class_names,
        graph_names=_concatenate_texts([dataset.graph_names or ("",) * len(dataset) for dataset in datasets])
        if has_names
        else (),
        targets=_concatenate_arrays([_targets(dataset, target_names) for dataset in datasets])
        if target_names
        else None,
        target_names=target_names,
        kind=first.kind,
        smiles=_concatenate_texts([dataset.smiles for dataset in datasets]) if has_smiles else (),
        row_of_graph=_concatenate_arrays(row_of_graph) if has_failures else None,
        failures=tuple(
            failure._replace(row=failure.row + shift)
            for dataset, shift in zip(datasets, shifts, strict=True)
            for failure in dataset.failures
        ),
        featuriser=", ".join(_union((dataset.featuriser,) for dataset in datasets)),
        notices=_union(dataset.notices for dataset in datasets),
    )


def _describe_columns(dataset: Dataset, what: str) -> str:
    if what == "kind":
        return dataset.kind
    names = {"node labels": "node_labels", "node attributes": "node_attributes", "edge attributes": "edge_attr"}
    array: Array | None = getattr(dataset, names[what])
    if array is None:
        return "none"
    kind = "" if array.dtype.kind in "iuf" else " of text"
    return f"{array.shape[1]} columns{kind}"


def _union(groups: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in groups for name in group))


def _concatenate_arrays(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


def _concatenate_texts(parts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(text for part in parts for text in part)


def _classes(dataset: Dataset, names: tuple[str, ...]) -> NDArray[np.int64]:
    if dataset.classes is None:
        return np.full(len(dataset), -1, dtype=np.int64)
    return np.array([*(names.index(name) for name in dataset.class_names), -1])[dataset.classes]


def _targets(dataset: Dataset, names: tuple[str, ...]) -> NDArray[np.float32]:
    targets = np.full((len(dataset), len(names)), np.nan, dtype=np.float32)
    if dataset.targets is not None:
        targets[:, [names.index(name) for name in dataset.target_names]] = dataset.targets
    return targets


def _row_of_graph(dataset: Dataset) -> NDArray[np.int64]:
    return np.arange(len(dataset)) if dataset.row_of_graph is None else dataset.row_of_graph
