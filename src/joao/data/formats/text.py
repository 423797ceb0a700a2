"""Compressed files and archives, opened so that they neither grow without bound nor reach outside their folder.

What is compressed may be up to :data:`MAX_EXPANSION` times as large once it is not, and always :data:`ALWAYS_ALLOWED_BYTES`.
Published data sets grow two to fifty times; a file made to fill the memory grows a thousand times or more.
Nothing is ever unpacked to disk.


Lines of a text file, plain or compressed, with every way to fail told as a :class:`UserError`.

Tables of numbers in text, a few megabytes at a time.

A line is a row, commas separate its numbers, spaces do not matter: ``1, 2`` and ``8,1`` are both rows of two.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joao.core.errors import UserError, short_repr
from joao.data.dataset import Array

MAX_EXPANSION = 100
ALWAYS_ALLOWED_BYTES = 1 << 26  # bytes
MAX_FILES = 100_000
# What reading may raise, beside errors of the system.
READ_ERRORS = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)


class Member(NamedTuple):
    """A file, of an archive or a folder: what opens it, and its bytes."""

    open: Callable[[], IO[bytes]]
    size: int


class _LimitedStream(io.RawIOBase):
    """The bytes of ``stream``, of which no more than ``most`` may come."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._stream.readinto(buffer))
        self._left -= count
        if self._left < 0:
            raise OSError(_too_large())
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def file_member(path: Path) -> Member:
    """A file that is in no archive."""
    return Member(lambda: path.open("rb"), path.stat().st_size)


def open_file(path: Path) -> IO[bytes]:
    """Opens ``path``; what ends in ``.gz`` or ``.xz`` is expanded as it is read, and cannot be sought in."""
    if path.suffix not in (".gz", ".xz"):
        return path.open("rb")
    kind = gzip.GzipFile if path.suffix == ".gz" else lzma.LZMAFile
    return _limit_size(kind(path), path.stat().st_size)


def open_gzip(packed: IO[bytes], size: int) -> IO[bytes]:
    """Expands ``packed``, ``size`` bytes of gzip, as it is read."""
    return _limit_size(gzip.GzipFile(fileobj=packed), size)


@contextmanager
def open_zip(path: Path) -> Iterator[dict[str, Member]]:
    """The files of an archive, by name: none leaves its folder, is a link, or grows without bound.

    An archive gives no more of a file than the size that it tells, so that looking at these is enough.
    """
    try:
        with _open_archive(path) as archive:
            members = [each for each in archive.infolist() if each.filename and not each.is_dir()]
            for each in members:
                _check_place(path, each)
            if len(members) > MAX_FILES:
                raise UserError(f"{path}: holds {len(members)} files; a data set has a few.")
            if sum(each.file_size for each in members) > _max_size(path.stat().st_size):
                raise UserError(f"{path}: {_too_large()}.")
            yield {each.filename: Member(partial(_open_member, archive, each), each.file_size) for each in members}
    except READ_ERRORS as error:
        raise UserError(f"{path}: cannot be read ({error}). It may be incomplete: copy it again.") from error


def names_in_zip(path: Path) -> list[str]:
    """What an archive says that it holds, unchecked; nothing where it cannot be read."""
    try:
        with _open_archive(path) as archive:
            return archive.namelist()
    except READ_ERRORS:
        return []


def _open_archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (ValueError, LookupError, struct.error) as error:  # of a damaged directory
        raise zipfile.BadZipFile(str(error)) from error


def _open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(member)
    except (ValueError, LookupError, struct.error) as error:
        raise zipfile.BadZipFile(str(error)) from error


def _check_place(path: Path, member: zipfile.ZipInfo) -> None:
    name, place = member.filename, PurePosixPath(member.filename)
    if ".." in place.parts or place.is_absolute() or "\\" in name or ":" in name:
        raise UserError(f"{path}: holds {short_repr(name)}, which leaves its folder. Get the archive from its source.")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise UserError(f"{path}: holds a link, {short_repr(name)}. Get the archive from its source.")


def _limit_size(stream: Any, size: int) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_LimitedStream(stream, _max_size(size)), 1 << 20))


def _max_size(size: int) -> int:
    return max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * size)


def _too_large() -> str:
    return (
        f"grows to more than {MAX_EXPANSION} times its size and {ALWAYS_ALLOWED_BYTES >> 20} MB when it is expanded. "
        "If you trust it, expand it yourself"
    )


_COMPRESSED = (".gz", ".xz")
MAX_LINE_BYTES = 1 << 28  # bytes


