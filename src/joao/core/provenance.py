"""Versions, machine and command that produced a result."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from joao import __version__

PACKAGES = ("torch", "torch-geometric", "lightning-fabric", "lightning", "numpy", "scipy", "scikit-learn", "rdkit")


def versions() -> dict[str, str]:
    """Versions of joao, Python and the packages that affect results."""
    found = {"joao": __version__, "source": source_hash(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache
def source_hash() -> str:
    """Hash (16 digits) of the package's code and recipes."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".toml"):
            digest.update(path.relative_to(package).as_posix().encode() + b"/" + path.read_bytes())
    return digest.hexdigest()[:16]


def machine(device: torch.device | str) -> dict[str, Any]:
    """Processor, cores, threads and, if used, the GPU."""
    found: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.device(device).type,
    }
    if torch.device(device).type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
    return found


def command() -> str:
    """The command line, with absolute paths shortened to their last part."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    return f"{name} {shlex.join(strip_absolute_path(word) for word in sys.argv[1:])}".rstrip()


def strip_absolute_path(word: str) -> str:
    """Shorten an absolute path in a word of a command line to its last part.

    >>> [strip_absolute_path(word) for word in ("/home/me/data/NCI1.zip", "--out=/home/me/run", "runs/mine")]
    ['NCI1.zip', '--out=run', 'runs/mine']
    """
    key, equals, value = word.rpartition("=")
    return key + equals + (Path(value).name if Path(value).is_absolute() else value)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
