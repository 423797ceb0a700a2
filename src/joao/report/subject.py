"""A run to be reported on, with whatever is at hand of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.config.recipe import METHODS, Recipe
from joao.config.titles import TITLES
from joao.core.errors import UserError
from joao.core.randomness import numpy_generator
from joao.data.dataset import Dataset
from joao.report.embedding_map import EmbeddingMap, embedding_map
from joao.report.scores import find_score
from joao.runs.finetuning import FILE as FINETUNED
from joao.runs.folder import Run, read_text
from joao.runs.trained import TrainedEncoder, load_run
from joao.training.metrics import EpochMetrics


@dataclass(frozen=True, eq=False)
class Subject:
    """A run, finished or not.

    Attributes:
        name: how the page calls it.
        run: as opened.
        metrics: of the epochs so far.
        score: the record of ``joao evaluate``, if there is one.
        trained: the encoder, if it can be had.
        why_not_trained: why it cannot.
        dataset: the graphs, if they are at hand and the run's own, or a sample of them.
        why_not_dataset: why they are not.
        numbers: ``(G,)`` of the sampled graphs among all.
        map: of the embeddings of the graphs, where both encoder and graphs are there.
        finetuned: what ``finetune.json`` says of a fine-tuned encoder.
    """

    name: str
    run: Run
    metrics: Sequence[EpochMetrics]
    score: dict[str, Any] | None = None
    trained: TrainedEncoder | None = None
    why_not_trained: str = ""
    dataset: Dataset | None = None
    why_not_dataset: str = ""
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    map: EmbeddingMap | None = None
    finetuned: dict[str, Any] | None = None

    @property
    def method(self) -> str:
        """The name of its method, of those that the package knows; empty text for any other mixture of parts."""
        return method_of(self.run.recipe) if not self.run.info.own else ""

    @property
    def title(self) -> str:
        """What a reader calls its method."""
        recipe = self.run.recipe
        if not self.run.info.pretrained:
            return "untrained encoder"
        parts = f"{recipe.objective.name}, {recipe.policy.name}, {recipe.heads.name}".replace("_", " ")
        return TITLES.get(self.method, self.method or parts)


def open_subject(path: Path, name: str, read: Callable[[Run], Dataset], most_graphs: int, kind: str = "pca") -> Subject:
    """Opens a run and what belongs to it; of its graphs, ``most_graphs`` at most, on a map of that ``kind``.

    What is not there is told by the subject; only a run that is none is an error.
    """
    run = Run.open(path)
    trained, why_not_trained = _encoder(run)
    dataset, numbers, why_not_dataset = _graphs(run, read, most_graphs)
    return Subject(
        name=name,
        run=run,
        metrics=epochs_so_far(run),
        score=find_score(run),
        trained=trained,
        why_not_trained=why_not_trained,
        dataset=dataset,
        why_not_dataset=why_not_dataset,
        numbers=numbers,
        map=None if trained is None or dataset is None else embedding_map(trained.embed(dataset).numpy(), kind),
        finetuned=_finetuned(run),
    )


def names_of(paths: Sequence[Path]) -> list[str]:
    """How the page calls runs: the last part of their paths; where two have the same, all of the path.

    >>> names_of([Path("runs/one"), Path("old/one"), Path("runs/two")])
    ['runs/one', 'old/one', 'two']
    """
    last = [path.resolve().name for path in paths]
    names = [name if last.count(name) == 1 else str(path) for path, name in zip(paths, last, strict=True)]
    for path, name in zip(paths, names, strict=True):
        if names.count(name) > 1:
            raise UserError(f"{path}: is named twice. Name every run once.")
    return names


def epochs_so_far(run: Run) -> list[EpochMetrics]:
    """All epochs of a finished run; of another one those whose lines are whole."""
    if run.info.finished:
        return run.metrics()
    lines = (read_text(run.folder, "metrics.jsonl") or "").splitlines()
    return run.metrics(len(lines) - bool(lines and not lines[-1].endswith("}")))


def method_of(recipe: Recipe) -> str:
    """The method whose parts a recipe has; empty text where there is none.

    >>> from joao.config.recipe import make_recipe
    >>> method_of(make_recipe({"method": "joaov2"})), method_of(make_recipe({"heads": "no_head"}))
    ('joaov2', '')
    """
    several = len({part.name for part in recipe.augmentations}) < len(recipe.augmentations)
    for method, parts in METHODS.items():
        same = all(parts[family] == getattr(recipe, family).name for family in ("objective", "policy", "heads"))
        if same and several == ("strengths" in parts):
            return method
    return ""


def _encoder(run: Run) -> tuple[TrainedEncoder | None, str]:
    if not run.info.finished:
        return None, f"The run is not finished. {run.resume_hint()}"
    try:
        return load_run(run.folder, device="cpu"), ""
    except UserError as error:
        return None, str(error)


def _graphs(
    run: Run, read: Callable[[Run], Dataset], most_graphs: int
) -> tuple[Dataset | None, NDArray[np.int64], str]:
    nothing = np.zeros(0, dtype=np.int64)
    if not run.recipe.data:
        return None, nothing, "The run does not say which graphs it was trained on; one of 'joao pretrain' does."
    try:
        dataset = read(run)
    except UserError as error:
        return None, nothing, f"The graphs of the run are not at hand: {error}"
    if dataset.fingerprint != run.info.fingerprint:
        return None, nothing, f"The graphs of {dataset.name} at hand are other ones than those of the run."
    numbers = np.arange(len(dataset))
    if len(dataset) > most_graphs:
        numbers = np.sort(numpy_generator(0, "report").choice(len(dataset), most_graphs, replace=False))
        dataset = dataset.subset(numbers)
    return dataset, numbers, ""


def _finetuned(run: Run) -> dict[str, Any] | None:
    text = read_text(run.folder, FINETUNED)
    try:
        return None if text is None else dict(json.loads(text))
    except ValueError as error:
        raise UserError(f"{run.folder / FINETUNED}: is damaged ({error}).") from error
