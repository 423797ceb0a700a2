"""Render runs to the HTML page."""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.core.files import check_writable, open_regular, user_error_on_os_error
from joao.core.pair_table import PairTable
from joao.core.provenance import versions
from joao.report.graphs import encode_numbers, examples, graph_set
from joao.report.reported_run import Finetuned, ReportedRun
from joao.report.scores import (
    PAPER,
    Bar,
    bars,
    chart,
    differences,
    gain_over_untrained,
    history,
    missing_baselines,
    same_folds,
    verdict,
)
from joao.runs.finetuning import FinetuneInfo

SCRIPTS = ("base", "graph_drawing", "heat_maps", "curves", "embedding_map", "changes", "page")
# Limits that keep a page below one megabyte, for all runs together.
MOST_CHARACTERS = 560_000
MOST_NUMBERS = 60_000
MAP_SIZE = 1000
FOREST = "test, random forest on ECFP"
METRICS = (
    ("accuracy", "accuracy"),
    ("roc_auc", "ROC-AUC"),
    ("rmse_in_deviations", "RMSE in standard deviations"),
    ("rmse", "RMSE"),
    ("rmse_of_mean", "RMSE of predicting the mean"),
    ("mae", "MAE"),
)
_MARK = b'<meta name="generator" content="joao '


class Headline(NamedTuple):
    """The score of a run in large type."""

    figure: str
    unit: str
    deviation: str = ""


class Sentence(NamedTuple):
    """The answer that stands first on the page: in a few words, and with its details."""

    answer: str
    details: str


class RunText:
    """What the page says about a run in words, without any script."""

    def __init__(self, run: ReportedRun) -> None:
        record = run.score
        self.name, self.data, self.method, self.recipe = run.name, run.data, _title(run), run.run.recipe.toml()
        self.status, self.hint, self.pairs, self.facts = _status(run), _hint(run), _top_pairs(run), _facts(run)
        self.headline, self.missing = _finetuned_headline(run), _missing(run)
        self.gain = None if record is None else gain_over_untrained(record)
        self.bars: tuple[Bar, ...] = ()
        self.parts = [] if run.finetuned is None else _finetuned_scores(run.finetuned)
        if record is not None:
            self.bars = tuple(bars(record, run.method, record["data"]["name"]))
            ours = next(bar for bar in self.bars if bar.run is not None)
            deviation = "" if ours.std is None else f"± {ours.std:.2f}"
            self.headline = Headline(f"{ours.mean:.2f}", "accuracy %", deviation)


def render(runs: Sequence[ReportedRun]) -> str:
    texts = [RunText(run) for run in runs]
    records = {run.name: run.score for run in runs}
    methods = {run.name: run.method for run in runs}
    return str(
        _template().render(
            title=", ".join(f"{each.name}: {each.data}, {each.method}" for each in texts),
            runs=texts,
            verdicts=verdicts(runs),
            differences=differences(records),
            charts=[
                (data := next(iter(group.values()))["data"]["name"], chart(group, {n: methods[n] for n in group}, data))
                for group in same_folds(records)
            ],
            paper=PAPER,
            version=versions()["joao"],
            data=json_for_script({"runs": page_data(runs), "sets": _graph_sets(runs)}),
            styles=Markup(_read("page.css")),
            script=Markup("\n".join(_read(f"{name}.js") for name in SCRIPTS)),
        )
    )


def verdicts(runs: Sequence[ReportedRun]) -> list[Sentence]:
    """The answers of the page: whether pre-training helps, by data set and folds, and the scores of fine-tuning."""
    sentences = []
    for group in same_folds({run.name: run.score for run in runs}):
        titles = {run.name: run.title for run in runs if run.name in group and run.run.info.pretrained}
        names = titles if len(runs) == 1 else {name: name for name in titles}
        if (each := verdict(group, names)) is not None:
            sentences.append(Sentence(f"{each.answer}.", each.details))
    for run in runs:
        headline = _finetuned_headline(run)
        if headline is not None:
            how = "ensemble" if run.finetuned is not None and run.finetuned.is_ensemble else "fine-tuned"
            start = how.capitalize() if len(runs) == 1 else f"{run.name}: {how}"
            sentences.append(Sentence(f"{start} on {run.data}: {headline.figure}", f"{headline.unit}."))
    if not sentences:
        why = _hint(runs[0]) if len(runs) == 1 else "No run on this page has a score."
        sentences.append(Sentence("No verdict.", why))
    return sentences


def check_replaceable(path: Path) -> None:
    """Raise an error if ``path`` exists and is not a report: only reports are overwritten."""
    check_writable(path)
    if not path.exists():
        return
    with user_error_on_os_error(path, "already exists and cannot be read"), open_regular(path) as file:
        start = file.read(1000)
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
            "set": None if run.graphs is None else run.graphs.key,
            **history(run.metrics, run.run.info.pool, MOST_NUMBERS // len(runs)),
            "map": _map(run),
            "examples": examples(run),
            "why": _reasons(run),
        }
        for run in runs
    ]


