"""Writing files so that a reader never sees half of one, and folders that one process has for itself."""

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
    """Writes ``content``, or its pieces, aside and renames it into place; what is there is replaced whole or not.

    File and folder are synced: afterwards it is on the disk, whatever becomes of process and machine.
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
    """Writes ``value`` as JSON that a person can read."""
    write_file(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


@contextmanager
def user_error_on_os_error(path: Path, failure: str) -> Iterator[None]:
    """Inside, the system is asked for something; where it refuses, ``failure`` is told of ``path``, and why."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {failure} ({error.strerror}).") from error


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Makes a folder, and those above it, unless it is there; ``mode`` is for the folder itself, less the umask."""
    with user_error_on_os_error(path, "cannot be made"):
        path.mkdir(mode, parents=True, exist_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Has ``folder`` for this process alone, or raises where another one has it; whoever dies lets go of it."""
    if fcntl is None:
        yield
        return
    with user_error_on_os_error(folder, "cannot be opened"):
        handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{folder}: another process is writing into it. Wait until it has ended, or choose another folder."
        ) from None
    except OSError:
        pass  # a file system without locks


def check_new_file(path: Path) -> None:
    """Refuses an output that exists or that has no folder to be written into, before any work is done."""
    if path.exists():
        raise UserError(f"{path}: exists already. Choose another name or remove it first.")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Refuses an output that has no folder to be written into, or is one."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: its folder {path.parent} does not exist.")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: its folder {path.parent} cannot be written to.")


def _sync_folder(folder: Path) -> None:
    """Brings the names of a folder's files to the disk, where the system can."""
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
