"""Keeps what a slow source was read into, so that the next start does not parse it again.

A source has one file, named after its path and replaced when the source changes: 64 digits, a line of JSON with texts,
types and shapes, and the arrays as plain bytes. The digits are a hash of all that follows *and* of the contents of the
source and the code of the readers. So they agree only where the file is whole and a fresh read would give the same;
otherwise the file is passed over and written anew. Dates do not count: a source that was replaced within a tick of
the clock is seen, and a source that was copied or touched is not read again.

Files are kept in ``packed`` in the folder that ``JOAO_CACHE`` names, or else in the user's cache; ``off`` keeps none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Array, Dataset
from joao.errors import UserError
from joao.files import make_folder, write_file

SMALLEST_SOURCE = 1 << 20  # bytes; less than that is read in a fraction of a second
MOST_KEPT = 1 << 31  # bytes; beyond that, those that were not used for longest go
_READ_FROM_FOLDERS = ("*.txt", "raw/*.txt", "*.graphml")
_DIGITS = 64


def _hash_of_readers() -> bytes:
    digest = hashlib.sha256(np.__version__.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
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


def kept(path: Path, reader: Callable[[Path], Dataset]) -> Dataset:
    """What ``reader`` finds in ``path``, taken from the cache where that would be the same."""
    place = folder()
    stamp = None if place is None else _stamp(path)
    if place is None or stamp is None:
        return reader(path)
    number = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]
    file = place / f"{path.name[:40]}-{number}.packed"
    known = _load(file, stamp)
    if known is not None:
        with suppress(OSError):
            os.utime(file)  # used today: others go first
        return known
    dataset = reader(path)
    if _stamp(path) != stamp:  # it changed while it was read
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
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{file}: cannot be removed ({error.strerror}).") from error


def _stamp(path: Path) -> bytes | None:
    """A hash of the readers and of every file that may be read from ``path``; None for what is not worth keeping."""
    try:
        found = [path] if path.is_file() else [file for kind in _READ_FROM_FOLDERS for file in sorted(path.glob(kind))]
        if sum(file.stat().st_size for file in found) < SMALLEST_SOURCE:
            return None
        digest = hashlib.sha256(_READERS + os.fsencode(path.name))
        if any(file.suffix.lower() == ".graphml" for file in found):
            digest.update(_networkx_version())
        for file in found:
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
            digest.update(b"/" + os.fsencode(file.relative_to(path)) + content)
        return digest.digest()
    except OSError:  # the reader will tell
        return None


def _networkx_version() -> bytes:
    from importlib.metadata import version

    return version("networkx").encode()


def _save(file: Path, stamp: bytes, dataset: Dataset) -> None:
    make_folder(file.parent, mode=0o700)
    header, arrays = _packed(dataset)
    body = b"".join([json.dumps(header).encode(), b"\n", *(array.tobytes() for array in arrays)])
    if len(body) > MOST_KEPT:
        return
    write_file(file, _digits(stamp, body) + body)
    total = 0
    for other, size in sizes().items():
        total += size
        if total > MOST_KEPT:
            with suppress(OSError):
                other.unlink()


def _load(file: Path, stamp: bytes) -> Dataset | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return _unpacked(content) if _digits(stamp, memoryview(content)[_DIGITS:]) == content[:_DIGITS] else None


def _digits(stamp: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(stamp)
    digest.update(body)
    return digest.hexdigest().encode()


def _packed(dataset: Dataset) -> tuple[dict[str, Any], list[Array]]:
    """Texts and descriptions of arrays for JSON, and the arrays, whole numbers in as few bytes as hold them.

    Edges are sorted by target: the number of edges at every node tells all targets.
    """
    values = {each.name: getattr(dataset, each.name) for each in fields(Dataset)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    narrow = [_narrow(dataset.degrees if name == "target" else array) for name, array in arrays.items()]
    described = [
        [name, array.dtype.str, stored.dtype.str, stored.shape]
        for (name, array), stored in zip(arrays.items(), narrow, strict=True)
    ]
    texts = {name: value for name, value in values.items() if name not in arrays}
    return {"texts": texts, "fingerprint": dataset.fingerprint, "arrays": described}, narrow


def _unpacked(content: bytes) -> Dataset:
    """The reverse of :func:`_packed`; every array is a new one, which may be written to."""
    end = content.index(b"\n")
    header = json.loads(content[_DIGITS:end])
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header["texts"].items()
    }
    place = end + 1
    for name, dtype, stored, shape in header["arrays"]:
        array: NDArray[Any] = np.ndarray(shape, np.dtype(stored), content, place)
        place += array.nbytes
        values[name] = array.astype(dtype)
    degrees = values["target"].astype(np.int64)
    values["target"] = _targets(values["first_node"], degrees)
    dataset = Dataset(**values)
    # Both would take a pass over all edges; they are known since those were packed.
    vars(dataset).update(fingerprint=header["fingerprint"], degrees=degrees)
    return dataset


def _narrow(array: Array) -> Array:
    if array.dtype.kind != "i" or not array.size or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(array.max()))


def _targets(first_node: NDArray[np.int64], degrees: NDArray[np.int64]) -> NDArray[np.int32]:
    number = np.arange(len(degrees)) - np.repeat(first_node[:-1], np.diff(first_node))
    return np.repeat(number.astype(np.int32), degrees)