def _map(run: ReportedRun) -> dict[str, Any] | None:
    if run.map is None or run.graphs is None:
        return None
    other = "" if run.graphs.of_run else f"Graphs of {run.graphs.name}, on which the run was not trained."
    neighbours = encode_numbers(run.map.neighbours, len(run.map.points))
    description = {"axes": run.map.axes, "note": other, "outliers": list(run.map.outliers), "neighbours": neighbours}
    return description | to_integers(run.map.points)


def to_integers(points: NDArray[np.float64]) -> dict[str, list[int]]:
    """Scale ``(G, 2)`` points to lists ``x`` and ``y`` of integers from 0 to :data:`MAP_SIZE`, with the same scale."""
    moved = points - points.min(axis=0)
    integers = np.round(moved / (float(moved.max()) or 1.0) * MAP_SIZE).astype(np.int64)
    return dict(zip("xy", integers.T.tolist(), strict=True))


def _reasons(run: ReportedRun) -> dict[str, str]:
    """Why the map and the drawings of augmented graphs are empty; empty texts if they are not."""
    info, changes = run.run.info, run.why_not_graphs
    if "augmentations" in info.own:
        changes = "The run used custom augmentations, which cannot be loaded."
    elif info.pool == ("identity",):
        changes = "The method uses graphs without augmentation: there is nothing to draw."
    return {"map": run.why_not_graphs or run.why_not_trained, "changes": changes}


