"""Build the objects that a recipe names. Nothing else makes objects from names."""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

import torch
from torch import nn

from joao.augmentations import AUGMENTATIONS, AttributeMask, Augmentation
from joao.config.recipe import Recipe, pool_name
from joao.core.errors import UserError, one_line, short_repr
from joao.core.graphs import Store
from joao.core.memory import Budget
from joao.core.randomness import temporary_seed
from joao.data.features import CODE_RULES, Features
from joao.encoders import ENCODERS, Encoder
from joao.encoders.convolutions import ModuleEncoder
from joao.heads import HEADS, Heads
from joao.objectives import OBJECTIVES, Objective, PairObjective
from joao.policies import POLICIES, Policy


@dataclass(frozen=True)
class Method:
    """The objects of a contrastive method."""

    augmentations: Mapping[str, Augmentation]
    encoder: Encoder
    heads: Heads
    objective: Objective
    policy: Policy


EncoderFactory = Callable[[int, int], nn.Module]  # makes a module for these numbers of node and edge features


@dataclass(frozen=True)
class CustomParts:
    """The user's objects, which replace the parts of the same kind in the recipe."""

    augmentations: Mapping[str, Augmentation] | None = None
    encoder: nn.Module | EncoderFactory | None = None
    objective: Objective | None = None

    def describe(self) -> dict[str, str]:
        """Return the representation of each object, without memory addresses."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: re.sub(r" at 0x[0-9a-f]+", "", repr(part)) for name, part in parts.items() if part is not None}


def build_method(recipe: Recipe, store: Store, custom: CustomParts | None = None) -> Method:
    """Build the objects of a recipe, with weights drawn from its seed."""
    custom = custom or CustomParts()
    pool = custom.augmentations or build_pool(recipe)
    objective = build_objective(recipe, custom)
    if isinstance(objective, PairObjective) and recipe.heads.name == "no_head" and set(pool) == {"identity"}:
        raise UserError(
            f"{type(objective).__name__}: compares two views, but the method does not augment graphs. "
            "Use a method with augmentations, such as joao, or set augmentations."
        )
    if custom.encoder is None:
        check_memory(recipe, store, len(pool))
    with temporary_seed(recipe.training.seed, "weights"):
        encoder = _new_encoder(recipe, store, custom.encoder)
        heads = HEADS[recipe.heads.name](encoder.num_dimensions, len(pool), **recipe.heads.options)
    policy = POLICIES[recipe.policy.name](list(pool), **recipe.policy.options)
    return Method(pool, encoder, heads, objective, policy)


def build_pool(recipe: Recipe) -> dict[str, Augmentation]:
    """Build the augmentations of a recipe, by their names in tables."""
    pool = recipe.augmentations
    return {pool_name(part, pool): AUGMENTATIONS[part.name](**part.options) for part in pool}


def build_objective(recipe: Recipe, custom: CustomParts) -> Objective:
    if custom.objective is not None:
        return custom.objective
    return OBJECTIVES[recipe.objective.name](**recipe.objective.options)


def build_encoder(recipe: Recipe, store: Store, custom: nn.Module | EncoderFactory | None = None) -> Encoder:
    """Build only the encoder of :func:`build_method`, with the same weights."""
    with temporary_seed(recipe.training.seed, "weights"):
        return _new_encoder(recipe, store, custom)


def check_memory(recipe: Recipe, store: Store, num_augmentations: int = 0) -> None:
    """Raise an error if the weights would take more memory than an input may; see :func:`count_weights`."""
    num_bytes = 4 * count_weights(recipe, store, num_augmentations)
    Budget(f"encoder: {recipe.encoder.name}").take(num_bytes, "weights of encoder and heads")


def count_weights(recipe: Recipe, store: Store, num_augmentations: int = 0) -> int:
    """Count the weights of the encoder, and of the heads for augmentations, without allocating them.

    The result is a lower bound for convolutions that cannot be built on the meta device.
    """
    width, layers = (int(recipe.encoder.options.get(name, 0)) for name in ("width", "layers"))
    try:
        with torch.device("meta"):
            try:
                parts: list[nn.Module] = [encoder := build_encoder(recipe, store)]
                count, dimensions = 0, encoder.num_dimensions
            except UserError:  # errors about options are raised again when the encoder is built
                parts, count, dimensions = [], width * store.num_features + (layers - 1) * width**2, max(width, 1)
            if num_augmentations:
                parts.append(HEADS[recipe.heads.name](dimensions, num_augmentations, **recipe.heads.options))
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"encoder: {recipe.encoder.name}: cannot be built ({one_line(error)}).") from error
    return count + sum(int(value.numel()) for part in parts for value in part.state_dict().values())


def _new_encoder(recipe: Recipe, store: Store, custom: nn.Module | EncoderFactory | None) -> Encoder:
    if custom is None:
        kind: Callable[..., Encoder] = ENCODERS[recipe.encoder.name]
        return kind(store.num_features, store.num_edge_features, **recipe.encoder.options)
    if isinstance(custom, nn.Module):
        custom = copy.deepcopy(custom)
    else:
        try:
            module = custom(store.num_features, store.num_edge_features)
        except TypeError as error:
            raise UserError(
                f"encoder: {short_repr(custom)} must take the numbers of node and edge features ({one_line(error)})."
            ) from error
        if not isinstance(module, nn.Module):
            raise UserError(f"encoder: {short_repr(custom)} must return a torch module, got {short_repr(module)}.")
        custom = module
    example = torch.arange(min(len(store), 4))
    return custom if isinstance(custom, Encoder) else ModuleEncoder(custom, store.batch(example))


def check_input(encoder: Encoder, features: Features, pool: Iterable[Augmentation] = ()) -> None:
    """Raise a :class:`UserError` if an encoder or mask expects category codes and gets measurements, or vice versa."""
    are_codes = features.rule in CODE_RULES
    if encoder.codes != (features.rule if are_codes else None):
        needed = f"other features than '{features.rule}'"
        if encoder.codes is not None:
            needed = f"features = '{encoder.codes}', which {CODE_RULES[encoder.codes]} have"
        fix = "features = 'labels'" if are_codes and encoder.codes is None else "encoder gin"
        raise UserError(f"the encoder {type(encoder).__name__} needs {needed}; got '{features.rule}'. Use {fix}.")
    for each in pool:
        if isinstance(each, AttributeMask) and (each.fill == "token") != are_codes:
            needed = "'token'" if are_codes else "'noise' or 'mean'"
            raise UserError(f"AttributeMask: with features '{features.rule}' fill must be {needed}, got '{each.fill}'.")
