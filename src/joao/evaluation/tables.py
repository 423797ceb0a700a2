"""Format scores and tables as text."""

import re
from collections.abc import Sequence

from joao.core.errors import escape_control
from joao.evaluation.statistics import Gain


def with_deviation(mean: float, std: float | None) -> str:
    """
    >>> with_deviation(87.346, 1.02)
    '87.35 ± 1.02'
    """
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def with_interval(gain: Gain | None, times: float = 1) -> str:
    """
    >>> with_interval(Gain(2.77, -1.66, 7.21)), with_interval(Gain(0.0277, -0.0166, 0.0721), times=100)
    ('+2.77 (-1.66 to +7.21)', '+2.77 (-1.66 to +7.21)')
    """
    return "" if gain is None else f"{times * gain.mean:+.2f} ({times * gain.low:+.2f} to {times * gain.high:+.2f})"


# What begins markup inside a line: code, emphasis, links, headings, strikethrough, addresses, HTML and table cells. An
# underscore inside a word does not.
_MARKUP = re.compile(r"[\\`*\[\]#~&<|]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(|:(?=//)|(?<=www)\.")
_ENTITIES = {"&": "&amp;", "<": "&lt;", "|": "&#124;"}


def plain_text(text: object) -> str:
    r"""Escape text for Markdown, such that it reads as it is: one line without markup.

    >>> print(plain_text("a|b\n# [c](d) node_drop"))
    a&#124;b \# \[c\]\(d) node_drop
    """
    line = " ".join(escape_control(str(text)).split())
    return _MARKUP.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    r"""Format a table as Markdown; bars inside cells are escaped.

    >>> print(markdown(["a", "b"], [["1", "2|3"]]))
    | a | b |
    | --- | --- |
    | 1 | 2\|3 |
    """
    marks = ["---"] * len(header)
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in [header, marks, *lines])
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
