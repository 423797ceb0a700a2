"""Oracle: lines written by hand."""

import pytest

from repro.tables.benchmarks import (
    fit_line,
    growth_table,
    part_lines,
    ratio_lines,
    reading_lines,
    row_lines,
    svm_lines,
)
from tests.messages import assert_mentions

TWO = {"median": 2.0, "least": 1.0, "most": 30.0}
WORKLOAD = {
    "rows": {
        "GraphCL step": {
            "ms per step": TWO,
            "CPU ms per step": TWO,
            "graphs per second": 64_000.0,
            "peak bytes": 12_000_000,
            "GFLOP/s": 3.04,
            "GB/s": 0.5,
        },
        "rival": {"ms per step": TWO, "CPU ms per step": TWO, "graphs per second": 64.0, "peak bytes": None},
    },
    "ratios": {"a / b": TWO},
    "ratios of CPU time": {"a / b": {"median": 1.5, "least": 1.25, "most": 1.75}},
    "not measured": {"PyGCL": "ImportError."},
    "parts": {"backward": {"ms": TWO, "CPU ms": {"median": 0.5}}},
}


def test_rows_and_parts():
    assert row_lines(WORKLOAD) == [
        ["GraphCL step", "2.00 (1.00 to 30.0)", "2.00", "64,000", "3.0", "0.5", "12"],
        ["rival", "2.00 (1.00 to 30.0)", "2.00", "64", "", "", ""],
    ]
    assert part_lines(WORKLOAD) == [["backward", "2.00 (1.00 to 30.0)", "0.5"]]


def test_ratios_of_cpu_time_need_one_thread():
    for device, threads in (("cpu", 1), ("cpu", 2), ("cuda", 1)):
        ratio, absent = ratio_lines(WORKLOAD, {"device": device, "threads": threads})
        assert_mentions(ratio, "a / b", "2.00 (1.00 to 30.0)")
        assert ("1.50 (1.25 to 1.75)" in ratio) == ((device, threads) == ("cpu", 1))
        assert_mentions(absent, "PyGCL", "ImportError.")


def test_growth():
    fit = {"exponent": 1.004, "smallest": 100, "largest": 1000}
    axis = {
        "against": "graphs",
        "clock": "cpu",
        "sizes": [100.0, 1000.0],
        "medians": {"an epoch": [0.01, 0.1]},
        "peak bytes, graphs included": [10**6, 10**7],
        "fits": {"an epoch": fit, "peak memory": {**fit, "exponent": 0.5}},
    }
    header, (epoch, memory) = growth_table(axis)
    assert header[1:3] == ["100", "1,000"]
    assert_mentions(header[0], "CPU ms", "graphs")
    assert epoch == ["an epoch", "10.0", "100", "1.00"]
    assert memory[1:] == ["1.00", "10.0", "0.50"]
    assert_mentions(fit_line(axis), "100", "1,000")


@pytest.mark.parametrize(("identical", "word"), [(True, "identical"), (False, "DIFFER")])
def test_the_svm_protocol(identical, word):
    svm = {
        "data": "Looms",
        "graphs": 4110,
        "dimensions": 96,
        "folds": 2,
        "identical": identical,
        "seconds of each turn": {"plain, 1 job": [10.0, 11.0], "ours, 2 jobs": [2.0, 1.5]},
        "times faster": {"plain, 1 job / ours, 2 jobs": 6.0},
    }
    told = svm_lines(svm)
    assert_mentions(told[0], 2, "Looms", "4,110 x 96", word)
    assert told[1:] == ["plain, 1 job: 21.0 s, ours, 2 jobs: 3.50 s", "plain, 1 job / ours, 2 jobs: 6.00"]


def test_reading():
    reading = {
        "Looms": {
            "not kept": {"seconds": 2.0, "CPU seconds": 1.0},
            "second time": {"seconds": 0.25, "CPU seconds": 0.2},
        },
        "Mills": {"not measured": "absent"},
    }
    looms, mills = reading_lines(reading)
    assert_mentions(looms, "Looms", "2.00 s", "0.25 s")
    assert_mentions(mills, "Mills", "absent")
