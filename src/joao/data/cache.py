"""The cache of data sets that are slow to read.

Each source has one file in the format of :mod:`joao.data.formats.packed`, named after its path and options. Its
metadata contain a hash of the source, of the code of the readers and of the options, so that a cached file is used
only if reading again would give the same result. Modification times do not matter. Molecules converted by another
version of RDKit are converted again if RDKit is installed, and used as they are otherwise.

Files are stored in ``packed`` in the folder ``JOAO_CACHE`` or else in the user's cache; ``JOAO_CACHE=off`` disables it.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from joao.core import codes
from joao.core.errors import UserError
from joao.core.files import make_folder, open_regular, user_error_on_os_error, user_path, write_file
from joao.data.dataset import Dataset
from joao.data.formats import FORMATS
from joao.data.formats.packed import packed_chunks, read_packed_if
from joao.data.molecules import STANDARDISED, featuriser_version

MIN_SOURCE_BYTES = 1 << 20  # smaller sources are read in a fraction of a second
MIN_TABLE_BYTES = 1 << 14  # tables of molecules take longer
MAX_CACHE_BYTES = 1 << 31  # beyond that, the least recently used files are removed
_FOLDER_FILES = tuple(pattern for each in FORMATS if each.cached for pattern in each.folder_files)


def _hash_readers() -> bytes:
    digest = hashlib.sha256(np.__version__.encode())
    for file in (*sorted(Path(__file__).parent.rglob("*.py")), Path(codes.__file__)):
        digest.update(file.name.encode() + b"/" + file.read_bytes())
    return digest.digest()


# Computed when the readers are loaded: their files may change while the program runs.
_READERS_HASH = _hash_readers()


def cache_root() -> Path | None:
    """Folder of everything that can be downloaded or computed again; None if there is no home folder."""
    path = os.environ.get("JOAO_CACHE", "")
    if path and path.lower() != "off":
        return user_path(path)
    try:
        return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "joao"
    except UserError:
        return None


def folder() -> Path | None:
    """Folder of the cached data sets; None if the cache is off or there is no home folder."""
    root = None if os.environ.get("JOAO_CACHE", "-").lower() in ("", "off") else cache_root()
    return None if root is None else root / "packed"


def read_cached(
    path: Path, reader: Callable[[Path], Dataset], options: str = "", min_bytes: int | None = None
) -> Dataset:
    """Read ``path`` with ``reader``, or take the result from the cache.

    ``options`` are those of the reader, as text. Sources from ``min_bytes`` on are cached, by default
    :data:`MIN_SOURCE_BYTES`.
    """
    cache = folder()
    min_bytes = MIN_SOURCE_BYTES if min_bytes is None else min_bytes
    stamp = None if cache is None else _stamp(path, options, min_bytes)
    if cache is None or stamp is None:
        return reader(path)
    number = hashlib.sha256(os.fsencode(os.path.abspath(path)) + options.encode()).hexdigest()[:16]
    file = cache / f"{path.name[:40]}-{number}.packed"
    known = read_packed_if(file, {"stamp": stamp.hex()})
    converted_by = "" if known is None else known.featuriser.removesuffix(STANDARDISED)
    if known is not None and (not converted_by or featuriser_version() in (None, converted_by)):
        with suppress(OSError):
            os.utime(file)  # mark as recently used
        return known
    dataset = reader(path)
    if _stamp(path, options, min_bytes) != stamp:  # the source changed while it was read
        return dataset
    try:
        _save(file, stamp, dataset)
    except UserError as error:
        notice = f"{dataset.name}: cannot be cached: {error} Set JOAO_CACHE to another folder, or to off."
        return replace(dataset, notices=(*dataset.notices, notice))
    return dataset


def sizes() -> dict[Path, int]:
    """Cached files and their sizes in bytes, newest first, including unfinished files of killed processes."""
    cache = folder()
    files = []
    for file in cache.glob("*.packed*") if cache is not None else ():
        with suppress(OSError):  # removed by another process
            status = file.stat()
            files.append((status.st_mtime_ns, file, status.st_size))
    return {file: size for _, file, size in sorted(files, reverse=True)}


def clear() -> None:
    """Remove all cached files."""
    for file in sizes():
        with user_error_on_os_error(file, "cannot be removed"):
            file.unlink(missing_ok=True)


def _stamp(path: Path, options: str, min_bytes: int) -> bytes | None:
    """Hash of readers, options and all files that may be read from ``path``; None for a small source."""
    try:
        files = [path] if path.is_file() else [file for kind in _FOLDER_FILES for file in sorted(path.glob(kind))]
        if sum(file.stat().st_size for file in files) < min_bytes:
            return None
        digest = hashlib.sha256(_READERS_HASH + os.fsencode(path.name) + b"/" + options.encode())
        if any(file.suffix.lower() == ".graphml" for file in files):
            from importlib.metadata import version

            digest.update(version("networkx").encode())
        for file in files:
            with open_regular(file) as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
            digest.update(b"/" + os.fsencode(file.relative_to(path)) + content)
        return digest.digest()
    except OSError:  # the reader will report it
        return None


def _save(file: Path, stamp: bytes, dataset: Dataset) -> None:
    make_folder(file.parent, mode=0o700)
    chunks = packed_chunks(dataset, {"stamp": stamp.hex()})
    if sum(map(len, chunks)) > MAX_CACHE_BYTES:
        return
    write_file(file, chunks)
    total = 0
    for other, size in sizes().items():
        total += size
        if total > MAX_CACHE_BYTES:
            with suppress(OSError):
                other.unlink()
