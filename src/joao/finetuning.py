"""From a pre-trained encoder and some labels to a classifier of graphs, and its folder.

The folder is a run (:mod:`joao.run`) whose encoder is the fine-tuned one, with a classifier among its weights and
``finetune.json`` beside them. In it:

============  ======================================================================================================
``classes``   what predictions are called, in the order of the classifier's outputs
``settings``  see :class:`joao.training.finetune.Finetune`
``fit``       what each epoch showed, and which was ``chosen``
``info``      see :class:`FinetuneInfo`
============  ======================================================================================================
"""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joao.data.base import Dataset
from joao.errors import UserError
from joao.evaluation.labels import hold_out
from joao.experiment import OwnParts, Trained, initial, load_run, set_weights
from joao.provenance import command, machine, versions
from joao.randomness import numpy_generator, seeded
from joao.recipe import checked_options
from joao.training.classifier import Classifier
from joao.training.device import make_fabric, steady_threads
from joao.training.finetune import Finetune, Finetuning, Fit, FitEpoch

FILE = "finetune.json"
FORMAT = 1


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
        versions, machine: see :mod:`joao.provenance`.
        command: that started it.
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


@dataclass(frozen=True, eq=False)
class Finetuned:
    """A fine-tuned encoder with the classifier behind it.

    Attributes:
        trained: the encoder, fine-tuned, with what the run that it came from knows.
        classifier: the same encoder and the linear layer.
        classes: what predictions are called, in the order of the classifier's outputs.
        how: it was fine-tuned.
        fit: what each epoch showed, and the one that was kept.
        info: see :class:`FinetuneInfo`.
    """

    trained: Trained
    classifier: Classifier = field(repr=False)
    classes: tuple[int | str, ...]
    how: Finetune
    fit: Fit
    info: FinetuneInfo

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes as text."""
        return tuple(str(each) for each in self.classes)

    @property
    def chosen_epoch(self) -> FitEpoch:
        """What the epoch that was kept showed."""
        return self.fit.epochs[self.fit.chosen - 1]

    @steady_threads()
    @torch.no_grad()
    def predict_logits(self, dataset: Dataset) -> Tensor:
        """``(G, C)`` for any graphs with the same kind of features, on the CPU."""
        embeddings = self.trained.embed(dataset)
        logits = self.classifier.classify(embeddings.to(self.classifier.shift.device)).cpu()
        if not bool(logits.isfinite().all()):
            raise UserError(f"{dataset.name}: a prediction is not finite. The weights of the classifier are damaged.")
        return logits

    def predict_probabilities(self, dataset: Dataset) -> Tensor:
        """``(G, C)``, rows that sum to 1."""
        return self.predict_logits(dataset).softmax(dim=1)

    def accuracy(self, probabilities: Tensor, dataset: Dataset) -> float | None:
        """The share of the graphs with a label that ``probabilities`` ``(G, C)`` are right about.

        None where the data has no labels, or other classes than were learned.
        """
        if dataset.classes is None or not set(dataset.class_names) <= set(self.class_names):
            return None
        predicted = np.array(self.class_names)[probabilities.argmax(dim=1).numpy()]
        return float((predicted == dataset.labels)[dataset.classes >= 0].mean())

    def save(self, folder: Path) -> None:
        """Writes the folder."""
        fields = {
            "format": FORMAT,
            "classes": list(self.classes),
            "settings": dataclasses.asdict(self.how),
            "fit": dataclasses.asdict(self.fit),
            "info": dataclasses.asdict(self.info),
        }
        self.trained.save(folder, {FILE: fields})


@steady_threads()
def finetune(
    trained: Trained,
    dataset: Dataset,
    how: Finetune,
    *,
    seed: int = 0,
    validation_share: float = 0.2,
    from_scratch: bool = False,
    device: str = "auto",
    precision: str = "32-true",
    fast: bool | None = None,
    on_epoch: Callable[[FitEpoch], None] = lambda epoch: None,
) -> Finetuned:
    """Fine-tunes a copy of the encoder of ``trained`` on the labels of ``dataset``.

    Args:
        trained: where to start; left as it is.
        dataset: graphs, of which those with a label count; a share of them is held out and chooses the epoch.
        how: see :class:`joao.training.finetune.Finetune`.
        seed: of the held-out graphs, the linear layer's first weights and the batches.
        validation_share: of the graphs, held out.
        from_scratch: whether to start with the initial weights of the encoder instead.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        precision: ``32-true``, ``tf32``, ``bf16-mixed`` or ``16-mixed``.
        fast: whether to train on padded batches; None: on a GPU, where possible.
        on_epoch: told what each epoch showed.
    """
    started = time.perf_counter()
    fingerprint, dataset = dataset.fingerprint, _labelled(dataset)
    names, labels = _labels(dataset)
    learn, choose = hold_out(labels, validation_share, numpy_generator(seed, "validation"))
    fabric = make_fabric(device, precision)
    if from_scratch:
        if "encoder" in trained.info.own:
            raise UserError("fine-tuning: the encoder is its owner's, and how it was before training is not known.")
        trained = initial(trained.recipe, dataset, trained.info.features, device=device)
    fitting = Finetuning(
        trained.store(dataset),
        torch.from_numpy(labels),
        len(names),
        copy.deepcopy(trained.encoder),
        how,
        fabric,
        fast=fast,
        seed=seed,
    )
    fit = fitting.fit(torch.from_numpy(learn), torch.from_numpy(choose), seed, on_epoch)
    info = FinetuneInfo(
        data=dataset.name,
        fingerprint=fingerprint,
        graphs_per_class=dict(zip(names, np.bincount(labels).tolist(), strict=True)),
        num_train=len(learn),
        num_validation=len(choose),
        validation_share=validation_share,
        seed=seed,
        from_scratch=not trained.info.pretrained and not trained.info.finetuned_on,
        precision=precision,
        fast=fitting.is_fast,
        seconds=time.perf_counter() - started,
        versions=versions(),
        machine=machine(fabric.device),
        command=command(),
    )
    return Finetuned(_moved(trained, fitting.classifier, info), fitting.classifier, _called(names), how, fit, info)


def load_finetuned(folder: Path, *, device: str = "auto", own: OwnParts | None = None) -> Finetuned:
    """A fine-tuned folder, ready to predict."""
    trained = load_run(folder, device=device, own=own)
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"{folder}: has no classifier; make one with 'joao finetune {folder} DATA --out FOLDER'.")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["format"] > FORMAT:
            raise UserError(f"{path}: format {fields['format']} is newer than this version of joao knows.")
        classes = tuple(each if isinstance(each, int) else str(each) for each in fields["classes"])
        how = Finetune(**checked_options(Finetune, fields["settings"], f"{path}: settings"))
        fit = Fit(tuple(FitEpoch(**epoch) for epoch in fields["fit"]["epochs"]), int(fields["fit"]["chosen"]))
        if not 1 <= fit.chosen <= len(fit.epochs):
            raise ValueError(f"epoch {fit.chosen} of {len(fit.epochs)} was chosen")
        known = {each.name for each in dataclasses.fields(FinetuneInfo)}
        info = FinetuneInfo(**{key: value for key, value in fields["info"].items() if key in known})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: is damaged or not of a fine-tuning ({error}).") from error
    with seeded(0, "classifier"):
        classifier = Classifier(trained.encoder, len(classes))
    weights = {name.removeprefix("classifier."): value for name, value in trained.weights.items()}
    set_weights(classifier, weights, folder)
    classifier.to(next(trained.encoder.parameters(), torch.zeros(0)).device).eval()
    return Finetuned(trained, classifier, classes, how, fit, info)


def _labelled(dataset: Dataset) -> Dataset:
    """The graphs that have a label."""
    if dataset.classes is None:
        raise UserError(f"{dataset.name}: no graph has a label. Label some in the file or, in Python, give y.")
    return dataset if (dataset.classes >= 0).all() else dataset.subset(np.flatnonzero(dataset.classes >= 0))


def _labels(dataset: Dataset) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The names of the classes that the graphs have, and ``(G,)`` their numbers in them."""
    assert dataset.classes is not None
    present, labels = np.unique(dataset.classes, return_inverse=True)
    if len(present) < 2:
        raise UserError(f"{dataset.name}: one class only among {len(dataset)} graphs; a classifier needs two or more.")
    return tuple(dataset.class_names[number] for number in present), labels.astype(np.int64)


def _called(names: tuple[str, ...]) -> tuple[int | str, ...]:
    """The names of classes as a user had them: as whole numbers, if all of them are."""
    try:
        numbers = tuple(int(name) for name in names)
    except ValueError:
        return names
    return numbers if tuple(map(str, numbers)) == names else names


def _moved(trained: Trained, classifier: Classifier, info: FinetuneInfo) -> Trained:
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
