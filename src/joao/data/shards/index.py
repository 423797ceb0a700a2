"""What is known of the graphs of a store without reading them: counts, and what rules of features are fixed on.

What a store of shards says of itself: ``index.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError, user_error_on_failure
from joao.core.files import user_error_on_os_error
from joao.data.dataset import ColumnFacts, Dataset, attribute_facts, label_values
from joao.data.validation import KINDS


@dataclass(frozen=True)
class Facts:
    """What graphs have in common, and what they have together.

    Attributes:
        kind: as a data set has it, ``graphs``, ``molecules`` and so on.
        label_values: of each column of node labels, the values there are, ascending; None without labels.
        attributes: of each column of node attributes; None without any.
        num_edge_features: columns of edge attributes; of graphs without edges nobody can say, and it is 0.
        graphs, nodes, edges: how many; edges are undirected.
        failures: rows that gave no graph.
        most_nodes, most_edges, most_degree: of a graph, a graph and a node.
        class_names, target_names: in the order in which they came up.
        has_names, has_smiles: whether any graphs have names, and SMILES.
        featuriser: what made molecules.
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
            label_values=label_values(dataset),
            attributes=attribute_facts(dataset),
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
        """Of the graphs of both, whose nodes and edges must be described alike."""
        for what, one, another in zip(_DESCRIBED, self._described(), other._described(), strict=True):
            may_differ = what == "edge attributes" and not (self.edges and other.edges)
            if one != another and not may_differ:
                raise UserError(
                    f"graphs from {self.graphs} on differ from those before in {what}: {another}, not {one}"
                )
        added = {name: getattr(self, name) + getattr(other, name) for name in ("graphs", "nodes", "edges", "failures")}
        columns = zip(self.label_values or (), other.label_values or (), strict=True)
        labels = tuple(tuple(sorted({*one, *another})) for one, another in columns)
        attributes = zip(self.attributes or (), other.attributes or (), strict=True)
        most = ("most_nodes", "most_edges", "most_degree", "num_edge_features", "has_names", "has_smiles")
        return Facts(
            kind=self.kind,
            label_values=None if self.label_values is None else labels,
            attributes=None if self.attributes is None else tuple(one.merge(another) for one, another in attributes),
            class_names=tuple(dict.fromkeys((*self.class_names, *other.class_names))),
            target_names=tuple(dict.fromkeys((*self.target_names, *other.target_names))),
            featuriser=self.featuriser
            if other.featuriser in self.featuriser.split("; ")
            else f"{self.featuriser}; {other.featuriser}",
            **added,
            **{name: max(getattr(self, name), getattr(other, name)) for name in most},
        )

    def _described(self) -> tuple[str, str, str, str]:
        labels = "none"
        if self.label_values is not None:
            is_text = any(isinstance(value, str) for column in self.label_values for value in column)
            labels = f"{len(self.label_values)} columns{' of text' if is_text else ''}"
        attributes = "none" if self.attributes is None else f"{len(self.attributes)} columns"
        return self.kind, labels, attributes, f"{self.num_edge_features or 'no'} columns"

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Facts:
        """The reverse of ``dataclasses.asdict``, after JSON has turned tuples into lists."""
        labels, attributes = fields["label_values"], fields["attributes"]
        return cls(
            **fields
            | {
                "label_values": None if labels is None else tuple(map(tuple, labels)),
                "attributes": None if attributes is None else tuple(ColumnFacts(**each) for each in attributes),
                "class_names": tuple(fields["class_names"]),
                "target_names": tuple(fields["target_names"]),
            }
        )


_DESCRIBED = ("kind", "node labels", "node attributes", "edge attributes")


INDEX, OFFSETS, FAILURES = "index.json", "offsets.safetensors", "failures.csv"
FORMAT = 1
FORMAT_KEY = "joao.shards"


@dataclass(frozen=True)
class ShardInfo:
    """What the index says of a shard; ``edges`` are directed. It was made of ``rows`` rows of source ``source``."""

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
    """What stands in ``index.json``; ``origin`` tells of what and how it was packed, for whoever goes on with it."""

    name: str
    complete: bool
    facts: Facts | None
    notices: tuple[str, ...]
    origin: str
    offsets: str
    shards: tuple[ShardInfo, ...]

    @property
    def num_failures(self) -> int:
        """Rows of the sources that gave no graph, whether they are kept or not."""
        return sum(each.rows - each.graphs for each in self.shards)

    @classmethod
    def read(cls, folder: Path) -> Index:
        path = folder / INDEX
        with user_error_on_os_error(path, "cannot be read"):
            content = path.read_bytes()
        with user_error_on_failure(f"{path}: is damaged", "Pack the graphs again."):
            told = json.loads(content)
            if int(told[FORMAT_KEY]) > FORMAT:
                raise UserError(f"{path}: format {told[FORMAT_KEY]} is newer than this version of joao knows.")
            index = cls(
                name=str(told["name"]),
                origin=str(told["origin"]),
                complete=told["complete"] is True,
                facts=None if told["facts"] is None else Facts.from_json(told["facts"]),
                shards=tuple(ShardInfo(**each) for each in told["shards"]),
                notices=tuple(map(str, told["notices"])),
                offsets=str(told["offsets"]),
            )
            index.check()
        return index

    def check(self) -> None:
        """Counts are counts, names are names of files here, and shards and facts agree."""
        for number, each in enumerate(self.shards):
            counts = each.graphs, each.nodes, each.edges, each.rows, each.bytes, each.source
            if not all(type(count) is int and count >= 0 for count in counts) or not 0 < each.graphs <= each.nodes:
                raise ValueError(f"shard {number} has an impossible size")
            if each.file != shard_name(number) or max(counts) >= 1 << 32:
                raise ValueError(f"shard {number} is not called so, or too large")
        facts = self.facts
        told = (facts.graphs, facts.nodes, 2 * facts.edges) if facts is not None else (0, 0, 0)
        if told != tuple(sum(getattr(each, name) for each in self.shards) for name in ("graphs", "nodes", "edges")):
            raise ValueError("shards and counts do not agree")
        if facts is not None and facts.kind not in KINDS:
            raise ValueError(f"unknown kind {facts.kind!r}")

    def as_json(self) -> dict[str, Any]:
        return {FORMAT_KEY: FORMAT, **asdict(self)}


def shard_name(number: int) -> str:
    return f"shard-{number:05}.safetensors"


def is_shard_store(folder: Path) -> bool:
    """Whether a folder is a store, also one that is not finished."""
    try:
        with (folder / INDEX).open("rb") as stream:
            return FORMAT_KEY.encode() in stream.read(200)
    except OSError:
        return False


def damage_error(folder: Path, what: str) -> UserError:
    """A store that was found to be wrong while it was used."""
    return UserError(f"{folder}: is damaged ({what}). To find out more: joao data {folder} --check")
