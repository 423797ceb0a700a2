"""Recipes: all settings of a pre-training, in one TOML file.

.. code-block:: toml

    data = "MUTAG"
    features = "random_walks"
    augmentations = [{ name = "node_drop", strength = 0.2 }, { name = "subgraph", strength = 0.2 }]

    [encoder]
    name = "gin"
    width = 32

    [training]
    epochs = 20

Settings that are left out have defaults, which may depend on the kind of data (:data:`KINDS`); the recipe written next
to a run is complete. A part may be given by its name alone (``encoder = "gin"``). ``strength = 0.3`` at the top sets
the strength of all augmentations that do not set their own. Instead, ``strengths = [0.1, 0.2, 0.3]`` adds each of these
augmentations three times to the pool, and ``strengths = { 0.1 = 1, 0.2 = 2, 0.3 = 1 }`` also sets a prior over the
strengths (:func:`expand_strengths`). ``targets = { descriptors = 1, ecfp = 1, contrastive = 1 }`` adds losses of
molecules (:mod:`joao.training.targets`). ``smiles`` and ``identifiers`` name columns of a table of molecules, and
``standardise = true`` standardises them (:func:`joao.read`).
"""

import dataclasses
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from joao.augmentations import AUGMENTATIONS
from joao.config.methods import all_methods
from joao.core.errors import UserError, short_repr, suggest
from joao.core.files import read_regular, user_error_on_os_error
from joao.core.registry import check_minimum, check_options, check_value
from joao.data.features import CODE_RULES, RULE_OF_KIND, RULES
from joao.encoders import ENCODERS
from joao.heads import HEADS
from joao.objectives import OBJECTIVES
from joao.policies import POLICIES


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def toml_value(value: Any) -> str:
    """Format a value as TOML (the standard library only reads TOML); entries that are None are left out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(_escape(character) for character in value)
        return f'"{escaped}"'
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    return repr(value)


CATALOGUES: dict[str, dict[str, type[Any]]] = {
    "encoder": dict(ENCODERS),
    "heads": dict(HEADS),
    "objective": dict(OBJECTIVES),
    "policy": dict(POLICIES),
}

# The default pool, in the order of the rows and columns of the paper's tables.
POOL = ("node_drop", "subgraph", "edge_perturb", "attribute_mask", "identity")

METHODS: dict[str, dict[str, Any]] = {name: method.parts for name, method in all_methods(OBJECTIVES).items()}

_OGB = {"training": {"learning_rate": 0.001}, "nt_xent": {"temperature": 0.5}, "rule_pool": {"pool": "molecules"}}

# Defaults by kind of data: the paper's settings for TU data sets, for transfer learning, and for OGB. Features and
# readout of graphs are not the paper's; see docs/decisions/0005-defaults.md.
KINDS: dict[str, dict[str, Any]] = {
    "graphs": {
        "encoder": "gin",
        "features": "random_walks",
        "training": {},
        **{encoder: {"readout": "log(sum+mean+max+input)"} for encoder in ("gin", "gine")},
    },
    "molecules": {
        "encoder": "molecule_gin",
        "training": {"batch_size": 256, "learning_rate": 0.001},
        "nt_xent": {"temperature": 0.1},
        "rule_pool": {"pool": "molecules"},
    },
    "ogb_molecules": {"encoder": "ogb_molecule_gin", **_OGB},
    "syntax_trees": {"encoder": "syntax_gin", **_OGB},
}
# Defaults that cost more, by name; see docs/decisions/0005-defaults.md.
PRESETS: dict[str, dict[str, Any]] = {"large": {"encoder": {"name": "gin", "width": 128}, "training": {"epochs": 40}}}
# Defaults of parts whose inputs are category codes.
_CODES = {"attribute_mask": {"fill": "token"}}

# Options that older recipes do not have. With these values, which do what was done before, recipes leave them out.
_LATER = [("readout", "sum"), ("negatives", "auto"), ("decay", "none")]
# The recipe of every run has these keys. Options that such a recipe leaves out do not get the defaults of KINDS, which
# may have changed since.
COMPLETE = {"features", "max_degree", "encoder", "heads", "objective", "policy", "training"}

# Names of the weights in ``targets``: those of :mod:`joao.training.targets`, and the loss of the method itself.
CONTRASTIVE_WEIGHT = "contrastive"
TARGETS = ("descriptors", "ecfp")

MAX_MEMBERS = 256  # layers of an encoder, or augmentations in a pool


@dataclass(frozen=True)
class Part:
    """The name of an encoder, objective, ..., with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return a dictionary."""
        return {"name": self.name, **self.options}


@dataclass(frozen=True)
class Schedule:
    """Length and steps of a training.

    Args:
        epochs: passes over all graphs.
        batch_size: graphs in a batch.
        learning_rate: learning rate of Adam.
        pair_per: ``batch``: one pair of augmentations for all graphs of a batch, as in the pair losses; ``graph``: one
            pair per graph, as in the published code.
        update_every: training steps between updates of the policy; 0: once per epoch.
        update_batches: batches that the pair losses are measured on; 0: about a tenth of an epoch, at least one batch
            or, if that has more, 512 graphs.
        seed: seed of all random numbers.
        negatives: in several processes, ``global``: every graph is compared with the whole batch; ``local``: with the
            share of its process (docs/several-gpus.md); ``auto``: local on GPUs, global on CPUs.
        decay: ``none``: constant learning rate; ``cosine``: it rises over the first twentieth of all steps and then
            falls to 0 along a cosine.

    >>> Schedule(epochs=100).batch_size
    128
    >>> Schedule(batch_size=1)
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: training: batch_size must be at least 2, got 1.
    """

    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 0.01
    pair_per: str = "batch"
    update_every: int = 0
    update_batches: int = 0
    seed: int = 0
    negatives: str = "auto"
    decay: str = "none"

    def __post_init__(self) -> None:
        if self.negatives not in ("auto", "local", "global"):
            raise UserError(f"training: negatives must be 'auto', 'local' or 'global', got '{self.negatives}'.")
        if self.pair_per not in ("batch", "graph"):
            raise UserError(f"training: pair_per must be 'batch' or 'graph', got '{self.pair_per}'.")
        if self.decay not in ("none", "cosine"):
            raise UserError(f"training: decay must be 'none' or 'cosine', got '{self.decay}'.")
        check_minimum("training", 1, epochs=self.epochs)
        check_minimum("training", 2, batch_size=self.batch_size)
        check_minimum("training", 0, update_every=self.update_every, update_batches=self.update_batches, seed=self.seed)
        if not self.learning_rate > 0:
            raise UserError(f"training: learning_rate must be above 0, got {self.learning_rate}.")

    def learning_rate_at(self, fraction: float) -> float:
        """The learning rate after a ``fraction`` of all steps, from 0 to 1."""
        if self.decay == "none":
            return self.learning_rate
        return self.learning_rate * min(1.0, 20 * fraction) * (1 + math.cos(math.pi * fraction)) / 2


@dataclass(frozen=True)
class Recipe:
    """A validated and complete recipe; make one with :func:`make_recipe` or :func:`read_recipe`.

    >>> recipe = make_recipe({"data": "MUTAG", "strength": 0.3})
    >>> recipe.augmentations[0].table()
    {'name': 'node_drop', 'strength': 0.3}
    >>> print(recipe.toml().splitlines()[0])
    data = "MUTAG"
    """

    data: str
    features: str
    max_degree: int
    augmentations: tuple[Part, ...]
    encoder: Part
    heads: Part
    objective: Part
    policy: Part
    training: Schedule
    smiles: str = ""
    identifiers: str = ""
    targets: Mapping[str, float] = field(default_factory=dict)
    standardise: bool = False

    @property
    def columns(self) -> dict[str, Any]:
        """The named columns of a table of molecules, and whether to standardise, as arguments of :func:`joao.read`."""
        named = {"smiles": self.smiles, "identifiers": self.identifiers, "standardise": self.standardise}
        return {role: column for role, column in named.items() if column}

    def table(self) -> dict[str, Any]:
        """Return the complete recipe as nested dictionaries."""
        return {
            "data": self.data,
            **self.columns,
            "features": self.features,
            "max_degree": self.max_degree,
            "augmentations": [part.table() for part in self.augmentations],
            **{
                family: _older_table(part := getattr(self, family), members[part.name])
                for family, members in CATALOGUES.items()
            },
            **({"targets": dict(self.targets)} if self.targets else {}),
            "training": {k: v for k, v in dataclasses.asdict(self.training).items() if (k, v) not in _LATER},
        }

    def toml(self) -> str:
        """Return the complete recipe as TOML."""
        top, tables = [], []
        for key, value in self.table().items():
            if isinstance(value, dict):
                lines = [f"{name} = {toml_value(each)}" for name, each in value.items() if each is not None]
                tables.append("\n".join([f"[{key}]", *lines]))
            else:
                top.append(f"{key} = {toml_value(value)}")
        return "\n\n".join(["\n".join(top), *tables]) + "\n"


def _older_table(part: Part, kind: type[Any]) -> dict[str, Any]:
    """The table of a part without the options that older recipes do not have, where they change nothing."""
    default = {key: each.default for key, each in signature(kind).parameters.items()}
    left_out = {key for key, option in _LATER if part.options.get(key) == option == default[key]}
    return {key: option for key, option in part.table().items() if key not in left_out}


def read_recipe(path: Path) -> Recipe:
    """Read a TOML file, validate it and fill in the defaults."""
    return make_recipe(read_toml(path), source=str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file without validating its keys."""
    with user_error_on_os_error(path, "cannot be read"):
        content = read_regular(path)
    return parse_toml(content, str(path))


