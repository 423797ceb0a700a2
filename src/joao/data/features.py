"""Node features by a rule of :data:`RULES`, described in docs/data-formats.md.

A rule is fitted on one data set and applied to others, which get the same columns. Features are computed once, on the
graphs as read: augmentations do not recompute degrees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from joao.core.errors import UserError, suggest
from joao.core.graphs import GraphBatch, GraphStore
from joao.core.memory import Budget
from joao.data.dataset import ColumnFacts, Dataset, select_items
from joao.data.molecules import to_ogb_codes
from joao.data.shards.shards import Shards
from joao.data.sources import read_whole

MAX_DEGREE_LIMIT = 10_000
_MAX_LOOKUP = 1 << 10
_BATCH_GRAPHS = 128
_WALKS = range(2, 10)
_WALK_BLOCK = 1 << 20  # numbers
_SMALLEST_DEVIATION = 1e-6  # of a column of walks; rounding causes less
# Rules whose features are codes of categories, and the kind of data that they need. ``molecules`` with SMILES can be
# converted to ``ogb_molecules``.
CODE_RULES = {"atoms": "molecules", "ogb_atoms": "ogb_molecules", "syntax_nodes": "syntax_trees"}
RULE_OF_KIND = {kind: rule for rule, kind in CODE_RULES.items()}
_PLAIN_RULES = ("auto", "labels", "attributes", "labels_and_attributes", "degree", "constant")
RULES = (*_PLAIN_RULES, "with_degree", "random_walks", *CODE_RULES)


@dataclass(frozen=True)
class Features:
    """A rule fitted on a data set.

    Attributes:
        rule: one of :data:`RULES` except ``auto``.
        vocabulary: known values of each label column.
        shift, scale: standardisation of each attribute column, then of each column of random walks.
        max_degree: larger degrees count as this one.
    """

    rule: str
    vocabulary: tuple[tuple[int | str, ...], ...] = ()
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    max_degree: int = 64

    @property
    def as_ogb(self) -> bool:
        """Whether molecules need OGB's codes (:class:`~joao.data.molecules.ReadOptions`)."""
        return self.rule == "ogb_atoms"

    @classmethod
    def from_dataset(cls, dataset: Dataset | Shards, rule: str = "auto", max_degree: int = 64) -> Features:
        """Fit ``rule`` on ``dataset``; for shards, use the summary in their index."""
        if rule not in RULES:
            raise UserError(f"features: unknown rule '{rule}'. {suggest(rule, RULES)}")
        if not 1 <= max_degree <= MAX_DEGREE_LIMIT:
            raise UserError(f"features: max_degree must be between 1 and {MAX_DEGREE_LIMIT}, got {max_degree}.")
        is_converted = rule == "ogb_atoms" and dataset.kind == "molecules" and isinstance(dataset, Dataset)
        if rule in CODE_RULES and dataset.kind != CODE_RULES[rule] and not is_converted:
            needed = CODE_RULES[rule]
            raise UserError(f"{dataset.name}: features '{rule}' need {needed}, got {dataset.kind}. Use 'auto'.")
        if rule == "auto":
            rule = RULE_OF_KIND.get(dataset.kind) or _best_available(dataset)
        columns = _best_available(dataset) if rule in ("with_degree", "random_walks") else rule
        if "labels" in columns and dataset.kind == "syntax_trees":
            raise UserError(
                f"{dataset.name}: features '{rule}' would need one column per attribute of a program. Use 'auto' with "
                "encoder syntax_gin."
            )
        vocabulary: tuple[tuple[int | str, ...], ...] = ()
        scales: list[tuple[float, float]] = []
        if "labels" in columns:
            known = dataset.label_values
            if known is None:
                raise UserError(f"{dataset.name}: features '{rule}' need node labels. Use 'auto'.")
            vocabulary = known
        if "attributes" in columns:
            attributes = dataset.attribute_facts
            if attributes is None:
                raise UserError(f"{dataset.name}: features '{rule}' need node attributes. Use 'auto'.")
            scales = [column.shift_and_scale for column in attributes]
        if rule == "random_walks":
            scales += _scale_walks(dataset.pieces() if isinstance(dataset, Shards) else [dataset])
        return cls(rule, vocabulary, tuple(each[0] for each in scales), tuple(each[1] for each in scales), max_degree)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Features:
        """The reverse of ``dataclasses.asdict`` after a round trip through JSON."""
        features = cls(
            rule=fields["rule"],
            vocabulary=tuple(tuple(column) for column in fields["vocabulary"]),
            shift=tuple(map(float, fields["shift"])),
            scale=tuple(map(float, fields["scale"])),
            max_degree=fields["max_degree"],
        )
        features.check()
        return features

    def check(self) -> None:
        """Raise a ValueError for values that :meth:`from_dataset` does not give."""
        for column in self.vocabulary:
            kinds = {type(value) for value in column}
            if not column or kinds not in ({int}, {str}) or list(column) != sorted({*column}):
                raise ValueError("a vocabulary is not in order")
            if kinds == {int} and max(abs(int(value)) for value in column) >= 1 << 63:
                raise ValueError("a label is too large")
        is_number = type(self.max_degree) is int and 1 <= self.max_degree <= MAX_DEGREE_LIMIT
        is_scale = len(self.shift) == len(self.scale) and 0.0 not in self.scale
        has_columns = self.rule in RULES[1:] and all(
            values for name, values in (("labels", self.vocabulary), ("attributes", self.shift)) if name in self.rule
        )
        has_columns = has_columns and (self.rule != "random_walks" or len(self.shift) >= len(_WALKS))
        if not (has_columns and is_number and is_scale and np.isfinite(self.shift + self.scale).all()):
            raise ValueError(f"invalid features of rule {self.rule!r}")

    @property
    def width(self) -> int | None:
        """Number of columns; None for codes, whose number depends on the data."""
        degrees = self.max_degree + 1
        if self.rule in CODE_RULES:
            return None
        if self.rule in ("constant", "degree"):
            return 1 if self.rule == "constant" else degrees
        own = sum(map(len, self.vocabulary)) + len(self.shift)
        if self.rule == "random_walks":
            return own if self._has_own_columns else own + degrees
        return (own or 1) + 1 + degrees if self.rule == "with_degree" else own

    @property
    def _num_attributes(self) -> int:
        return len(self.shift) - (len(_WALKS) if self.rule == "random_walks" else 0)

    @property
    def _has_own_columns(self) -> bool:
        return bool(self.vocabulary) or self._num_attributes > 0

    def columns(self, dataset: Dataset) -> torch.Tensor:
        """Compute the node features ``(N, d)`` of ``dataset``; bytes if all columns are one-hot."""
        # Training keeps a byte or a number, and about six numbers with gradients for the nodes of a batch.
        num_batch_nodes = int(np.sort(np.diff(dataset.first_node))[-_BATCH_GRAPHS:].sum())
        what = f"{self.width} columns of features for {dataset.num_nodes} nodes"
        size = 4 if self.shift or self.rule == "with_degree" else 1
        needed = (self.width or 0) * (size * dataset.num_nodes + 24 * num_batch_nodes)
        Budget(dataset.name, dataset.num_bytes).take(needed, what)
        if self.rule == "constant":
            return torch.ones(dataset.num_nodes, 1, dtype=torch.uint8)
        if self.rule == "degree":
            return self._degree_columns(dataset)
        if self.rule in CODE_RULES:
            kind = CODE_RULES[self.rule]
            if dataset.kind != kind or dataset.node_labels is None:
                fix = f"Use an encoder that was pre-trained on {dataset.kind}."
                raise UserError(f"{dataset.name}: the encoder was trained on {kind}, got {dataset.kind}. {fix}")
            return torch.from_numpy(dataset.node_labels)
        parts = [self._label_columns(dataset), self._attribute_columns(dataset)]
        if self.rule == "with_degree":
            if not self._has_own_columns:
                parts.append(torch.ones(dataset.num_nodes, 1))
            parts += [torch.from_numpy(dataset.degrees)[:, None], self._degree_columns(dataset)]
        if self.rule == "random_walks":
            if not self._has_own_columns:
                parts.append(self._degree_columns(dataset))
            parts.append(self._standardise(return_probabilities(dataset), slice(-len(_WALKS), None)))
        blocks = [part for part in parts if part is not None]
        if len(blocks) == 1:
            return blocks[0]
        columns, end = torch.empty(dataset.num_nodes, sum(part.shape[1] for part in blocks)), 0
        for part in blocks:
            end += part.shape[1]
            columns[:, end - part.shape[1] : end] = part
        return columns

    def unknown_labels(self, dataset: Dataset | Shards) -> int:
        """Number of node labels that are not in the vocabulary: those get all-zero columns or, without any, none."""
        if not self.vocabulary and self.rule not in ("random_walks", "with_degree"):
            return 0  # other rules that use labels have a vocabulary
        if isinstance(dataset, Shards):
            values = dataset.label_values or ()
            is_known = all({*column} <= {*known} for column, known in zip(values, self.vocabulary, strict=False))
            has_more = bool(values) and not self.vocabulary
            return sum(map(self.unknown_labels, dataset.pieces())) if has_more or not is_known else 0
        if dataset.node_labels is not None and not self.vocabulary:
            return dataset.node_labels.size
        if dataset.node_labels is None or dataset.node_labels.shape[1] != len(self.vocabulary):
            return 0
        columns = zip(dataset.node_labels.T, self.vocabulary, strict=True)
        return sum(int((_label_codes(column, known) < 0).sum()) for column, known in columns)

    def _degree_columns(self, dataset: Dataset) -> torch.Tensor:
        degrees = torch.from_numpy(np.minimum(dataset.degrees, self.max_degree))
        return _one_hot(degrees, self.max_degree + 1)

    def _label_columns(self, dataset: Dataset) -> torch.Tensor | None:
        if not self.vocabulary:
            return None
        labels = _with_columns(dataset, "node labels", dataset.node_labels, len(self.vocabulary))
        parts = []
        for column, known in zip(labels.T, self.vocabulary, strict=True):
            if (column.dtype == object) != isinstance(known[0], str):
                raise UserError(
                    f"{dataset.name}: node labels such as '{column[0]}' and the known labels, such as '{known[0]}', "
                    "have different types."
                )
            parts.append(_codes_one_hot(column, known))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _attribute_columns(self, dataset: Dataset) -> torch.Tensor | None:
        number = self._num_attributes
        if not number:
            return None
        attributes = _with_columns(dataset, "node attributes", dataset.node_attributes, number)
        return self._standardise(attributes, slice(number))

    def _standardise(self, rows: NDArray[np.floating], columns: slice) -> torch.Tensor:
        return (torch.from_numpy(rows) - torch.tensor(self.shift[columns])) / torch.tensor(self.scale[columns])


