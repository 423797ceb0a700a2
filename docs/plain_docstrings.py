"""An extension of the reference: docstrings have roles of reStructuredText, which a page of Markdown shows as code."""

from __future__ import annotations

import re
from typing import Any

import griffe


def plain(text: str) -> str:
    """A docstring whose roles and formulas are code.

    >>> plain("See :class:`joao.JOAO` and :math:`x^2`.")
    'See `joao.JOAO` and `x^2`.'
    """
    text = re.sub(r":(?:class|func|meth|mod|data|attr|math):`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"(?:^ *>>> .*\n?(?:^ *\S.*\n?)*)+", r"```pycon\n\g<0>\n```\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *\.\. math::\n", "", text, flags=re.MULTILINE)  # the formula below it is indented, as code is
    return re.sub(r"^( *)\.\. math:: ", r"\1    ", text, flags=re.MULTILINE)


class PlainDocstrings(griffe.Extension):
    """Makes the docstrings of all objects plain."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
