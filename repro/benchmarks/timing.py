"""Comparable times: measured in turns on an idle device, and reported with their spread.

Two clocks are read. The wall clock is what a user waits for. The CPU time of this process leaves out the moments when
the machine worked for somebody else; with one thread on a CPU it is the steadier measure of the same work. With
several threads it adds them up, and beside a GPU it is the host's share alone.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

# Makes ready what is not timed, and returns what is.
Task = Callable[[], Callable[[], object]]
Key = TypeVar("Key")


@dataclass(frozen=True)
class Seconds:
    """Wall and CPU seconds of each turn."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def over(self, steps: int) -> Seconds:
        """Per step."""
        return Seconds([each / steps for each in self.wall], [each / steps for each in self.cpu])


@dataclass(frozen=True)
class Spread:
    """Median and spread of several measurements."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def times(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(factor * self.median, factor * self.least, factor * self.most)


def time_in_turns(
    tasks: Mapping[Key, Task],
    repeats: int,
    device: torch.device | str = "cpu",
    *,
    warm_ups: int = 1,
    wall: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
) -> dict[Key, Seconds]:
    """Time each task ``repeats`` times, in seconds.

    Every turn runs each task once, in order, so that a machine that is busy for a while is unfair to none. The
    first turns warm up and are not counted. The device is at rest whenever the clocks are read.
    """
    seconds = {name: Seconds() for name in tasks}
    for turn in range(warm_ups + repeats):
        for name, prepare in tasks.items():
            run = prepare()
            synchronise(device)
            before = wall(), cpu()
            run()
            synchronise(device)
            after = wall(), cpu()
            if turn >= warm_ups:
                seconds[name].wall.append(after[0] - before[0])
                seconds[name].cpu.append(after[1] - before[1])
    return seconds


def child_seconds() -> float:
    """CPU seconds of all processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def synchronise(device: torch.device | str) -> None:
    """Wait until the device has finished its work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def always(run: Callable[[], object]) -> Task:
    """A task that needs no preparation."""
    return lambda: run


def paired_ratio(first: Sequence[float], second: Sequence[float]) -> Spread:
    r"""The median of :math:`a_t / b_t` over turns: a disturbance of a whole turn cancels out."""
    return Spread.of([one / other for one, other in zip(first, second, strict=True)])
