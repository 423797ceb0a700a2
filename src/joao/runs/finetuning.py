"""Fine-tune a pre-trained encoder on labels, and store the result.

The folder of a fine-tuned model is a run (:mod:`joao.runs.folder`) whose weights are the fine-tuned encoder and a
linear layer; an ensemble has the encoder as it was, and its members. Its ``finetune.json`` contains:

============  ======================================================================================================
``kind``      ``classes``, ``binary`` (tasks with 0 and 1) or ``numbers``; missing in older folders: ``classes``
``classes``   class labels in the order of the outputs; empty for tasks
``tasks``     names of the tasks in the order of the outputs; empty for classes
``settings``  see :class:`joao.training.finetune.Finetune`
``fit``       the epochs and the number of the ``chosen`` one; none for an ensemble
``scores``    scores of the chosen epoch on the ``validation`` graphs and, if there are any, on the ``test`` graphs; for
              tasks of molecules these have the scores of a random forest on ECFP beside them (``forest``); for an
              ensemble those of each member, and of the mean of the others (``members``, ``without``)
``info``      see :class:`FinetuneInfo`
============  ======================================================================================================
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from joao.baselines.forests import Forests, molecule_columns
from joao.core.errors import UserError, suggest, user_error_on_failure
from joao.core.files import parse_json
from joao.core.provenance import command, machine, versions
from joao.core.randomness import temporary_seed
from joao.core.registry import check_options, check_value, make_record
from joao.data.dataset import Dataset
from joao.data.duplicates import merge_duplicates
from joao.data.molecules import STANDARDISED, featuriser_version, is_standardised
from joao.evaluation.splits import SHARES, Split, default_split, given_split, split_graphs, split_notice
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
    select_tasks_of_a_kind,
    task_figures,
)
from joao.runs.ensemble import (
    Member,
    is_member_weight,
    load_members,
    members_to_weights,
    predict_members,
    train_members,
)
from joao.runs.folder import check_format, read_text
from joao.runs.trained import TrainedEncoder, load_run, make_untrained, model_path, set_weights
from joao.training.device import limit_threads, make_fabric
from joao.training.finetune import Classifier, Finetune, Finetuning
from joao.training.metrics import Fit, FitEpoch

FILE = "finetune.json"
FORMAT = 1
MOST_FOREST_TASKS = 20  # each task has a forest of its own
_DAMAGED = "{}: is damaged or not the finetune.json of a run"
_NOT_FINETUNED = "{0}: was not fine-tuned. Run 'joao finetune {0} DATA --out FOLDER'."


@dataclass(frozen=True)
class FinetuneInfo:
    """What a fine-tuned model records in addition to its settings.

    Attributes:
        data, fingerprint: name of the labelled data set and fingerprint of its graphs.
        source, smiles, identifiers: name or path of the data set, and named columns of its table; empty: not known.
        graphs_per_class: number of labelled graphs of each class.
        num_train, num_validation, num_test: numbers of graphs; the test graphs were evaluated once, at the end.
        split, validation_share, test_share: how the graphs were split.
        from_scratch: whether the encoder started from initial instead of pre-trained weights.
        precision, fast: precision of the training, and whether it used padded batches.
        versions, machine, command: see :mod:`joao.core.provenance`.
        labels_per_task: number of labels of each task; for ``binary`` tasks, numbers of 0 and of 1.
        learned_per_task: for ``numbers``, mean and standard deviation of the training labels.
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
    source: str = ""
    smiles: str = ""
    identifiers: str = ""

    @property
    def columns(self) -> dict[str, str]:
        """The named columns of a table of molecules, as arguments of :func:`joao.read`."""
        named = {"smiles": self.smiles, "identifiers": self.identifiers}
        return {role: column for role, column in named.items() if column}


class Prediction(NamedTuple):
    """Predictions of a model.

    Attributes:
        values: ``(G, C)``, see :meth:`FinetunedModel.predict`.
        std: ``(G, C)`` standard deviation over the members of an ensemble; None for other models.
        outputs: ``(G, C)`` what :meth:`FinetunedModel.score` takes: the mean of an ensemble, or logits.
    """

    values: Tensor
    std: Tensor | None
    outputs: Tensor


