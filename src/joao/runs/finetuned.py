"""A fine-tuned encoder: what predicts labels, and its folder.

The folder is a run (:mod:`joao.runs.folder`) whose encoder is the fine-tuned one, with a linear layer among its weights and
``finetune.json`` beside them. In it:

============  ======================================================================================================
``kind``      ``classes``, ``binary`` (tasks of 0 and 1) or ``numbers``; in older folders not said, ``classes``
``classes``   what predictions are called, in the order of the outputs; empty for tasks
``tasks``     the names of the tasks, in the order of the outputs; empty for classes
``settings``  see :class:`joao.training.finetune.Finetune`
``fit``       what each epoch showed, and which was ``chosen``
``scores``    of the chosen epoch, on the ``validation`` graphs and, if some were held out for it, on ``test`` graphs
``info``      see :class:`FinetuneInfo`
============  ======================================================================================================
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from joao.core.errors import UserError, user_error_on_failure
from joao.core.randomness import temporary_seed
from joao.core.registry import check_options
from joao.data.dataset import Dataset
from joao.evaluation.targets import KINDS
from joao.evaluation.tasks import task_figures
from joao.runs.folder import read_text
from joao.runs.trained import TrainedEncoder, load_run, set_weights
from joao.training.device import limit_threads
from joao.training.finetune import Classifier, Finetune, Fit, FitEpoch

FILE = "finetune.json"
FORMAT = 1
_NOT_ONE = "{}: is damaged or not of a fine-tuning"


@dataclass(frozen=True)
class FinetuneInfo:
    """What a fine-tuning must know beside its settings.

    Attributes:
        data: name of the labelled data set.
        fingerprint: of its graphs.
        graphs_per_class: how many labelled graphs each class has.
        num_train, num_validation: how many graphs were learned from, and how many chose the epoch.
        validation_share: that was asked for.
        seed: of everything random.
        from_scratch: whether the encoder began with its initial weights, not with pre-trained ones.
        precision, fast: of the training.
        seconds: it took.
        versions, machine: see :mod:`joao.core.provenance`.
        command: that started it.
        split, test_share, num_test: how the graphs were parted, and how many were tested on, once, at the end.
        labels_per_task: how many graphs have a label of each task; of ``binary`` ones, a 0 and a 1.
        learned_per_task: of ``numbers``, mean and deviation of the labels that were learned from.
    """

    data: str
    fingerprint: str
    graphs_per_class: Mapping[str, int]
    num_train: int
    num_validation: int
    validation_share: float
    seed: int
    from_scratch: bool
    precision: str
    fast: bool
    seconds: float
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    command: str = ""
    split: str = "random"
    test_share: float = 0.0
    num_test: int = 0
    labels_per_task: Mapping[str, Sequence[int]] = field(default_factory=dict)
    learned_per_task: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FinetunedModel:
    """A fine-tuned encoder with the linear layer behind it.

    Attributes:
        trained: the encoder, fine-tuned, with what the run that it came from knows.
        classifier: the same encoder and the linear layer.
        classes: what predictions are called, in the order of the outputs; empty for tasks.
        settings: of the fine-tuning.
        fit: what each epoch showed, and the one that was kept.
        info: see :class:`FinetuneInfo`.
        kind: ``classes``, ``binary`` or ``numbers``.
        tasks: their names, in the order of the outputs; empty for classes.
        scores: of the chosen epoch, by part, ``validation`` and ``test``; see :meth:`score`.
    """

    trained: TrainedEncoder
    classifier: Classifier = field(repr=False)
    classes: tuple[int | str, ...]
    settings: Finetune
    fit: Fit
    info: FinetuneInfo
    kind: str = "classes"
    tasks: tuple[str, ...] = ()
    scores: Mapping[str, Any] = field(default_factory=dict)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes as text."""
        return tuple(str(each) for each in self.classes)

    @property
    def chosen_epoch(self) -> FitEpoch:
        """What the epoch that was kept showed."""
        return self.fit.epochs[self.fit.chosen - 1]

    @limit_threads()
    @torch.no_grad()
    def predict_logits(self, dataset: Dataset) -> Tensor:
        """``(G, C)`` outputs for any graphs with the same kind of features, on the CPU."""
        embeddings = self.trained.embed(dataset)
        logits = self.classifier.classify(embeddings.to(self.classifier.shift.device)).cpu()
        if not bool(logits.isfinite().all()):
            raise UserError(f"{dataset.name}: a prediction is not finite. The weights of the classifier are damaged.")
        return logits

    def predict(self, dataset: Dataset) -> Tensor:
        """``(G, C)`` probabilities of classes, rows that sum to 1; of a 1 in each task; or numbers in their units."""
        return self.to_predictions(self.predict_logits(dataset))

    def to_predictions(self, outputs: Tensor) -> Tensor:
        """What :meth:`predict` makes of outputs ``(G, C)``."""
        if self.kind == "numbers":
            return outputs
        return outputs.softmax(dim=1) if self.kind == "classes" else outputs.sigmoid()

    def score(self, outputs: Tensor, dataset: Dataset) -> dict[str, Any] | None:
        """How good outputs ``(G, C)`` for ``dataset`` are by its own labels; None where it has none of these.

        Of classes the ``accuracy``, of tasks see :func:`joao.evaluation.tasks.task_figures`.

        Args:
            outputs: of :meth:`predict_logits`. Probabilities rank graphs likewise, but those near 1 are rounded to it.
            dataset: the graphs.
        """
        if self.kind == "classes":
            accuracy = self.accuracy(outputs, dataset)
            return None if accuracy is None else {"accuracy": accuracy}
        places = [place for place, name in enumerate(self.tasks) if name in dataset.target_names]
        if dataset.targets is None or not places:
            return None
        names = [self.tasks[place] for place in places]
        labels = dataset.targets[:, [dataset.target_names.index(name) for name in names]]
        if np.isnan(labels).all():
            return None
        known = self.info.learned_per_task  # empty in older folders
        learned = [known[name] for name in names] if known else None
        return task_figures(self.kind, outputs.numpy()[:, places], labels, names, learned)

    def accuracy(self, outputs: Tensor, dataset: Dataset) -> float | None:
        """The share of the graphs with a label that outputs or probabilities ``(G, C)`` of classes are right about.

        None where the data has no labels, or other classes than were learned.
        """
        if dataset.classes is None or not set(dataset.class_names) <= set(self.class_names):
            return None
        predicted = np.array(self.class_names)[outputs.argmax(dim=1).numpy()]
        return float((predicted == dataset.labels)[dataset.classes >= 0].mean())

    def save(self, folder: Path) -> None:
        """Writes the folder."""
        fields = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": list(self.classes),
            "tasks": list(self.tasks),
            "settings": dataclasses.asdict(self.settings),
            "fit": dataclasses.asdict(self.fit),
            "scores": dict(self.scores),
            "info": dataclasses.asdict(self.info),
        }
        self.trained.save(folder, {FILE: fields})


