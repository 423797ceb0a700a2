"""Reading of regular files and strict JSON, atomic writing of files, and folders locked by one process."""

import errno
import json
import math
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any

from joao.core.errors import UserError, WriteError, one_line, short_repr

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading. A pipe or device, which might never end, raises an ``OSError``, as a folder does."""
    do_not_wait = getattr(os, "O_NONBLOCK", 0)
    stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | do_not_wait))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "not a regular file")
    return stream


MOST_NAME, MOST_PATH = 255, 4096  # bytes of a name of a file or folder, and of a path, on common file systems
MOST_TEXT = 1 << 28  # bytes of a file of text that is read as a whole; a sparse file may claim more than the disk has


def read_regular(path: Path, most: int | None = MOST_TEXT) -> bytes:
    """Read a whole file, see :func:`open_regular`; one with more than ``most`` bytes raises an ``OSError``, too."""
    with open_regular(path) as stream:
        if most is not None and os.fstat(stream.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most >> 20} MB")
        return stream.read()


def as_path(path: Any, name: str) -> Path:
    """The path that was given as ``name``; raises an error for another type, and for names that no file can have."""
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"{name}: expected the path of a file or folder, got {short_repr(path)}.")
    made = Path(path)
    longest = max((len(os.fsencode(part)) for part in made.parts), default=0)
    if longest > MOST_NAME:
        raise UserError(f"{name}: {short_repr(str(path))} has a part of {longest} bytes, expected at most {MOST_NAME}.")
    if len(os.fsencode(made)) >= MOST_PATH or "\0" in str(made):
        raise UserError(f"{name}: {short_repr(str(path))} has a zero byte, or {MOST_PATH} bytes or more.")
    return made


def user_path(text: str) -> Path:
    """Path of a text that may begin with ``~`` or ``~user``; raises an error if there is no such home folder."""
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise UserError(f"{text}: no home folder of {path.partition('/')[0]} is known. Write out the path.")
    return Path(path)


def write_file(path: Path, content: bytes | str | Iterable[bytes | memoryview], *, new: bool = False) -> None:
    """Write ``content`` atomically: to a temporary file that then replaces ``path``.

    File and folder are synced, so that the file survives a crash of the machine. A ``new`` file replaces nothing, even
    if another process creates ``path`` at the same time.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, temporary = _open_temporary(path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(handle)
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(temporary, 0o666 & ~mask)
                # Before the file is closed, which releases its lock.
                _rename_new(temporary, path) if new else os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(path.parent)
    except FileExistsError:
        raise already_exists(path) from None
    except OSError as error:
        raise WriteError(f"{path}: cannot be written ({error.strerror}).") from error


def _rename_new(temporary: str, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def temporary_path(path: Path, number: int = 0) -> Path:
    """Hidden name of the file that :func:`write_file` writes before it replaces ``path``."""
    return path.with_name(f".{path.name}.joao-{number}")


def _open_temporary(path: Path) -> tuple[int, str]:
    """Open and lock a temporary file. That of a killed process is used again, so that none stays behind."""
    for number in range(16 if fcntl is not None else 0):  # as many processes may write the same file
        name = str(temporary_path(path, number))
        try:
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError:
            break  # the next error is about the folder, unless a stranger has placed a link here
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own = os.fstat(handle)
            is_file = stat.S_ISREG(own.st_mode) and own.st_uid == os.geteuid()
            if is_file and os.path.samestat(own, os.lstat(name)):
                if own.st_nlink == 1:
                    os.ftruncate(handle, 0)
                    return handle, name
                os.unlink(name)  # a second name of another file, such as the one that a killed process has just written
        except (BlockingIOError, FileNotFoundError):
            pass  # another process writes it, or has just renamed it
        except OSError:  # a file system without locks
            os.unlink(name)
            os.close(handle)
            break
        os.close(handle)
    return tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON."""
    write_file(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


MOST_LEVELS = 64
# Numbers need slow checks only in text with one of these, after all digits are replaced by 9. A long fraction is
# harmless, and so is an exponent inside text, such as a hash.
_DIGITS_TO_9 = bytes.maketrans(b"012345678E", b"999999999e")
_LARGE_NUMBER = re.compile(rb"(?<![.9])9{19}|e\+?999+(?=[\s,\]}]|$)")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON in which every value has one meaning; otherwise raise a ValueError with the reason in one line.

    Rejects repeated keys, NaN and infinite numbers, integers beyond 64 bits, halves of surrogate pairs, bytes that are
    not UTF-8, and more than 64 levels of nesting.

    >>> parse_json('{"label": 0, "label": 1}')
    Traceback (most recent call last):
        ...
    ValueError: the key 'label' is repeated
    """
    text = text if isinstance(text, str) else text.decode()
    digits = text.encode().translate(_DIGITS_TO_9)
    # The regular expression is slow, so look first for what it needs.
    may_be_large = any(mark in digits for mark in (b"9" * 19, b"e999", b"e+999"))
    needs_care = b"\\u" in digits or (may_be_large and _LARGE_NUMBER.search(digits) is not None)
    try:
        value = (_CAREFUL if needs_care else _QUICK).decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON at character {error.pos + 1}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError(f"more than {MOST_LEVELS} levels of nesting") from error
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        kinds = {*map(type, level)}
        if not kinds & {list, dict}:
            break
        if kinds != {list}:
            level = [
                list(each.values()) if type(each) is dict else each for each in level if type(each) in (list, dict)
            ]
        level = list(chain.from_iterable(level))
    else:
        raise ValueError(f"more than {MOST_LEVELS} levels of nesting")
    if needs_care:
        json.dumps(value, ensure_ascii=False).encode()  # raises UnicodeEncodeError, a ValueError
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {short_repr(repeated)} is repeated")
    return values


def _parse_integer(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 63:
        raise ValueError(f"the integer {short_repr(digits)} has more than 64 bits")
    return int(digits)


def _parse_float(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {short_repr(text)} is not finite")
    return float(text)


_QUICK = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_parse_float)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_parse_float, parse_int=_parse_integer, parse_float=_parse_float
)


def import_parquet(path: Path | str = "Parquet") -> Any:
    """Import ``pyarrow`` with its module ``parquet``; without it, raise an error about ``path``."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: pyarrow is not installed: pip install pyarrow") from None
    return pyarrow


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file, and convert the errors of reading it to a :class:`UserError`."""
    arrow = import_parquet(path)
    try:
        with open_regular(path) as stream:
            # Otherwise all bytes that were read stay in memory until the end.
            yield arrow.parquet.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({one_line(error)}).") from error


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
def lock_folder(folder: Path) -> Iterator[bool]:
    """Lock ``folder`` for this process; raises an error if another process has it. The lock ends with the process.

    Yields False if the system has no locks.
    """
    if fcntl is None:
        yield False
        return
    with user_error_on_os_error(folder, "cannot be opened"):
        handle = os.open(folder, os.O_RDONLY)
    try:
        is_locked = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process is writing to it. Wait, or choose another folder.") from None
        except OSError:
            is_locked = False
        yield is_locked
    finally:
        os.close(handle)


def refuse_dash(path: Path) -> None:
    """Raise an error if an output folder is ``-``, which other programs take for standard output."""
    if str(path) == "-":
        raise UserError("output: '-' is not supported: nothing is written to standard output. Name a file or folder.")


def check_new_file(path: Path) -> None:
    """Raise an error if an output exists or cannot be written, before any work is done."""
    if path.exists():
        raise already_exists(path)
    check_writable(path)


def already_exists(path: Path, hint: str = "") -> UserError:
    return UserError(f"{path}: already exists. Choose another name or remove it first.{hint}")


def check_writable(path: Path) -> None:
    """Raise an error if an output is a folder or its folder is missing or read-only."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder. Give the name of a file.")
    if not path.parent.is_dir():
        problem = "is not a folder" if path.parent.exists() else "does not exist"
        raise UserError(f"{path}: {path.parent} {problem}. Choose another path or create the folder first.")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: no write permission for the folder {path.parent}.")


def _sync_folder(folder: Path) -> None:
    """Sync the directory entries of a folder, if the system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