def parse_toml(content: str | bytes, source: str) -> dict[str, Any]:
    """Parse TOML without validating its keys; ``source`` starts error messages."""
    try:
        return tomllib.loads(content if isinstance(content, str) else content.decode())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source}: is not TOML ({error}).") from error


def make_recipe(table: Mapping[str, Any], source: str = "recipe", kind: str = "graphs") -> Recipe:
    """Validate nested dictionaries and fill in the defaults.

    Args:
        table: any part of a recipe.
        source: file or object that error messages name first.
        kind: kind of the data, a key of :data:`KINDS`, which sets the defaults. A complete table does not need it.

    >>> recipe = make_recipe({"method": "joaov2", "training": {"epochs": 5}})
    >>> recipe.heads.name, recipe.policy.name, recipe.training.epochs
    ('head_per_augmentation', 'min_max', 5)
    >>> make_recipe({"epochs": 5})
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: recipe: unknown key 'epochs'. Did you mean 'training.epochs'?
    """
    _check_keys(table, source)
    method = table.get("method", "joao")
    if not isinstance(method, str) or method not in METHODS:
        raise UserError(f"{source}: unknown method '{method}'. {suggest(str(method), METHODS)}")
    kind_defaults = _kind_defaults(table, kind, source)
    defaults = {"encoder": kind_defaults["encoder"], "augmentations": POOL, **METHODS[method]}
    parts: dict[str, Part] = {}
    for family, members in CATALOGUES.items():
        value = table.get(family, defaults[family])
        default = defaults[family] if isinstance(defaults[family], Mapping) else {"name": defaults[family]}
        if isinstance(value, Mapping) and value.get("name", default["name"]) == default["name"]:
            value = {**default, **value}
        parts[family] = _part(value, members, f"{source}: {family}", kind_defaults)
    _check_at_most(parts["encoder"].options.get("layers", 1), f"{source}: encoder: layers")
    codes = ENCODERS[parts["encoder"].name].codes
    default_features = "auto" if codes is not None else kind_defaults.get("features", "auto")
    features = _features(table.get("features", default_features), kind, codes, source)
    if features in CODE_RULES:
        kind_defaults = {**kind_defaults, **_CODES}
    training = table.get("training", {})
    if isinstance(training, Mapping):
        training = {**kind_defaults["training"], **training}
    entries = _entries(table.get("augmentations", defaults["augmentations"]), f"{source}: augmentations")
    strengths = table.get("strengths", defaults.get("strengths"))
    if strengths:
        entries, prior = expand_strengths(entries, strength_prior(strengths, f"{source}: strengths"))
        parts["policy"] = _with_prior(parts["policy"], prior, source)
    return Recipe(
        data=check_value(table.get("data", ""), str, f"{source}: data"),
        features=features,
        max_degree=check_value(table.get("max_degree", 64), int, f"{source}: max_degree"),
        augmentations=_pool(entries, table.get("strength"), f"{source}: augmentations", kind_defaults),
        training=Schedule(**check_options(Schedule, training, f"{source}: training")),
        smiles=check_value(table.get("smiles", ""), str, f"{source}: smiles"),
        identifiers=check_value(table.get("identifiers", ""), str, f"{source}: identifiers"),
        targets=target_weights(table.get("targets", {}), f"{source}: targets"),
        standardise=check_value(table.get("standardise", False), bool, f"{source}: standardise"),
        **parts,
    )


