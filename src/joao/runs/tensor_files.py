"""Files of tensors with a checksum, so that what was damaged is not believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from joao.core.errors import UserError, one_line
from joao.core.files import write_file
from joao.data.dataset import as_bytes

CHECKSUM_KEY = "joao.checksum"


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(as_bytes(value.detach().cpu().numpy()))
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors with their checksum."""
    write_file(path, save(dict(tensors), {CHECKSUM_KEY: checksum(tensors)}))


def read_tensors(path: Path, checked: bool = False) -> dict[str, Tensor]:
    """The tensors of a file, which must be those of its checksum; with ``checked``, it must have one."""
    try:
        content = path.read_bytes()
        tensors: dict[str, Tensor] = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        told = (header.get("__metadata__") or {}).get(CHECKSUM_KEY)
        is_whole = told == checksum(tensors) if told is not None else not checked
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:  # also of types without a name
        raise UserError(f"{path}: is damaged ({one_line(error)}).") from error
    if not is_whole:
        raise UserError(f"{path}: is damaged: its weights are not those that were written. Bring back a copy.")
    return tensors
