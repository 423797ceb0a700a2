"""The index of a store of shards (``index.json``): its files, and a summary of all graphs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError, user_error_on_failure
from joao.core.files import open_regular, parse_json, read_regular, user_error_on_os_error
from joao.core.registry import check_value, make_record
from joao.data.dataset import ColumnFacts, Dataset
from joao.data.validation import KINDS

# When data sets are merged, these are added, and of those the maximum is taken.
_ADDED = ("graphs", "nodes", "edges", "failures")
_LARGEST = ("most_nodes", "most_edges", "most_degree", "num_edge_features", "has_names", "has_smiles")


@dataclass(frozen=True)
class Facts:
    """Summary of the graphs of a data set.

    Attributes:
        kind: as in :class:`joao.data.Dataset`.
        label_values: sorted values of each column of node labels; None without labels.
        attributes: statistics of each column of node attributes; None without attributes.
        num_edge_features: number of columns of edge attributes; 0 if there are no edges.
        graphs, nodes, edges: numbers of graphs, nodes and undirected edges.
        failures: number of rows that are not graphs.
        most_nodes, most_edges, most_degree: maxima over graphs, graphs and nodes.
        class_names, target_names: in the order of their first occurrence.
        has_names, has_smiles: whether any graph has a name, and a SMILES.
        featuriser: name and version of the code that converted the molecules.
    """

    kind: str
    label_values: tuple[tuple[int | str, ...], ...] | None
    attributes: tuple[ColumnFacts, ...] | None
    num_edge_features: int
    graphs: int
    nodes: int
    edges: int
    failures: int
    most_nodes: int
    most_edges: int
    most_degree: int
    class_names: tuple[str, ...]
    target_names: tuple[str, ...]
    has_names: bool
    has_smiles: bool
    featuriser: str

    @classmethod
    def of(cls, dataset: Dataset) -> Facts:
        return cls(
            kind=dataset.kind,
            label_values=dataset.label_values,
            attributes=dataset.attribute_facts,
            num_edge_features=0 if dataset.edge_attr is None else dataset.edge_attr.shape[1],
            graphs=len(dataset),
            nodes=dataset.num_nodes,
            edges=dataset.num_edges,
            failures=len(dataset.failures),
            most_nodes=int(np.diff(dataset.first_node).max()),
            most_edges=int(np.diff(dataset.first_edge).max()) // 2,
            most_degree=int(dataset.degrees.max()),
            class_names=dataset.class_names,
            target_names=dataset.target_names,
            has_names=bool(dataset.graph_names),
            has_smiles=bool(dataset.smiles),
            featuriser=dataset.featuriser,
        )

    def merge(self, other: Facts) -> Facts:
        """Summary of both data sets, which must have the same columns."""
        theirs = other._described()
        for what, one in self._described().items():
            may_differ = what == "edge attributes" and not (self.edges and other.edges)
            if one != theirs[what] and not may_differ:
                raise UserError(
                    f"graph {self.graphs} and later ones differ from earlier ones in {what}: {theirs[what]}, "
                    f"expected {one}"
                )
        merged: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        merged |= {name: max(getattr(self, name), getattr(other, name)) for name in _LARGEST}
        for name in ("class_names", "target_names"):
            merged[name] = tuple(dict.fromkeys(getattr(self, name) + getattr(other, name)))
        if self.label_values is not None:
            columns = zip(self.label_values, other.label_values or (), strict=True)
            merged["label_values"] = tuple(tuple(sorted({*one, *another})) for one, another in columns)
        if self.attributes is not None:
            merged["attributes"] = tuple(map(ColumnFacts.merge, self.attributes, other.attributes or ()))
        if other.featuriser not in self.featuriser.split("; "):
            merged["featuriser"] = f"{self.featuriser}; {other.featuriser}"
        return replace(self, **merged)

    def _described(self) -> dict[str, str]:
        labels = "none"
        if self.label_values is not None:
            is_text = any(isinstance(value, str) for column in self.label_values for value in column)
            labels = f"{len(self.label_values)} columns{' of text' if is_text else ''}"
        attributes = "none" if self.attributes is None else f"{len(self.attributes)} columns"
        edges = f"{self.num_edge_features or 'no'} columns"
        return {"kind": self.kind, "node labels": labels, "node attributes": attributes, "edge attributes": edges}

    def check(self) -> None:
        """Raise ValueError for values that :meth:`of` and :meth:`merge` do not give."""
        counts = [getattr(self, name) for name in (*_ADDED, *_LARGEST)]
        is_sorted = all(column and list(column) == sorted({*column}) for column in self.label_values or ())
        is_scaled = all(each.count > 0 <= each.deviation and each.least <= each.most for each in self.attributes or ())
        if self.kind not in KINDS or not (0 <= min(counts) <= max(counts) < 1 << 40 and is_sorted and is_scaled):
            raise ValueError("the summary of the graphs is invalid")


INDEX, OFFSETS, FAILURES = "index.json", "offsets.safetensors", "failures.csv"
FORMAT = 1
FORMAT_KEY = "joao.shards"


@dataclass(frozen=True)
class ShardInfo:
    """Entry of a shard, made from ``rows`` rows of source number ``source``; ``edges`` are directed."""

    file: str
    bytes: int
    checksum: str
    fingerprint: str
    graphs: int
    nodes: int
    edges: int
    source: int
    rows: int


@dataclass(frozen=True)
class Index:
    """Contents of ``index.json``; ``origin`` is a hash of sources and options, needed to continue a store."""

    name: str
    complete: bool
    facts: Facts | None
    notices: tuple[str, ...]
    origin: str
    offsets: str
    shards: tuple[ShardInfo, ...]

    @property
    def num_failures(self) -> int:
        """Number of failed rows, including those that were not kept."""
        return sum(each.rows - each.graphs for each in self.shards)

    @classmethod
    def read(cls, folder: Path) -> Index:
        path = folder / INDEX
        with user_error_on_os_error(path, "cannot be read"):
            content = read_regular(path)
        with user_error_on_failure(f"{path}: is damaged", "Pack the graphs again."):
            values = parse_json(content)
            number = check_value(values.pop(FORMAT_KEY), int, f"{path}: {FORMAT_KEY}")
            if number > FORMAT:
                raise UserError(f"{path}: format {number} is newer than this version of joao. Update joao.")
            index = make_record(cls, values, str(path))
            index.check()
        return index

    def check(self) -> None:
        """Raise ValueError if the entries are invalid or inconsistent."""
        for number, each in enumerate(self.shards):
            counts = each.graphs, each.nodes, each.edges, each.rows, each.bytes, each.source
            if min(counts) < 0 or not 0 < each.graphs <= each.nodes:
                raise ValueError(f"shard {number} has an invalid size")
            if each.file != shard_name(number) or max(counts) >= 1 << 32:
                raise ValueError(f"shard {number} has a wrong name or is too large")
        facts = self.facts
        totals = (facts.graphs, facts.nodes, 2 * facts.edges) if facts is not None else (0, 0, 0)
        if totals != tuple(sum(getattr(each, name) for each in self.shards) for name in ("graphs", "nodes", "edges")):
            raise ValueError("the sums over the shards are wrong")
        if facts is not None:
            facts.check()

    def as_json(self) -> dict[str, Any]:
        return {FORMAT_KEY: FORMAT, **asdict(self)}


def shard_name(number: int) -> str:
    return f"shard-{number:05}.safetensors"


def is_shard_store(folder: Path) -> bool:
    """Whether a folder is a store of shards, complete or not."""
    try:
        with open_regular(folder / INDEX) as stream:
            return FORMAT_KEY.encode() in stream.read(200)
    except OSError:
        return False


def damage_error(folder: Path, what: str) -> UserError:
    """Error for a damaged store."""
    return UserError(f"{folder}: is damaged ({what}). For details: joao data {folder} --check")
