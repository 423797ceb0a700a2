"""Text in Markdown reads as it is, whatever it contains."""

import html

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from joao.core.errors import escape_control
from joao.evaluation.tables import markdown, plain_text

NASTY = st.text(st.sampled_from(list("ab1 _*`[]()#!|<>~&:/.\\-+=\n\t\"'@w;x")), max_size=30)


@pytest.fixture(scope="module")
def renderer():
    """An independent implementation of CommonMark, with tables and strikethrough."""
    return pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])


@given(text=NASTY | st.text(max_size=30))
@example("**b** _i_ ~~s~~ `c` [click](javascript:alert) ![p](http://a.b/p.png) <script> &lt; a|b\n# h")
@example("\\*a* a__b__ _")
def test_plain_text_is_rendered_as_it_is(renderer, text):
    shown = " ".join(escape_control(text).split())
    rendered = renderer.render(f"x {plain_text(text)}.")
    assert html.unescape(rendered) == f"<p>x {shown}.</p>\n"


@given(text=NASTY)
def test_plain_text_stays_in_its_cell(renderer, text):
    rendered = renderer.render(markdown(["a", "b"], [[f"x{plain_text(text)}x", "y"]]))
    shown = " ".join(escape_control(text).split())
    assert f"<td>x{shown}x</td>\n<td>y</td>" in html.unescape(rendered)
