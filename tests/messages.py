"""Checks on error messages: their type and the values they must contain, never their wording."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from joao.core.errors import JoaoNotice, UserError


def assert_mentions(text: object, *values: object) -> None:
    """Every value (a name, a number, a path, a suggested fix) occurs in ``text``."""
    missing = [str(value) for value in values if str(value) not in str(text)]
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
