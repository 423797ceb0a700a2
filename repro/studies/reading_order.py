"""What do embeddings learned by reading tell, if graphs are read in the order of their file?

    OMP_NUM_THREADS=1 python studies/reading_order.py results/reading-order.json results/reading-order.md

Files of graphs are usually sorted by class. Scores as the unsupervised table does, seeds 0 to 2, once as the baselines
read, in a random order, and once in that of the file; IMDB-BINARY, where all graphs of a class stand together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from joao.baselines import DGK, Baseline, Graph2vec, Sub2vec
from joao.core.provenance import command, machine, versions
from joao.data import read_whole
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.tables import markdown, with_deviation
from joao.runs.scoring import require_classes
from repro.studies.common import write_page, write_record

DATA = "IMDB-BINARY"
METHODS: dict[str, Callable[[int], Baseline]] = {
    "sub2vec": lambda seed: Sub2vec(seed=seed),
    "graph2vec": lambda seed: Graph2vec(seed=seed),
    "DGK": lambda seed: DGK(seed=seed),
}
SEEDS = (0, 1, 2)
READERS = ("joao.baselines.doc2vec", "joao.baselines.wl")


def accuracy(name: str, seed: int) -> float:
    dataset, method = read_whole(DATA), METHODS[name](seed)
    scores = evaluate_embeddings(
        method.fit_transform(dataset),
        require_classes(dataset),
        class_names=dataset.class_names,
        partitions=[seed],
        kernel="linear" if method.kernel else "rbf",
    )
    return 100 * float(np.mean(scores.to_json()["partitions"][0]["accuracies"]))


def in_order_of_file(name: str, seed: int) -> float:
    with (
        patch(f"{READERS[0]}.reading_order", lambda number, seed: range(number)),
        patch(f"{READERS[1]}.reading_order", lambda number, seed: range(number)),
    ):
        return accuracy(name, seed)


def page(record: dict[str, Any]) -> str:
    lines = [
        [name, *(with_deviation(float(np.mean(each)), float(np.std(each, ddof=1))) for each in found.values())]
        for name, found in record["accuracy"].items()
    ]
    made, machine_of = record["versions"], record["machine"]
    parts = [
        "# Embeddings that read graphs in the order of their file",
        f"Made by `python studies/{record['command']}`; not to be edited. {DATA}, seeds {', '.join(map(str, SEEDS))}; "
        f"joao {made['joao']}, {machine_of['processor']}. Accuracy % of an SVM.",
        markdown(["", "random order", "order of the file"], lines),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    record = {
        "accuracy": {
            name: {
                "random order": [accuracy(name, seed) for seed in SEEDS],
                "order of the file": [in_order_of_file(name, seed) for seed in SEEDS],
            }
            for name in METHODS
        },
        "command": command(),
        "versions": versions(),
        "machine": machine("cpu"),
    }
    write_record("reading-order", record)
    write_page("reading-order", page(record))


if __name__ == "__main__":
    main()
