"""Overviews as pages of Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from joao.reporting.overview import Overview
from joao.reporting.tables import markdown


def as_markdown(overviews: Sequence[Overview]) -> str:
    """All of them, a section each."""
    return "\n".join(f"## {each.title}\n\n{body(each)}" for each in overviews)


def body(overview: Overview) -> str:
    """One of them as Markdown, without its title."""
    reasons = ["", "Left open:", "", *(f"- {reason}" for reason in overview.left_open)] if overview.left_open else []
    return "\n".join([overview.about(), "", markdown(overview.header(), overview.cells()), *reasons, ""])


def as_latex(overviews: Sequence[Overview]) -> str:
    r"""All of them, a ``table`` each, for a document with the package ``booktabs``."""
    return "\n".join(_latex_table(each) for each in overviews)


def _latex_table(overview: Overview) -> str:
    head, *rest = (
        " & ".join(for_latex(cell) for cell in line) + r" \\" for line in (overview.header(), *overview.cells())
    )
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{for_latex(f'{overview.title}. {overview.about()}')}}}",
            rf"\begin{{tabular}}{{{'l' * len(overview.header())}}}",
            r"\toprule",
            head,
            r"\midrule",
            *rest,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2em;color-scheme:light dark}"
    "div{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2em .8em .2em 0;text-align:left;white-space:nowrap;border-bottom:1px solid #8886}"
)


def as_html(overviews: Sequence[Overview]) -> str:
    """All of them, as one page without scripts."""
    sections = "\n".join(_html_section(each) for each in overviews)
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">'
    head += f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    head += "<title>joao: results</title>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{sections}\n</body></html>\n'


def _html_section(overview: Overview) -> str:
    rows = [f"<tr>{''.join(f'<th>{for_html(cell)}</th>' for cell in overview.header())}</tr>"]
    rows += [f"<tr>{''.join(f'<td>{for_html(cell)}</td>' for cell in line)}</tr>" for line in overview.cells()]
    open_cells = "".join(f"<p>Left open: {for_html(reason)}</p>" for reason in overview.left_open)
    return "\n".join(
        [
            f"<h2>{for_html(overview.title)}</h2>",
            f"<p>{for_html(overview.about())}</p>",
            "<div><table>",
            *rows,
            f"</table></div>{open_cells}",
        ]
    )


_BOLD = re.compile(r"\*\*(.+?)\*\*")


def for_latex(text: str) -> str:
    r"""
    >>> print(for_latex("**1** ± 2 %"))
    \textbf{1} $\pm$ 2 \%
    """
    return _BOLD.sub(r"\\textbf{\1}", re.sub(r"([%&#_$])", r"\\\1", text).replace("±", r"$\pm$"))


def for_html(text: str) -> str:
    """
    >>> print(for_html("**1** < 2"))
    <b>1</b> &lt; 2
    """
    return _BOLD.sub(r"<b>\1</b>", html.escape(text))