@dataclass(frozen=True, eq=False)
class FinetunedModel:
    """A fine-tuned encoder with a linear output layer. The other attributes are the fields of ``finetune.json``.

    Attributes:
        trained: the fine-tuned encoder, with the recipe and information of the original run.
        classifier: the same encoder with the output layer.
        members: members of an ensemble, whose mean is the prediction; the output layer is then 0 and not used.
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
    members: Mapping[str, Member] = field(default_factory=dict, repr=False)

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(str(each) for each in self.classes)

    @property
    def chosen_epoch(self) -> FitEpoch | None:
        """Metrics of the chosen epoch; None for an ensemble, which has no epochs."""
        return self.fit.epochs[self.fit.chosen - 1] if self.fit.epochs else None

    @limit_threads()
    @torch.no_grad()
    def predict_logits(self, dataset: Dataset) -> Tensor:
        """Compute ``(G, C)`` outputs for any graphs with the same kind of features, on the CPU."""
        embeddings = self.trained.embed(dataset, pooled=True)
        logits = self.classifier.classify(embeddings.to(self.classifier.shift.device)).cpu()
        if not bool(logits.isfinite().all()):
            raise UserError(
                f"{dataset.name}: predictions have NaN or infinite values. The weights of the classifier are damaged."
            )
        return logits

    def predict(self, dataset: Dataset) -> Tensor:
        """Predict ``(G, C)`` class probabilities, probabilities of a 1 in each task, or numbers in their units."""
        return self.predict_with_std(dataset).values

    def predict_with_std(self, dataset: Dataset, *, jobs: int = 1) -> Prediction:
        """Predict graphs; fingerprints and descriptors for an ensemble are computed in ``jobs`` processes."""
        if not self.members:
            logits = self.predict_logits(dataset)
            return Prediction(self.to_predictions(logits), None, logits)
        members = torch.stack([*self.predict_members(dataset, jobs=jobs).values()])
        mean = members.mean(dim=0)
        return Prediction(mean, members.std(dim=0, correction=0), mean)

    def predict_members(self, dataset: Dataset, *, jobs: int = 1) -> dict[str, Tensor]:
        """Predict ``(G, C)`` with each member of an ensemble: ``ecfp``, ``descriptors`` and ``encoder``."""
        predictions = predict_members(self.members, self.trained, dataset, jobs)
        if self.kind == "classes":
            predictions = {name: torch.cat([1 - each, each], dim=1) for name, each in predictions.items()}
        return {name: each.float() for name, each in predictions.items()}

    def to_predictions(self, outputs: Tensor) -> Tensor:
        """Convert outputs ``(G, C)`` to the predictions of :meth:`predict`."""
        if self.kind == "numbers":
            return outputs
        return outputs.softmax(dim=1) if self.kind == "classes" else outputs.sigmoid()

    def score(self, outputs: Tensor, dataset: Dataset) -> dict[str, Any] | None:
        """Score outputs ``(G, C)`` against the labels of ``dataset``; None if it has no such labels.

        The score is the ``accuracy`` for classes; for tasks see :func:`joao.evaluation.targets.task_figures`.

        Args:
            outputs: logits or predictions, which give the same ranking except for ties by rounding.
        """
        if self.kind == "classes":
            accuracy = self.accuracy(outputs, dataset)
            return None if accuracy is None else {"accuracy": accuracy}
        columns = [column for column, name in enumerate(self.tasks) if name in dataset.target_names]
        if dataset.targets is None or not columns:
            return None
        names = [self.tasks[column] for column in columns]
        labels = dataset.targets[:, [dataset.target_names.index(name) for name in names]]
        if np.isnan(labels).all():
            return None
        learned_per_task = self.info.learned_per_task  # empty in older folders
        learned = [learned_per_task[name] for name in names] if learned_per_task else None
        return task_figures(self.kind, outputs.numpy()[:, columns], labels, names, learned)

    def accuracy(self, outputs: Tensor, dataset: Dataset) -> float | None:
        """Compute the accuracy of outputs or probabilities ``(G, C)`` on the labelled graphs.

        None if the data set has no labels, or classes that were not learned.
        """
        if dataset.classes is None or not set(dataset.class_names) <= set(self.class_names):
            return None
        predicted = np.array(self.class_names)[outputs.argmax(dim=1).numpy()]
        return float((predicted == dataset.labels)[dataset.classes >= 0].mean())

    def save(self, folder: Path, *, claimed: bool = False) -> None:
        """Write the model to a new folder, or to one that the caller has ``claimed``."""
        fields = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": list(self.classes),
            "tasks": list(self.tasks),
            "settings": asdict(self.settings),
            "fit": asdict(self.fit),
            "scores": dict(self.scores),
            "info": asdict(self.info),
        }
        self.trained.save(folder, {FILE: fields}, claimed=claimed)  # its weights contain the members


@limit_threads()
def finetune(
    trained: TrainedEncoder,
    dataset: Dataset,
    settings: Finetune,
    *,
    kind: str | None = None,
    tasks: Sequence[str] = (),
    split: str | Sequence[str] | None = None,
    validation_share: float | None = None,
    test_share: float | None = None,
    seed: int = 0,
    from_scratch: bool = False,
    device: str = "auto",
    precision: str = "32-true",
    fast: bool | None = None,
    ensemble: bool = False,
    jobs: int = 1,
    on_epoch: Callable[[FitEpoch], None] = lambda epoch: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_notice: Callable[[str], None] = lambda notice: None,
    on_member: Callable[[str], None] = lambda name: None,
) -> FinetunedModel:
    """Fine-tune a copy of the encoder of ``trained`` on the labels of ``dataset``, or train an ensemble with it.

    Standardised molecules that occur several times are merged, see :func:`joao.data.duplicates.merge_duplicates`.

    An ensemble is the mean of a random forest on ECFP, one on descriptors, and kernel ridge regression on the frozen
    encoder (:mod:`joao.runs.ensemble`). It needs no epochs: ``settings`` are ignored, and its members also learn from
    the validation graphs.

    Args:
        trained: the encoder to start from; it is not changed.
        dataset: the graphs. Graphs without a label are ignored.
        kind: ``classes``, ``binary`` or ``numbers``; None: classes if there are any and no ``tasks`` are given,
            otherwise ``binary`` if all labels are 0 or 1, else ``numbers``.
        tasks: columns of labels to learn; empty: all.
        split: a key of :data:`joao.evaluation.splits.SHARES`, or a part for each graph of ``dataset``, see
            :func:`joao.evaluation.splits.given_split`; None: ``scaffold`` for molecules with tasks, else ``random``.
        validation_share: share of the graphs that choose the epoch; None: default of the split.
        test_share: share of the graphs that are evaluated once, at the end; None: default of the split.
        seed: seed of the split, the initial weights of the linear layer and the batches.
        from_scratch: whether to start from the initial weights of the encoder instead.
        fast: whether to train on padded batches; None: on a GPU if the encoder supports it.
        ensemble: whether to train an ensemble, which needs molecules with SMILES, and tasks or two classes.
        jobs: number of processes that compute fingerprints and descriptors, and of threads that grow forests.
        should_stop: called after each epoch; training ends when it returns True.
        on_notice: called before the first epoch with notices about labels or split that may be unintended.
        on_member: called with the name of each trained member of an ensemble.
    """
    started = time.perf_counter()
    fingerprint = dataset.fingerprint
    parts_of_graphs = None if split is None or isinstance(split, str) else list(split)
    if parts_of_graphs is not None:
        _check_given_split(dataset, parts_of_graphs, validation_share, test_share)
        dataset = replace(dataset, groups=np.arange(len(dataset)))  # so that the parts can follow the labelled graphs
    dataset, _, merged = merge_duplicates(dataset, parts_of_graphs)
    is_inferred, left_out = kind is None, None
    if is_inferred and not tasks and dataset.classes is None and dataset.targets is not None:
        dataset, left_out = select_tasks_of_a_kind(dataset)
    dataset, kind, targets = _select_labelled(dataset, kind, tasks)
    if ensemble and kind == "classes" and len(dataset.class_names) > 2:
        count = f"{len(dataset.class_names)} classes"
        raise UserError(f"{dataset.name}: an ensemble needs tasks or two classes, got {count}. Use a task per class.")
    notices = [
        merged,
        left_out,
        split_notice(dataset, test_share) if split is None else None,
        integer_labels_notice(dataset) if kind == "numbers" and is_inferred else None,
    ]
    if parts_of_graphs is None:
        kind_of_split = default_split(dataset) if split is None else str(split)
        default_shares = SHARES.get(kind_of_split, (0.0, 0.0))
        validation_share = default_shares[0] if validation_share is None else validation_share
        test_share = default_shares[1] if test_share is None else test_share
        parts = split_graphs(dataset, kind_of_split, validation_share, test_share, seed)
    else:
        assert dataset.groups is not None
        kind_of_split = "given"
        parts = given_split(dataset, [parts_of_graphs[number] for number in dataset.groups])
        dataset = replace(dataset, groups=None)
        validation_share, test_share = (len(each) / len(dataset) for each in (parts.validation, parts.test))
    if kind != "classes":
        check_learnable(dataset, kind, parts.train)
    for notice in filter(None, notices):
        on_notice(notice)
    fabric = make_fabric(device, precision)
    if from_scratch:
        trained = _untrained(trained, dataset, parts, device)
    encoder = copy.deepcopy(trained.encoder)
    learned_per_task: dict[str, list[float]] = {}
    members: dict[str, Member] = {}
    is_fast = False
    if ensemble:
        train = np.concatenate([parts.train, parts.validation])
        statistics = targets.training_statistics(torch.from_numpy(train), balanced=True)
        members = train_members(trained, dataset.subset(train), kind, seed, jobs, on_member)
        # The run of an ensemble has the encoder as it was, and an output layer that is not used.
        fit, classifier = Fit((), 0), Classifier(encoder, targets.num_outputs).to(fabric.device)
        nn.init.zeros_(classifier.linear.weight)
    else:
        fitting = Finetuning(
            trained.store(dataset), targets, encoder, settings, fabric, fast=fast, seed=seed, resets_silent=True
        )
        fit = fitting.fit(
            torch.from_numpy(parts.train), torch.from_numpy(parts.validation), seed, on_epoch, should_stop=should_stop
        )
        classifier, statistics, is_fast = fitting.classifier, fitting.statistics[0], fitting.is_fast
    if isinstance(targets, NumberTargets):
        if not ensemble:
            targets.restore_units(classifier.linear, statistics)
        learned_per_task = dict(zip(dataset.target_names, statistics.T.tolist(), strict=True))
    sizes = [] if dataset.classes is None else np.bincount(dataset.classes).tolist()
    info = FinetuneInfo(
        data=dataset.name,
        fingerprint=fingerprint,
        graphs_per_class=dict(zip(dataset.class_names, sizes, strict=True)),
        num_train=len(parts.train),
        num_validation=len(parts.validation),
        validation_share=validation_share,
        seed=seed,
        from_scratch=not trained.info.pretrained and not trained.info.finetuned_on,
        precision=precision,
        fast=is_fast,
        seconds=time.perf_counter() - started,
        versions=versions(),
        machine=machine(fabric.device),
        command=command(),
        split=kind_of_split,
        test_share=test_share,
        num_test=len(parts.test),
        labels_per_task=_labels_per_task(dataset, kind),
        learned_per_task=learned_per_task,
    )
    finetuned = FinetunedModel(
        _with_classifier_weights(trained, classifier, dataset, fingerprint, members),
        classifier,
        _original_labels(dataset.class_names) if kind == "classes" else (),
        settings,
        fit,
        info,
        kind,
        () if kind == "classes" else dataset.target_names,
        members=members,
    )
    return replace(finetuned, scores=_score(finetuned, dataset, parts, seed, jobs))


def _check_given_split(
    dataset: Dataset, parts: Sequence[str], validation_share: float | None, test_share: float | None
) -> None:
    if len(parts) != len(dataset):
        raise UserError(f"{dataset.name}: split: expected a part for each of {len(dataset)} graphs, got {len(parts)}.")
    for name, share in (("validation_share", validation_share), ("test_share", test_share)):
        if share is not None:
            raise UserError(f"{dataset.name}: {name} {share} has no effect, because the split is given. Leave it out.")


def _untrained(trained: TrainedEncoder, dataset: Dataset, parts: Split, device: str) -> TrainedEncoder:
    """The encoder of ``trained`` before training; its statistics are computed without the test graphs."""
    if "encoder" in trained.info.own:
        raise UserError(
            "fine-tuning: a custom encoder cannot start from scratch, because its initial weights are not stored."
        )
    graphs = dataset.subset(np.union1d(parts.train, parts.validation)) if len(parts.test) else dataset
    return make_untrained(trained.recipe, graphs, trained.info.features, device=device)


def _score(finetuned: FinetunedModel, dataset: Dataset, parts: Split, seed: int, jobs: int) -> dict[str, Any]:
    """Scores on the validation and test graphs; an ensemble has no validation graphs."""
    if finetuned.members:
        return {"test": _score_members(finetuned, dataset.subset(parts.test), jobs)} if len(parts.test) else {}
    scores: dict[str, Any] = {}
    for name, graphs in (("validation", parts.validation), ("test", parts.test)):
        if len(graphs):
            part = dataset.subset(graphs)
            scores[name] = finetuned.score(finetuned.predict_logits(part), part)
    if scores.get("test") and dataset.smiles and 0 < len(finetuned.tasks) <= MOST_FOREST_TASKS and featuriser_version():
        scores["test"]["forest"] = _score_forest(dataset, finetuned.kind, parts, seed)
    return scores


def _score_members(finetuned: FinetunedModel, part: Dataset, jobs: int) -> dict[str, Any]:
    """Score an ensemble on test molecules, each member alone, and the mean of the others without it."""
    members = finetuned.predict_members(part, jobs=jobs)

    def score(names: Sequence[str]) -> dict[str, Any] | None:
        return finetuned.score(torch.stack([members[name] for name in names]).mean(dim=0), part)

    return {
        **(score(list(members)) or {}),
        "forest": score(["ecfp"]),
        "members": {name: score([name]) for name in members},
        "without": {name: score([other for other in members if other != name]) for name in members},
    }


def _score_forest(dataset: Dataset, kind: str, parts: Split, seed: int) -> dict[str, Any]:
    """Score a random forest on ECFP on the same test molecules; it also learns from the validation molecules."""
    assert dataset.targets is not None
    columns, train = molecule_columns(dataset.smiles, ["ecfp"])["ecfp"], np.concatenate([parts.train, parts.validation])
    forests = Forests.fit(columns[train], dataset.targets[train], kind, seed)
    predicted = forests.predict(columns[parts.test]).astype(np.float32)
    return task_figures(kind, predicted, dataset.targets[parts.test], dataset.target_names)


def _select_labelled(dataset: Dataset, kind: str | None, tasks: Sequence[str]) -> tuple[Dataset, str, Targets]:
    """Select the graphs with a label and the classes or tasks to learn; return them with their kind and targets."""
    if dataset.classes is None and dataset.targets is None:
        raise UserError(f"{dataset.name}: no graph has a label. Add labels to the file or, in Python, pass y.")
    if kind in ("binary", "numbers") or dataset.classes is None or tasks:
        dataset = select_tasks(replace(dataset, classes=None, class_names=()), tasks)
        kind, values = infer_label_kind(dataset, kind), torch.from_numpy(dataset.targets)
        return dataset, kind, BinaryTargets(values) if kind == "binary" else NumberTargets(values)
    labelled = np.flatnonzero(dataset.classes >= 0)
    present, labels = np.unique(dataset.classes[labelled], return_inverse=True)
    if len(present) < 2:
        raise UserError(f"{dataset.name}: expected at least two classes, got one in {len(labels)} labelled graphs.")
    labels, dataset = labels.astype(np.int64), dataset if len(labels) == len(dataset) else dataset.subset(labelled)
    names = tuple(dataset.class_names[number] for number in present)
    dataset = replace(dataset, classes=labels, class_names=names)
    return dataset, "classes", ClassTargets(torch.from_numpy(labels), len(names))


def _labels_per_task(dataset: Dataset, kind: str) -> dict[str, list[int]]:
    if dataset.classes is not None or dataset.targets is None:
        return {}
    masks = [dataset.targets == 0, dataset.targets == 1] if kind == "binary" else [~np.isnan(dataset.targets)]
    counts = np.stack([mask.sum(axis=0) for mask in masks], axis=1).tolist()
    return dict(zip(dataset.target_names, counts, strict=True))


def _original_labels(names: tuple[str, ...]) -> tuple[int | str, ...]:
    """Convert class names back to the user's labels: to integers if all names are integers."""
    try:
        numbers = tuple(int(name) for name in names)
    except ValueError:
        return names
    return numbers if tuple(map(str, numbers)) == names else names


