"""Read text, tables of numbers, compressed files and archives safely. Nothing is ever extracted to disk."""

import csv
import gzip
import io
import lzma
import re
import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joao.core.errors import UserError, short_repr
from joao.core.files import open_regular
from joao.core.memory import Budget
from joao.data.dataset import Array

MAX_FILES = 100_000
_COMPRESSED = (".gz", ".xz")
# Errors raised while reading a damaged file.
READ_ERRORS = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)
Opened = TypeVar("Opened")


class Member(NamedTuple):
    """A file of an archive or folder: how to open it, and the budget of all these files."""

    open: Callable[[], IO[bytes]]
    budget: Budget


class _Unpacked(io.RawIOBase):
    """Decompresses ``packed``, and draws on ``budget``."""

    def __init__(self, packed: IO[bytes], budget: Budget, suffix: str) -> None:
        self._packed, self._budget = packed, budget
        self._stream: Any = gzip.GzipFile(fileobj=packed) if suffix == ".gz" else lzma.LZMAFile(packed)  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._stream.readinto(buffer))
        self._budget.expand(count)
        return count

    def close(self) -> None:
        self._stream.close()
        self._packed.close()
        super().close()


def folder_members(folder: Path, files: Iterable[Path]) -> dict[str, Member]:
    """The ``files`` of a folder, by their names in it."""
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
    budget = Budget(str(folder), sum(sizes.values()))
    return {name: Member(partial(open_regular, folder / name), budget) for name in sizes}


def open_file(path: Path) -> IO[bytes]:
    """Open ``path``; a ``.gz`` or ``.xz`` file is decompressed as it is read, and is not seekable."""
    stream = open_regular(path)
    return stream if path.suffix not in _COMPRESSED else unpack(stream, file_budget(path), path.suffix)


def unpack(packed: IO[bytes], budget: Budget, suffix: str = ".gz") -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Unpacked(packed, budget, suffix), 1 << 20))


def file_budget(path: Path) -> Budget:
    return Budget(str(path), path.stat().st_size)


@contextmanager
def open_zip(path: Path) -> Iterator[dict[str, Member]]:
    """Open an archive and return its files by name.

    Refuses links, names outside the folder, repeated names, and archives that expand too much. Python reads no more of
    a file than the size declared in the archive, so checking the declared sizes suffices.
    """
    try:
        with open_regular(path) as stream, _open_checked(zipfile.ZipFile, stream) as archive:
            members = [each for each in archive.infolist() if each.filename and not each.is_dir()]
            for each in members:
                _check_place(path, each)
            if len(members) > MAX_FILES:
                raise UserError(f"{path}: contains {len(members)} files, expected at most {MAX_FILES}.")
            budget = file_budget(path)
            try:
                budget.expand(sum(each.file_size for each in members))
            except OSError as error:
                raise UserError(f"{path}: {error}.") from error
            by_name = {each.filename: Member(partial(_open_checked, archive.open, each), budget) for each in members}
            if len(by_name) < len(members):
                raise UserError(f"{path}: contains several files of the same name. Get the original archive.")
            yield by_name
    except READ_ERRORS as error:
        raise UserError(f"{path}: cannot be read ({error}). It may be incomplete: copy it again.") from error


def names_in_zip(path: Path) -> list[str]:
    """Names of the files of an archive, unchecked; empty if it cannot be read."""
    try:
        with open_regular(path) as stream, _open_checked(zipfile.ZipFile, stream) as archive:
            return archive.namelist()
    except READ_ERRORS:
        return []


def _open_checked(open_: Callable[[Any], Opened], what: Any) -> Opened:
    """Open an archive, or a file inside it; other errors of a damaged directory become a ``BadZipFile``."""
    try:
        return open_(what)
    except (ValueError, LookupError, struct.error) as error:
        raise zipfile.BadZipFile(str(error)) from error


def _check_place(path: Path, member: zipfile.ZipInfo) -> None:
    name, place = member.filename, PurePosixPath(member.filename)
    if ".." in place.parts or place.is_absolute() or "\\" in name or ":" in name:
        raise UserError(f"{path}: contains {short_repr(name)}, which is outside its folder. Get the original archive.")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise UserError(f"{path}: contains a link, {short_repr(name)}. Get the original archive.")


MAX_LINE_BYTES = 1 << 28  # bytes