def _graph_sets(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """The graphs on the maps by fingerprint; runs on the same data share them."""
    graphs_by_key = {each.graphs.key: each.graphs for each in runs if each.graphs is not None}
    sets, remaining = {}, MOST_CHARACTERS
    by_size = sorted(graphs_by_key.items(), key=lambda item: item[1].sample.num_edges)
    for before, (key, graphs) in enumerate(by_size):
        # Each set gets an equal part of the remaining space; small sets come first and leave space to the others.
        share = remaining // (len(graphs_by_key) - before)
        sets[key] = graph_set(graphs.sample, graphs.numbers.tolist(), graphs.total, share)
        remaining -= len(json.dumps([sets[key][name] for name in ("names", "smiles", "drawings")]))
    return sets


def _title(run: ReportedRun) -> str:
    if run.finetuned is None:
        return run.title
    return f"{run.title}, {'ensemble' if run.finetuned.is_ensemble else 'fine-tuned'}"


def _status(run: ReportedRun) -> str:
    info, epochs = run.run.info, run.run.recipe.training.epochs
    graphs = f"{info.num_graphs:,} {'molecules' if info.codes else 'graphs'}"
    trained = f"{graphs}, {epochs} epoch{'s' if epochs > 1 else ''} without labels"
    if not info.pretrained:
        trained = f"{graphs}, not pre-trained"
    elif not info.finished:
        trained = f"{graphs}, not finished: {len(run.metrics)} of {epochs} epochs so far"
    if run.finetuned is None:
        return trained
    tuned = run.finetuned.info
    sizes = {"training": tuned.num_train, "validation": tuned.num_validation, "the test": tuned.num_test}
    if run.finetuned.is_ensemble:  # it learns from both
        sizes["training"] += sizes.pop("validation")
    parts = ", ".join(f"{size:,} for {part}" for part, size in sizes.items() if size)
    return f"labelled graphs: {parts} ({tuned.split} split); encoder of {info.data} ({trained})"


def _hint(run: ReportedRun) -> str:
    """How the score was computed, or how to get one."""
    if run.score is not None:
        same = run.score["data"]["fingerprint"] == run.run.info.fingerprint or (
            run.graphs is not None and run.graphs.of_run and run.score["data"]["fingerprint"] in run.graphs.fingerprints
        )
        graphs = "" if same else f" Scored on other graphs than it was trained on: {run.score['data']['name']}."
        return f"One encoder, scored with an SVM on shared folds; ± and whiskers: deviation over partitions.{graphs}"
    if run.finetuned is not None and run.finetuned.is_ensemble:
        return "Mean of forests on ECFP and on descriptors and of kernel ridge regression on the encoder; no epochs."
    if run.finetuned is not None:
        return "The epoch was chosen on the validation graphs, whose score is therefore optimistic."
    if not run.run.info.finished:
        return "No score yet: the run is not finished."
    dataset = None if run.graphs is None else run.graphs.sample
    if dataset is not None and dataset.classes is None:
        fix = "'joao finetune' scores tasks." if dataset.targets is not None else "See the map instead."
        return f"No score: the graphs have no classes. {fix}"
    data = "" if run.run.recipe.data else " DATA"
    return f"No score yet. Run: joao evaluate {run.command_words}{data}"


def _missing(run: ReportedRun) -> str:
    """The baselines that a score of an older version lacks, and how to add them."""
    names = [] if run.score is None else missing_baselines(run.score)
    if run.score is None or not names:
        return ""
    own = run.score["data"]["fingerprint"] == run.run.info.fingerprint and run.run.recipe.data
    fix = f"joao evaluate {run.command_words}{'' if own else ' DATA'}"
    return f"Missing from this score of an older joao: {', '.join(names)}. Add them with: {fix}"


def _finetuned_headline(run: ReportedRun) -> Headline | None:
    """The score of a fine-tuned run: on the test graphs if there are any."""
    if run.finetuned is None:
        return None
    info = run.finetuned.info
    known = {part: figures[0] for part, figures in _finetuned_scores(run.finetuned) if figures}
    sizes = {"test": info.num_test, "validation": info.num_validation}
    part = next((part for part in sizes if part in known), None)
    if part is None:
        return None
    metric, value = known[part]
    counts = info.graphs_per_class.values()
    chance = {"accuracy": f"; largest class {100 * max(counts, default=0) / (sum(counts) or 1):.1f} %"}
    how = "evaluated once" if part == "test" else "which also chose the epoch (optimistic)"
    graphs = f"{sizes[part]:,} {part} graph{'s' if sizes[part] != 1 else ''}"
    forest = f"; random forest on ECFP {known[FOREST][1]}" if FOREST in known else ""
    return Headline(value, f"{metric} on {graphs}, {how}{chance.get(metric, '')}{forest}")


def _finetuned_scores(finetuned: Finetuned) -> list[tuple[str, list[tuple[str, str]]]]:
    """For each part of the labelled graphs, metrics and their values as text; the first summarises all tasks."""
    lines_of_parts = []
    parts = dict(finetuned.scores)
    if isinstance(parts.get("test"), dict):
        of_test = parts["test"]
        parts |= {FOREST: of_test["forest"]} if "forest" in of_test else {}
        members = of_test.get("members")
        if isinstance(members, dict):  # of an ensemble; "ecfp" is the forest
            parts |= {f"test, {name} alone": each for name, each in members.items() if name != "ecfp"}
    for part, scores in parts.items():
        tasks = scores.get("tasks") if isinstance(scores, dict) else None
        tasks = tasks if isinstance(tasks, dict) else {}
        figures = {f", {name}": each for name, each in tasks.items()} if len(tasks) > 1 else {}
        figures = {"": tasks[next(iter(tasks))] if len(tasks) == 1 else scores, **figures}
        lines: list[tuple[str, str]] = []
        for name, values in figures.items():
            known = [(key, title) for key, title in METRICS if isinstance(values, dict) and values.get(key) is not None]
            texts = [(f"{title}{name}", _format(values[key], key)) for key, title in known]
            lines += texts if len(figures) == 1 else texts[:1]
        lines_of_parts.append((part, [(title, text) for title, text in lines if text]))
    return lines_of_parts


def _format(value: Any, key: str) -> str:
    if not isinstance(value, float):
        return ""
    return f"{100 * value:.1f} %" if key == "accuracy" else f"{value:.3f}" if key == "roc_auc" else f"{value:.4g}"


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
        ("data", f"{info.data}, {info.num_graphs:,} graphs, fingerprint {info.fingerprint}; {_origin(run)}"),
        ("fine-tuned on", "" if run.finetuned is None else _describe_labels(run.finetuned.info)),
        ("on the map", "" if run.graphs is None or run.graphs.of_run else f"other graphs: {run.graphs.name}"),
        ("features", f"{info.features.rule}, {info.num_features} per node, {info.num_edge_features} per edge"),
        ("seed", str(run.run.recipe.training.seed)),
        ("time", f"{seconds:,.1f} s for {epochs} epoch{'s' if epochs != 1 else ''} of pre-training"),
        ("precision", f"{info.precision}, {info.compiled or ('fast' if info.fast else 'plain')} path"),
        ("command", info.command),
        ("versions", ", ".join(f"{name} {version}" for name, version in info.versions.items())),
        ("machine", ", ".join(f"{name}: {value}" for name, value in info.machine.items())),
    ]
    facts += [(f"custom {part}", words) for part, words in info.own.items()]
    return [(name, text) for name, text in facts if text]


def _origin(run: ReportedRun) -> str:
    source = run.run.recipe.data
    return f"read from {source}" if source else "passed in Python"


def _describe_labels(info: FinetuneInfo) -> str:
    counts = {**info.graphs_per_class, **{name: sum(map(int, each)) for name, each in info.labels_per_task.items()}}
    labels = ", ".join(f"{name}: {count}" for name, count in list(counts.items())[:8])
    return f"{info.data}, fingerprint {info.fingerprint}; labels: {labels}; {info.command}"


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_read("page.html"))


def _read(name: str) -> str:
    return (files("joao.report") / name).read_text(encoding="utf-8")
