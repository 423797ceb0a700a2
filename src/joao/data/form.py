"""The form that every data set has, which kernels and splits rely on: checked of files that somebody else made."""

from __future__ import annotations

from itertools import chain

import numpy as np

from joao.atoms import BOND_TYPES, CHIRALITIES, DIRECTIONS, ELEMENTS
from joao.data.base import GRAPHS_AT_ONCE, Dataset
from joao.ogb_codes import ATOMS, BONDS, SYNTAX_COLUMNS

# Columns of nodes and edges; encoders take any numbers in them.
_OF_OGB = {"ogb_molecules": (len(ATOMS), len(BONDS)), "syntax_trees": (SYNTAX_COLUMNS, 1)}
KINDS = ("graphs", "molecules", *_OF_OGB)
# A row for each of what, the kinds of numbers (or text, U) it may have, and its axes.
_FORMS = {
    "source": ("edge", "iu", 1),
    "target": ("edge", "iu", 1),
    "node_labels": ("node", "iuU", 2),
    "node_attributes": ("node", "f", 2),
    "edge_attr": ("edge", "fu", 2),
    "classes": ("graph", "i", 1),
    "targets": ("graph", "f", 2),
    "row_of_graph": ("graph", "i", 1),
    "groups": ("graph", "i", 1),
}


def check_form(dataset: Dataset) -> None:
    """Raises ValueError where ``dataset`` is not what a reader gives."""
    lists = (dataset.class_names, dataset.target_names, dataset.notices)
    texts = (dataset.name, dataset.featuriser, *chain(*lists))
    is_text = all(isinstance(each, tuple) for each in lists) and all(isinstance(text, str) for text in texts)
    if dataset.kind not in KINDS or not is_text:
        raise ValueError("its kind or a name is not one")
    lengths = {"node": dataset.num_nodes, "edge": int(dataset.first_edge[-1]), "graph": len(dataset)}
    for name, (of, kinds, num_axes) in _FORMS.items():
        array = getattr(dataset, name)
        if array is None:
            continue
        is_known = array.dtype.isnative and array.dtype.kind in kinds and array.dtype not in (np.float16, np.float64)
        if not is_known or array.ndim != num_axes or len(array) != lengths[of]:
            raise ValueError(f"{name}: not of the form it should have")
    if any(texts and len(texts) != len(dataset) for texts in (dataset.graph_names, dataset.smiles)):
        raise ValueError("as many names or SMILES as graphs it should have")
    _check_edges(dataset)
    if dataset.kind == "molecules":
        check_molecules(dataset)
    elif dataset.kind in _OF_OGB:
        columns = tuple(each.shape[1] for each in (dataset.node_labels, dataset.edge_attr) if each is not None)
        if columns != _OF_OGB[dataset.kind]:
            raise ValueError("its nodes or edges have other columns than their kind has")
    classes, num_classes = dataset.classes, len(dataset.class_names)
    if classes is not None and (classes.min() < -1 or classes.max() >= num_classes):
        raise ValueError("a class has no name")
    if (0 if dataset.targets is None else dataset.targets.shape[1]) != len(dataset.target_names):
        raise ValueError("as many names as tasks it should have")
    _check_rows(dataset)


def _check_edges(dataset: Dataset) -> None:
    """Both ends are inside their graph and differ; sorted by target and then by source, no edge twice."""
    for first in range(0, len(dataset), GRAPHS_AT_ONCE):  # so that no further list of all edges is made
        nodes, edges = (
            offsets[first : first + GRAPHS_AT_ONCE + 1] for offsets in (dataset.first_node, dataset.first_edge)
        )
        source, target = (ends[edges[0] : edges[-1]] for ends in (dataset.source, dataset.target))
        size = np.repeat(np.diff(nodes).astype(np.uint32), np.diff(edges))
        if any((ends >= size).any() or (ends < 0).any() for ends in (source, target)):
            raise ValueError("an edge leaves its graph")
        if (source == target).any():
            raise ValueError("an edge is a loop")
        is_behind = (target[1:] > target[:-1]) | ((target[1:] == target[:-1]) & (source[1:] > source[:-1]))
        starts = edges[1:-1] - edges[0]
        is_behind[starts[(starts > 0) & (starts < len(source))] - 1] = True  # edges of two graphs
        if not is_behind.all():
            raise ValueError("its edges are not in order")


def check_molecules(dataset: Dataset) -> None:
    """Raises ValueError where atoms or bonds are not the numbers that they should be."""
    bounds = (dataset.node_labels, (ELEMENTS, CHIRALITIES)), (dataset.edge_attr, (BOND_TYPES, DIRECTIONS))
    for codes, most in bounds:
        if codes is None or codes.dtype != np.uint8 or codes.shape[1:] != (2,):
            raise ValueError("its atoms or bonds are not there")
        if any(codes[:, column].max(initial=0) >= bound for column, bound in enumerate(most)):
            raise ValueError("its atoms or bonds are of no known kind")


def _check_rows(dataset: Dataset) -> None:
    """Every row of the source is a graph, in order, or a failure."""
    rows = np.arange(len(dataset)) if dataset.row_of_graph is None else dataset.row_of_graph
    failed = np.array([failure.row for failure in dataset.failures], dtype=np.int64)
    if (np.diff(rows) <= 0).any() or (np.sort(np.append(rows, failed)) != np.arange(len(rows) + len(failed))).any():
        raise ValueError("its rows do not fit together")
