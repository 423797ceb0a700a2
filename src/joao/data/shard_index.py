"""What a store of shards says of itself: ``index.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from joao.data.form import KINDS
from joao.data.shard_facts import Facts
from joao.errors import UserError, believed
from joao.files import attempt

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
        with attempt(path, "cannot be read"):
            content = path.read_bytes()
        with believed(f"{path}: is damaged", "Pack the graphs again."):
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


def holds_shards(folder: Path) -> bool:
    """Whether a folder is a store, also one that is not finished."""
    try:
        with (folder / INDEX).open("rb") as stream:
            return FORMAT_KEY.encode() in stream.read(200)
    except OSError:
        return False


def damage(folder: Path, what: str) -> UserError:
    """A store that was found to be wrong while it was used."""
    return UserError(f"{folder}: is damaged ({what}). To find out more: joao data {folder} --check")
