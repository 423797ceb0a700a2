"""Load the compiled core, C++ in ``_native``, where it was built; everything works without it, on torch alone.

``JOAO_NATIVE`` is ``off``, or the highest level of instructions to use: ``baseline``, ``avx2`` or ``avx512``.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from joao.core.errors import UserError

FOLDER = Path(__file__).parent / "_native"
LEVELS = ("baseline", "avx2", "avx512")


def load_library() -> ctypes.CDLL | None:
    """Return the library for this processor, or None if it was not built or is switched off."""
    level = native_level()
    return _open(level) if level in LEVELS else None


def native_level() -> str:
    """Return the level of instructions of the compiled core, ``off``, or ``not built``."""
    wanted = os.environ.get("JOAO_NATIVE") or LEVELS[-1]
    if wanted not in ("off", *LEVELS):
        raise UserError(f"JOAO_NATIVE: must be off, {', '.join(LEVELS)}, got '{wanted}'.")
    if wanted == "off":
        return wanted
    baseline = _open("baseline")
    if baseline is None:
        return "not built"
    highest = min(LEVELS.index(wanted), baseline.joao_cpu_level())
    return next(level for level in reversed(LEVELS[: highest + 1]) if _open(level) is not None)


def describe() -> str:
    """Say in one line whether training on a CPU uses the compiled core."""
    level = native_level()
    if level in LEVELS:
        return f"compiled core: {level}"
    reason = "JOAO_NATIVE=off" if level == "off" else "not built; install a C++ compiler and joao again"
    return f"compiled core: none ({reason}); training uses torch alone"


@cache
def _open(level: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(FOLDER / f"{level}.so"))
    except OSError:  # not built, or built for another system
        return None
