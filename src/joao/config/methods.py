"""The pre-training methods: their names, titles and parts.

This module imports neither torch nor the families, because the command line lists methods in its help texts.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from joao.core.registry import snake_case

TWO_VIEWS = {"objective": "nt_xent", "heads": "shared_head"}

# Node objectives see the graphs unchanged, unless a recipe says otherwise.
ONE_VIEW = {"policy": "uniform", "heads": "no_head", "augmentations": ("identity",)}


class MethodSpec(NamedTuple):
    """A method by its display name and its parts, as a recipe names them."""

    title: str
    parts: dict[str, Any]


CONTRASTIVE = {
    "joao": MethodSpec("JOAO", {**TWO_VIEWS, "policy": "min_max"}),
    "joaov2": MethodSpec("JOAOv2", {**TWO_VIEWS, "policy": "min_max", "heads": "head_per_augmentation"}),
    "joao_strengths": MethodSpec(
        "JOAO, strengths learned", {**TWO_VIEWS, "policy": "kullback_leibler", "strengths": [0.1, 0.2, 0.3]}
    ),
    "graphcl": MethodSpec("GraphCL (rule pool)", {**TWO_VIEWS, "policy": "rule_pool"}),
    "uniform": MethodSpec("uniform", {**TWO_VIEWS, "policy": "uniform"}),
}

# What ``joao compare`` compares: methods by default, and baselines that pre-training must beat to be worth its time.
COMPARED_METHODS: tuple[str, ...] = ("joao", "joaov2", "graphcl")
# Scored with the mean of the kernels of their parts.
COMBINATIONS: tuple[str, ...] = ("joao+wl",)
UNTRAINED = "untrained"
CHEAP_BASELINES = (UNTRAINED, "wl", "ldp", "histogram")


def all_methods(objectives: Mapping[str, type[Any]]) -> dict[str, MethodSpec]:
    """The contrastive methods, and those that node objectives declare (``NodeObjective.methods``)."""
    of_nodes = {
        name: MethodSpec(title, {"objective": objective, **ONE_VIEW})
        for objective, kind in objectives.items()
        for name, title in getattr(kind, "methods", {}).items()
    }
    return {**CONTRASTIVE, **of_nodes}


@cache
def titles() -> dict[str, str]:
    """Display names of methods and baselines, for tables, figures and reports."""
    from joao.baselines import BASELINES
    from joao.objectives import OBJECTIVES

    return {
        **{name: method.title for name, method in all_methods(OBJECTIVES).items()},
        **{name: kind.title for name, kind in BASELINES.items()},
        "untrained_initial": "untrained encoder, as initialised",
        "untrained": "untrained encoder, calibrated",
    }


def method_names() -> list[str]:
    """The names of :func:`all_methods`, read from the source code of the objectives."""
    declared = [
        name
        for kind in _objective_classes()
        for statement in kind.body
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "methods" and statement.value
        for name in ast.literal_eval(statement.value)
    ]
    return [*CONTRASTIVE, *declared]


def pair_objective_names() -> list[str]:
    """The names of the objectives that compare two views, read from their source code."""
    bases = {"PairObjective", "MomentumObjective"}
    return [snake_case(kind.name) for kind in _objective_classes() if bases & set(map(ast.unparse, kind.bases))]


def _objective_classes() -> Iterator[ast.ClassDef]:
    folder = Path(__file__).parents[1] / "objectives"
    for path in sorted(folder.glob("*.py")):
        if path.stem != "base":
            body = ast.parse(path.read_text(encoding="utf-8")).body
            yield from (node for node in body if isinstance(node, ast.ClassDef))
