"""What records say about a result: versions, machine, command, time and peak memory."""

import ctypes
import gc
import hashlib
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch

from joao import __version__

Made = TypeVar("Made")

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
PACKAGES = ("torch", "torch-geometric", "lightning-fabric", "lightning", "numpy", "scipy", "scikit-learn", "rdkit")


def versions() -> dict[str, str]:
    """Versions of joao, Python and the packages that affect results."""
    own = {"joao": __version__, "source": source_hash(), "python": platform.python_version()}
    return own | _package_versions()


@cache
def _package_versions() -> dict[str, str]:
    installed = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


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
    description: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.device(device).type,
    }
    if torch.device(device).type == "cuda":
        description["gpu"] = torch.cuda.get_device_name(device)
    return description


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
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def peak_memory(run: Callable[[], object], device: torch.device | str) -> int | None:
    """Peak memory of ``run`` in bytes, above the memory used before; None if it cannot be measured.

    On a GPU, torch's count of allocated bytes. On a CPU, the high-water mark of resident memory, which Linux lets a
    process reset. Freed memory that stayed resident is not counted, so that a few megabytes mean little.
    """
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    if not _can_reset():
        run()
        return None
    with suppress(AttributeError):  # not the GNU allocator
        ctypes.CDLL(None).malloc_trim(0)  # return freed memory to the operating system
    _RESET.write_text("5")
    before = _resident("VmRSS")
    run()
    return max(0, _resident("VmHWM") - before)


def measure_run(make: Callable[[], Made], device: torch.device | str) -> tuple[Made, float, dict[str, Any]]:
    """Return the result of ``make``, the seconds it took, and the entries of records about its memory."""
    results: list[tuple[Made, float]] = []

    def timed() -> None:
        started = time.perf_counter()
        result = make()
        results.append((result, time.perf_counter() - started))

    peak = peak_memory(timed, device)
    return *results[0], {"peak bytes": peak, "memory": memory_source(device)}


def memory_source(device: torch.device | str) -> str:
    """Description of how :func:`peak_memory` measures, for records."""
    if torch.device(device).type == "cuda":
        return "torch.cuda.max_memory_allocated, less what was allocated before"
    if _can_reset():
        return "VmHWM of /proc/self/status, set back before, less VmRSS before"
    return "not measured: the high-water mark of resident memory cannot be set back here"


def _can_reset() -> bool:
    try:
        _RESET.write_text("5")
        return _STATUS.exists()
    except OSError:
        return False


def _resident(field: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
