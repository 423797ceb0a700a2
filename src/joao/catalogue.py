"""The names under which the members of a family are known to recipes and to the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any


def snake_case(name: str) -> str:
    """
    >>> snake_case("NodeDrop")
    'node_drop'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def catalogue(base: type[Any], namespace: Mapping[str, Any]) -> dict[str, type[Any]]:
    """The concrete subclasses of ``base`` among a folder's imports, by their names in snake case.

    A folder's ``__init__`` calls it with ``globals()``, so that an import is all a new member needs.
    """
    members = {
        snake_case(value.__name__): value
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, base) and value is not base and not inspect.isabstract(value)
    }
    return dict(sorted(members.items()))
