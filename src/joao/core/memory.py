"""The time, and the most memory, that something takes while it runs."""

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
    """Bytes that ``run`` takes at its peak, above what was taken before it; None where nobody can say.

    On a GPU: torch's own count of allocated bytes. On a CPU: the high-water mark of the process's resident memory,
    which Linux lets a process set back, after freed memory has been returned. Memory that was free and resident all
    the same is missed, so a figure of a few megabytes means little.
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
    """What ``make`` makes, the seconds it took, and what records say of its memory."""
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
    """Where the figures of :func:`peak_memory` come from, in words."""
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
    """Lets the allocator give freed memory back, where it knows how."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
