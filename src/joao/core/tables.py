"""Tables as CSV, Markdown, LaTeX and HTML, and the objects that can be written as such."""

import csv
import html
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from joao.core.errors import UserError, escape_control

# What begins markup inside a line: code, emphasis, links, headings, strikethrough, addresses, HTML and table cells. An
# underscore inside a word does not.
_MARKUP = re.compile(r"[\\`*\[\]#~&<|]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(|:(?=//)|(?<=www)\.")
_ENTITIES = {"&": "&amp;", "<": "&lt;", "|": "&#124;"}
_LATEX = {
    **{mark: f"\\{mark}" for mark in "%&#_${}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}


def plain_text(text: object) -> str:
    r"""Escape text for Markdown, such that it reads as it is: one line without markup.

    >>> print(plain_text("a|b\n# [c](d) node_drop"))
    a&#124;b \# \[c\]\(d) node_drop
    """
    line = " ".join(escape_control(str(text)).split())
    return _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), line)


def latex_text(text: object) -> str:
    r"""Escape text for LaTeX.

    >>> print(latex_text("50 % of a_b ± 1"))
    50 \% of a\_b $\pm$ 1
    """
    line = " ".join(escape_control(str(text)).split())
    return "".join(_LATEX.get(mark, mark) for mark in line)


def html_text(text: object) -> str:
    """Escape text for HTML."""
    return html.escape(escape_control(str(text)))


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


def format_csv(lines: Iterable[Iterable[object]]) -> str:
    """Format lines as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def text_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Format a table as plain text, the first column aligned to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    aligned = (
        [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        for line in (header, *lines)
    )
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


class Tabular(ABC):
    """An object with a table, whose first column has names. Text around the table goes into files and captions."""

    @abstractmethod
    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines, as text."""

    @abstractmethod
    def _numbers(self) -> tuple[list[str], list[list[Any]]]:
        """Header and lines with numbers in full precision, None for missing values."""

    def _text(self) -> tuple[str, list[str]]:
        """Text above and lines below the table."""
        return "", []

    def to_pandas(self) -> Any:
        """Convert to a pandas data frame with numbers in full precision; the names are its index."""
        try:
            import pandas
        except ImportError as error:
            raise UserError("pandas is not installed: pip install pandas") from error
        header, lines = self._numbers()
        return pandas.DataFrame(lines, columns=header).set_index(header[0]).rename_axis(header[0] or None)

    def to_csv(self) -> str:
        """Format as CSV, with numbers in full precision and empty cells for missing values."""
        header, lines = self._numbers()
        cells = ([escape_control(cell) if isinstance(cell, str) else cell for cell in line] for line in lines)
        return format_csv([header, *cells])

    def to_markdown(self) -> str:
        """Format as Markdown, with the text around the table."""
        header, lines = self.cells()
        above, below = self._text()
        table = markdown(header, [[plain_text(cell) for cell in line] for line in lines])
        return "\n\n".join(each for each in (plain_text(above), table, *map(plain_text, below)) if each) + "\n"

    def to_latex(self) -> str:
        """Format as a LaTeX table, for a document with the package ``booktabs``; the text is its caption."""
        header, lines = self.cells()
        above, below = self._text()
        caption = " ".join(latex_text(each) for each in (above, *below) if each)
        head, *rest = (" & ".join(map(latex_text, line)) + r" \\" for line in (header, *lines))
        rows = [rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", head, r"\midrule", *rest]
        table = [r"\begin{table}", r"\centering", *([rf"\caption{{{caption}}}"] if caption else [])]
        return "\n".join([*table, *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def to_html(self) -> str:
        """Format as an HTML fragment, with the text around the table."""
        header, lines = self.cells()
        above, below = self._text()
        rows = [
            f"<tr><th>{html_text(line[0])}</th>{''.join(f'<td>{html_text(cell)}</td>' for cell in line[1:])}</tr>"
            for line in lines
        ]
        head = "".join(f"<th>{html_text(cell)}</th>" for cell in header)
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"
        texts = [f"<p>{html_text(text)}</p>" if text else "" for text in (above, *below)]
        return "\n".join(each for each in (texts[0], table, *texts[1:]) if each) + "\n"

    def _repr_html_(self) -> str:
        return self.to_html()


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color-scheme:light dark}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}"
    "td,th{padding:.2em .8em .2em 0;text-align:right;white-space:nowrap;border-bottom:1px solid #8886}"
    "th:first-child{text-align:left}tbody th{font-weight:normal}"
)


def html_page(title: str, body: str) -> str:
    """Return a page without scripts around the HTML of a table."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    head += f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    head += f"<title>{html_text(title)}</title>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'
