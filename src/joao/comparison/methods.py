"""What can be compared: pre-training methods, baselines, and the encoder untrained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from joao.baselines import BASELINES
from joao.baselines.base import Rows
from joao.config.recipe import METHODS, Recipe, make_recipe
from joao.core.errors import UserError, suggest
from joao.data.dataset import Dataset
from joao.runs.pretraining import pretrain
from joao.runs.trained import make_untrained

UNTRAINED = "untrained"
# What pre-training must beat to be worth its time; always among the compared.
CHEAP_BASELINES = (UNTRAINED, "wl", "ldp", "histogram")
DEFAULT_METHODS: tuple[str, ...] = ("joao", "joaov2", "graphcl")
# Beyond so many nodes, or graphs, one method is pre-trained by default instead of three.
LARGE_NODES, LARGE_GRAPHS = 1_000_000, 10_000


class Choice(NamedTuple):
    """The methods to compare, in their order, and what their owner should know of the choice."""

    names: tuple[str, ...]
    notices: tuple[str, ...] = ()


def known_methods() -> list[str]:
    """Every name that can be compared."""
    return [*METHODS, UNTRAINED, *BASELINES]


def choose_methods(dataset: Dataset, wanted: str | Sequence[str] | None) -> Choice:
    """The methods that are ``wanted``, or else sensible ones for these graphs; the cheap baselines are always in.

    Names may come in one text, with commas between.
    """
    cheap = [name for name in CHEAP_BASELINES if missing_package(name) is None]
    notices = [
        f"{name} is left out: it needs {missing_package(name)}, which is not installed."
        for name in CHEAP_BASELINES
        if name not in cheap
    ]
    if wanted is not None:
        names = _parse_names(wanted.split(",") if isinstance(wanted, str) else wanted)
        added = [name for name in cheap if name not in names]
        if added:
            notices.append(f"compared as well, for the verdict is against the cheap baselines: {', '.join(added)}.")
        return Choice((*names, *added), tuple(notices))
    pretrained = DEFAULT_METHODS
    if dataset.num_nodes > LARGE_NODES or len(dataset) > LARGE_GRAPHS:
        pretrained = DEFAULT_METHODS[:1]
        notices.append(
            f"{len(dataset):,} graphs with {dataset.num_nodes:,} nodes are many: of the pre-training methods only "
            f"{pretrained[0]} is compared. Name others with --methods {','.join(DEFAULT_METHODS)}."
        )
    return Choice((*pretrained, *cheap), tuple(notices))


def _parse_names(wanted: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in wanted if name.strip()))
    if not names:
        raise UserError(f"compare: no methods named. Known: {', '.join(known_methods())}.")
    for name in names:
        if name not in known_methods():
            raise UserError(f"compare: unknown method '{name}'. {suggest(name, known_methods())}")
        if (package := missing_package(name)) is not None:
            raise UserError(
                f"compare: {name} needs {package}, which is not installed: pip install {package}, or leave it out."
            )
    return names


def missing_package(name: str) -> str | None:
    """The package that a method needs and this computer does not have."""
    return BASELINES[name].missing_package() if name in BASELINES else None


def is_kernel(name: str) -> bool:
    """Whether its rows are the feature map of a graph kernel."""
    return name in BASELINES and BASELINES[name].kernel


def has_seed(name: str) -> bool:
    """Whether anything about it is random; what is not need not be made again for another seed."""
    return name not in BASELINES or "seed" in BASELINES[name].settings()


def method_recipe(name: str, kind: str, *, seed: int = 0, epochs: int | None = None) -> Recipe:
    """What a method that has an encoder does with data of this kind: what ``joao pretrain`` would do."""
    training = {"seed": seed} if epochs is None else {"seed": seed, "epochs": epochs}
    method = "joao" if name == UNTRAINED else name
    return make_recipe({"method": method, "training": training}, place=f"compare: {name}", kind=kind)


def method_settings(name: str, kind: str, epochs: int | None = None) -> dict[str, Any]:
    """Everything that decides a method, but for its seed: its recipe, or a baseline's options."""
    if name not in BASELINES:
        return method_recipe(name, kind, epochs=epochs).table()
    return {option: default for option, default in BASELINES[name].settings().items() if option != "seed"}


def make_rows(name: str, dataset: Dataset, *, seed: int, epochs: int | None = None, device: str = "auto") -> Rows:
    """``(G, d)`` what a method makes of graphs, whose labels it does not see."""
    dataset = dataset.without_labels()
    if name in BASELINES:
        return BASELINES[name](**({"seed": seed} if has_seed(name) else {})).fit_transform(dataset)
    recipe = method_recipe(name, dataset.kind, seed=seed, epochs=epochs)
    if name == UNTRAINED:
        return make_untrained(recipe, dataset, device=device).embed(dataset).numpy()
    return pretrain(recipe, dataset, device=device).embed(dataset).numpy()
