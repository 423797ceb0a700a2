"""A recipe: everything that decides a pre-training, in one TOML file.

.. code-block:: toml

    data = "MUTAG"
    features = "auto"
    augmentations = [{ name = "node_drop", strength = 0.2 }, { name = "subgraph", strength = 0.2 }]

    [encoder]
    name = "gin"
    width = 32

    [training]
    epochs = 20

What is not said has its default, which may depend on the kind of data (:data:`KINDS`); a recipe written beside a run
says everything. A part may be its name alone (``encoder = "gin"``), and ``strength = 0.3`` at the top is the strength
of every augmentation that has none. In its place, ``strengths = [0.1, 0.2, 0.3]`` makes each of these augmentations
three members of the pool, and ``strengths = { 0.1 = 1, 0.2 = 2, 0.3 = 1 }`` gives a prior over the strengths, too
(:mod:`joao.config.strengths`). ``smiles`` and ``identifiers`` name columns of a table of molecules.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joao.augmentations import AUGMENTATIONS
from joao.config.methods import all_methods
from joao.config.schedule import Schedule
from joao.config.strengths import expand_strengths, strength_prior
from joao.core.errors import UserError, suggest
from joao.core.registry import check_options, check_value
from joao.data.features import CODE_RULES, RULE_OF_KIND, RULES
from joao.encoders import ENCODERS
from joao.heads import HEADS
from joao.objectives import OBJECTIVES
from joao.policies import POLICIES


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"


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


CATALOGUES: dict[str, dict[str, type[Any]]] = {
    "encoder": dict(ENCODERS),
    "heads": dict(HEADS),
    "objective": dict(OBJECTIVES),
    "policy": dict(POLICIES),
}

# The paper's order of rows and columns.
POOL = ("node_drop", "subgraph", "edge_perturb", "attribute_mask", "identity")

METHODS: dict[str, dict[str, Any]] = {name: method.parts for name, method in all_methods(OBJECTIVES).items()}

_OF_OGB = {
    "training": {"learning_rate": 0.001},
    "nt_xent": {"temperature": 0.5},
    "rule_pool": {"pool": "molecules"},
}

# The paper's settings for its TU data sets, those of its transfer setting, and those of its OGB setting.
KINDS: dict[str, dict[str, Any]] = {
    "graphs": {"encoder": "gin", "training": {}},
    "molecules": {
        "encoder": "molecule_gin",
        "training": {"batch_size": 256, "learning_rate": 0.001},
        "nt_xent": {"temperature": 0.1},
        "rule_pool": {"pool": "molecules"},
    },
    "ogb_molecules": {"encoder": "ogb_molecule_gin", **_OF_OGB},
    "syntax_trees": {"encoder": "syntax_gin", **_OF_OGB},
}
# Of the parts that see numbers of categories.
_OF_CODES = {"attribute_mask": {"fill": "token"}}

_SCHEDULE = {each.name for each in dataclasses.fields(Schedule)}

# Layers of an encoder, and members of a pool.
MOST = 256


@dataclass(frozen=True)
class Part:
    """A member of a family by its name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """As a dictionary."""
        return {"name": self.name, **self.options}


@dataclass(frozen=True)
class Recipe:
    """A checked and complete recipe; make one with :func:`make_recipe` or :func:`read_recipe`.

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

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a table of molecules that were named, as :func:`joao.read` takes them."""
        named = {"smiles": self.smiles, "identifiers": self.identifiers}
        return {role: column for role, column in named.items() if column}

    def table(self) -> dict[str, Any]:
        """As nested dictionaries, complete."""
        return {
            "data": self.data,
            **self.columns,
            "features": self.features,
            "max_degree": self.max_degree,
            "augmentations": [part.table() for part in self.augmentations],
            **{family: getattr(self, family).table() for family in CATALOGUES},
            "training": dataclasses.asdict(self.training),
        }

    def toml(self) -> str:
        """As the text of a TOML file."""
        top, tables = [], []
        for key, value in self.table().items():
            if isinstance(value, dict):
                lines = [f"{name} = {toml_value(each)}" for name, each in value.items() if each is not None]
                tables.append("\n".join([f"[{key}]", *lines]))
            else:
                top.append(f"{key} = {toml_value(value)}")
        return "\n\n".join(["\n".join(top), *tables]) + "\n"


