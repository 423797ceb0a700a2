"""Tables of the paper, remade, and their pages."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from repro.tables.markup import as_html, as_latex, as_markdown
from repro.tables.overview import Figure, Overview, average

TABLE = Overview(
    title="Scores & more",
    unit="accuracy %",
    columns=["a_set", "b"],
    lines={
        "one": [Figure(80.0, 2.0, 5, 79.0), Figure(50.0, None, 5)],
        "two": [Figure(78.0, 9.0, 5, tied=True), Figure(None, paper=60.0)],
        "<three>": [Figure(77.9, 0.1, 3), None],
    },
    usual_seeds=5,
    last={"rank": {"one": "1.0"}},
    notes="Noted.",
    empty_cells=["<three> on b: 100 % too long"],
)


def test_best_and_everything_tied_with_it_is_bold():
    assert TABLE.cells() == [
        ["one", "**80.0** ± 2.0 (79.0, +1.0)", "**50.0**", "1.0"],
        ["two", "**78.0** ± 9.0", "(60.0)", ""],
        ["<three>", "77.9 ± 0.1 [3]", "", ""],
    ]


def test_average_needs_complete_rows():
    whole = [Figure(80.0, paper=70.0), Figure(60.0, paper=66.0)]
    assert average(whole) == "70.0 (68.0, +2.0)"
    assert average([whole[0], Figure(60.0)]) == "70.0"
    assert average([whole[0], Figure(None, paper=66.0)]) == ""
    assert average([whole[0], None]) == ""


def test_markdown_has_every_row_and_reasons_for_empty_cells():
    lines = as_markdown([TABLE, TABLE]).splitlines()
    assert lines.count("## Scores & more") == 2
    assert lines.count("| two | **78.0** ± 9.0 | (60.0) |  |") == 2
    assert lines[-1] == "- <three> on b: 100 % too long"
    assert sum(line.startswith("Noted. ") and "5 seeds" in line for line in lines) == 2


def test_latex_escapes_special_characters():
    text = as_latex([TABLE])
    assert r"accuracy \% & a\_set & b & rank \\" in text.splitlines()
    assert r"one & \textbf{80.0} $\pm$ 2.0 (79.0, +1.0) & \textbf{50.0} & 1.0 \\" in text.splitlines()
    assert r"\caption{Scores \& more." in text
    assert text.count(r"\begin") == text.count(r"\end") == 2


def test_html_is_well_formed_and_escapes_names():
    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.cells, self.allowed = [], [], []

        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                self.open.append(tag)
            elif dict(attrs).get("http-equiv") == "Content-Security-Policy":
                self.allowed = dict(attrs)["content"].split("; ")

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_data(self, data):
            if "td" in self.open:
                self.cells.append(data)

    reader = Reader()
    reader.feed(as_html([TABLE]))
    assert reader.open == []
    assert "".join(reader.cells).startswith("one80.0 ± 2.0 (79.0, +1.0)50.0")
    assert "<three>" in reader.cells
    assert reader.allowed == ["default-src 'none'", "style-src 'unsafe-inline'"]


@pytest.mark.parametrize("lines", [{}, {"one": [None]}])
def test_empty_column_has_no_best(lines):
    table = Overview(title="", unit="", columns=["a"], lines=lines, usual_seeds=5)
    assert table.cells() == [[name, ""] for name in lines]