def _with_classifier_weights(
    trained: TrainedEncoder,
    classifier: Classifier,
    dataset: Dataset,
    fingerprint: str,
    members: Mapping[str, Member],
) -> TrainedEncoder:
    """Replace encoder and weights of ``trained`` by those of ``classifier`` and ``members``, learned from ``dataset``.

    If the molecules of ``dataset`` were standardised, those to predict must be, too.
    """
    classifier.eval()
    weights = {
        name if name.startswith("encoder.") else f"classifier.{name}": value
        for name, value in classifier.state_dict().items()
    }
    weights |= members_to_weights(members)
    featuriser = trained.info.featuriser.removesuffix(STANDARDISED)
    featuriser += STANDARDISED if is_standardised(dataset.featuriser) else ""
    info = replace(trained.info, finetuned_on=(*trained.info.finetuned_on, fingerprint), featuriser=featuriser)
    return replace(trained, info=info, encoder=classifier.encoder, weights=weights)


def load_finetuned(folder: Path, *, device: str = "auto", encoder: nn.Module | None = None) -> FinetunedModel:
    """Load a fine-tuned model from its folder or exported file."""
    if model_path(folder) != folder:
        raise UserError(_NOT_FINETUNED.format(folder))
    if not folder.exists():
        raise UserError(f"{folder}: no such file or folder. Create a fine-tuned model with 'joao finetune'.")
    trained = load_run(folder, device=device, encoder=encoder)
    path, (kind, fields) = folder / FILE, read_finetune_json(folder)
    with user_error_on_failure(_DAMAGED.format(path)):
        classes = check_value(fields["classes"], tuple[int | str, ...], f"{path}: classes")
        tasks = check_value(fields.get("tasks", ()), tuple[str, ...], f"{path}: tasks")
        settings = Finetune(**check_options(Finetune, fields["settings"], f"{path}: settings"))
        for epoch in fields["fit"]["epochs"]:
            if "validation_accuracy" in epoch:  # older folders
                epoch["validation_score"] = epoch.pop("validation_accuracy")
        fit = make_record(Fit, fields["fit"], f"{path}: fit")
        is_ensemble = any(map(is_member_weight, trained.weights))
        if not (fit == Fit((), 0) if is_ensemble else 1 <= fit.chosen <= len(fit.epochs)):
            raise ValueError(f"fit: chosen epoch {fit.chosen} of {len(fit.epochs)}")
        info = make_record(FinetuneInfo, fields["info"], f"{path}: info", allow_unknown=True)
        scores = check_value(fields.get("scores", {}), Mapping[str, Mapping[str, Any] | None], f"{path}: scores")
    with temporary_seed(0, "classifier"):
        classifier = Classifier(trained.encoder, len(classes or tasks))
    weights = {
        name.removeprefix("classifier."): value for name, value in trained.weights.items() if not is_member_weight(name)
    }
    set_weights(classifier, weights, folder)
    classifier.to(next(trained.encoder.parameters(), torch.zeros(0)).device).eval()
    with user_error_on_failure(f"{folder}: is damaged"):
        members = load_members(trained.weights, kind, len(tasks) or 1) if is_ensemble else {}
    return FinetunedModel(trained, classifier, classes, settings, fit, info, kind, tasks, scores, members)


def read_label_kind(folder: Path) -> str:
    """Read whether a fine-tuned run predicts ``classes``, ``binary`` or ``numbers``, without reading its weights."""
    return read_finetune_json(folder)[0]


def read_finetune_json(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the kind of the labels and all fields of ``finetune.json``, whose types are checked by the caller."""
    path, text = folder / FILE, read_text(folder, FILE)
    if text is None:
        raise UserError(_NOT_FINETUNED.format(folder))
    with user_error_on_failure(_DAMAGED.format(path)):
        fields = parse_json(text)
        kind = check_value(fields.get("kind", "classes"), str, f"{path}: kind")
        check_format(path, fields.get("format"), FORMAT)
    if kind not in KINDS:
        raise UserError(f"{path}: unknown kind of labels '{kind}'. {suggest(kind, KINDS)} Update joao.")
    return kind, fields
