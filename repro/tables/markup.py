"""Sections, such as overviews, as Markdown, LaTeX or HTML."""

import html
import re
from collections.abc import Sequence
from typing import Protocol

from joao.core.tables import latex_text
from joao.evaluation.tables import markdown


class Section(Protocol):
    """A table with a title and text before and after it. Text between ``**`` is bold."""

    @property
    def title(self) -> str: ...
    @property
    def empty_cells(self) -> Sequence[str]: ...
    @property
    def paragraphs(self) -> Sequence[str]: ...
    def about(self) -> str: ...
    def header(self) -> list[str]: ...
    def cells(self) -> list[list[str]]: ...


def as_markdown(sections: Sequence[Section]) -> str:
    """Return all sections as Markdown."""
    return "\n".join(f"## {each.title}\n\n{body(each)}" for each in sections)


def body(section: Section) -> str:
    """Return a section as Markdown, without its title."""
    reasons = (
        ["", "Empty cells:", "", *(f"- {reason}" for reason in section.empty_cells)] if section.empty_cells else []
    )
    return "\n".join(
        [
            section.about(),
            "",
            markdown(section.header(), section.cells()),
            *reasons,
            *(f"\n{each}" for each in section.paragraphs),
            "",
        ]
    )


def as_latex(sections: Sequence[Section]) -> str:
    r"""Return one ``table`` per section, for a document with the package ``booktabs``."""
    return "\n".join(_latex_table(each) for each in sections)


def _latex_table(section: Section) -> str:
    head, *rest = (
        " & ".join(for_latex(cell) for cell in line) + r" \\" for line in (section.header(), *section.cells())
    )
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{for_latex(f'{section.title}. {section.about()}')}}}",
            rf"\begin{{tabular}}{{{'l' * len(section.header())}}}",
            r"\toprule",
            head,
            r"\midrule",
            *rest,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
            *(f"{for_latex(each)}\n" for each in section.paragraphs),
        ]
    )


_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2em;color-scheme:light dark}"
    "div{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2em .8em .2em 0;text-align:left;white-space:nowrap;border-bottom:1px solid #8886}"
)


def as_html(sections: Sequence[Section]) -> str:
    """Return all sections as one page without scripts."""
    parts = "\n".join(_html_section(each) for each in sections)
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">'
    head += f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    head += "<title>joao: results</title>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{parts}\n</body></html>\n'


def _html_section(section: Section) -> str:
    rows = [f"<tr>{''.join(f'<th>{for_html(cell)}</th>' for cell in section.header())}</tr>"]
    rows += [f"<tr>{''.join(f'<td>{for_html(cell)}</td>' for cell in line)}</tr>" for line in section.cells()]
    open_cells = "".join(f"<p>Empty cell: {for_html(reason)}</p>" for reason in section.empty_cells)
    return "\n".join(
        [
            f"<h2>{for_html(section.title)}</h2>",
            f"<p>{for_html(section.about())}</p>",
            "<div><table>",
            *rows,
            f"</table></div>{open_cells}",
            *(f"<p>{for_html(each)}</p>" for each in section.paragraphs),
        ]
    )


_BOLD = re.compile(r"\*\*(.+?)\*\*")


def for_latex(text: str) -> str:
    r"""
    >>> print(for_latex("**1** ± 2 %"))
    \textbf{1} $\pm$ 2 \%
    """
    return _BOLD.sub(r"\\textbf{\1}", latex_text(text))


def for_html(text: str) -> str:
    """
    >>> print(for_html("**1** < 2"))
    <b>1</b> &lt; 2
    """
    return _BOLD.sub(r"<b>\1</b>", html.escape(text))
