"""Names of the members of a family, and checks of options against constructor signatures."""

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from joao.core.errors import UserError, suggest


def snake_case(name: str) -> str:
    """
    >>> snake_case("NodeDrop")
    'node_drop'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def catalogue(base: type[Any], namespace: Mapping[str, Any]) -> dict[str, type[Any]]:
    """Collect the concrete subclasses of ``base`` in a namespace, by their names in snake case.

    The ``__init__`` of a family calls it with ``globals()``: importing a new member there registers it.
    """
    members = {
        snake_case(value.__name__): value
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, base) and value is not base and not inspect.isabstract(value)
    }
    return dict(sorted(members.items()))


# Parameters set by the builder, not by the user.
_SET_BY_BUILDER = {"self", "num_features", "num_edge_features", "num_dimensions", "num_augmentations", "augmentations"}


def check_options(member: Callable[..., Any], given: Any, place: str) -> dict[str, Any]:
    """Check the given options of a class, and add the defaults of the others."""
    if not isinstance(given, Mapping):
        raise UserError(f"{place}: must be a table of options, got {given!r}.")
    signature = inspect.signature(member).parameters
    parameters = {name: signature[name] for name in signature if name not in _SET_BY_BUILDER}
    for key in given:
        if key not in parameters:
            raise UserError(f"{place}: unknown key '{key}'. {suggest(key, parameters) if parameters else ''}".rstrip())
    hints = typing.get_type_hints(getattr(member, "__init__"))  # noqa: B009
    return {
        name: check_value(given[name], hints[name], f"{place}: {name}") if name in given else parameter.default
        for name, parameter in parameters.items()
    }


def check_value(value: Any, hint: Any, place: str) -> Any:
    """Convert ``value`` to the annotated type ``hint``; raises an error if that is impossible."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        if value is None and len(choices) < len(typing.get_args(hint)):
            return None
        is_list = isinstance(value, list | tuple)
        hint = next((choice for choice in choices if (choice in (str, float, int, bool)) != is_list), choices[0])
    if hint is float and isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if hint is int and isinstance(value, Integral) and not isinstance(value, bool):
        if abs(int(value)) >= 2**63:
            raise UserError(f"{place} must fit into 64 bits, got {value}.")
        return int(value)
    if hint is str and isinstance(value, str) and any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise UserError(f"{place} must be valid UTF-8, got {value!r}. Rename the file.")
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if typing.get_origin(hint) is Sequence and isinstance(value, list | tuple):
        inside = typing.get_args(hint)[0]
        return [check_value(each, inside, place) for each in value]
    wanted = {float: "a number", int: "an integer", bool: "true or false", str: "text"}.get(hint, "a list")
    raise UserError(f"{place} must be {wanted}, got {value!r}.")