def _check_keys(table: Mapping[str, Any], source: str) -> None:
    known = [*(each.name for each in dataclasses.fields(Recipe)), "method", "preset", "strength", "strengths"]
    for key in table:
        if key not in known:
            is_training = key in {each.name for each in dataclasses.fields(Schedule)}
            fix = f"Did you mean 'training.{key}'?" if is_training else suggest(key, known)
            raise UserError(f"{source}: unknown key '{key}'. {fix}")


def _kind_defaults(table: Mapping[str, Any], kind: str, source: str) -> dict[str, Any]:
    """The defaults of a kind of data, with those of a preset; a complete table gets no other defaults of options."""
    defaults = KINDS[kind]
    if (preset := table.get("preset")) is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise UserError(f"{source}: unknown preset {short_repr(preset)}. {suggest(str(preset), PRESETS)}")
        if kind != "graphs":
            raise UserError(f"{source}: preset '{preset}' is not for {kind}. Remove it.")
        defaults = {**defaults, **PRESETS[preset]}
    return {"encoder": defaults["encoder"], "training": {}} if table.keys() >= COMPLETE else defaults


def _features(rule: Any, kind: str, codes: str | None, source: str) -> str:
    """Check a rule for features; ``auto`` becomes the ``codes`` of the encoder if data of this kind have them."""
    rule = check_value(rule, str, f"{source}: features")
    if rule not in RULES:
        raise UserError(f"{source}: unknown rule '{rule}' for features. {suggest(rule, RULES)}")
    if kind in RULE_OF_KIND and rule == "auto":
        has_codes = codes == RULE_OF_KIND[kind] or (kind, codes) == ("molecules", "ogb_atoms")
        return codes if has_codes and codes else "labels"
    return str(rule)


