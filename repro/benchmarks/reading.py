"""Time to read a data set: parsed, parsed and cached, and read from the cache."""

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from joao.data import list_datasets
from repro.benchmarks.plan import Plan
from repro.benchmarks.timing import child_seconds

DATA, QUICK_DATA = ("COLLAB", "REDDIT-MULTI-5K"), ("MUTAG",)
PROGRAM = "import joao.data, sys; joao.data.read(sys.argv[1], sys.argv[2] or None)"


def measure_reading(plan: Plan) -> dict[str, Any]:
    """Wall and CPU seconds of fresh processes that read a data set; the last repeats what the one before it kept."""
    names = QUICK_DATA if plan.quick else DATA
    result: dict[str, Any] = {}
    for name in names:
        if name not in list_datasets(plan.data_root):
            result[name] = {"not measured": "it is not under the data root"}
            continue
        with tempfile.TemporaryDirectory() as cache:
            places = {"not kept": "off", "first time": cache, "second time": cache}
            result[name] = {way: _read(name, plan.data_root or "", place) for way, place in places.items()}
    return result


def _read(name: str, data_root: str, cache: str) -> dict[str, float]:
    """Measure a process that starts, imports, reads and ends."""
    before, started = child_seconds(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, name, data_root], env={**os.environ, "JOAO_CACHE": cache}, check=True
    )
    return {"seconds": time.perf_counter() - started, "CPU seconds": child_seconds() - before}
