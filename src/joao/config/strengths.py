"""A pool whose strengths are learned: every augmentation at every strength is a member, and a prior is over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from joao.core.errors import UserError


def strength_prior(strengths: Any, place: str) -> dict[float, float]:
    """Strengths with their prior probabilities: equal for a list, else in the proportion of the weights given.

    Args:
        strengths: a list, or a table of weights by strength.
        place: begins every complaint.

    >>> strength_prior([0.1, 0.3], "recipe")
    {0.1: 0.5, 0.3: 0.5}
    >>> strength_prior({0.1: 1, 0.3: 3}, "recipe")
    {0.1: 0.25, 0.3: 0.75}
    """
    if isinstance(strengths, list | tuple):
        pairs: list[tuple[Any, Any]] = [(each, 1) for each in strengths]
    elif isinstance(strengths, Mapping):
        pairs = [pair for key, value in strengths.items() for pair in _undotted(key, value)]
    else:
        raise UserError(f"{place} must be a list such as [0.1, 0.2], or a table of weights, got {strengths!r}.")
    law: dict[float, float] = {}
    for key, weight in pairs:
        strength = _number(key, place)
        if not 0 < strength < 1:
            raise UserError(f"{place} must be above 0 and below 1, got {key}.")
        if strength in law:
            raise UserError(f"{place}: {strength} is there twice. Leave one out.")
        law[strength] = _number(weight, f"{place}: {strength}")
        if not 0 < law[strength] < float("inf"):
            raise UserError(f"{place}: {strength}: its weight must be above 0, got {weight}. Leave the strength out.")
    whole = sum(law.values())
    return {strength: weight / whole for strength, weight in law.items()}


def expand_strengths(entries: Sequence[Any], law: Mapping[float, float]) -> tuple[list[Any], list[float] | None]:
    """The pool with a member for every strength of each entry that says none, and the prior over it.

    Entries, which are names or tables, have equal shares, and the strengths of one divide its share as ``law`` says.
    ``identity`` has none. Where no entry is left to be given strengths, the pool is as it was and there is no prior.

    >>> expand_strengths(["node_drop", "identity"], {0.1: 0.5, 0.3: 0.5})[1]
    [0.25, 0.25, 0.5]
    """
    pool: list[Any] = []
    prior: list[float] = []
    for entry in entries:
        table = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        if "strength" in table or table.get("name") == "identity":
            members, shares = [entry], [1.0]
        else:
            members, shares = [{**table, "strength": strength} for strength in law], list(law.values())
        pool += members
        prior += [share / len(entries) for share in shares]
    return pool, prior if pool != list(entries) else None


def _undotted(key: Any, value: Any) -> list[tuple[Any, Any]]:
    """The entry 0.1 of a TOML table, where a dot between bare keys reaches into a table within."""
    return [(f"{key}.{rest}", each) for rest, each in value.items()] if isinstance(value, Mapping) else [(key, value)]


def _number(value: Any, place: str) -> float:
    try:
        return float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise UserError(f"{place} must be a number, got {value!r}.") from None
