"""Which augmentation pair and strength do criteria without labels choose? Two criteria on held-out graphs.

    JOAO_NATIVE=avx512 python -m repro.studies.criteria --seeds 3

Pre-trains every arm of :mod:`repro.studies.headroom` again, on four fifths of the graphs. The accuracy of a chosen arm
is looked up in the records of that study. The rule is in ``repro/decision-rules.md``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from joao.baselines import WL
from joao.config.builder import build_pool
from joao.config.recipe import POOL, make_recipe
from joao.core.graphs import GraphBatch
from joao.core.randomness import numpy_generator, torch_generator
from joao.data import Dataset
from joao.data.features import Features, make_store
from joao.evaluation.tables import markdown, with_interval
from joao.kernels.native import native_level
from joao.runs.pretraining import pretrain
from repro.studies import headroom
from repro.studies.common import generated
from repro.studies.headroom import (
    POLICIES,
    Cell,
    effective_rank,
    features_of,
    gains_of_choice,
    mean_by_arm,
    whole_seeds,
)
from repro.studies.sweep import SETS, interval, load, made_with, main

HELD_OUT = 0.2  # share of the graphs
STRENGTH = 0.2  # of the views whose alignment is measured
SMALLEST_SHARE = 0.05  # of the training graphs, in which a label of the probe occurs
PENALTY = 0.01
SEEDS = 3
SEEDS_OF_LARGE = {"Mutagenicity": 2, "reddit10k": 1}

Matrix = NDArray[np.float64]


class Prepared(NamedTuple):
    """The parts of a data set, views of the held-out graphs by each augmentation, and WL histograms of both parts."""

    train: Dataset
    held_out: Dataset
    views: list[GraphBatch]
    histograms: tuple[Matrix, Matrix]


@lru_cache(maxsize=1)
def prepare(name: str, root: Path | None, seed: int) -> Prepared:
    dataset, _, groups = load(name, root, np.iinfo(np.int64).max)
    is_held_out = hold_out(groups, seed)
    parts = [dataset.without_labels().subset(np.flatnonzero(mask)) for mask in (~is_held_out, is_held_out)]
    store = make_store(parts[1], Features.from_dataset(parts[0], features_of(name)))
    batch = store.batch(torch.arange(len(store)))
    pool = build_pool(make_recipe({"augmentations": list(POOL), "strength": STRENGTH}))
    views = [each(batch, torch_generator(seed, f"criteria {name}")) for name, each in pool.items()]
    wl = WL(iterations=3).fit(parts[0])
    train, held_out = (wl.rows(part).tocsc() for part in parts)
    often = np.diff(train.indptr) >= SMALLEST_SHARE * train.shape[0]
    return Prepared(parts[0], parts[1], views, (train[:, often].toarray(), held_out[:, often].toarray()))


def hold_out(groups: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """A random fifth of the graphs, whole groups of isomorphic graphs."""
    order = numpy_generator(seed, "criteria held out").permutation(np.unique(groups))
    sizes = np.bincount(groups)[order]
    return np.isin(groups, order[np.cumsum(sizes) <= HELD_OUT * len(groups)])


def alignment_and_uniformity(views: Sequence[Matrix]) -> tuple[float, float]:
    r"""Alignment and uniformity of embeddings ``(G, d)`` (Wang and Isola, 2020); smaller is better.

    Embeddings are standardised by columns, with mean and deviation of the last view (the graphs themselves), and scaled
    to length 1: :math:`f_k(G)` is the row of graph :math:`G` in view :math:`k` of :math:`K`.

    .. math::
        A = \operatorname{mean}_{k < l, G} \|f_k(G) - f_l(G)\|^2, \qquad
        U = \log \operatorname{mean}_{G \ne H} \exp(-2 \|f_K(G) - f_K(H)\|^2)
    """
    rows = standardise(views[-1], *views)[1:]
    rows = [view / np.maximum(np.linalg.norm(view, axis=1, keepdims=True), 1e-12) for view in rows]
    pairs = [(one, other) for number, one in enumerate(rows) for other in rows[:number]]
    alignment = np.mean([((one - other) ** 2).sum(axis=1).mean() for one, other in pairs])
    return float(alignment), float(np.log(np.exp(-2 * pdist(rows[-1], "sqeuclidean")).mean()))


def probe(train: Matrix, held_out: Matrix, histograms: tuple[Matrix, Matrix]) -> float:
    r"""How well a linear probe of the embeddings predicts WL histograms of held-out graphs; larger is better.

    With embeddings :math:`E` and histograms :math:`Y` of the held-out graphs, all columns standardised with mean and
    deviation of the :math:`n` training graphs :math:`(E_t, Y_t)`,

    .. math::
        R^2 = 1 - \|Y - E W\|^2 / \|Y\|^2, \qquad
        W = (E_t^\top E_t / n + \lambda I)^{-1} E_t^\top Y_t / n, \quad \lambda = 0.01
    """
    x, new_x = standardise(train, held_out)
    y, new_y = standardise(*histograms)
    weights = np.linalg.solve(x.T @ x / len(x) + PENALTY * np.eye(x.shape[1]), x.T @ y / len(x))
    return float(1 - ((new_y - new_x @ weights) ** 2).sum() / (new_y**2).sum())


def standardise(fitted: Matrix, *others: Matrix) -> list[Matrix]:
    """Standardise all by mean and deviation of every column of ``fitted``; a constant column is only shifted."""
    deviation = fitted.std(axis=0)
    scale = np.where(deviation > 1e-9, deviation, 1.0)
    return [(rows - fitted.mean(axis=0)) / scale for rows in (fitted, *others)]


def _effective_rank_of(record: Mapping[str, Any]) -> float:
    return float(record["effective rank"])


def cells(sets: Sequence[str], seeds: int) -> Iterator[Cell]:
    for cell in headroom.cells(sets, seeds):
        if cell.arm not in POLICIES and cell.seed < SEEDS_OF_LARGE.get(cell.dataset, seeds):
            yield cell


def compute(cell: Cell, root: Path | None, device: str) -> dict[str, Any]:
    prepared = prepare(cell.dataset, root, cell.seed)
    trained = pretrain(make_recipe(cell.recipe(), source=str(cell)), prepared.train, device=device)
    train, held_out = (trained.embed(part).double().cpu().numpy() for part in (prepared.train, prepared.held_out))
    with torch.no_grad():
        views = [trained.encoder.embed(view).double().cpu().numpy() for view in prepared.views]
    alignment, uniformity = alignment_and_uniformity(views)
    return {
        "alignment": round(alignment, 6),
        "uniformity": round(uniformity, 6),
        "probe": round(probe(train, held_out, prepared.histograms), 6),
        "effective rank": round(effective_rank(np.concatenate([train, held_out])), 4),
        "held out": len(held_out),
        "labels of the probe": prepared.histograms[0].shape[1],
        "made with": f"{made_with(trained)}, compiled core {native_level()}",
    }


# Larger is better. The order is that of the rule; the effective rank was decided before.
CRITERIA: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "alignment + uniformity": lambda record: -record["alignment"] - record["uniformity"],
    "probe of WL histograms": lambda record: record["probe"],
    "effective rank (again)": _effective_rank_of,
}


def section(records: Sequence[Mapping[str, Any]], scored: Sequence[Mapping[str, Any]]) -> str:
    """The part of the page of the headroom about criteria without labels; ``scored`` are the records of that study."""
    missing = len(list(cells(SETS, SEEDS))) - len(records)
    if missing:
        return f"## Two more criteria without labels\n\n{missing} pre-trainings are missing, so the rule takes no decision yet.\n"
    lines = []
    gains: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in CRITERIA}
    for dataset in SETS:
        scores = whole_seeds(scored, dataset)
        line = [dataset]
        for name, value in CRITERIA.items():
            criterion = mean_by_arm(records, dataset, value)
            *found, arm = gains_of_choice(scores, criterion)
            for column, gain in zip(gains[name], found, strict=True):
                column.append(gain)
            accuracy = [scores[each].mean() for each in criterion]
            line += [arm, f"{found[0]:+.2f}", f"{spearman(list(criterion.values()), accuracy):+.2f}"]
        recorded = mean_by_arm(scored, dataset, _effective_rank_of)
        lines.append([*line, f"{spearman(list(criterion.values()), list(recorded.values())):+.2f}"])
    intervals = {name: [interval(values) for values in both] for name, both in gains.items()}
    adopted = [name for name, both in intervals.items() if all(each.mean >= 0.5 and each.low > 0 for each in both)]
    header = [
        "data set",
        *(text for name in CRITERIA for text in (name, "gain", "rank correlation")),
        "effective rank, here and recorded",
    ]
    return "\n\n".join(
        [
            "## Two more criteria without labels",
            f"{generated('criteria')} Every arm was pre-trained again on four fifths of the graphs, with the compiled core on a CPU, and judged without labels on the others "
            "(equations: `repro/studies/criteria.py`). For each criterion: the arm it chooses, the gain of this arm over uniform pairs, and Spearman's rank correlation with accuracy over the 42 arms. "
            "The last column is the rank correlation of the effective rank of these encoders and of the recorded ones.",
            markdown(header, lines),
            markdown(
                ["choice", "gain over uniform", "gain over a random arm"],
                [[name, *map(with_interval, both)] for name, both in intervals.items()],
            ),
            conclusion(adopted) + "\n",
        ]
    )


def conclusion(adopted: Sequence[str]) -> str:
    """Apply the rule."""
    new = [name for name in list(CRITERIA)[:2] if name in adopted]
    if new:
        return f"By the rule, *{new[0]}* becomes a policy."
    return (
        "Neither criterion satisfies the rule (at least 0.5 points over uniform and over a random arm, with intervals above 0), so no policy is added. Three criteria without labels have been tried: the headroom that labels "
        "reveal was not found without them. **Advice: draw pairs uniformly (`--method uniform`)** or, if there are labels, compare a few pairs on them."
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    return float(spearmanr(first, second).statistic)


if __name__ == "__main__":
    main(__doc__, "criteria", cells, compute)
