"""Records on disk: one file per table, one JSON object per line, sorted by key.

A record says how one cell of a table was computed and what came out. The key of a record, such as ``MUTAG/joao-0``, is
computed from its content. Writing replaces the whole file under a lock, so several processes can add records at the
same time, and a process that is killed loses nothing that was written before.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from joao.core.errors import UserError
from joao.core.files import make_folder, parse_json, write_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RECORDS = Path(__file__).parent / "records"
Record = dict[str, Any]
Key = Callable[[Record], str]


@dataclass(frozen=True)
class RecordFile:
    """The records of one table.

    Attributes:
        path: a ``.jsonl`` file, which need not exist.
        key: returns the key of a record. It raises an error (any of those in :func:`_parse`) for other content.
    """

    path: Path
    key: Key

    def read(self) -> list[Record]:
        """Return all records, sorted by key. They are shared with other callers and must not be changed."""
        return [record for _, record in self._load().values()]

    def get(self, key: str) -> Record | None:
        """Return a record, or None if there is none."""
        found = self._load().get(key)
        return None if found is None else found[1]

    def __getitem__(self, key: str) -> Record:
        record = self.get(key)
        if record is None:
            raise UserError(f"{self.path}: no record of {key}.")
        return record

    def write(self, *records: Record) -> None:
        """Add records, or replace those with the same keys."""
        make_folder(self.path.parent)
        with _lock(self.path.parent):
            lines = {key: line for key, (line, _) in self._load().items()}
            for record in records:
                line = json.dumps(record, allow_nan=False)
                lines[self.key(json.loads(line))] = line
            write_file(self.path, "".join(f"{lines[key]}\n" for key in sorted(lines, key=lambda key: key.split("/"))))

    def is_current(self, key: str, expected: Mapping[str, Any], name: str) -> bool:
        """Return whether there is a record that agrees with the current settings.

        Args:
            key: of the record.
            expected: settings that must be equal in the record.
            name: what the record is about, for the error message.

        Raises:
            UserError: if there is a record with other settings.
        """
        record = self.get(key)
        if record is None:
            return False
        for setting, value in expected.items():
            if record.get(setting) != json.loads(json.dumps(value)):
                raise UserError(
                    f"{self.path}: {key}: made by another recipe ({setting}) than {name} has now. Remove its line."
                )
        return True

    def _load(self) -> dict[str, tuple[str, Record]]:
        """Return lines and records by key."""
        try:
            status = self.path.stat()
        except OSError:
            return {}
        return _parse(self.path, self.key, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=32)
def _parse(path: Path, key: Key, version: tuple[int, ...]) -> dict[str, tuple[str, Record]]:
    """Read a file; ``version`` changes with the file, so that the cache never returns old content."""
    found: dict[str, tuple[str, Record]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error
    for number, line in enumerate(lines, 1):
        try:
            record: Record = parse_json(line)
            name = str(key(record))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} line {number}: not a record ({error}). Remove the line to compute it again."
            ) from error
        if name in found:
            raise UserError(f"{path} line {number}: second record of {name}. Remove one of the lines.")
        found[name] = line, record
    return found


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Wait until no other process writes records into ``folder``. A process that dies releases the lock."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
