"""Compressed files and archives, opened so that they neither grow without bound nor reach outside their folder.

What is compressed may be up to :data:`MOST_GROWTH` times as large once it is not, and always :data:`ALWAYS_ALLOWED`.
Published data sets grow two to fifty times; a file made to fill the memory grows a thousand times or more.
Nothing is ever unpacked to disk.
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from joao.errors import UserError, shown

MOST_GROWTH = 100
ALWAYS_ALLOWED = 1 << 26  # bytes
MOST_FILES = 100_000
# What reading may raise, beside errors of the system.
UNREADABLE = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)


class Member(NamedTuple):
    """A file, of an archive or a folder: what opens it, and its bytes."""

    open: Callable[[], IO[bytes]]
    size: int


class _Bounded(io.RawIOBase):
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


def on_disk(path: Path) -> Member:
    """A file that is in no archive."""
    return Member(lambda: path.open("rb"), path.stat().st_size)


def open_file(path: Path) -> IO[bytes]:
    """Opens ``path``; what ends in ``.gz`` or ``.xz`` is expanded as it is read, and cannot be sought in."""
    if path.suffix not in (".gz", ".xz"):
        return path.open("rb")
    kind = gzip.GzipFile if path.suffix == ".gz" else lzma.LZMAFile
    return _bounded(kind(path), path.stat().st_size)


def open_gzip(packed: IO[bytes], size: int) -> IO[bytes]:
    """Expands ``packed``, ``size`` bytes of gzip, as it is read."""
    return _bounded(gzip.GzipFile(fileobj=packed), size)


@contextmanager
def open_zip(path: Path) -> Iterator[dict[str, Member]]:
    """The files of an archive, by name: none leaves its folder, is a link, or grows without bound.

    An archive gives no more of a file than the size that it tells, so that looking at these is enough.
    """
    try:
        with _opened(path) as archive:
            members = [each for each in archive.infolist() if each.filename and not each.is_dir()]
            for each in members:
                _check_place(path, each)
            if len(members) > MOST_FILES:
                raise UserError(f"{path}: holds {len(members)} files; a data set has a few.")
            if sum(each.file_size for each in members) > _most(path.stat().st_size):
                raise UserError(f"{path}: {_too_large()}.")
            yield {each.filename: Member(partial(_member, archive, each), each.file_size) for each in members}
    except UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({error}). It may be incomplete: copy it again.") from error


def names_in_zip(path: Path) -> list[str]:
    """What an archive says that it holds, unchecked; nothing where it cannot be read."""
    try:
        with _opened(path) as archive:
            return archive.namelist()
    except UNREADABLE:
        return []


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (ValueError, LookupError, struct.error) as error:  # of a damaged directory
        raise zipfile.BadZipFile(str(error)) from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(member)
    except (ValueError, LookupError, struct.error) as error:
        raise zipfile.BadZipFile(str(error)) from error


def _check_place(path: Path, member: zipfile.ZipInfo) -> None:
    name, place = member.filename, PurePosixPath(member.filename)
    if ".." in place.parts or place.is_absolute() or "\\" in name or ":" in name:
        raise UserError(f"{path}: holds {shown(name)}, which leaves its folder. Get the archive from its source.")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise UserError(f"{path}: holds a link, {shown(name)}. Get the archive from its source.")


def _bounded(stream: Any, size: int) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Bounded(stream, _most(size)), 1 << 20))


def _most(size: int) -> int:
    return max(ALWAYS_ALLOWED, MOST_GROWTH * size)


def _too_large() -> str:
    return (
        f"grows to more than {MOST_GROWTH} times its size and {ALWAYS_ALLOWED >> 20} MB when it is expanded. "
        "If you trust it, expand it yourself"
    )
