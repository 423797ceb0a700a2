"""From a pre-trained encoder and some labels to what predicts them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from joao.core.errors import UserError
from joao.core.provenance import command, machine, versions
from joao.data.dataset import Dataset
from joao.evaluation.splits import SHARES, default_split, split_graphs, split_notice
from joao.evaluation.targets import BinaryTargets, ClassTargets, NumberTargets, Targets
from joao.evaluation.tasks import check_learnable, infer_label_kind, integer_labels_notice, select_tasks
from joao.runs.finetuned import FinetunedModel, FinetuneInfo
from joao.runs.trained import TrainedEncoder, make_untrained
from joao.training.device import limit_threads, make_fabric
from joao.training.finetune import Classifier, Finetune, Finetuning, FitEpoch


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
