"""Oracle: clocks made by hand."""

import itertools
from dataclasses import asdict

import pytest

from repro.benchmarks.timing import Seconds, Spread, always, paired_ratio, time_in_turns


def test_tasks_alternate_and_setup_is_not_timed():
    told = []

    def task(name):
        def prepare():
            told.append(f"prepare {name}")
            return lambda: told.append(f"run {name}")

        return prepare

    def clock():
        told.append("clock")
        return 0.0

    time_in_turns({"a": task("a"), "b": task("b")}, 2, warm_ups=0, wall=clock, cpu=lambda: 0.0)
    turn = [f"{what}{name}" for name in "ab" for what in ("prepare ", "clock", "run ", "clock")]
    assert told == [each.removesuffix("a").removesuffix("b") if "clock" in each else each for each in turn] * 2


def test_warm_up_is_not_timed():
    now = {"wall": 0.0, "cpu": 0.0}

    def lasting(seconds):
        durations = iter(seconds)

        def run():
            step = next(durations)
            now["wall"] += step
            now["cpu"] += step / 2

        return always(run)

    tasks = {"first": lasting([100, 1, 2]), "second": lasting([200, 4, 8])}
    seconds = time_in_turns(tasks, 2, warm_ups=1, wall=lambda: now["wall"], cpu=lambda: now["cpu"])
    assert seconds == {"first": Seconds([1, 2], [0.5, 1]), "second": Seconds([4, 8], [2, 4])}
    assert seconds["second"].over(4) == Seconds([1, 2], [0.5, 1])


def test_paired_ratio_cancels_common_disturbances():
    disturbance = [1, 30, 2, 7, 1]
    first = [3 * each for each in disturbance]
    second = [2 * each for each in disturbance]
    assert paired_ratio(first, second) == Spread(1.5, 1.5, 1.5)


def test_paired_ratio_is_the_median_of_ratios():
    first, second = [1, 10, 100], [1, 100, 10]
    assert paired_ratio(first, second) == Spread(1.0, 0.1, 10.0)
    assert paired_ratio([4, 9, 8], [1, 3, 8]).median == 3  # of 4, 3 and 1


def test_times_of_two_tasks_must_be_paired():
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])


def test_spread_is_median_minimum_and_maximum():
    for values in itertools.permutations([5.0, 1.0, 2.0]):
        assert Spread.of(values) == Spread(2.0, 1.0, 5.0)
    assert asdict(Spread.of([1.0, 2.0]).times(1000)) == {"median": 1500, "least": 1000, "most": 2000}
