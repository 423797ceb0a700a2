"""Change a recipe before it is validated, as ``--set`` does."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from joao.config.methods import ONE_VIEW
from joao.config.recipe import METHODS
from joao.core.errors import UserError


def apply_overrides(table: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return a copy of ``table`` with ``key=value`` settings; a dot in a key addresses an option of a part.

    A part that gets another name loses its options, and setting the method replaces its parts.

    >>> apply_overrides({"encoder": "gin"}, ["encoder.width=64", "policy=uniform"])
    {'encoder': {'name': 'gin', 'width': 64}, 'policy': 'uniform'}
    """
    result = dict(table)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting}: expected key=value, for example training.epochs=5.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            value = text
        first, dot, second = key.partition(".")
        if not dot:
            if first == "method" and isinstance(value, str):
                result = _with_method(result, value)
            result[first] = value
            continue
        part = result.get(first, {})
        if isinstance(part, str):
            part = {"name": part}
        if not isinstance(part, Mapping):
            raise UserError(f"--set {setting}: '{first}' has no keys. Set the whole value: {first}=[...].")
        result[first] = _rename_part(part, value) if second == "name" else {**part, second: value}
    return result


def _with_method(table: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return a copy of ``table`` in which the parts that it sets are those of ``method``."""
    chosen, result = METHODS.get(method, {}), dict(table)
    for key in chosen.keys() & table.keys() - {"strengths"}:
        result[key] = list(chosen[key]) if key == "augmentations" else _rename_part(table[key], chosen[key])
    if chosen and "augmentations" not in chosen and _has_one_view(table):
        result.pop("augmentations", None)
    if chosen and ("strengths" in chosen) != _learns_strengths(table) and _is_pool(result.get("augmentations")):
        result["augmentations"] = _without_strengths(result["augmentations"])
    return result


def _has_one_view(table: Mapping[str, Any]) -> bool:
    """Whether the pool of ``table`` is the default of its node-level objective."""
    pool = table.get("augmentations")
    if not _is_pool(pool) or tuple(map(_name, pool)) != ONE_VIEW["augmentations"]:
        return False
    objective = _name(table.get("objective", METHODS.get(str(table.get("method")), {}).get("objective")))
    return any(parts["objective"] == objective for parts in METHODS.values() if "augmentations" in parts)


def _learns_strengths(table: Mapping[str, Any]) -> bool:
    """Whether the pool of ``table`` was made by a method that learns strengths."""
    pool, policy = table.get("augmentations"), _name(table.get("policy"))
    learning = any(parts["policy"] == policy for parts in METHODS.values() if "strengths" in parts)
    return learning and _is_pool(pool) and len(set(map(_name, pool))) < len(pool)


def _without_strengths(pool: Sequence[Any]) -> list[Any]:
    """Return every name of a pool once and without its strength, which the new method will choose."""
    first = {_name(part): part for part in reversed(pool)}
    members = [first[name] for name in dict.fromkeys(map(_name, pool))]
    return [
        {key: value for key, value in part.items() if key != "strength"} if isinstance(part, Mapping) else part
        for part in members
    ]


def _name(part: Any) -> Any:
    return part.get("name") if isinstance(part, Mapping) else part


def _is_pool(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple) and all(isinstance(_name(part), str) for part in value)


def _rename_part(part: Any, name: Any) -> Any:
    """Return the part with another name; if the name changes, the options are dropped."""
    if not isinstance(part, Mapping) or part.get("name", name) != name:
        return {"name": name}
    return {**part, "name": name}