def return_probabilities(dataset: Dataset) -> NDArray[np.float32]:
    r"""Probability that a random walk of 2 to 9 steps ends at the node where it started, ``(N, 8)``.

    .. math:: (P^k)_{vv}, \quad P = D^{-1} A, \quad k = 2, \dots, 9

    Memory is bounded; time is proportional to nodes times edges of each graph.
    """
    returned = np.zeros((dataset.num_nodes, len(_WALKS)), dtype=np.float32)
    order = np.argsort(np.diff(dataset.first_node), kind="stable")
    sizes = np.diff(dataset.first_node)[order]
    # Graphs of similar size share a block-diagonal P. As they do not interact, column j starts at node j of each graph.
    blocks = np.stack([np.frexp(sizes)[1], np.cumsum(sizes**2) // _WALK_BLOCK])
    for graphs in np.split(order, 1 + np.flatnonzero(np.diff(blocks).any(axis=0))):
        nodes, first_node = select_items(dataset.first_node, graphs)
        edges, first_edge = select_items(dataset.first_edge, graphs)
        shift = np.repeat(first_node[:-1], np.diff(first_edge))
        source, target = dataset.source[edges] + shift, dataset.target[edges] + shift
        probabilities = (1 / dataset.degrees[nodes][source]).astype(np.float32)
        step = csr_array((probabilities, (source, target)), shape=(len(nodes), len(nodes)))
        inside = np.arange(len(nodes)) - np.repeat(first_node[:-1], np.diff(first_node))
        width = max(1, _WALK_BLOCK // max(1, len(nodes)))
        for start in range(0, int(inside.max(initial=-1)) + 1, width):
            rows = np.flatnonzero((start <= inside) & (inside < start + width))
            columns = inside[rows] - start
            # Column j holds the probabilities of reaching the start nodes from all nodes: first P^0, then P^1, ...
            power = np.zeros((len(nodes), columns.max() + 1), dtype=np.float32)
            power[rows, columns] = 1
            power = step @ power
            for number in range(len(_WALKS)):
                power = step @ power
                returned[nodes[rows], number] = power[rows, columns]
    return returned


def _scale_walks(pieces: Iterable[Dataset]) -> list[tuple[float, float]]:
    """Shift and scale of each column of random walks."""
    each = (list(map(ColumnFacts.of, return_probabilities(piece).T.astype(np.float64))) for piece in pieces)
    facts = reduce(lambda one, other: list(map(ColumnFacts.merge, one, other)), each)
    scales = [column.shift_and_scale for column in facts]
    return [(shift, scale if scale > _SMALLEST_DEVIATION else 1.0) for shift, scale in scales]


def make_store(dataset: Dataset, features: Features) -> GraphStore:
    """Make a store of the graphs of ``dataset``, with ``features`` as ``x``."""
    if features.as_ogb and dataset.kind == "molecules":
        dataset = to_ogb_codes(dataset)
    return GraphStore(
        x=features.columns(dataset),
        source=_node_numbers(dataset.source),
        target=_node_numbers(dataset.target),
        first_node=torch.from_numpy(dataset.first_node),
        first_edge=torch.from_numpy(dataset.first_edge),
        edge_attr=None if dataset.edge_attr is None else torch.from_numpy(dataset.edge_attr),
    )


def batch_of(source: Any) -> GraphBatch:
    """Return all graphs of ``source``, anything that :func:`joao.read` takes, as one batch with features ``auto``.

    Useful for trying out an augmentation, an encoder or an objective.

    >>> import networkx
    >>> batch = batch_of([networkx.path_graph(3), networkx.cycle_graph(4)])
    >>> batch.num_graphs, batch.num_nodes, batch.x.argmax(dim=1).tolist()  # degrees
    (2, 7, [1, 2, 1, 2, 2, 2, 2])
    """
    dataset = read_whole(source)
    return make_store(dataset, Features.from_dataset(dataset)).batch(torch.arange(len(dataset)))


def _node_numbers(numbers: NDArray[np.integer]) -> torch.Tensor:
    """Convert to a tensor; torch hardly supports unsigned integers of more than 8 bits."""
    wider = {"uint16": np.int32, "uint32": np.int64}.get(numbers.dtype.name)
    return torch.from_numpy(numbers if wider is None else numbers.astype(wider))


def _best_available(dataset: Dataset | Shards) -> str:
    columns = {"labels": dataset.label_values, "attributes": dataset.attribute_facts}
    return "_and_".join(what for what, known in columns.items() if known is not None) or "degree"


def _with_columns(dataset: Dataset, what: str, rows: NDArray[Any] | None, expected: int) -> NDArray[Any]:
    """Return ``rows``, or raise an error if the number of columns differs."""
    width = 0 if rows is None else rows.shape[1]
    if rows is None or width != expected:
        raise UserError(
            f"{dataset.name}: {width} columns of {what}, expected {expected}. "
            "Use graphs like those of the pre-training, or pre-train on these."
        )
    return rows


def _one_hot(codes: torch.Tensor, width: int) -> torch.Tensor:
    columns = torch.zeros(codes.numel(), width, dtype=torch.uint8)
    return columns.scatter_(1, codes[:, None], 1)


def _label_codes(column: NDArray[Any], known: tuple[int | str, ...]) -> NDArray[np.int64]:
    """Index of each label among the ``known`` ones; -1 for others."""
    if column.dtype == object:
        number = {value: position for position, value in enumerate(known)}
        return np.fromiter((number.get(text, -1) for text in column.tolist()), dtype=np.int64, count=len(column))
    if isinstance(known[0], str):
        return np.full(len(column), -1)
    values = np.array(known, dtype=np.int64)
    codes = np.minimum(np.searchsorted(values, column), len(values) - 1)
    return np.where(values[codes] == column, codes, -1)


def _codes_one_hot(column: NDArray[Any], known: tuple[int | str, ...]) -> torch.Tensor:
    if column.dtype != object:
        values = np.array(known, dtype=np.int64)
        if values[0] >= 0 and values[-1] < _MAX_LOOKUP and column.min(initial=0) >= 0:
            # A lookup table with a row per value, and a row of zeros for larger values, is several times faster.
            table = np.zeros((values[-1] + 2, len(values)), dtype=np.uint8)
            table[values, np.arange(len(values))] = 1
            return torch.from_numpy(table.take(np.minimum(column, values[-1] + 1), axis=0))
    codes = torch.from_numpy(_label_codes(column, known))
    return _one_hot(codes.clamp(min=0), len(known)) * (codes >= 0)[:, None]
