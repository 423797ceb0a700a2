"""Subjects to the text of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from joao.core.errors import UserError
from joao.core.files import check_writable
from joao.core.pair_table import PairTable
from joao.core.provenance import versions
from joao.evaluation.statistics import Gain
from joao.report.embedding_map import whole_places
from joao.report.graphs import examples, graph_set
from joao.report.scores import Bar, bars, differences, gain_over_untrained, history
from joao.report.subject import Subject

SCRIPTS = ("base", "graph_drawing", "heat_maps", "curves", "embedding_map", "changes", "page")
# So that a page stays below a megabyte, with one run or several.
MOST_CHARACTERS = 560_000
MOST_NUMBERS = 60_000
_MARK = b'<meta name="generator" content="joao '


@dataclass(frozen=True)
class Told:
    """What the page says of a run in words, before any script runs."""

    name: str
    data: str
    method: str
    status: str
    bars: tuple[Bar, ...]
    gain: Gain | None
    hint: str
    pairs: str
    facts: tuple[tuple[str, str], ...]
    recipe: str

    @property
    def score(self) -> Bar | None:
        return next((bar for bar in self.bars if bar.name == "this run"), None)


def render(subjects: Sequence[Subject]) -> str:
    """The page about ``subjects``."""
    told = [tell(subject) for subject in subjects]
    gaps = differences({subject.name: subject.score for subject in subjects})
    data = {"runs": page_data(subjects), "sets": _sets(subjects)}
    styles = Markup(_file("page.css"))
    script = Markup("\n".join(_file(f"{name}.js") for name in SCRIPTS))
    title = ", ".join(f"{each.name}: {each.data}, {each.method}" for each in told)
    parts = {"data": as_script(data), "styles": styles, "script": script}
    return str(_template().render(title=title, runs=told, differences=gaps, version=versions()["joao"], **parts))


def check_replaceable(path: Path) -> None:
    """Refuses a file that is there and not such a page: a page can be made again, and nothing else is replaced."""
    check_writable(path)
    if path.exists() and _MARK not in _beginning(path):
        raise UserError(
            f"{path}: exists already and is no page of 'joao report'. Choose another name or remove it first."
        )


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(1000)
    except OSError as error:
        raise UserError(f"{path}: exists already and cannot be read ({error.strerror}).") from error


def as_script(value: Any) -> Markup:
    r"""A value as JSON that may stand inside a script element: no text in it can end the element.

    >>> print(as_script({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def page_data(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """What the scripts draw, a dictionary a run."""
    runs = []
    for subject in subjects:
        pool = subject.run.info.pool
        runs.append(
            {
                "name": subject.name,
                "set": subject.run.info.fingerprint if subject.dataset is not None else None,
                **history(subject.metrics, pool, MOST_NUMBERS // len(subjects)),
                "map": _map(subject),
                "examples": examples(subject),
                "why": _why_not(subject),
            }
        )
    return runs


def _map(subject: Subject) -> dict[str, Any] | None:
    if subject.map is None:
        return None
    whole = whole_places(subject.map.places)
    return {"axes": subject.map.axes, "x": whole[:, 0].tolist(), "y": whole[:, 1].tolist()}


def _why_not(subject: Subject) -> dict[str, str]:
    """Why parts of the page are empty, in words."""
    own = "The augmentations are their owner's, and the run cannot make them again."
    shown = "Graphs were shown as they are: there is nothing to draw."
    info = subject.run.info
    changes = own if "augmentations" in info.own else shown if info.pool == ("identity",) else subject.why_not_dataset
    return {"map": subject.why_not_dataset or subject.why_not_trained, "changes": changes}


def _sets(subjects: Sequence[Subject]) -> dict[str, Any]:
    """The graphs on the maps, those of one data set once."""
    found = {each.run.info.fingerprint: (each, each.dataset) for each in subjects if each.dataset is not None}
    sets, left = {}, MOST_CHARACTERS
    by_size = sorted(found.items(), key=lambda item: item[1][1].num_edges)
    for before, (fingerprint, (subject, dataset)) in enumerate(by_size):
        # Equal parts of what is left: small sets come first and leave theirs to the others.
        most = left // (len(found) - before)
        sets[fingerprint] = graph_set(dataset, subject.numbers.tolist(), subject.run.info.num_graphs, most)
        left -= len(json.dumps([sets[fingerprint][key] for key in ("names", "smiles", "drawings")]))
    return sets


def tell(subject: Subject) -> Told:
    """The words about a run."""
    info, recipe = subject.run.info, subject.run.recipe
    found = () if subject.score is None else tuple(bars(subject.score, subject.method, info.data))
    return Told(
        name=subject.name,
        data=info.data,
        method=subject.title,
        status=_status(subject),
        bars=found,
        gain=None if subject.score is None else gain_over_untrained(subject.score),
        hint=_hint(subject),
        pairs=_pairs(subject),
        facts=tuple(_facts(subject)),
        recipe=recipe.toml(),
    )


def _status(subject: Subject) -> str:
    info, epochs = subject.run.info, subject.run.recipe.training.epochs
    graphs = f"{info.num_graphs:,} {'molecules' if info.codes else 'graphs'}"
    if not info.pretrained:
        return f"{graphs}, not pre-trained"
    if not info.finished:
        return f"{graphs}, not finished: {len(subject.metrics)} of {epochs} epochs so far"
    return f"{graphs}, {epochs} epochs without labels"


def _hint(subject: Subject) -> str:
    """What to read a score with, or how to get one."""
    name = subject.run.folder.name
    if subject.score is not None:
        same = subject.score["data"]["fingerprint"] == subject.run.info.fingerprint
        graphs = "" if same else f" Scored on other graphs than it was trained on: {subject.score['data']['name']}."
        return "One encoder, scored by an SVM on shared folds; ± is the deviation over partitions." + graphs
    if subject.finetuned is not None:
        scores = {part: _figures(figures) for part, figures in subject.finetuned.get("scores", {}).items() if figures}
        said = "; ".join(f"{part}: {figures}" for part, figures in scores.items())
        return f"Fine-tuned with labels. {said or 'It has no scores'}. The validation graphs chose the epoch."
    if not subject.run.info.finished:
        return "No score yet: the run is not finished."
    if subject.dataset is not None and subject.dataset.classes is None:
        fix = "'joao finetune' scores tasks." if subject.dataset.targets is not None else "Look at the map instead."
        return f"No score: the graphs have no classes. {fix}"
    return f"No score yet. Get it with: joao evaluate {name}"


def _figures(figures: Any) -> str:
    shown = figures if isinstance(figures, dict) else {"score": figures}
    return ", ".join(f"{name} {value:.4g}" for name, value in shown.items() if isinstance(value, float))


def _pairs(subject: Subject) -> str:
    """What was chosen, in a sentence."""
    pool, metrics = subject.run.info.pool, subject.metrics
    if len(pool) < 2 or not metrics:
        return "Graphs were shown as they are; there are no pairs of augmentations to choose from." if metrics else ""
    if metrics[-1].pair_losses is None:
        return f"The policy ({subject.run.recipe.policy.name}) is fixed and learns nothing."
    leading = PairTable.of(pool, metrics[-1].probabilities).over_strengths().top(3)
    said = ", ".join(f"{one} + {two} ({share:.2f})" for one, two, share in leading)
    return f"Chosen most at the end: {said}.".replace("_", " ")


def _facts(subject: Subject) -> list[tuple[str, str]]:
    info, schedule = subject.run.info, subject.run.recipe.training
    seconds = sum(each.seconds for each in subject.metrics)
    facts = [
        ("data", f"{info.data}, {info.num_graphs:,} graphs, hash {info.fingerprint}"),
        ("features", f"{info.features.rule}, {info.num_features} columns; {info.num_edge_features} of edges"),
        ("seed", str(schedule.seed)),
        ("time", f"{seconds:,.1f} s for {len(subject.metrics)} epochs of pre-training"),
        ("precision", f"{info.precision}, {'fast' if info.fast else 'plain'} path"),
        ("command", info.command),
        ("versions", ", ".join(f"{name} {version}" for name, version in info.versions.items())),
        ("machine", ", ".join(f"{name}: {value}" for name, value in info.machine.items())),
    ]
    facts += [(f"own {part}", words) for part, words in info.own.items()]
    return [(name, text) for name, text in facts if text]


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_file("page.html"))


def _file(name: str) -> str:
    return (files("joao.report") / name).read_text(encoding="utf-8")
