"""Lines of a text file, plain or compressed, with every way to fail told as a :class:`UserError`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from joao.data._compressed import UNREADABLE, open_file
from joao.errors import UserError

_COMPRESSED = (".gz", ".xz")
MOST_LINE = 1 << 28  # bytes


def text_lines(path: Path) -> Iterator[str]:
    """The lines of ``path``, which may end in ``.gz`` or ``.xz``, with their ends; a byte-order mark is left out."""
    number = 0
    try:
        with open_file(path) as stream:
            for number, line in enumerate(iter(partial(stream.readline, MOST_LINE), b""), 1):
                if len(line) == MOST_LINE:
                    raise UserError(f"{path}:{number}: a line of more than {MOST_LINE >> 20} MB.")
                yield line.decode("utf-8" if number > 1 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not text in UTF-8 (byte {error.object[error.start]:#x}).") from error
    except UNREADABLE as error:
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
