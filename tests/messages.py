"""Checks on error messages: their type and the values they must contain, never their wording."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from joao.core.errors import JoaoNotice, UserError


def mentions(text: object, value: object) -> bool:
    """Whether ``value`` occurs in ``text`` as whole words (``_`` separates words) and whole numbers.

    1 occurs in "graph 1.", but not in 10, 1.5, 1,000 or -1.
    """
    word = str(value)
    before = r"(?<![^\W_])" if word[:1].isalnum() else ""
    before += r"(?<!\d\.)(?<!-)" if word[:1].isdigit() else ""
    after = r"(?![^\W_]|[.,]\d)" if word[-1:].isdigit() else r"(?![^\W_])" if word[-1:].isalnum() else ""
    return re.search(f"{before}{re.escape(word)}{after}", str(text)) is not None


def assert_mentions(text: object, *values: object) -> None:
    """Every value (a name, a number, a path, a suggested fix) occurs in ``text``, see :func:`mentions`."""
    missing = [str(value) for value in values if not mentions(text, value)]
    assert not missing, f"{missing} not in {str(text)!r}"


@contextmanager
def refused(*values: object, error: type[BaseException] = UserError) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """The block raises ``error`` with a message of one line that mentions all ``values``."""
    with pytest.raises(error) as info:
        yield info
    message = str(info.value)
    assert message.strip()
    assert "\n" not in message
    assert_mentions(message, *values)


@contextmanager
def notice(*values: object, category: type[Warning] = JoaoNotice) -> Iterator[None]:
    """The block issues exactly one warning of ``category``, and it mentions all ``values``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", category)
        yield
    found = [str(each.message) for each in caught if issubclass(each.category, category)]
    assert len(found) == 1, found
    assert_mentions(found[0], *values)
