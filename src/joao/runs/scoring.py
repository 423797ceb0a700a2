"""Score a trained encoder and its baselines on the same folds; the record has all that is needed to repeat it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.baselines import BASELINES
from joao.core.errors import UserError
from joao.core.provenance import command, machine, versions
from joao.data.dataset import Dataset
from joao.data.refinement import find_twins
from joao.evaluation.embeddings import (
    PartitionScores,
    Scorer,
    choose_scorer,
    describe_scorer,
    evaluate_embeddings,
    permute_classes,
)
from joao.evaluation.folds import folds
from joao.evaluation.statistics import chance_level
from joao.runs.trained import TrainedEncoder, make_untrained
from joao.training.device import pick_device

# What every run is compared with, in the order of tables: baselines by name, and the run's encoder without training.
REFERENCES = ("histogram", "ldp", "wl", "untrained_initial", "untrained")
TWINS_TOGETHER = "graphs that cannot be told apart are in the same fold"


def labelled_graphs(dataset: Dataset) -> tuple[Dataset, NDArray[np.int64], NDArray[np.int64]]:
    """Return the graphs with a class, their classes and their numbers in ``dataset``; an error if there are none."""
    if dataset.classes is None and dataset.targets is not None:
        raise UserError(
            f"{dataset.name}: has tasks instead of classes. Use 'joao compare DATA --model RUN' or "
            "'joao finetune --frozen', which score tasks on held-out graphs."
        )
    if dataset.classes is None or (dataset.classes < 0).all():
        raise UserError(f"{dataset.name}: has no graph labels, which scoring needs. 'joao embed' works without labels.")
    numbers = np.flatnonzero(dataset.classes >= 0)
    return (dataset if len(numbers) == len(dataset) else dataset.subset(numbers)), dataset.classes[numbers], numbers


def require_classes(dataset: Dataset) -> NDArray[np.int64]:
    """Return the classes; raise an error if a graph has none."""
    _, classes, _ = labelled_graphs(dataset)
    if len(classes) < len(dataset):
        raise UserError(
            f"{dataset.name}: {len(dataset) - len(classes)} of {len(dataset)} graphs have no label; this protocol "
            "needs a label for every graph."
        )
    return classes


def check_can_evaluate(trained: TrainedEncoder) -> None:
    """Raise an error for custom encoders (no untrained counterpart) and fine-tuned ones (have seen labels)."""
    if "encoder" in trained.info.own:
        raise UserError("evaluate: a custom encoder cannot be compared with its untrained state, which is not stored.")
    if trained.info.finetuned_on:
        raise UserError(
            "evaluate: this encoder was fine-tuned with labels; only pre-trained encoders can be evaluated. Use the "
            "run it was fine-tuned from, or 'joao predict'."
        )


def evaluate(
    trained: TrainedEncoder,
    dataset: Dataset,
    *,
    partitions: Sequence[int] = range(5),
    num_folds: int = 10,
    standardise: bool = True,
    shuffle_labels: bool = False,
    twins_together: bool = False,
    scorer: Scorer = "auto",
    device: str = "auto",
    jobs: int = 1,
    on_rows: Callable[[str], None] = lambda name: None,
    on_fold: Callable[[str, int, float], None] = lambda name, number, accuracy: None,
    on_partition: Callable[[dict[str, Any]], None] = lambda record: None,
) -> dict[str, Any]:
    """Score an encoder, the same encoder untrained, and the baselines in :data:`REFERENCES` on the same folds.

    Graphs without a class calibrate the untrained encoder and fit the baselines, and are not scored.

    ``on_rows`` is called before the rows of each of :data:`REFERENCES` and ``run`` are computed, with its name;
    ``on_fold`` with a name, partition and accuracy ``(len(REFERENCES) + 1) * len(partitions) * num_folds`` times; and
    ``on_partition`` after each partition, with the record of all partitions so far.
    """
    check_can_evaluate(trained)
    graphs, classes, _ = labelled_graphs(dataset)
    graphs = graphs.without_labels()
    if shuffle_labels:
        classes = permute_classes(classes, seed=0)
    choose_scorer(scorer, len(classes), num_folds)
    groups = find_twins(graphs) if twins_together else None
    for partition in partitions:  # before the embeddings, which take longer
        folds(classes, partition, num_folds, class_names=dataset.class_names, groups=groups)
    started = time.perf_counter()
    recipe, features = trained.recipe, trained.info.features
    initial = make_untrained(recipe, dataset, features, calibrated=False, device=device)
    untrained = make_untrained(recipe, dataset, features, device=device)
    encoders = {"untrained_initial": initial, "untrained": untrained, "run": trained}
    unlabelled = dataset.without_labels()
    vectors: dict[str, Any] = {}
    for name in (*REFERENCES, "run"):
        on_rows(name)
        if name in BASELINES:
            vectors[name] = BASELINES[name]().fit(unlabelled).transform(graphs)
        else:
            vectors[name] = encoders[name].embed(graphs).numpy()
    same_graphs = dataset.has_fingerprint(trained.info.fingerprint)
    record: dict[str, Any] = {
        "protocol": {
            "name": "unsupervised",
            "encoders": 1,
            "pre-training": "transductive: on these graphs, without labels" if same_graphs else "on other graphs",
            "labels": "shuffled" if shuffle_labels else "true",
            **({} if groups is None else {"folds": TWINS_TOGETHER}),
            **describe_scoring(scorer, len(classes), num_folds, device),
        },
        # Shards and the same graphs in memory have different fingerprints; the report looks for that of the run.
        "data": describe_data(dataset) | ({"fingerprint": trained.info.fingerprint} if same_graphs else {}),
        "chance": chance_level(classes),
    }
    end_of_record = {"features": features.rule, "recipe": recipe.table(), **provenance(device)}
    parts: dict[str, list[PartitionScores]] = {name: [] for name in vectors}
    for partition in partitions:
        scores = {}
        for name, embeddings in vectors.items():

            def report(_: int, accuracy: float, name: str = name, partition: int = partition) -> None:
                on_fold(name, partition, accuracy)

            part_scores = evaluate_embeddings(
                embeddings,
                classes,
                class_names=dataset.class_names,
                partitions=[partition],
                num_folds=num_folds,
                kernel="linear" if name in BASELINES and BASELINES[name].kernel else "rbf",
                standardise=standardise,
                groups=groups,
                jobs=jobs,
                device=str(pick_device(device)),
                scorer=scorer,
                on_fold=report,
            )
            parts[name] += part_scores.partitions
            scores[name] = replace(part_scores, partitions=tuple(parts[name]))
        record = {
            **record,
            **{name: each.to_json() for name, each in scores.items()},
            **{f"gain over {name}": asdict(scores["run"].gain_over(scores[name])) for name in REFERENCES},
            "seconds": time.perf_counter() - started,
            **end_of_record,
        }
        on_partition(record)
    return record


def describe_scoring(scorer: Scorer, num_graphs: int, num_folds: int, device: str) -> dict[str, str]:
    """Describe the scorer in a protocol; nothing for the exact one, as in records of earlier versions."""
    chosen = choose_scorer(scorer, num_graphs, num_folds, str(pick_device(device)))
    return {} if chosen == "exact" else {"scorer": describe_scorer(chosen)}


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """Describe the data in a record, with the number of labelled graphs if it is not that of all."""
    labelled = len(dataset) if dataset.classes is None else int((dataset.classes >= 0).sum())
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "graphs": len(dataset),
        "classes": len(dataset.class_names),
        **({} if labelled == len(dataset) else {"labelled": labelled}),
    }


def provenance(device: str) -> dict[str, Any]:
    """Describe command, versions and machine in a record."""
    return {"command": command(), "versions": versions(), "machine": machine(pick_device(device))}
