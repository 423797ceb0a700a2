"""How do embeddings that read graphs one after another change if the graphs are read in the order of the file?

    OMP_NUM_THREADS=1 python -m repro.studies.reading_order

Files of graphs are usually sorted by class. Scores by the protocol of the unsupervised table, seeds 0 to 2, with the
random order of the baselines and with the order of the file, on IMDB-BINARY, which is sorted by class.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from joao.baselines import Baseline, Graph2vec
from joao.data import read_whole
from joao.evaluation.tables import markdown, with_deviation
from repro.baselines import DGK, Sub2vec
from repro.studies.common import generated, make_page, origin, publish, score_rows

DATA = "IMDB-BINARY"
METHODS: dict[str, Callable[[int], Baseline]] = {
    "sub2vec": lambda seed: Sub2vec(seed=seed),
    "graph2vec": lambda seed: Graph2vec(seed=seed),
    "DGK": lambda seed: DGK(seed=seed),
}
SEEDS = (0, 1, 2)
READERS = ("joao.baselines.doc2vec", "repro.baselines")


def accuracy(name: str, seed: int) -> float:
    dataset, method = read_whole(DATA), METHODS[name](seed)
    rows = method.fit_transform(dataset)
    return 100 * score_rows(rows, dataset, seed, kernel="linear" if method.kernel else "rbf").mean


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
    return make_page(
        "Baselines that read graphs in the order of the file",
        f"{generated('reading_order')} {DATA}, seeds {', '.join(map(str, SEEDS))}; "
        f"joao {made['joao']}, {machine_of['processor']}. Accuracy in percent of an SVM.",
        markdown(["", "random order", "order of the file"], lines),
    )


def main() -> None:
    record = {
        "accuracy": {
            name: {
                "random order": [accuracy(name, seed) for seed in SEEDS],
                "order of the file": [in_order_of_file(name, seed) for seed in SEEDS],
            }
            for name in METHODS
        },
        **origin(),
    }
    publish("reading-order", record, page)


if __name__ == "__main__":
    main()
