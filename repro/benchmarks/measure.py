"""From a plan to a record: every workload on every device and number of threads."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from joao.core.processes import map_in_processes
from joao.core.provenance import command, machine, memory_source, versions
from joao.data import list_datasets
from joao.training.device import make_fabric, matmul_precision, pick_device
from repro.benchmarks.plan import Plan
from repro.benchmarks.scaling import axes, measure_axis
from repro.benchmarks.side_by_side import ABOUT, measure_workload
from repro.benchmarks.svm import measure_svm
from repro.benchmarks.timing import always, child_seconds, time_in_turns
from repro.benchmarks.workloads import make_workload
from repro.tasks import torch_threads

READ, QUICKLY_READ = ("COLLAB", "REDDIT-MULTI-5K"), ("MUTAG",)
READING = "import joao.data, sys; joao.data.read(sys.argv[1], sys.argv[2] or None)"
MOST_TURNS = 3  # over all sizes of an axis: the largest ones take long


@dataclass(frozen=True)
class Setting:
    """A device, and the number of torch threads."""

    device: str
    threads: int


def settings_of(plan: Plan) -> list[Setting]:
    """List the settings: the CPU with every number of threads, a GPU with the first."""
    kinds = dict.fromkeys(pick_device(name).type for name in plan.devices)
    return [Setting(kind, number) for kind in kinds for number in (plan.threads if kind == "cpu" else plan.threads[:1])]


def num_stages(plan: Plan) -> int:
    """Count the progress reports of :func:`measure`."""
    return len(settings_of(plan)) * len(stages(plan))


def stages(plan: Plan) -> list[str]:
    """List the measurements of every setting, in order."""
    return [*plan.names, *(axes(plan.quick) if plan.scaling else ()), *_extras(plan)]


def measure(plan: Plan, on_stage: Callable[[str], None] = lambda what: None) -> dict[str, Any]:
    """Measure and return the record of a benchmark. Several settings are measured in turn, each in its own process."""
    settings = settings_of(plan)
    if len(settings) == 1:
        results = [measure_setting(plan, settings[0], on_stage)]
    else:
        results = []
        for setting in settings:
            results.append(_in_new_process(plan, setting))
            for name in stages(plan):
                on_stage(f"{name}, {setting.device}, {setting.threads} threads")
    return {
        "command": command(),
        "versions": versions(),
        "seed": plan.seed,
        "repeats": plan.repeats,
        "quick": plan.quick,
        "about": ABOUT,
        "own process for each setting": len(settings) > 1,
        "settings": results,
    }


def _in_new_process(plan: Plan, setting: Setting) -> dict[str, Any]:
    """Measure in a process that was started with its number of threads."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(setting.threads)
    try:
        ((_, found),) = map_in_processes(partial(measure_setting, plan), [setting], 1)
        return found
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def measure_setting(
    plan: Plan, setting: Setting, on_stage: Callable[[str], None] = lambda what: None
) -> dict[str, Any]:
    """Measure all workloads and the scaling on one device with one number of threads."""
    device = pick_device(setting.device)
    fabric = make_fabric(device.type, plan.precision if device.type == "cuda" else "32-true")
    with torch_threads(setting.threads), matmul_precision(fabric):
        result: dict[str, Any] = {
            "machine": machine(device),
            "peak memory by": memory_source(device),
            "roof": measure_roof(device, plan.repeats),
            "workloads": [],
        }
        for name in plan.names:
            result["workloads"].append(measure_workload(make_workload(name, plan, device), plan, device))
            on_stage(name)
        if plan.scaling:
            result["scaling"] = {}
            for name, axis in axes(plan.quick).items():
                result["scaling"][name] = measure_axis(axis, device, min(plan.repeats, MOST_TURNS), plan.seed)
                on_stage(name)
        for name, extra in _extras(plan).items():
            result[name] = extra(plan)
            on_stage(name)
    return result


def measure_roof(device: torch.device, repeats: int) -> dict[str, float]:
    """Measure GFLOP/s of a product of float32 matrices, with the current precision.

    And GB/s, read and written, of a copy that no cache holds.
    """
    gpu = device.type == "cuda"
    size, length = (8192, 2**28) if gpu else (1024, 2**24)
    square, long = torch.ones(size, size, device=device), torch.ones(length, device=device)
    out, copy = torch.empty_like(square), torch.empty_like(long)
    tasks = {"product": always(lambda: torch.mm(square, square, out=out)), "copy": always(lambda: copy.copy_(long))}
    seconds = time_in_turns(tasks, repeats, device)
    return {
        "GFLOP/s": 2 * size**3 / statistics.median(seconds["product"].wall) / 1e9,
        "GB/s": 8 * length / statistics.median(seconds["copy"].wall) / 1e9,
    }


def measure_reading(plan: Plan) -> dict[str, Any]:
    """Wall and CPU seconds of fresh processes that read a data set; the last repeats what the one before it kept."""
    names = QUICKLY_READ if plan.quick else READ
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
        [sys.executable, "-c", READING, name, data_root], env={**os.environ, "JOAO_CACHE": cache}, check=True
    )
    return {"seconds": time.perf_counter() - started, "CPU seconds": child_seconds() - before}


def _extras(plan: Plan) -> dict[str, Callable[[Plan], dict[str, Any]]]:
    """Measure reading and scoring."""
    known = {"svm": measure_svm, "reading": measure_reading}
    return {name: extra for name, extra in known.items() if getattr(plan, name)}
