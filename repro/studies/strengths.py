"""Which configuration should learn strengths, and what does it cost compared with the fixed strength 0.2?

    OMP_NUM_THREADS=1 python -m repro.studies.strengths

Pre-trains with the settings of the unsupervised table on development data sets, seeds 0 to 2, and scores by its protocol.
Strengths are 0.1, 0.2 and 0.3; a peaked prior gives them weights 1/4, 1/2 and 1/4. The rule selects the
candidate with the best average accuracy, or an earlier, simpler one within half a point. The other ways are references.
Two of the candidates change the lower level:

- compared at equal strengths: the mean loss over all pairs with the same two strengths is subtracted from the loss of a
  pair, so that strong augmentations have no advantage as such;
- near the usual loss: pairs count more the closer their loss is to the mean over all pairs, so that pairs are neither too
  easy nor too hard.

Finished runs are skipped.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joao.config.builder import build_method
from joao.config.recipe import make_recipe
from joao.core.pair_table import PairTable, strength_label
from joao.core.plots import draw_policy
from joao.data import Dataset, read_whole
from joao.data.features import Features, make_store
from joao.evaluation.tables import markdown, with_deviation
from joao.policies import KullbackLeibler, Policy
from joao.training.model import embed
from joao.training.pretrain import Pretraining
from repro.protocols.unsupervised.run import grid
from repro.studies.common import (
    PAGES,
    describe_origin,
    generated,
    make_page,
    read_or_start,
    score_rows,
    write_page,
    write_record,
)

DATASETS = ("COX2", "DHFR", "MSRC_9", "MSRC_21")
SEEDS = (0, 1, 2)
EQUAL = [0.1, 0.2, 0.3]
PEAKED = {"0.1": 1, "0.2": 2, "0.3": 1}
FIXED = "JOAO, fixed 0.2"
CLOSE = 0.5  # points

Adjust = Callable[[Tensor, Policy], Tensor]


def at_equal_strengths(losses: Tensor, policy: Policy) -> Tensor:
    strengths = [strength_label(name) for name in policy.augmentations]
    kinds = torch.tensor([sorted(set(strengths)).index(each) for each in strengths])
    pair = (kinds[:, None] * len(strengths) + kinds).flatten()
    weight = policy.prior.flatten() if isinstance(policy, KullbackLeibler) else torch.ones_like(losses).flatten()
    total, mass = (torch.zeros(len(strengths) ** 2, dtype=torch.float64) for _ in range(2))
    total.index_add_(0, pair, weight * losses.flatten())
    mass.index_add_(0, pair, weight)
    return losses - (total / mass)[pair].view_as(losses)


def near_the_usual(losses: Tensor, policy: Policy) -> Tensor:
    assert isinstance(policy, KullbackLeibler)
    return -(losses - (policy.prior * losses).sum()).abs()


class Adjusted(Policy):
    """A policy that is updated with adjusted losses."""

    learns = True

    def __init__(self, inner: Policy, adjust: Adjust) -> None:
        super().__init__(inner.augmentations)
        self.inner, self.adjust = inner, adjust
        self.probabilities = inner.probabilities

    def update(self, pair_losses: Tensor) -> None:
        self.inner.update(self.adjust(pair_losses.double(), self.inner))
        self.probabilities = self.inner.probabilities


def learned(gamma: float, strengths: Any) -> dict[str, Any]:
    return {"method": "joao_strengths", "strengths": strengths, "policy": {"gamma": gamma}}


COMPARED: dict[str, tuple[dict[str, Any], Adjust | None]] = {
    FIXED: ({"method": "joao"}, None),
    "uniform, fixed 0.2": ({"method": "uniform"}, None),
    "JOAO's own maximiser over strengths": ({"method": "joao", "strengths": EQUAL}, None),
    "peaked prior, nothing learned": (learned(1e9, PEAKED), None),
}
# From simple to less simple.
CANDIDATES: dict[str, tuple[dict[str, Any], Adjust | None]] = {
    "Kullback-Leibler, gamma 1, equal prior": (learned(1.0, EQUAL), None),
    "Kullback-Leibler, gamma 1, peaked prior": (learned(1.0, PEAKED), None),
    "Kullback-Leibler, gamma 0.25, peaked prior": (learned(0.25, PEAKED), None),
    "compared at equal strengths, gamma 0.25, peaked prior": (learned(0.25, PEAKED), at_equal_strengths),
    "near the usual loss, gamma 0.25, equal prior": (learned(0.25, EQUAL), near_the_usual),
}
WAYS = {**COMPARED, **CANDIDATES}


def one_run(dataset: Dataset, way: str, seed: int) -> dict[str, Any]:
    table, adjust = WAYS[way]
    settings = {**grid()["recipe"], **table, "features": "labels"}
    recipe = make_recipe({**settings, "training": {**grid()["recipe"]["training"], "seed": seed}}, source=way)
    store = make_store(dataset, Features.from_dataset(dataset, recipe.features))
    method = build_method(recipe, store)
    if adjust:
        method = replace(method, policy=Adjusted(method.policy, adjust))
    started = time.process_time()
    epochs = list(Pretraining(store, method, recipe.training).run())
    seconds = time.process_time() - started
    return {
        "accuracy": 100 * score_rows(embed(method.encoder.eval(), store).numpy(), dataset, seed).mean,
        "CPU seconds": seconds,
        "pool": list(method.augmentations),
        "final": np.round(epochs[-1].probabilities, 5).tolist(),
        "mean": np.round(np.mean([epoch.probabilities for epoch in epochs], axis=0), 5).tolist(),
    }


def runs_of(record: dict[str, Any], way: str, data: str) -> list[dict[str, Any]]:
    return [run for run in record["runs"] if (run["way"], run["data"]) == (way, data)]


def accuracies(record: dict[str, Any], way: str) -> NDArray[np.float64]:
    """``(data sets, seeds)``."""
    return np.array([[run["accuracy"] for run in runs_of(record, way, data)] for data in record["data"]])


def average(record: dict[str, Any], way: str) -> float:
    return float(accuracies(record, way).mean())


def chosen(record: dict[str, Any]) -> str:
    """Return the candidate that the rule above selects."""
    best = max(average(record, way) for way in CANDIDATES)
    return next(way for way in CANDIDATES if average(record, way) >= best - CLOSE)


def learned_table(record: dict[str, Any], way: str, data: str, kind: str = "mean") -> PairTable:
    """Return the learned table of pairs, as mean over seeds."""
    runs = runs_of(record, way, data)
    return PairTable.of(runs[0]["pool"], np.mean([run[kind] for run in runs], axis=0))


def score_lines(record: dict[str, Any]) -> list[list[str]]:
    lines = []
    for way in WAYS:
        found, fixed = accuracies(record, way), accuracies(record, FIXED)
        by_seed = (found - fixed).mean(axis=0)
        cells = [with_deviation(row.mean(), row.std(ddof=1)) for row in found]
        cost = [
            run["CPU seconds"] / other["CPU seconds"]
            for data in record["data"]
            for run, other in zip(runs_of(record, way, data), runs_of(record, FIXED, data), strict=True)
        ]
        name = f"**{way}**" if way == chosen(record) else way
        gain = "" if way == FIXED else f"{by_seed.mean():+.2f} ({by_seed.min():+.2f} to {by_seed.max():+.2f})"
        lines.append([name, *cells, f"{found.mean():.2f}", gain, f"{np.median(cost):.2f}"])
    return lines


def strength_lines(record: dict[str, Any]) -> list[list[str]]:
    """Return the share of views at each strength, and the mean strength without identity."""
    lines = []
    for way in WAYS:
        for data in record["data"]:
            table = learned_table(record, way, data)
            if table.has_strengths:
                shares = {name: each for name, each in table.by_strength().items() if name != "identity"}
                at = {each: sum(shares[name][each] for name in shares) for each in map(str, EQUAL)}
                mean = sum(float(each) * share for each, share in at.items()) / sum(at.values())
                unchanged = table.over_strengths().by_augmentation()["identity"]
                cells = [*at.values(), unchanged, mean]
                lines.append([way, data, *(f"{each:.2f}" for each in cells)])
    return lines


def chosen_lines(record: dict[str, Any]) -> list[list[str]]:
    """Return the share of views of each augmentation at each strength for the selected way."""
    lines = []
    for data in record["data"]:
        for name, shares in learned_table(record, chosen(record), data).by_strength().items():
            cells = [f"{shares[each]:.3f}" if each in shares else "" for each in map(str, EQUAL)]
            lines.append([data, name, *cells, f"{sum(shares.values()):.3f}"])
    return lines


def page(record: dict[str, Any]) -> str:
    header = [
        "policy",
        *record["data"],
        "average",
        "difference from fixed 0.2 (min to max over seeds)",
        "CPU time / fixed 0.2",
    ]
    strengths = [f"at {each}" for each in EQUAL]
    return make_page(
        "Learned strengths",
        f"{generated('strengths')} Settings of the unsupervised table, {record['epochs']} "
        f"epochs, seeds {', '.join(map(str, SEEDS))}; {describe_origin(record)}. These are development data sets; none of them is in the "
        "table. Accuracy in percent of an SVM on frozen embeddings, mean ± standard deviation over seeds. CPU time: median ratio of "
        "the time of pre-training over data sets and seeds.",
        markdown(header, score_lines(record)),
        f"Selected by the rule in `repro/studies/strengths.py`: **{chosen(record)}**.",
        "## Share of views at each strength",
        "Mean over epochs and seeds.",
        markdown(["policy", "data", *strengths, "identity", "mean strength"], strength_lines(record)),
        "## What the selected policy learned",
        "Share of views of each augmentation at each strength, mean over epochs and seeds.",
        markdown(["data", "augmentation", *strengths, "all"], chosen_lines(record)),
        f"![{record['data'][0]}: the learned table](strengths.png)",
    )


def main() -> None:
    epochs = grid()["recipe"]["training"]["epochs"]
    record = read_or_start("strengths", data=list(DATASETS), epochs=epochs, runs=[])
    done = {(run["data"], run["way"], run["seed"]) for run in record["runs"]}
    for data in record["data"]:
        dataset = read_whole(data)
        for seed in SEEDS:
            for way in WAYS:  # all ways in turn, so that other load affects all of them equally
                if (data, way, seed) not in done:
                    record["runs"].append({"data": data, "way": way, "seed": seed, **one_run(dataset, way, seed)})
                    print(data, seed, way, round(record["runs"][-1]["accuracy"], 2), flush=True)
                    write_record("strengths", record)
    write_page("strengths", page(record))
    data = record["data"][0]
    final, mean = (learned_table(record, chosen(record), data, kind) for kind in ("final", "mean"))
    draw_policy(final, mean, f"Augmentation pairs learned on {data}, mean over seeds", PAGES / "strengths.png")


if __name__ == "__main__":
    main()
