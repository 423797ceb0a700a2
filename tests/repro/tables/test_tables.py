"""The words that all tables share."""

from joao.evaluation.tables import markdown, with_deviation
from repro.protocols.unsupervised.run import REFERENCES, grid
from repro.tables.names import NAMES


def test_every_method_of_the_table_has_a_name():
    assert set(NAMES) >= {*REFERENCES, *grid()["methods"]}


def test_deviation():
    assert with_deviation(87.5, 1.0) == "87.50 ± 1.00"
    assert with_deviation(87.5, None) == "87.50"


def test_markdown():
    assert markdown(["a", "b"], [["1", "2"], ["3", ""]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 |  |"
