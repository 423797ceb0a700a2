"""Griffe extension: convert reStructuredText roles and formulas in docstrings to Markdown code."""

from __future__ import annotations

import re
from typing import Any

import griffe


def plain(text: str) -> str:
    """Replace roles and formulas by code.

    >>> plain("See :class:`joao.JOAO` and :math:`x^2`.")
    'See `joao.JOAO` and `x^2`.'
    """
    text = re.sub(r":(?:class|func|meth|mod|data|attr|math):`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"(?:^ *>>> .*\n?(?:^ *\S.*\n?)*)+", r"```pycon\n\g<0>\n```\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *\.\. math::\n", "", text, flags=re.MULTILINE)  # the formula below is indented like code
    return re.sub(r"^( *)\.\. math:: ", r"\1    ", text, flags=re.MULTILINE)


class PlainDocstrings(griffe.Extension):
    """Convert the docstrings of all objects."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