def read_recipe(path: Path) -> Recipe:
    """Reads, checks and completes a recipe."""
    return make_recipe(read_toml(path), place=str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The unchecked content of a TOML file."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not TOML ({error}).") from error


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """The unchecked content of the text of a TOML file. ``place`` begins a complaint."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: is not TOML ({error}).") from error


def make_recipe(table: Mapping[str, Any], place: str = "recipe", kind: str = "graphs") -> Recipe:
    """Checks nested dictionaries and fills in what they leave out.

    Args:
        table: may say anything or nothing.
        place: begins every complaint.
        kind: of the data, one of :data:`KINDS`, whose defaults are taken. A complete table needs none.

    >>> recipe = make_recipe({"method": "joaov2", "training": {"epochs": 5}})
    >>> recipe.heads.name, recipe.policy.name, recipe.training.epochs
    ('head_per_augmentation', 'min_max', 5)
    >>> make_recipe({"epochs": 5})
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: recipe: unknown key 'epochs'. Did you mean 'training.epochs'?
    """
    known = [*(each.name for each in dataclasses.fields(Recipe)), "method", "strength", "strengths"]
    for key in table:
        if key not in known:
            inside = f"training.{key}" if key in _SCHEDULE else ""
            fix = f"Did you mean '{inside}'?" if inside else suggest(key, known)
            raise UserError(f"{place}: unknown key '{key}'. {fix}")
    method = table.get("method", "joao")
    if not isinstance(method, str) or method not in METHODS:
        raise UserError(f"{place}: unknown method '{method}'. {suggest(str(method), METHODS)}")
    usual = KINDS[kind]
    defaults = {"encoder": usual["encoder"], "augmentations": POOL, **METHODS[method]}
    parts: dict[str, Part] = {}
    for family, members in CATALOGUES.items():
        value = table.get(family, defaults[family])
        if isinstance(value, Mapping) and "name" not in value:
            value = {"name": defaults[family], **value}
        parts[family] = _part(value, members, f"{place}: {family}", usual)
    _refuse_many(parts["encoder"].options.get("layers", 1), f"{place}: encoder: layers")
    features = check_value(table.get("features", "auto"), str, f"{place}: features")
    if features not in RULES:
        raise UserError(f"{place}: unknown rule '{features}' for features. {suggest(features, RULES)}")
    if kind in RULE_OF_KIND and features == "auto":
        codes = RULE_OF_KIND[kind]
        features = codes if ENCODERS[parts["encoder"].name].codes == codes else "labels"
    if features in CODE_RULES:
        usual = {**usual, **_OF_CODES}
    training = table.get("training", {})
    if isinstance(training, Mapping):
        training = {**usual["training"], **training}
    entries = _entries(table.get("augmentations", defaults["augmentations"]), f"{place}: augmentations")
    strengths = table.get("strengths", defaults.get("strengths"))
    if strengths:
        entries, prior = expand_strengths(entries, strength_prior(strengths, f"{place}: strengths"))
        parts["policy"] = _with_prior(parts["policy"], prior, place)
    return Recipe(
        data=check_value(table.get("data", ""), str, f"{place}: data"),
        features=features,
        max_degree=check_value(table.get("max_degree", 64), int, f"{place}: max_degree"),
        augmentations=_pool(entries, table.get("strength"), f"{place}: augmentations", usual),
        training=Schedule(**check_options(Schedule, training, f"{place}: training")),
        smiles=check_value(table.get("smiles", ""), str, f"{place}: smiles"),
        identifiers=check_value(table.get("identifiers", ""), str, f"{place}: identifiers"),
        **parts,
    )


def _entries(entries: Any, place: str) -> list[Any]:
    if isinstance(entries, str | Mapping) or not isinstance(entries, Sequence) or not entries:
        raise UserError(f'{place}: must be a list such as ["node_drop", "subgraph"], got {entries!r}.')
    return list(entries)


def _refuse_many(number: int, place: str) -> None:
    """What is made one by one, and its pairs, must come to an end, whoever wrote the recipe."""
    if number > MOST:
        raise UserError(f"{place} must be at most {MOST}, got {number}.")


def _with_prior(policy: Part, prior: Sequence[float] | None, place: str) -> Part:
    """The policy with a prior, unless it has one already."""
    if prior is None or policy.options.get("prior") is not None:
        return policy
    if "prior" not in policy.options:
        raise UserError(
            f"{place}: strengths: the policy '{policy.name}' has no prior. Use kullback_leibler or min_max."
        )
    return Part(policy.name, {**policy.options, "prior": list(prior)})


def _pool(entries: Sequence[Any], strength: Any, place: str, usual: Mapping[str, Any]) -> tuple[Part, ...]:
    _refuse_many(len(entries), f"{place}: members, at every strength")
    pool = []
    for entry in entries:
        if strength is not None and isinstance(entry, str):
            entry = {"name": entry, "strength": strength}
        elif strength is not None and isinstance(entry, Mapping):
            entry = {"strength": strength, **entry}
        pool.append(_part(entry, AUGMENTATIONS, place, usual))
    if len({pool_name(part, pool) for part in pool}) < len(pool):
        raise UserError(f"{place}: two members are the same. Leave one out or give it another strength.")
    return tuple(pool)


def pool_name(part: Part, pool: Sequence[Part]) -> str:
    """How a member is called in tables: its name, and where the pool has several of that name, what sets it apart.

    >>> pool = [Part("subgraph", {"strength": s, "keep": None}) for s in (0.1, 0.2)]
    >>> pool_name(pool[0], pool)
    'subgraph(strength=0.1)'
    """
    same = [other for other in pool if other.name == part.name]
    if len(same) == 1:
        return part.name
    apart = [name for name in part.options if any(other.options[name] != part.options[name] for other in same)]
    return f"{part.name}({', '.join(f'{name}={part.options[name]}' for name in apart)})"


def _part(value: Any, members: Mapping[str, type[Any]], place: str, usual: Mapping[str, Any]) -> Part:
    """The member that ``value`` names; options it leaves out are the ``usual`` ones of that name, or the defaults."""
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, type):
        raise UserError(f"{place}: {value.__name__} is a class. Give an object of it: {value.__name__}().")
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise UserError(f"{place}: must be a name or a table with a name, got {value!r}.")
    name = value["name"]
    if name not in members:
        family = place.rpartition(": ")[2].removesuffix("s")
        raise UserError(f"{place}: unknown {family} '{name}'. {suggest(name, members)}")
    options = {**usual.get(name, {}), **{key: option for key, option in value.items() if key != "name"}}
    return Part(name, check_options(members[name], options, f"{place}: {name}"))
