"""Oracle: clocks made by hand."""

import itertools
from dataclasses import asdict

import pytest

from repro.benchmarks.timing import Seconds, Spread, always, paired_ratio, time_in_turns


def test_tasks_take_turns_and_are_made_ready_before_the_clock_is_read():
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


def test_each_task_gets_its_own_times_without_those_of_warming_up():
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


def test_what_disturbs_a_whole_turn_divides_out_of_a_paired_ratio():
    disturbance = [1, 30, 2, 7, 1]
    first = [3 * each for each in disturbance]
    second = [2 * each for each in disturbance]
    assert paired_ratio(first, second) == Spread(1.5, 1.5, 1.5)


def test_the_paired_ratio_is_the_median_of_ratios_not_the_ratio_of_medians():
    first, second = [1, 10, 100], [1, 100, 10]
    assert paired_ratio(first, second) == Spread(1.0, 0.1, 10.0)
    assert paired_ratio([4, 9, 8], [1, 3, 8]).median == 3  # of 4, 3 and 1


def test_times_of_two_tasks_must_be_paired():
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])


def test_the_spread_is_the_median_and_the_ends():
    for values in itertools.permutations([5.0, 1.0, 2.0]):
        assert Spread.of(values) == Spread(2.0, 1.0, 5.0)
    assert asdict(Spread.of([1.0, 2.0]).times(1000)) == {"median": 1500, "least": 1000, "most": 2000}
