"""Time and peak memory of a function call."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


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
    _return_freed()
    _RESET.write_text("5")
    before = _resident("VmRSS")
    run()
    return max(0, _resident("VmHWM") - before)


def measure_run(make: Callable[[], Made], device: torch.device | str) -> tuple[Made, float, dict[str, Any]]:
    """Return the result of ``make``, the seconds it took, and the entries of records about its memory."""
    made: list[Made] = []
    seconds = 0.0

    def timed() -> None:
        nonlocal seconds
        started = time.perf_counter()
        made.append(make())
        seconds = time.perf_counter() - started

    peak = peak_memory(timed, device)
    return made[0], seconds, {"peak bytes": peak, "memory": memory_source(device)}


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


def _return_freed() -> None:
    """Return freed memory to the operating system, if the allocator can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
