"""Names of the members of a family, and checks of options and records against annotations."""

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeVar

from joao.core.errors import UserError, short_repr, suggest


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


def check_options(member: Callable[..., Any], options: Any, place: str) -> dict[str, Any]:
    """Check options of a class, and add the defaults of the others."""
    if not isinstance(options, Mapping):
        raise UserError(f"{place}: must be a table of options, got {options!r}.")
    signature = inspect.signature(member).parameters
    parameters = {name: signature[name] for name in signature if name not in _SET_BY_BUILDER}
    for key in options:
        if key not in parameters:
            raise UserError(f"{place}: unknown key '{key}'. {suggest(key, parameters) if parameters else ''}".rstrip())
    hints = typing.get_type_hints(getattr(member, "__init__"))  # noqa: B009
    return {
        name: check_value(options[name], hints.get(name, Any), f"{place}: {name}")
        if name in options
        else parameter.default
        for name, parameter in parameters.items()
    }


Record = TypeVar("Record")


def make_record(kind: type[Record], values: Any, place: str, *, allow_unknown: bool = False) -> Record:
    """Make a dataclass from parsed JSON, whose keys and types must be those of its fields, also inside of them."""
    if not isinstance(values, Mapping):
        raise UserError(f"{place}: expected a JSON object, got {short_repr(values)}.")
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    for name, each in known.items():
        if name not in values and each.default is MISSING and each.default_factory is MISSING:
            raise UserError(f"{place}: missing key '{name}'.")
    unknown = [name for name in values if name not in known]
    if unknown and not allow_unknown:
        raise UserError(f"{place}: unknown key {short_repr(unknown[0])}.")
    hints = _type_hints(kind)  # type: ignore[arg-type]
    checked = {name: check_value(values[name], hints[name], f"{place}: {name}") for name in known if name in values}
    return kind(**checked)


@cache
def _type_hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def check_value(value: Any, hint: Any, place: str) -> Any:
    """Convert ``value`` to the annotated type ``hint``; raises an error if that is impossible."""
    if hint is Any:
        return value
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, types.UnionType) or origin is typing.Union:
        choices = [choice for choice in inside if choice is not type(None)]
        if value is None and len(choices) < len(inside):
            return None
        is_list = isinstance(value, list | tuple)
        fitting = [choice for choice in choices if (choice in (str, float, int, bool)) != is_list]
        exact = [choice for choice in fitting if type(value) is choice]
        return check_value(value, (exact or fitting or choices)[0], place)
    if hint is float and isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            if math.isfinite(value):
                return float(value)
    if hint is int and isinstance(value, Integral) and not isinstance(value, bool):
        if abs(int(value)) >= 2**63:
            raise UserError(f"{place} must fit into 64 bits, got {short_repr(value)}.")
        return int(value)
    if hint is str and isinstance(value, str) and any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise UserError(f"{place} must be valid UTF-8, got {value!r}. Rename the file.")
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if origin in (Sequence, list, tuple) and isinstance(value, list | tuple):
        return (tuple if origin is tuple else list)(check_value(each, inside[0], place) for each in value)
    if origin is Mapping and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        if inside[1] is Any:
            return dict(value)
        return {key: check_value(each, inside[1], f"{place}: {short_repr(key)}") for key, each in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return hint.from_json(value) if hasattr(hint, "from_json") else make_record(hint, value, place)
    expected = {float: "a number", int: "an integer", bool: "true or false", str: "text"}.get(hint)
    raise UserError(
        f"{place} must be {expected or ('an object' if origin is Mapping else 'a list')}, got {short_repr(value)}."
    )


def check_minimum(place: str, least: int, **values: int | None) -> None:
    """Raise a :class:`UserError` for values that are not integers from ``least``; None is not checked."""
    for name, value in values.items():
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool)):
            raise UserError(f"{place}: {name} must be an integer, got {short_repr(value)}.")
        if value is not None and value < least:
            raise UserError(f"{place}: {name} must be at least {least}, got {value}.")
