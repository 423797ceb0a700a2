"""Render runs to the HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.core.files import check_writable, open_regular
from joao.core.pair_table import PairTable
from joao.core.provenance import versions
from joao.report.graphs import examples, graph_set
from joao.report.reported_run import ReportedRun
from joao.report.scores import OURS, PAPER, bars, differences, gain_over_untrained, history

SCRIPTS = ("base", "graph_drawing", "heat_maps", "curves", "embedding_map", "changes", "page")
# Limits that keep a page below one megabyte, for all runs together.
MOST_CHARACTERS = 560_000
MOST_NUMBERS = 60_000
MAP_SIZE = 1000
_MARK = b'<meta name="generator" content="joao '


class RunText:
    """What the page says about a run in words, without any script."""

    def __init__(self, run: ReportedRun) -> None:
        info, record = run.run.info, run.score
        self.name, self.data, self.method, self.recipe = run.name, info.data, run.title, run.run.recipe.toml()
        self.status, self.hint, self.pairs, self.facts = _status(run), _hint(run), _top_pairs(run), _facts(run)
        self.bars = () if record is None else tuple(bars(record, run.method, info.data))
        self.score = next((bar for bar in self.bars if bar.name == OURS), None)
        self.gain = None if record is None else gain_over_untrained(record)


def render(runs: Sequence[ReportedRun]) -> str:
    """Render the page about ``runs``."""
    texts = [RunText(run) for run in runs]
    return str(
        _template().render(
            title=", ".join(f"{each.name}: {each.data}, {each.method}" for each in texts),
            runs=texts,
            differences=differences({run.name: run.score for run in runs}),
            ours=OURS,
            paper=PAPER,
            version=versions()["joao"],
            data=json_for_script({"runs": page_data(runs), "sets": _graph_sets(runs)}),
            styles=Markup(_read("page.css")),
            script=Markup("\n".join(_read(f"{name}.js") for name in SCRIPTS)),
        )
    )


def check_replaceable(path: Path) -> None:
    """Raise an error if ``path`` exists and is not a report: only reports are overwritten."""
    check_writable(path)
    if not path.exists():
        return
    try:
        with open_regular(path) as file:
            start = file.read(1000)
    except OSError as error:
        raise UserError(f"{path}: already exists and cannot be read ({error.strerror}).") from error
    if _MARK not in start:
        raise UserError(
            f"{path}: already exists and is not a report of 'joao report'. Choose another name or remove it first."
        )


def json_for_script(value: Any) -> Markup:
    r"""Encode a value as JSON inside a script element, such that no text in it can end the element.

    >>> print(json_for_script({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def page_data(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """The data that the scripts draw, one dictionary per run."""
    return [
        {
            "name": run.name,
            "set": run.run.info.fingerprint if run.dataset is not None else None,
            **history(run.metrics, run.run.info.pool, MOST_NUMBERS // len(runs)),
            "map": None if run.map is None else {"axes": run.map.axes, **to_integers(run.map.points)},
            "examples": examples(run),
            "why": _reasons(run),
        }
        for run in runs
    ]


def to_integers(points: NDArray[np.float64]) -> dict[str, list[int]]:
    """Scale ``(G, 2)`` points to lists ``x`` and ``y`` of integers from 0 to :data:`MAP_SIZE`, with the same scale."""
    moved = points - points.min(axis=0)
    integers = np.round(moved / (float(moved.max()) or 1.0) * MAP_SIZE).astype(np.int64)
    return dict(zip("xy", integers.T.tolist(), strict=True))


def _reasons(run: ReportedRun) -> dict[str, str]:
    """Why the map and the drawings of augmented graphs are empty; empty texts if they are not."""
    info, changes = run.run.info, run.why_not_dataset
    if "augmentations" in info.own:
        changes = "The run used custom augmentations, which cannot be loaded."
    elif info.pool == ("identity",):
        changes = "The method uses graphs without augmentation: there is nothing to draw."
    return {"map": run.why_not_dataset or run.why_not_trained, "changes": changes}


def _graph_sets(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """The graphs on the maps by fingerprint; runs on the same data share them."""
    found = {each.run.info.fingerprint: (each, each.dataset) for each in runs if each.dataset is not None}
    sets, left = {}, MOST_CHARACTERS
    by_size = sorted(found.items(), key=lambda item: item[1][1].num_edges)
    for before, (fingerprint, (run, dataset)) in enumerate(by_size):
        # Each set gets an equal part of the remaining space; small sets come first and leave space to the others.
        most = left // (len(found) - before)
        sets[fingerprint] = graph_set(dataset, run.numbers.tolist(), run.run.info.num_graphs, most)
        left -= len(json.dumps([sets[fingerprint][key] for key in ("names", "smiles", "drawings")]))
    return sets


def _status(run: ReportedRun) -> str:
    info, epochs = run.run.info, run.run.recipe.training.epochs
    graphs = f"{info.num_graphs:,} {'molecules' if info.codes else 'graphs'}"
    if not info.pretrained:
        return f"{graphs}, not pre-trained"
    if not info.finished:
        return f"{graphs}, not finished: {len(run.metrics)} of {epochs} epochs so far"
    return f"{graphs}, {epochs} epoch{'s' if epochs > 1 else ''} without labels"


def _hint(run: ReportedRun) -> str:
    """How the score was computed, or how to get one."""
    if run.score is not None:
        same = run.score["data"]["fingerprint"] == run.run.info.fingerprint
        graphs = "" if same else f" Scored on other graphs than it was trained on: {run.score['data']['name']}."
        return "One encoder, scored with an SVM on shared folds; ± is the standard deviation over partitions." + graphs
    if run.finetuned is not None:
        scores = {part: _score_text(score) for part, score in run.finetuned.get("scores", {}).items() if score}
        text = "; ".join(f"{part}: {score}" for part, score in scores.items())
        return f"Fine-tuned with labels. {text or 'No scores'}. The epoch was chosen on the validation graphs."
    if not run.run.info.finished:
        return "No score yet: the run is not finished."
    if run.dataset is not None and run.dataset.classes is None:
        fix = "'joao finetune' scores tasks." if run.dataset.targets is not None else "See the map instead."
        return f"No score: the graphs have no classes. {fix}"
    return f"No score yet. Run: joao evaluate {run.run.folder.name}"


def _score_text(score: Any) -> str:
    shown = score if isinstance(score, dict) else {"score": score}
    return ", ".join(f"{name} {value:.4g}" for name, value in shown.items() if isinstance(value, float))


def _top_pairs(run: ReportedRun) -> str:
    """The most probable augmentation pairs, in a sentence."""
    pool, metrics = run.run.info.pool, run.metrics
    if not metrics:
        return ""
    if len(pool) < 2:
        return "The method uses graphs without augmentation; there are no pairs to choose from."
    if metrics[-1].pair_losses is None:
        return f"The policy ({run.run.recipe.policy.name}) is fixed; it does not learn."
    leading = PairTable.of(pool, metrics[-1].probabilities).over_strengths().top(3)
    pairs = ", ".join(f"{one} + {two} ({share:.2f})" for one, two, share in leading)
    return f"Most probable pairs at the end: {pairs}.".replace("_", " ")


def _facts(run: ReportedRun) -> list[tuple[str, str]]:
    info, epochs = run.run.info, len(run.metrics)
    seconds = sum(each.seconds for each in run.metrics)
    facts = [
        ("data", f"{info.data}, {info.num_graphs:,} graphs, fingerprint {info.fingerprint}"),
        ("features", f"{info.features.rule}, {info.num_features} per node, {info.num_edge_features} per edge"),
        ("seed", str(run.run.recipe.training.seed)),
        ("time", f"{seconds:,.1f} s for {epochs} epoch{'s' if epochs != 1 else ''} of pre-training"),
        ("precision", f"{info.precision}, {'fast' if info.fast else 'plain'} path"),
        ("command", info.command),
        ("versions", ", ".join(f"{name} {version}" for name, version in info.versions.items())),
        ("machine", ", ".join(f"{name}: {value}" for name, value in info.machine.items())),
    ]
    facts += [(f"custom {part}", words) for part, words in info.own.items()]
    return [(name, text) for name, text in facts if text]


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_read("page.html"))


def _read(name: str) -> str:
    return (files("joao.report") / name).read_text(encoding="utf-8")
