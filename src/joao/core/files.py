"""Atomic writing of files, and folders locked by one process."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from joao.core.errors import UserError, WriteError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_file(path: Path, content: bytes | str | Iterable[bytes | memoryview]) -> None:
    """Write ``content`` atomically: to a temporary file that then replaces ``path``.

    File and folder are synced, so that the file survives a crash of the machine.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise WriteError(f"{path}: cannot be written ({error.strerror}).") from error


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON."""
    write_file(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


@contextmanager
def user_error_on_os_error(path: Path, failure: str) -> Iterator[None]:
    """Convert an ``OSError`` to a :class:`UserError` with the path, ``failure`` and the reason."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {failure} ({error.strerror}).") from error


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder and its parents; ``mode`` applies to the folder itself."""
    with user_error_on_os_error(path, "cannot be created"):
        path.mkdir(mode, parents=True, exist_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock ``folder`` for this process; raises an error if another process has it. The lock ends with the process."""
    if fcntl is None:
        yield
        return
    with user_error_on_os_error(folder, "cannot be opened"):
        handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder}: another process is writing to it. Wait until it ends, or choose another folder."
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)


def check_new_file(path: Path) -> None:
    """Raise an error if an output exists or cannot be written, before any work is done."""
    if path.exists():
        raise UserError(f"{path}: exists already. Choose another name, or remove it first.")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Raise an error if an output is a folder or its folder is missing or read-only."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder. Give the name of a file.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: its folder {path.parent} does not exist.")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: its folder {path.parent} is not writable.")


def _sync_folder(folder: Path) -> None:
    """Sync the directory entries of a folder, if the system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