def load_finetuned(folder: Path, *, device: str = "auto", encoder: nn.Module | None = None) -> FinetunedModel:
    """A fine-tuned run, from its folder or the file it was exported to, ready to predict."""
    trained = load_run(folder, device=device, encoder=encoder)
    path, (kind, fields) = folder / FILE, _kind_and_fields(folder)
    with user_error_on_failure(_NOT_ONE.format(path)):
        classes = tuple(each if isinstance(each, int) else str(each) for each in fields["classes"])
        tasks = tuple(str(each) for each in fields.get("tasks", ()))
        settings = Finetune(**check_options(Finetune, fields["settings"], f"{path}: settings"))
        fit = Fit(tuple(_epoch(epoch) for epoch in fields["fit"]["epochs"]), int(fields["fit"]["chosen"]))
        if not 1 <= fit.chosen <= len(fit.epochs):
            raise ValueError(f"epoch {fit.chosen} of {len(fit.epochs)} was chosen")
        known = {each.name for each in dataclasses.fields(FinetuneInfo)}
        info = FinetuneInfo(**{key: value for key, value in fields["info"].items() if key in known})
        scores = dict(fields.get("scores", {}))
    with temporary_seed(0, "classifier"):
        classifier = Classifier(trained.encoder, len(classes or tasks))
    weights = {name.removeprefix("classifier."): value for name, value in trained.weights.items()}
    set_weights(classifier, weights, folder)
    classifier.to(next(trained.encoder.parameters(), torch.zeros(0)).device).eval()
    return FinetunedModel(trained, classifier, classes, settings, fit, info, kind, tasks, scores)


def read_label_kind(folder: Path) -> str:
    """``classes``, ``binary`` or ``numbers``: what a fine-tuned run predicts, without its weights."""
    return _kind_and_fields(folder)[0]


def _kind_and_fields(folder: Path) -> tuple[str, dict[str, Any]]:
    """What is predicted, and all that ``finetune.json`` says."""
    path, text = folder / FILE, read_text(folder, FILE)
    if text is None:
        raise UserError(f"{folder}: has no classifier; make one with 'joao finetune {folder} DATA --out FOLDER'.")
    with user_error_on_failure(_NOT_ONE.format(path)):
        fields = json.loads(text)
        version, kind = fields["format"], str(fields.get("kind", "classes"))
        if version > FORMAT:
            raise UserError(f"{path}: format {version} is newer than this version of joao knows.")
    if kind not in KINDS:
        raise UserError(f"{path}: predicts {kind}, which this version of joao does not know.")
    return kind, fields


def _epoch(fields: dict[str, Any]) -> FitEpoch:
    """Of a record; those of older folders call the score of classes by its name."""
    return FitEpoch(**{("validation_score" if key == "validation_accuracy" else key): fields[key] for key in fields})