def text_lines(path: Path, *, or_latin_1: bool = False) -> Iterator[str]:
    """Read the lines of a text file, optionally ``.gz`` or ``.xz``, with their line ends, without byte-order mark.

    Lines are UTF-8; with ``or_latin_1``, a line that is not is decoded as Latin-1 instead.
    """
    number = 0
    try:
        with open_file(path) as stream:
            for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES), b""), 1):
                if len(line) == MAX_LINE_BYTES:
                    raise UserError(f"{path}:{number}: the line is longer than {MAX_LINE_BYTES >> 20} MB.")
                try:
                    yield line.decode("utf-8" if number > 1 else "utf-8-sig")
                except UnicodeDecodeError:
                    if not or_latin_1:
                        raise
                    yield line.decode("latin-1")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}:{number}: not valid UTF-8 (byte {error.object[error.start]:#x}). Save the file as UTF-8."
        ) from error
    except READ_ERRORS as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error


def table_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row of a CSV file that is not blank.

    Cells are separated by commas or, if the first line has more of them, by semicolons or tabs.
    """
    lines = text_lines(path)
    first = next(lines, "")
    reader = csv.reader(chain([first], lines), strict=True, delimiter=max(",;\t", key=first.count))
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not valid CSV ({error}).") from error


def column_names(path: Path) -> list[str]:
    """Column names of a CSV file; empty for an empty file."""
    return [" ".join(cell.split()) for cell in next(table_rows(path), (1, []))[1]]


def base_name(path: Path) -> str:
    """Name of the file without suffixes, which becomes the name of the data set.

    >>> base_name(Path("here/bonds.csv.gz"))
    'bonds'
    """
    name = path.name.removesuffix(path.suffix) if path.suffix in _COMPRESSED else path.name
    return name.rsplit(".", 1)[0]


_CHUNK_BYTES = 1 << 22
_MAX_NUMBER_LINE_BYTES = 1 << 26  # bytes
_NEWLINE_TO_COMMA = bytes.maketrans(b"\n", b",")
_COMMA, _NEWLINE = b",\n"
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SATURATED = (-(1 << 63), (1 << 63) - 1)


def parse_integer(text: str) -> int | None:
    """Return the 64-bit integer that is written as ``text``; None for other texts, also for 010, +1 and 1_0.

    As an integer has one form only, different texts stay different.
    """
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
    return number if str(number) == text and abs(int(text)) < 1 << 63 else None


def parse_number(text: str) -> float | None:
    """Return the number that is written in ASCII characters; None for other texts, also for 1_0."""
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def read_numbers(stream: IO[bytes], place: str, dtype: DTypeLike) -> Array:
    """Read numbers separated by commas, ``(rows, columns)``; ``(0, 0)`` for an empty file."""
    chunks = list(number_chunks(stream, place, dtype))
    return np.concatenate(chunks) if chunks else np.zeros((0, 0), dtype=dtype)


def number_chunks(
    stream: IO[bytes], place: str, dtype: DTypeLike, columns: int | None = None
) -> Iterator[NDArray[np.generic]]:
    """Read numbers separated by commas, ``(rows, columns)``, a few megabytes at a time. Spaces are ignored.

    ``place`` is the file, for messages; ``columns`` is the expected number, by default that of the first line.
    """
    first_line = 1
    for text in _split_at_lines(stream, place):
        columns = columns or text.split(b"\n", 1)[0].count(b",") + 1
        rows = _parse_numbers(text, dtype, columns)
        if rows is None:
            raise _first_fault(text, place, first_line, columns, np.dtype(dtype).kind == "i")
        yield rows
        first_line += len(rows)


def _split_at_lines(stream: IO[bytes], place: str) -> Iterator[bytes]:
    """Split the text into pieces of whole lines, without the last newline and without blank lines at the end."""
    rest = stream.read(_CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf")
    while block := stream.read(_CHUNK_BYTES):
        text = rest + block
        cut = text.rstrip().rfind(b"\n")
        if cut > 0:
            yield text[:cut]
        rest = text[cut + 1 :]
        if len(rest) > _MAX_NUMBER_LINE_BYTES:
            raise UserError(f"{place} has a line longer than {_MAX_NUMBER_LINE_BYTES >> 20} MB.")
    if last := rest.rstrip():
        yield last


def _parse_numbers(text: bytes, dtype: DTypeLike, columns: int) -> Array | None:
    """Parse ``(rows, columns)``; None if any line does not contain exactly ``columns`` numbers."""
    characters = np.frombuffer(text, dtype=np.uint8)
    separators = characters[np.flatnonzero((characters == _COMMA) | (characters == _NEWLINE))]
    separators = np.append(separators, np.uint8(_NEWLINE))
    if len(separators) % columns or (separators[columns - 1 :: columns] != _NEWLINE).any():
        return None
    if np.count_nonzero(separators == _NEWLINE) * columns != len(separators):
        return None
    # numpy parses an empty field as 0, so empty fields are searched for first.
    compact = text.translate(_NEWLINE_TO_COMMA, delete=b" \t\r")
    if b",," in compact or compact.startswith(b",") or compact.endswith(b","):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # numpy before 2.3 warns about invalid text
            values = np.fromstring(text.translate(_NEWLINE_TO_COMMA), dtype=dtype, sep=",")
    except (ValueError, DeprecationWarning):
        return None
    if values.dtype.kind == "i" and np.isin(values, _SATURATED).any():  # numpy's result for all larger numbers
        return None
    return values.reshape(-1, columns) if len(values) == len(separators) else None


def _first_fault(text: bytes, place: str, first_line: int, columns: int, whole: bool) -> UserError:
    kind = "64-bit integer" if whole else "number"
    for line, row in enumerate(text.decode(errors="replace").split("\n"), first_line):
        fields = [field.strip() for field in row.split(",")]
        if fields == [""]:
            return UserError(f"{place} line {line}: empty line inside the file.")
        for field in fields:
            if not _is_number(field, whole):
                return UserError(f"{place} line {line}: expected a {kind}, got '{field[:40]}'.")
        if len(fields) != columns:
            return UserError(f"{place} line {line}: {len(fields)} numbers, expected {columns}.")
    return UserError(f"{place}: lines {first_line} to {line} are not rows of {columns} {kind}s.")


def _is_number(field: str, whole: bool) -> bool:
    if whole:
        return _WHOLE_NUMBER.fullmatch(field) is not None and _SATURATED[0] < int(field) < _SATURATED[1]
    return parse_number(field) is not None
