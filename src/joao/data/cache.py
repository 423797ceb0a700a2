"""Keeps what a slow source was read into, so that the next start does not parse it again.

A source has one file (:mod:`joao.data.packed`), named after its path and the options it is read with, and replaced when
the source changes. Its metadata have a hash of the contents of the source, of the code of the readers and of the
options. So the file is taken only where it is whole and a fresh read would give the same; otherwise it is passed over
and written anew. Dates do not count: a source that was replaced within a tick of the clock is seen, and a source that
was copied or touched is not read again. Molecules that another version of RDKit made are made anew where RDKit is
there; where it is not, they are taken as they are.

Files are kept in ``packed`` in the folder that ``JOAO_CACHE`` names, or else in the user's cache; ``off`` keeps none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from joao import atoms, ogb_codes
from joao.data.base import Dataset
from joao.data.molecules import featuriser
from joao.data.packed import pieces_of, read_if
from joao.errors import UserError
from joao.files import attempt, make_folder, write_file

SMALLEST_SOURCE = 1 << 20  # bytes; less than that is read in a fraction of a second
SMALLEST_TABLE = 1 << 14  # bytes of a table of molecules; making graphs of them takes longer
MOST_KEPT = 1 << 31  # bytes; beyond that, those that were not used for longest go
_READ_FROM_FOLDERS = ("*.txt", "raw/*.txt", "*.graphml", "raw/*.csv.gz", "mapping/*.csv.gz")


def _hash_of_readers() -> bytes:
    digest = hashlib.sha256(np.__version__.encode())
    for file in (*sorted(Path(__file__).parent.glob("*.py")), Path(atoms.__file__), Path(ogb_codes.__file__)):
        digest.update(file.name.encode() + b"/" + file.read_bytes())
    return digest.digest()


# Taken now, when the readers are loaded: their files may change while the program runs.
_READERS = _hash_of_readers()


def home() -> Path:
    """The folder of everything that can be fetched or made again: ``JOAO_CACHE``, or ``joao`` in the user's cache."""
    given = os.environ.get("JOAO_CACHE", "")
    if given and given.lower() != "off":
        return Path(given).expanduser()
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "joao"


def folder() -> Path | None:
    """Where packed data are kept; None where ``JOAO_CACHE`` is empty or ``off``, or where there is no home."""
    try:
        return None if os.environ.get("JOAO_CACHE", "-").lower() in ("", "off") else home() / "packed"
    except RuntimeError:
        return None


def kept(path: Path, reader: Callable[[Path], Dataset], options: str = "", least: int | None = None) -> Dataset:
    """What ``reader`` finds in ``path``, taken from the cache where that would be the same.

    Args:
        path: a file or folder.
        reader: of it.
        options: of the reader, in words.
        least: bytes from which on it is kept; None is :data:`SMALLEST_SOURCE`.
    """
    place = folder()
    least = SMALLEST_SOURCE if least is None else least
    stamp = None if place is None else _stamp(path, options, least)
    if place is None or stamp is None:
        return reader(path)
    number = hashlib.sha256(os.fsencode(os.path.abspath(path)) + options.encode()).hexdigest()[:16]
    file = place / f"{path.name[:40]}-{number}.packed"
    known = _load(file, stamp)
    if known is not None and _is_current(known):
        with suppress(OSError):
            os.utime(file)  # used today: others go first
        return known
    dataset = reader(path)
    if _stamp(path, options, least) != stamp:  # it changed while it was read
        return dataset
    try:
        _save(file, stamp, dataset)
    except UserError as error:
        told = (
            f"{dataset.name}: cannot be kept for a quicker start: {error} Set JOAO_CACHE to another folder, or to off."
        )
        return replace(dataset, notices=(*dataset.notices, told))
    return dataset


def sizes() -> dict[Path, int]:
    """Every file of packed data and its bytes, newest first; also what a process that was killed left half written."""
    place = folder()
    found = []
    for file in place.glob("*.packed*") if place is not None else ():
        with suppress(OSError):  # somebody else has removed it
            status = file.stat()
            found.append((status.st_mtime_ns, file, status.st_size))
    return {file: size for _, file, size in sorted(found, reverse=True)}


def clear() -> None:
    """Removes all packed data."""
    for file in sizes():
        with attempt(file, "cannot be removed"):
            file.unlink(missing_ok=True)


def _stamp(path: Path, options: str, least: int) -> bytes | None:
    """A hash of readers, options and every file that may be read from ``path``; None for what is not worth keeping."""
    try:
        found = [path] if path.is_file() else [file for kind in _READ_FROM_FOLDERS for file in sorted(path.glob(kind))]
        if sum(file.stat().st_size for file in found) < least:
            return None
        digest = hashlib.sha256(_READERS + os.fsencode(path.name) + b"/" + options.encode())
        if any(file.suffix.lower() == ".graphml" for file in found):
            from importlib.metadata import version

            digest.update(version("networkx").encode())
        for file in found:
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
            digest.update(b"/" + os.fsencode(file.relative_to(path)) + content)
        return digest.digest()
    except OSError:  # the reader will tell
        return None


def _is_current(dataset: Dataset) -> bool:
    """Whether reading again, if that is possible, would give the same molecules."""
    return not dataset.featuriser or featuriser() in (None, dataset.featuriser)


def _save(file: Path, stamp: bytes, dataset: Dataset) -> None:
    make_folder(file.parent, mode=0o700)
    pieces = pieces_of(dataset, {"stamp": stamp.hex()})
    if sum(map(len, pieces)) > MOST_KEPT:
        return
    write_file(file, pieces)
    total = 0
    for other, size in sizes().items():
        total += size
        if total > MOST_KEPT:
            with suppress(OSError):
                other.unlink()


def _load(file: Path, stamp: bytes) -> Dataset | None:
    return read_if(file, {"stamp": stamp.hex()})
