"""Tables of numbers in text, a few megabytes at a time.

A line is a row, commas separate its numbers, spaces do not matter: ``1, 2`` and ``8,1`` are both rows of two.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joao.data.base import Array
from joao.errors import UserError

_CHUNK_BYTES = 1 << 22
_MOST_LINE = 1 << 26  # bytes
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
    for text in _whole_lines(stream, place):
        columns = columns or text.split(b"\n", 1)[0].count(b",") + 1
        rows = _parsed(text, dtype, columns)
        if rows is None:
            raise _first_fault(text, place, first_line, columns, np.dtype(dtype).kind == "i")
        yield rows
        first_line += len(rows)


def _whole_lines(stream: IO[bytes], place: str) -> Iterator[bytes]:
    """The text in pieces that end with a line, without the last newline; blank lines at the end are left out."""
    rest = stream.read(_CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf")
    while block := stream.read(_CHUNK_BYTES):
        text = rest + block
        cut = text.rstrip().rfind(b"\n")
        if cut > 0:
            yield text[:cut]
        rest = text[cut + 1 :]
        if len(rest) > _MOST_LINE:
            raise UserError(f"{place} has a line of more than {_MOST_LINE >> 20} MB.")
    if last := rest.rstrip():
        yield last


def _parsed(text: bytes, dtype: DTypeLike, columns: int) -> Array | None:
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
