"""Keeps what a slow source was read into, so that the next start does not parse it again.

A source has one file (:mod:`joao.data.formats.packed`), named after its path and the options it is read with, and replaced when
the source changes. Its metadata have a hash of the contents of the source, of the code of the readers and of the
options. So the file is taken only where it is whole and a fresh read would give the same; otherwise it is passed over
and written anew. Dates do not count: a source that was replaced within a tick of the clock is seen, and a source that
was copied or touched is not read again. Molecules that another version of RDKit made are made anew where RDKit is
there; where it is not, they are taken as they are.

Files are kept in ``packed`` in the folder that ``JOAO_CACHE`` names, or else in the user's cache; ``off`` keeps none.


Fetches a TU data set into the cache of the user.

Over https alone, also where the server sends elsewhere. The hash of what came first is kept beside it, in
``NAME.zip.sha256``; a file that is another one later, on the server or in the cache, is not taken.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from joao.core import codes
from joao.core.errors import UserError
from joao.core.files import make_folder, user_error_on_os_error, write_file
from joao.data.dataset import Dataset
from joao.data.formats.packed import packed_chunks, read_packed_if
from joao.data.molecules.featurise import featuriser_version

MIN_SOURCE_BYTES = 1 << 20  # bytes; less than that is read in a fraction of a second
MIN_TABLE_BYTES = 1 << 14  # bytes of a table of molecules; making graphs of them takes longer
MAX_CACHE_BYTES = 1 << 31  # bytes; beyond that, those that were not used for longest go
_FOLDER_FILES = ("*.txt", "raw/*.txt", "*.graphml", "raw/*.csv.gz", "mapping/*.csv.gz")


def _hash_of_readers() -> bytes:
    digest = hashlib.sha256(np.__version__.encode())
    for file in (*sorted(Path(__file__).parent.rglob("*.py")), Path(codes.__file__)):
        digest.update(file.name.encode() + b"/" + file.read_bytes())
    return digest.digest()


# Taken now, when the readers are loaded: their files may change while the program runs.
_READERS_HASH = _hash_of_readers()


def cache_root() -> Path:
    """The folder of everything that can be fetched or made again: ``JOAO_CACHE``, or ``joao`` in the user's cache."""
    given = os.environ.get("JOAO_CACHE", "")
    if given and given.lower() != "off":
        return Path(given).expanduser()
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "joao"


def folder() -> Path | None:
    """Where packed data are kept; None where ``JOAO_CACHE`` is empty or ``off``, or where there is no home."""
    try:
        return None if os.environ.get("JOAO_CACHE", "-").lower() in ("", "off") else cache_root() / "packed"
    except RuntimeError:
        return None


def read_cached(path: Path, reader: Callable[[Path], Dataset], options: str = "", least: int | None = None) -> Dataset:
    """What ``reader`` finds in ``path``, taken from the cache where that would be the same.

    Args:
        path: a file or folder.
        reader: of it.
        options: of the reader, in words.
        least: bytes from which on it is kept; None is :data:`MIN_SOURCE_BYTES`.
    """
    place = folder()
    least = MIN_SOURCE_BYTES if least is None else least
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
        with user_error_on_os_error(file, "cannot be removed"):
            file.unlink(missing_ok=True)


def _stamp(path: Path, options: str, least: int) -> bytes | None:
    """A hash of readers, options and every file that may be read from ``path``; None for what is not worth keeping."""
    try:
        found = [path] if path.is_file() else [file for kind in _FOLDER_FILES for file in sorted(path.glob(kind))]
        if sum(file.stat().st_size for file in found) < least:
            return None
        digest = hashlib.sha256(_READERS_HASH + os.fsencode(path.name) + b"/" + options.encode())
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
    return not dataset.featuriser or featuriser_version() in (None, dataset.featuriser)


def _save(file: Path, stamp: bytes, dataset: Dataset) -> None:
    make_folder(file.parent, mode=0o700)
    pieces = packed_chunks(dataset, {"stamp": stamp.hex()})
    if sum(map(len, pieces)) > MAX_CACHE_BYTES:
        return
    write_file(file, pieces)
    total = 0
    for other, size in sizes().items():
        total += size
        if total > MAX_CACHE_BYTES:
            with suppress(OSError):
                other.unlink()


def _load(file: Path, stamp: bytes) -> Dataset | None:
    return read_packed_if(file, {"stamp": stamp.hex()})


ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip"
SCHEMES = ("https",)
MAX_DOWNLOAD_BYTES = 1 << 32
_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20  # bytes


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to other addresses that are as safe."""

    def redirect_request(self, request: Any, file: Any, code: int, message: str, headers: Any, address: str) -> Any:
        _check_scheme(address)
        return super().redirect_request(request, file, code, message, headers, address)


def download_folder() -> Path:
    """Where downloaded data sets are kept: ``tu`` in :func:`joao.data.cache.cache_root`."""
    return cache_root() / "tu"


def download(name: str) -> Path:
    """Fetches data set ``name``; it appears in the cache whole or not at all.

    Raises:
        UserError: with the reason only; the caller knows what to advise.
    """
    address = ADDRESS.format(name=name)
    path = download_folder() / f"{name}.zip"
    try:
        _check_scheme(address)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            part = Path(aside) / path.name
            opener = urllib.request.build_opener(_Redirects())
            with opener.open(address, timeout=_TIMEOUT_SECONDS) as answer, part.open("wb") as file:
                _copy(address, answer, file)
            if not zipfile.is_zipfile(part):  # a cut-off file lacks the directory at its end
                raise UserError(f"{address} did not give a whole zip file")
            check_download_hash(path, part)
            os.replace(part, path)
    except urllib.error.HTTPError as error:
        error.close()
        raise UserError(f"{address} answered {error.code} ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UserError(f"{address} could not be fetched ({reason})") from error
    return path


def check_download_hash(path: Path, content: Path | None = None) -> None:
    """Compares a downloaded file, or the ``content`` to put there, with its record; without one, that is made."""
    record = path.with_name(f"{path.name}.sha256")
    with (content or path).open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    known = record.read_text(encoding="ascii", errors="replace").split()[:1] if record.is_file() else []
    if not known:
        write_file(record, f"{found}  {path.name}\n")
    elif known != [found]:
        raise UserError(
            f"{path} is not the file that was downloaded first: its SHA-256 is {found}, that of {record.name} is "
            f"{known[0][:80]}. If the new one is right, remove {record}"
        )


def _check_scheme(address: str) -> None:
    if address.partition(":")[0].lower() not in SCHEMES:
        raise UserError(f"{address} is not fetched: only {', '.join(SCHEMES)} is safe")


def _copy(address: str, answer: Any, file: IO[bytes]) -> None:
    """Writes an answer of at most :data:`MAX_DOWNLOAD_BYTES`."""
    left = MAX_DOWNLOAD_BYTES
    while piece := answer.read(_CHUNK_BYTES):
        left -= len(piece)
        if left < 0:
            raise UserError(f"{address} gives more than {MAX_DOWNLOAD_BYTES >> 30} GB")
        file.write(piece)
