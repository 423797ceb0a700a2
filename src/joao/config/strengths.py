"""Pools with learned strengths: every augmentation at every strength is a member, with a prior over all members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from joao.core.errors import UserError


def strength_prior(strengths: Any, source: str) -> dict[float, float]:
    """Return prior probabilities by strength: uniform for a list, proportional to the weights for a table.

    >>> strength_prior({0.1: 1, 0.3: 3}, source="recipe")
    {0.1: 0.25, 0.3: 0.75}
    """
    if isinstance(strengths, list | tuple):
        pairs: list[tuple[Any, Any]] = [(each, 1) for each in strengths]
    elif isinstance(strengths, Mapping):
        pairs = [pair for key, value in strengths.items() for pair in _join_dotted_key(key, value)]
    else:
        raise UserError(f"{source} must be a list such as [0.1, 0.2], or a table of weights, got {strengths!r}.")
    prior: dict[float, float] = {}
    for key, weight in pairs:
        strength = _number(key, source)
        if not 0 < strength < 1:
            raise UserError(f"{source} must be above 0 and below 1, got {key}.")
        if strength in prior:
            raise UserError(f"{source}: {strength} is given twice. Remove one.")
        prior[strength] = _number(weight, f"{source}: {strength}")
        if not 0 < prior[strength] < float("inf"):
            raise UserError(
                f"{source}: {strength}: the weight must be above 0, got {weight}. Remove the strength instead."
            )
    total = sum(prior.values())
    return {strength: weight / total for strength, weight in prior.items()}


def expand_strengths(entries: Sequence[Any], prior: Mapping[float, float]) -> tuple[list[Any], list[float] | None]:
    """Replace every entry without a strength by one member per strength; return the pool and its prior.

    Entries are names or tables and have equal probability, which the members of an entry divide by ``prior``.
    ``identity`` has no strength. If no entry is replaced, the pool stays as it is and the prior is None.

    >>> expand_strengths(["node_drop", "identity"], {0.1: 0.5, 0.3: 0.5})[1]
    [0.25, 0.25, 0.5]
    """
    pool: list[Any] = []
    probabilities: list[float] = []
    for entry in entries:
        table = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        if "strength" in table or table.get("name") == "identity":
            members, shares = [entry], [1.0]
        else:
            members, shares = [{**table, "strength": strength} for strength in prior], list(prior.values())
        pool += members
        probabilities += [share / len(entries) for share in shares]
    return pool, probabilities if pool != list(entries) else None


def _join_dotted_key(key: Any, value: Any) -> list[tuple[Any, Any]]:
    """Join the parts of the TOML key 0.1, which TOML reads as key 1 in a table 0."""
    return [(f"{key}.{rest}", each) for rest, each in value.items()] if isinstance(value, Mapping) else [(key, value)]


def _number(value: Any, source: str) -> float:
    try:
        return float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise UserError(f"{source} must be a number, got {value!r}.") from None
