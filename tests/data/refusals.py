"""Messages of readers by the values in them: text as it stands, and whole numbers by themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import messages

_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?!\w|\.\d)")


def assert_told(text: object, *values: str | int) -> None:
    """Every text is in it; every number stands in it by itself, as often as given, digits in names of folders aside."""
    messages.assert_mentions(text, *(value for value in values if not isinstance(value, int)))
    found = Counter(map(int, _NUMBER.findall(re.sub(r"\S*/", "", str(text)))))
    missing = Counter(value for value in values if isinstance(value, int)) - found
    assert not missing, f"{list(missing.elements())} not in {str(text)!r}"


@contextmanager
def refused(*values: str | int) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """The block raises UserError with a message of one line that has all ``values``, as :func:`assert_told` counts."""
    with messages.refused() as info:
        yield info
    assert_told(info.value, *values)
