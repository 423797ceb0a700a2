"""The files of an OGB data set, in a folder or zip file, read a few megabytes at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joao.core.errors import UserError
from joao.data.formats.text import READ_ERRORS, Member, file_member, names_in_zip, number_chunks, open_gzip, open_zip

SIZES = "raw/num-node-list"
# What the archives are called that OGB's own package downloads and renames.
_DOWNLOADS = {
    "ogbg_ppi_medium": "ogbg-ppa",
    "code": "ogbg-code",
    "code2": "ogbg-code2",
    "lipophilicity": "ogbg-mollipo",
    **{name: f"ogbg-mol{name}" for name in ("bace", "bbbp", "chembl", "clintox", "esol", "freesolv", "hiv", "muv")},
    **{name: f"ogbg-mol{name}" for name in ("pcba", "sider", "tox21", "toxcast")},
}


def archive_stems(name: str) -> list[str]:
    """What the folder or archive of a data set may be called, without a suffix.

    >>> archive_stems("ogbg-ppa")
    ['ogbg_ppa', 'ogbg_ppi_medium']
    """
    return [name.replace("-", "_"), *(stem for stem, other in _DOWNLOADS.items() if other == name)]


def _name_from_stem(stem: str) -> str:
    return _DOWNLOADS.get(stem, stem.replace("_", "-", 1) if stem.startswith("ogbg_") else stem)


@dataclass(frozen=True)
class OgbFiles:
    """Files by their names without ``.csv.gz``, such as ``raw/edge``.

    Attributes:
        path: of the folder or zip file.
        name: of the data set, as OGB calls it.
        members: the compressed files.
    """

    path: Path
    name: str
    members: Mapping[str, Member]

    def __contains__(self, file: str) -> bool:
        return file in self.members

    def place(self, file: str) -> str:
        return f"{self.path}: {file}.csv.gz"

    @contextmanager
    def stream(self, file: str) -> Iterator[IO[bytes]]:
        """The text of a file, which must be there."""
        if file not in self.members:
            raise UserError(f"{self.path}: has no {file}.csv.gz, which an OGB data set of its kind has.")
        try:
            with self.members[file].open() as packed, open_gzip(packed, self.members[file].size) as text:
                yield text
        except READ_ERRORS as error:
            raise UserError(f"{self.place(file)} cannot be read ({error}). Copy it again.") from error

    @contextmanager
    def rows(self, file: str, dtype: DTypeLike, columns: int | None) -> Iterator[Rows]:
        """The numbers of a file, which must be there; see :class:`Rows`."""
        with self.stream(file) as stream:
            yield Rows(self.place(file), number_chunks(stream, self.place(file), dtype, columns))

    def numbers(self, file: str) -> NDArray[np.int64]:
        """``(n,)`` of a file with one whole number a line."""
        with self.stream(file) as stream:
            parts = [part[:, 0] for part in number_chunks(stream, self.place(file), np.int64, columns=1)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def cells(self, file: str) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of a table with commas; a blank line has none."""
        with self.stream(file) as stream:
            reader = csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline=""), strict=True)
            try:
                for cells in reader:
                    yield reader.line_num, cells
            except (csv.Error, UnicodeDecodeError) as error:
                raise UserError(
                    f"{self.place(file)} line {reader.line_num + 1}: not a table with commas ({error})."
                ) from error


class Rows:
    """Rows of numbers, to be taken in order."""

    def __init__(self, place: str, chunks: Iterator[NDArray[Any]]) -> None:
        self.place, self.chunks = place, chunks
        self.rest = next(chunks, np.zeros((0, 1)))
        self.columns: int = self.rest.shape[1]
        self.taken = 0

    def take(self, number: int) -> NDArray[Any]:
        """The next ``number`` rows."""
        parts, found = [self.rest[:number]], min(number, len(self.rest))
        self.rest = self.rest[found:]
        while found < number:
            chunk = next(self.chunks, None)
            if chunk is None:
                raise UserError(f"{self.place} has {self.taken + found} lines, fewer than its graphs need.")
            parts.append(chunk[: number - found])
            self.rest = chunk[number - found :]
            found += len(parts[-1])
        self.taken += number
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def finish(self) -> None:
        """An error where rows are left over."""
        if len(self.rest) or next(self.chunks, None) is not None:
            raise UserError(f"{self.place} has more than the {self.taken} lines that its graphs need.")


def is_ogb(path: Path) -> bool:
    """Whether ``path`` is a folder or zip file with the raw files of an OGB data set of graphs."""
    if path.is_dir():
        return (path / f"{SIZES}.csv.gz").is_file()
    return any(PurePosixPath(name).match(f"{SIZES}.csv.gz") for name in names_in_zip(path))


def dataset_name(path: Path) -> str:
    """The name of the data set in ``path``, of which :func:`is_ogb` holds."""
    try:
        with open_ogb(path) as files:
            return files.name
    except UserError:  # reading it will tell
        return _name_from_stem(path.stem if path.suffix == ".zip" else path.name)


@contextmanager
def open_ogb(path: Path) -> Iterator[OgbFiles]:
    """The files of the one data set in a folder or zip file."""
    if path.is_dir():
        files = {
            _strip_suffix(file.relative_to(path).as_posix()): file_member(file) for file in path.glob("*/**/*.csv.gz")
        }
        yield OgbFiles(path, _name_from_stem(path.name), files)
        return
    with open_zip(path) as members:
        roots = [
            name.removesuffix(f"{SIZES}.csv.gz")
            for name in members
            if PurePosixPath(name).match(f"{SIZES}.csv.gz") and "__MACOSX" not in name
        ]
        if len(roots) != 1:
            raise UserError(f"{path}: holds {len(roots)} files {SIZES}.csv.gz; an OGB data set has one.")
        inner = {
            _strip_suffix(name.removeprefix(roots[0])): member
            for name, member in members.items()
            if name.startswith(roots[0]) and name.endswith(".csv.gz")
        }
        inside = PurePosixPath(roots[0]).name
        known = path.stem if path.stem in _DOWNLOADS or path.stem.startswith("ogbg") else inside or path.stem
        yield OgbFiles(path, _name_from_stem(known), inner)


def _strip_suffix(name: str) -> str:
    return name.removesuffix(".csv.gz")