def target_weights(requested: Any, source: str) -> dict[str, float]:
    """Weights of the objectives by name: from a table, a list of names, or a text such as ``ecfp,descriptors=0.5``.

    A name without a weight, and the contrastive loss if it is not given, have weight 1. Without any target the result
    is empty.

    >>> target_weights("descriptors,ecfp=0.5", source="recipe")
    {'contrastive': 1.0, 'descriptors': 1.0, 'ecfp': 0.5}
    """
    if isinstance(requested, str):
        requested = [each for each in requested.split(",") if each]
    if not isinstance(requested, Mapping | list | tuple):
        raise UserError(f"{source} must be a table of weights or a list of names, got {short_repr(requested)}.")
    pairs = (
        requested.items()
        if isinstance(requested, Mapping)
        else [(*str(each).split("=", 1), 1)[:2] for each in requested]
    )
    weights = {}
    for name, weight in pairs:
        if name not in (CONTRASTIVE_WEIGHT, *TARGETS):
            raise UserError(f"{source}: unknown target '{name}'. {suggest(str(name), (CONTRASTIVE_WEIGHT, *TARGETS))}")
        weights[name] = _number(weight, f"{source}: {name}")
        if not 0 <= weights[name] < float("inf"):
            raise UserError(f"{source}: {name}: the weight must be 0 or more, got {weight}.")
    targets = {name: weights[name] for name in TARGETS if weights.get(name)}
    if weights and not targets:
        raise UserError(f"{source}: needs {' or '.join(TARGETS)} with a weight above 0, got {short_repr(requested)}.")
    return {CONTRASTIVE_WEIGHT: weights.get(CONTRASTIVE_WEIGHT, 1.0), **targets} if targets else {}


