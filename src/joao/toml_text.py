"""Values as TOML, which the standard library only reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def toml_value(value: Any) -> str:
    """A value as the text behind ``key =``; entries that are None are left out.

    >>> toml_value([{"name": "a", "keep": None}, True, 0.1])
    '[{ name = "a" }, true, 0.1]'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(_escaped(character) for character in value)
        return f'"{escaped}"'
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    return repr(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
