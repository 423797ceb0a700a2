"""Lines of a text file, plain or gzipped, with every way to fail told as a :class:`UserError`."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from joao.errors import UserError


def text_lines(path: Path) -> Iterator[str]:
    """The lines of ``path``, with their ends; a byte-order mark is left out."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                yield _decoded(line, path, number)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not text in UTF-8 (byte {error.object[error.start]:#x}).") from error


def base_name(path: Path) -> str:
    """The file's name without its suffixes, by which messages and records call the data.

    >>> base_name(Path("here/bonds.csv.gz"))
    'bonds'
    """
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]