def text_lines(path: Path) -> Iterator[str]:
    """The lines of ``path``, which may end in ``.gz`` or ``.xz``, with their ends; a byte-order mark is left out."""
    number = 0
    try:
        with open_file(path) as stream:
            for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES), b""), 1):
                if len(line) == MAX_LINE_BYTES:
                    raise UserError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES >> 20} MB.")
                yield line.decode("utf-8" if number > 1 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not text in UTF-8 (byte {error.object[error.start]:#x}).") from error
    except READ_ERRORS as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error


def table_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row of a table with commas that is not blank."""
    reader = csv.reader(text_lines(path), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not a table with commas ({error}).") from error


def column_names(path: Path) -> list[str]:
    """The first row of a table with commas, which names its columns; none of an empty one."""
    return [" ".join(cell.split()) for cell in next(table_rows(path), (1, []))[1]]


def base_name(path: Path) -> str:
    """The file's name without its suffixes, by which messages and records call the data.

    >>> base_name(Path("here/bonds.csv.gz"))
    'bonds'
    """
    name = path.name.removesuffix(path.suffix) if path.suffix in _COMPRESSED else path.name
    return name.rsplit(".", 1)[0]


_CHUNK_BYTES = 1 << 22
_MAX_NUMBER_LINE_BYTES = 1 << 26  # bytes
_NEWLINE_TO_COMMA = bytes.maketrans(b"\n", b",")
_COMMA, _NEWLINE = b",\n"
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


def read_numbers(stream: IO[bytes], place: str, dtype: DTypeLike) -> Array:
    """``(rows, columns)``, as many columns as the first line has; ``(0, 0)`` for an empty file."""
    chunks = list(number_chunks(stream, place, dtype))
    return np.concatenate(chunks) if chunks else np.zeros((0, 0), dtype=dtype)


def number_chunks(
    stream: IO[bytes], place: str, dtype: DTypeLike, columns: int | None = None
) -> Iterator[NDArray[np.generic]]:
    """Yields the rows in order, ``(rows, columns)`` at a time.

    Args:
        stream: of bytes.
        place: of the file, for messages, which add the line.
        dtype: int64 or float64.
        columns: how many each line must have; None takes the first line's.
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
    """The text in pieces that end with a line, without the last newline; blank lines at the end are left out."""
    rest = stream.read(_CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf")
    while block := stream.read(_CHUNK_BYTES):
        text = rest + block
        cut = text.rstrip().rfind(b"\n")
        if cut > 0:
            yield text[:cut]
        rest = text[cut + 1 :]
        if len(rest) > _MAX_NUMBER_LINE_BYTES:
            raise UserError(f"{place} has a line of more than {_MAX_NUMBER_LINE_BYTES >> 20} MB.")
    if last := rest.rstrip():
        yield last


def _parse_numbers(text: bytes, dtype: DTypeLike, columns: int) -> Array | None:
    """``(rows, columns)``; None where any line is not exactly ``columns`` numbers."""
    characters = np.frombuffer(text, dtype=np.uint8)
    separators = characters[np.flatnonzero((characters == _COMMA) | (characters == _NEWLINE))]
    separators = np.append(separators, np.uint8(_NEWLINE))
    if len(separators) % columns or (separators[columns - 1 :: columns] != _NEWLINE).any():
        return None
    if np.count_nonzero(separators == _NEWLINE) * columns != len(separators):
        return None
    # numpy reads a field of spaces as 0, so those are looked for first.
    compact = text.translate(_NEWLINE_TO_COMMA, delete=b" \t\r")
    if b",," in compact or compact.startswith(b",") or compact.endswith(b","):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # how numpy before 2.3 told of bad text
            values = np.fromstring(text.translate(_NEWLINE_TO_COMMA), dtype=dtype, sep=",")
    except (ValueError, DeprecationWarning):
        return None
    return values.reshape(-1, columns) if len(values) == len(separators) else None


def _first_fault(text: bytes, place: str, first_line: int, columns: int, whole: bool) -> UserError:
    kind = "whole number" if whole else "number"
    for line, row in enumerate(text.decode(errors="replace").split("\n"), first_line):
        fields = [field.strip() for field in row.split(",")]
        if fields == [""]:
            return UserError(f"{place} line {line}: empty line in the middle of the file.")
        for field in fields:
            if not _is_number(field, whole):
                return UserError(f"{place} line {line}: '{field[:40]}' is not a {kind}.")
        if len(fields) != columns:
            return UserError(f"{place} line {line}: {len(fields)} numbers where {columns} are expected.")
    return UserError(f"{place}: lines {first_line} to {line} are not rows of {columns} {kind}s.")


def _is_number(field: str, whole: bool) -> bool:
    if whole:
        return _WHOLE_NUMBER.fullmatch(field) is not None
    try:
        return "_" not in field and isinstance(float(field), float)
    except ValueError:
        return False
