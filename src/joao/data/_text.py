"""Lines of a text file, plain or compressed, with every way to fail told as a :class:`UserError`."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path

from joao.errors import UserError

_COMPRESSED = (".gz", ".xz")


def text_lines(path: Path) -> Iterator[str]:
    """The lines of ``path``, which may end in ``.gz`` or ``.xz``, with their ends; a byte-order mark is left out."""
    number = 0
    try:
        with _opened(path) as stream:
            for number, line in enumerate(stream, 1):
                yield line.decode("utf-8" if number > 1 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not text in UTF-8 (byte {error.object[error.start]:#x}).") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
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


def _opened(path: Path) -> io.BufferedReader:
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), 1 << 20)
    if path.suffix == ".xz":
        return io.BufferedReader(lzma.open(path, "rb"), 1 << 20)
    return path.open("rb")


def base_name(path: Path) -> str:
    """The file's name without its suffixes, by which messages and records call the data.

    >>> base_name(Path("here/bonds.csv.gz"))
    'bonds'
    """
    name = path.name.removesuffix(path.suffix) if path.suffix in _COMPRESSED else path.name
    return name.rsplit(".", 1)[0]
