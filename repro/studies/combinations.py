"""Is the encoder better with the WL kernel, and with the degree profile, too? The new default on development sets.

    python -m repro.studies.combinations

One pre-training gives all rows. The rule is in ``repro/decision-rules.md``.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joao.baselines import LDP, WL
from joao.config.recipe import make_recipe
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.tables import markdown, with_interval
from joao.runs.pretraining import pretrain
from repro.studies.common import generated, make_page
from repro.studies.embedding import MOST_SCORED, READOUTS, SEEDS
from repro.studies.sweep import SETS, interval, load, made_with, main

ROWS = {"joao": "JOAO()", "joao+wl": "JOAO() and WL", "joao+wl+ldp": "JOAO(), WL and degree profile"}


@dataclass(frozen=True)
class Cell:
    """All rows of one pre-training."""

    dataset: str
    seed: int


def cells(sets: Sequence[str], seeds: int) -> Iterator[Cell]:
    yield from (Cell(*each) for each in itertools.product(sets, range(seeds)))


def compute(cell: Cell, root: Path | None, device: str) -> dict[str, Any]:
    dataset, scored, groups = load(cell.dataset, root, MOST_SCORED)
    assert dataset.classes is not None
    classes = np.unique(dataset.classes[scored], return_inverse=True)[1].astype(np.int64)
    graphs = dataset.without_labels()
    encoder, training = {"name": "gin", "readout": READOUTS[0]}, {"seed": cell.seed}
    recipe = make_recipe({"features": "random_walks", "encoder": encoder, "training": training}, source=str(cell))
    trained = pretrain(recipe, graphs, device=device)
    parts = [
        (trained.embed(graphs).numpy()[scored], "rbf"),
        (WL().fit_transform(graphs)[scored], "linear"),
        (LDP().fit_transform(graphs)[scored], "rbf"),
    ]
    accuracies = {}
    for number, name in enumerate(ROWS, 1):
        rows: Any = parts[0][0] if number == 1 else parts[:number]
        kernel: Any = "rbf" if number == 1 else "mean"
        found = evaluate_embeddings(
            rows, classes, partitions=[cell.seed], groups=groups, kernel=kernel, device=trained.info.machine["device"]
        )
        accuracies[name] = [round(each, 6) for each in found.accuracies[0]]
    return {"accuracies": accuracies, "made with": made_with(trained)}


def page(records: Sequence[Mapping[str, Any]]) -> str:
    means: dict[str, dict[str, float]] = {}
    for dataset in SETS:
        own = [record["accuracies"] for record in records if record["cell"]["dataset"] == dataset]
        if len(own) >= SEEDS:
            means[dataset] = {name: 100 * float(np.mean([each[name] for each in own])) for name in ROWS}
    lines = [[dataset, *(f"{row[name]:.2f}" for name in ROWS)] for dataset, row in means.items()]
    gains = []
    for name, base in (("joao+wl", "joao"), ("joao+wl+ldp", "joao"), ("joao+wl+ldp", "joao+wl")):
        if len(means) > 1:
            differences = [row[name] - row[base] for row in means.values()]
            gains.append([f"{ROWS[name]}, over {ROWS[base]}", with_interval(interval(differences))])
    if means:
        lines.append(["average", *(f"{np.mean([row[name] for row in means.values()]):.2f}" for name in ROWS)])
    return make_page(
        "Encoder and kernels together",
        f"{generated('combinations')} Accuracy in percent of an SVM on the development sets, five seeds. Kernels are added with equal weights "
        "(`joao.KernelSum`). Sets of more than 2,000 graphs are scored on a sample; isomorphic graphs are in the same fold. "
        f"{len(means)} of {len(SETS)} sets are finished. The rule is in `repro/decision-rules.md`.",
        markdown(["data set", *ROWS.values()], lines),
        markdown(["gain", "mean (95 % interval over sets)"], gains),
    )


if __name__ == "__main__":
    main(__doc__, "combinations", cells, compute)
