"""The table of targets."""

from repro.studies.benchmark_tables import at_least, at_most


def test_a_rounded_figure_never_contradicts_its_verdict():
    assert at_most("a", 1.2, 1.201) == ["a", "at most 1.20", "1.201", "missed"]
    assert at_most("a", 1.2, 1.25) == ["a", "at most 1.20", "1.25", "missed"]
    assert at_least("a", 1.5, 1.499) == ["a", "at least 1.5", "1.499", "missed"]
    assert at_least("a", 15_000, 21_156.4) == ["a", "at least 15,000", "21,156", "met"]
