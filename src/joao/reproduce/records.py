"""Records of cells, as files, and the data they are of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from joao.data import read_whole
from joao.data.base import Dataset
from joao.errors import UserError
from joao.files import make_folder, write_json


@lru_cache(maxsize=1)
def dataset_of(name: str, data_root: str | None) -> Dataset:
    """The graphs of a cell; those of the last one are kept."""
    return read_whole(name, data_root)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record, and the folder around it."""
    make_folder(path.parent)
    write_json(path, record)


def read_checked(path: Path, look: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """A record that was written before; ``look`` reads what must be in it."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        look(record)
        return record
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file.") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path}: is not a record ({error}). Remove it to compute it again.") from error


def check_origin(path: Path, record: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """A record that another recipe made is told, not passed off as that of ``what``."""
    for key, value in expected.items():
        if record.get(key) != json.loads(json.dumps(value)):
            raise UserError(f"{path}: was made by another recipe than {what} has now. Remove it.")
