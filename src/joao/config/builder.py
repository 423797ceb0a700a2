"""The only place that builds objects from names: of a recipe, its pool, its encoder and the whole method."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from joao.augmentations import AUGMENTATIONS, AttributeMask, Augmentation
from joao.config.recipe import Recipe, pool_name
from joao.core.errors import UserError
from joao.core.graphs import Store
from joao.core.randomness import temporary_seed
from joao.data.features import CODE_RULES, Features
from joao.encoders import ENCODERS, Encoder
from joao.encoders.convolutions import ModuleEncoder
from joao.heads import HEADS, Heads
from joao.objectives import OBJECTIVES, Objective, PairObjective
from joao.policies import POLICIES, Policy


@dataclass(frozen=True)
class Method:
    """The six blocks of a contrastive method, put together."""

    augmentations: Mapping[str, Augmentation]
    encoder: Encoder
    heads: Heads
    objective: Objective
    policy: Policy


@dataclass(frozen=True)
class CustomParts:
    """A user's own objects, which take the place of the recipe's parts of that kind."""

    augmentations: Mapping[str, Augmentation] | None = None
    encoder: nn.Module | None = None
    objective: Objective | None = None

    def describe(self) -> dict[str, str]:
        """What takes the place of the recipe's parts, in words; addresses in memory are no part of them."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: re.sub(r" at 0x[0-9a-f]+", "", repr(own)) for name, own in given.items() if own is not None}


def build_method(recipe: Recipe, store: Store, own: CustomParts | None = None) -> Method:
    """The objects a recipe names, with weights from its seed."""
    own = own or CustomParts()
    pool = own.augmentations or build_pool(recipe)
    objective = build_objective(recipe, own)
    if isinstance(objective, PairObjective) and recipe.heads.name == "no_head" and set(pool) == {"identity"}:
        raise UserError(
            f"{type(objective).__name__}: compares two views, and the method shows graphs as they are. "
            "Take a method with augmentations, such as joao, or name augmentations."
        )
    with temporary_seed(recipe.training.seed, "weights"):
        encoder = _new_encoder(recipe, store, own.encoder)
        heads = HEADS[recipe.heads.name](encoder.num_dimensions, len(pool), **recipe.heads.options)
    return Method(
        augmentations=pool,
        encoder=encoder,
        heads=heads,
        objective=objective,
        policy=POLICIES[recipe.policy.name](list(pool), **recipe.policy.options),
    )


def build_pool(recipe: Recipe) -> dict[str, Augmentation]:
    """The augmentations that a recipe names, as tables call them."""
    return {
        pool_name(part, recipe.augmentations): AUGMENTATIONS[part.name](**part.options) for part in recipe.augmentations
    }


def build_objective(recipe: Recipe, own: CustomParts) -> Objective:
    if own.objective is not None:
        return own.objective
    return OBJECTIVES[recipe.objective.name](**recipe.objective.options)


def build_encoder(recipe: Recipe, store: Store, own: nn.Module | None = None) -> Encoder:
    """The encoder of :func:`build_method`, with the same weights, alone."""
    with temporary_seed(recipe.training.seed, "weights"):
        return _new_encoder(recipe, store, own)


def _new_encoder(recipe: Recipe, store: Store, own: nn.Module | None) -> Encoder:
    if own is None:
        kind: Any = ENCODERS[recipe.encoder.name]
        encoder: Encoder = kind(store.num_features, store.num_edge_features, **recipe.encoder.options)
        return encoder
    own = copy.deepcopy(own)
    if isinstance(own, Encoder):
        return own
    example = store.batch(torch.arange(min(len(store), 4)))
    return ModuleEncoder(own, example)


def check_input(encoder: Encoder, features: Features, pool: Iterable[Augmentation] = ()) -> None:
    """Refuses an encoder or a mask that takes numbers of categories for measurements, or the reverse."""
    of_codes = features.rule in CODE_RULES
    if encoder.codes != (features.rule if of_codes else None):
        wanted = f"other features than '{features.rule}'"
        if encoder.codes is not None:
            wanted = f"features = '{encoder.codes}', which {CODE_RULES[encoder.codes]} have"
        fix = "features = 'labels'" if of_codes and encoder.codes is None else "encoder gin"
        raise UserError(f"the encoder {type(encoder).__name__} needs {wanted}; got '{features.rule}'. Use {fix}.")
    for each in pool:
        if isinstance(each, AttributeMask) and (each.fill == "token") != of_codes:
            wanted = "'token'" if of_codes else "'noise' or 'mean'"
            raise UserError(f"AttributeMask: with features '{features.rule}' fill must be {wanted}, got '{each.fill}'.")
