"""What OGB's files say beside the graphs: the official split, and the words that ogbg-code2 asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from joao.data._ogb_files import OgbFiles, ogb_files
from joao.errors import UserError

# OGB's words for the parts.
_PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class OfficialSplit:
    """Numbers of graphs to learn from, to choose the epoch with, and to test on.

    Attributes:
        name: what it is by: ``scaffold``, ``species`` or ``project``.
    """

    name: str
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def official_split(path: Path, num_graphs: int) -> OfficialSplit:
    """The split of the data set in the folder or zip file ``path``; no graph is in two parts."""
    with ogb_files(path) as files:
        names = sorted(
            {PurePosixPath(file).parts[1] for file in files.members if file.startswith("split/")} - {*_PARTS}
        )
        if len(names) != 1:
            found = ", ".join(names) or "none"
            raise UserError(f"{path}: expected one split, split/NAME/train.csv.gz and so on, found {found}.")
        parts = [files.numbers(f"split/{names[0]}/{part}") for part in _PARTS]
    for part, graphs in zip(_PARTS, parts, strict=True):
        if not len(graphs):
            raise UserError(f"{path}: the part '{part}' of its split is empty.")
    everything = np.concatenate(parts)
    if everything.min() < 0 or everything.max() >= num_graphs:
        outside = everything[(everything < 0) | (everything >= num_graphs)][0]
        raise UserError(f"{path}: its split has graph {outside}; there are graphs 0 to {num_graphs - 1}.")
    if len(np.unique(everything)) != len(everything):
        values, counts = np.unique(everything, return_counts=True)
        raise UserError(f"{path}: graph {values[np.argmax(counts)]} is in its split more than once.")
    return OfficialSplit(names[0], *parts)


def words_of(path: Path, num_graphs: int) -> list[list[str]]:
    """The words of each graph's name, in order: ``get name`` is two."""
    file = "raw/graph-label"
    with ogb_files(path) as files, files.stream(file) as stream:
        lines = stream.read().splitlines()  # words of 450,000 names are 8 MB
        if len(lines) != num_graphs:
            raise UserError(f"{files.place(file)} has {len(lines)} lines for {num_graphs} graphs.")
        return [_words(files, file, number, line) for number, line in enumerate(lines, 1)]


def _words(files: OgbFiles, file: str, number: int, line: bytes) -> list[str]:
    try:
        return line.decode("utf-8").strip().strip('"').split()
    except UnicodeDecodeError as error:
        raise UserError(f"{files.place(file)} line {number}: not text in UTF-8.") from error