def _entries(entries: Any, source: str) -> list[Any]:
    if isinstance(entries, str | Mapping) or not isinstance(entries, Sequence) or not entries:
        raise UserError(f'{source}: must be a list such as ["node_drop", "subgraph"], got {entries!r}.')
    return list(entries)


def _check_at_most(number: int, source: str) -> None:
    """Bound time and memory, because a recipe may come from anyone: objects and their pairs are made one by one."""
    if number > MAX_MEMBERS:
        raise UserError(f"{source} must be at most {MAX_MEMBERS}, got {number}.")


def _with_prior(policy: Part, prior: Sequence[float] | None, source: str) -> Part:
    """Add the prior to the policy, unless the policy sets its own."""
    if prior is None or policy.options.get("prior") is not None:
        return policy
    if "prior" not in policy.options:
        with_prior = ", ".join(name for name, kind in POLICIES.items() if "prior" in signature(kind).parameters)
        raise UserError(f"{source}: strengths: the policy '{policy.name}' has no prior. Use one of: {with_prior}.")
    return Part(policy.name, {**policy.options, "prior": list(prior)})


def _pool(entries: Sequence[Any], strength: Any, source: str, defaults: Mapping[str, Any]) -> tuple[Part, ...]:
    _check_at_most(len(entries), f"{source}: number of members")
    pool = []
    for entry in entries:
        if strength is not None and isinstance(entry, str):
            entry = {"name": entry, "strength": strength}
        elif strength is not None and isinstance(entry, Mapping):
            entry = {"strength": strength, **entry}
        pool.append(_part(entry, AUGMENTATIONS, source, defaults))
    if len({pool_name(part, pool) for part in pool}) < len(pool):
        raise UserError(f"{source}: two augmentations are the same. Remove one or change its strength.")
    return tuple(pool)


def pool_name(part: Part, pool: Sequence[Part]) -> str:
    """Return the name of an augmentation in tables.

    If the pool has several of that name, it includes the options that differ: ``subgraph(strength=0.1)``.
    """
    same = [other for other in pool if other.name == part.name]
    if len(same) == 1:
        return part.name
    differing = [name for name in part.options if any(other.options[name] != part.options[name] for other in same)]
    return f"{part.name}({', '.join(f'{name}={part.options[name]}' for name in differing)})"


def _part(value: Any, members: Mapping[str, type[Any]], source: str, defaults: Mapping[str, Any]) -> Part:
    """Validate a part; options that are left out come from ``defaults`` by its name, or from its class."""
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, type):
        raise UserError(f"{source}: {value.__name__} is a class. Pass an instance: {value.__name__}().")
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise UserError(f"{source}: must be a name or a table with a name, got {value!r}.")
    name = value["name"]
    if name not in members:
        family = source.rpartition(": ")[2].removesuffix("s")
        raise UserError(f"{source}: unknown {family} '{name}'. {suggest(name, members)}")
    options = {**defaults.get(name, {}), **{key: option for key, option in value.items() if key != "name"}}
    return Part(name, check_options(members[name], options, f"{source}: {name}"))


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
            raise UserError(f"{source}: {strength}: the weight must be above 0, got {weight}. Remove the strength.")
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
