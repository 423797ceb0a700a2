"""From a pre-trained encoder and some labels to what predicts them."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from joao.core.errors import UserError, user_error_on_failure
from joao.core.provenance import command, machine, versions
from joao.core.randomness import temporary_seed
from joao.core.registry import check_options
from joao.data.dataset import Dataset
from joao.evaluation.splits import SHARES, default_split, split_graphs, split_notice
from joao.evaluation.targets import (
    KINDS,
    BinaryTargets,
    ClassTargets,
    NumberTargets,
    Targets,
    check_learnable,
    infer_label_kind,
    integer_labels_notice,
    select_tasks,
    task_figures,
)
from joao.runs.folder import read_text
from joao.runs.trained import TrainedEncoder, load_run, make_untrained, set_weights
from joao.training.device import limit_threads, make_fabric
from joao.training.finetune import Classifier, Finetune, Finetuning
from joao.training.metrics import Fit, FitEpoch


@limit_threads()
def finetune(
    trained: TrainedEncoder,
    dataset: Dataset,
    settings: Finetune,
    *,
    kind: str | None = None,
    tasks: Sequence[str] = (),
    split: str | None = None,
    validation_share: float | None = None,
    test_share: float | None = None,
    seed: int = 0,
    from_scratch: bool = False,
    device: str = "auto",
    precision: str = "32-true",
    fast: bool | None = None,
    on_epoch: Callable[[FitEpoch], None] = lambda epoch: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> FinetunedModel:
    """Fine-tunes a copy of the encoder of ``trained`` on the labels of ``dataset``.

    Args:
        trained: where to start; left as it is.
        dataset: graphs, of which those with a label count; a share of them is held out and chooses the epoch.
        settings: see :class:`joao.training.finetune.Finetune`.
        kind: of the labels, ``classes``, ``binary`` or ``numbers``; None: classes or, where there are none or ``tasks``
            are named, what the labels of the tasks are, ``binary`` where all are 0 or 1.
        tasks: the columns of labels to learn; none named: all.
        split: ``random`` or ``scaffold``, see :func:`joao.evaluation.splits.split_graphs`; None: ``scaffold`` for
            molecules with tasks.
        validation_share: of the graphs, held out to choose the epoch; None: 0.2, or 0.1 of a scaffold split.
        test_share: of the graphs, looked at once, at the end; None: nothing, or 0.1 of a scaffold split.
        seed: of the held-out graphs, the linear layer's first weights and the batches.
        from_scratch: whether to start with the initial weights of the encoder instead.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        precision: ``32-true``, ``tf32``, ``bf16-mixed`` or ``16-mixed``.
        fast: whether to train on padded batches; None: on a GPU, where possible.
        on_epoch: told what each epoch showed.
        on_notice: told, before the first epoch, what of the labels or the split may not be as it was meant.
    """
    started = time.perf_counter()
    fingerprint = dataset.fingerprint
    wanted = kind
    dataset, kind, targets = _select_labelled(dataset, kind, tasks)
    notices = [
        split_notice(dataset, test_share) if split is None else None,
        integer_labels_notice(dataset) if kind == "numbers" and wanted is None else None,
    ]
    split = default_split(dataset) if split is None else split
    usual = SHARES.get(split, (0.0, 0.0))
    validation_share = usual[0] if validation_share is None else validation_share
    test_share = usual[1] if test_share is None else test_share
    parts = split_graphs(dataset, split, validation_share, test_share, seed)
    if kind != "classes":
        check_learnable(dataset, kind, parts.train)
    for notice in filter(None, notices):
        on_notice(notice)
    fabric = make_fabric(device, precision)
    if from_scratch:
        if "encoder" in trained.info.own:
            raise UserError("fine-tuning: the encoder is its owner's, and how it was before training is not known.")
        seen = dataset.subset(np.union1d(parts.train, parts.validation)) if len(parts.test) else dataset
        trained = make_untrained(trained.recipe, seen, trained.info.features, device=device)
    fitting = Finetuning(
        trained.store(dataset),
        targets,
        copy.deepcopy(trained.encoder),
        settings,
        fabric,
        fast=fast,
        seed=seed,
    )
    fit = fitting.fit(torch.from_numpy(parts.train), torch.from_numpy(parts.validation), seed, on_epoch)
    learned_per_task: dict[str, list[float]] = {}
    if isinstance(targets, NumberTargets):
        targets.restore_units(fitting.classifier.linear, fitting.statistics[0])
        learned_per_task = dict(zip(dataset.target_names, fitting.statistics[0].T.tolist(), strict=True))
    info = FinetuneInfo(
        data=dataset.name,
        fingerprint=fingerprint,
        graphs_per_class=_graphs_per_class(dataset),
        num_train=len(parts.train),
        num_validation=len(parts.validation),
        validation_share=validation_share,
        seed=seed,
        from_scratch=not trained.info.pretrained and not trained.info.finetuned_on,
        precision=precision,
        fast=fitting.is_fast,
        seconds=time.perf_counter() - started,
        versions=versions(),
        machine=machine(fabric.device),
        command=command(),
        split=split,
        test_share=test_share,
        num_test=len(parts.test),
        labels_per_task=_labels_per_task(dataset, kind),
        learned_per_task=learned_per_task,
    )
    finetuned = FinetunedModel(
        _with_classifier_weights(trained, fitting.classifier, info),
        fitting.classifier,
        _original_labels(dataset.class_names) if kind == "classes" else (),
        settings,
        fit,
        info,
        kind,
        () if kind == "classes" else dataset.target_names,
    )
    held_out = {"validation": parts.validation, "test": parts.test}
    looked_at = {name: dataset.subset(graphs) for name, graphs in held_out.items() if len(graphs)}
    scores = {name: finetuned.score(finetuned.predict_logits(graphs), graphs) for name, graphs in looked_at.items()}
    return replace(finetuned, scores=scores)


def _select_labelled(dataset: Dataset, kind: str | None, tasks: Sequence[str]) -> tuple[Dataset, str, Targets]:
    """The graphs that have a label, with no other classes or tasks than are learned, and of which kind they are."""
    if dataset.classes is None and dataset.targets is None:
        raise UserError(f"{dataset.name}: no graph has a label. Label some in the file or, in Python, give y.")
    if kind in ("binary", "numbers") or dataset.classes is None or tasks:
        dataset = select_tasks(replace(dataset, classes=None, class_names=()), tasks)
        kind, values = infer_label_kind(dataset, kind), torch.from_numpy(dataset.targets)
        return dataset, kind, BinaryTargets(values) if kind == "binary" else NumberTargets(values)
    labelled = np.flatnonzero(dataset.classes >= 0)
    present, labels = np.unique(dataset.classes[labelled], return_inverse=True)
    if len(present) < 2:
        raise UserError(f"{dataset.name}: one class only among {len(labels)} graphs; a classifier needs two or more.")
    labels, dataset = labels.astype(np.int64), dataset if len(labels) == len(dataset) else dataset.subset(labelled)
    names = tuple(dataset.class_names[number] for number in present)
    dataset = replace(dataset, classes=labels, class_names=names)
    return dataset, "classes", ClassTargets(torch.from_numpy(labels), len(names))


def _graphs_per_class(dataset: Dataset) -> dict[str, int]:
    if dataset.classes is None:
        return {}
    return dict(zip(dataset.class_names, np.bincount(dataset.classes).tolist(), strict=True))


def _labels_per_task(dataset: Dataset, kind: str) -> dict[str, list[int]]:
    """How many labels each task has; of ``binary`` ones, how many are 0 and how many 1."""
    if dataset.classes is not None or dataset.targets is None:
        return {}
    counted = [dataset.targets == 0, dataset.targets == 1] if kind == "binary" else [~np.isnan(dataset.targets)]
    counts = np.stack([each.sum(axis=0) for each in counted], axis=1).tolist()
    return dict(zip(dataset.target_names, counts, strict=True))


def _original_labels(names: tuple[str, ...]) -> tuple[int | str, ...]:
    """The names of classes as a user had them: as whole numbers, if all of them are."""
    try:
        numbers = tuple(int(name) for name in names)
    except ValueError:
        return names
    return numbers if tuple(map(str, numbers)) == names else names


def _with_classifier_weights(trained: TrainedEncoder, classifier: Classifier, info: FinetuneInfo) -> TrainedEncoder:
    """What is known of ``trained``, with the encoder and weights of ``classifier``."""
    classifier.eval()
    weights = {
        name if name.startswith("encoder.") else f"classifier.{name}": value
        for name, value in classifier.state_dict().items()
    }
    finetuned_on = (*trained.info.finetuned_on, info.fingerprint)
    return replace(
        trained,
        info=replace(trained.info, finetuned_on=finetuned_on),
        encoder=classifier.encoder,
        weights=weights,
    )


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

        Of classes the ``accuracy``, of tasks see :func:`joao.evaluation.targets.task_figures`.

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
