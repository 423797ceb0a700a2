"""How much could choosing one augmentation pair and strength gain over drawing pairs uniformly?

    python -m repro.studies.headroom compute RECORDS --data DHFR,COX2 --seeds 10 --jobs 6
    python -m repro.studies.headroom page RECORDS PAGE

``compute`` pre-trains and scores every arm and every policy on the named development sets and appends one JSON line each to
RECORDS; cells that are already there are skipped. ``page`` writes the table. The rule that the page applies is in
``repro/decision-rules.md``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.config.recipe import POOL, make_recipe
from joao.core.files import write_file
from joao.core.processes import map_in_processes
from joao.core.provenance import versions
from joao.core.randomness import numpy_generator
from joao.data import Dataset, read_whole
from joao.data.refinement import find_twins
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.tables import markdown, with_interval
from joao.runs.pretraining import pretrain
from repro.intervals import estimate_over_sets

SETS = ("COX2", "MSRC_9", "DHFR", "MSRC_21", "Mutagenicity", "reddit10k")
STRENGTHS = (0.1, 0.2, 0.3)
POLICIES = ("uniform", "joao", "joaov2", "graphcl")
PAIRS = tuple(pair for pair in itertools.combinations_with_replacement(POOL, 2) if pair != ("identity", "identity"))
MOST_SCORED = 3000  # graphs; a larger set is scored on a sample of whole groups of isomorphic graphs
HALVES = (slice(0, 5), slice(5, 10))  # folds


@dataclass(frozen=True)
class Cell:
    """One pre-training: an arm (``node_drop+subgraph``) at a strength, or a method at strength 0.2."""

    dataset: str
    arm: str
    strength: float
    seed: int

    def recipe(self) -> dict[str, Any]:
        training = {"seed": self.seed}
        if self.arm in POLICIES:
            return {"method": self.arm, "strength": self.strength, "training": training}
        pair = self.arm.split("+")
        policy = {"name": "fixed", "pair": pair}
        # Only the pair's own members: others would never be drawn.
        pool = list(dict.fromkeys(pair))
        return {
            "method": "graphcl",
            "policy": policy,
            "augmentations": pool,
            "strength": self.strength,
            "training": training,
        }


def cells(sets: Sequence[str], seeds: int) -> Iterator[Cell]:
    """Seed by seed, so that what was interrupted has whole seeds."""
    for seed, dataset in itertools.product(range(seeds), sets):
        yield from (Cell(dataset, policy, 0.2, seed) for policy in POLICIES)
        for pair, strength in itertools.product(PAIRS, STRENGTHS):
            yield Cell(dataset, "+".join(pair), strength, seed)


@cache
def load(name: str, root: Path | None) -> tuple[Dataset, NDArray[np.int64], NDArray[np.int64]]:
    """The data set, the graphs to score, and the group of isomorphic graphs of each of those."""
    dataset = read_whole(name, root=root)
    groups = find_twins(dataset)
    scored = np.arange(len(dataset))
    if len(dataset) > MOST_SCORED:
        order = numpy_generator(0, "headroom sample").permutation(np.unique(groups))
        sizes = np.bincount(groups)[order]
        chosen = order[np.cumsum(sizes) <= MOST_SCORED]
        scored = np.flatnonzero(np.isin(groups, chosen))
    return dataset, scored, np.unique(groups[scored], return_inverse=True)[1]


def effective_rank(embeddings: NDArray[np.float32]) -> float:
    r"""RankMe: :math:`\exp(-\sum_k p_k \log p_k)` of the normalised singular values of the centred embeddings."""
    values = np.linalg.svd(embeddings - embeddings.mean(axis=0), compute_uv=False).astype(np.float64)
    shares = values / values.sum() + 1e-12
    return float(np.exp(-(shares * np.log(shares)).sum()))


def compute(cell: Cell, root: Path | None, device: str) -> dict[str, Any]:
    dataset, scored, groups = load(cell.dataset, root)
    started = time.perf_counter()
    trained = pretrain(make_recipe(cell.recipe(), source=str(cell)), dataset.without_labels(), device=device)
    embeddings = trained.embed(dataset).cpu().numpy()
    trained_in = time.perf_counter() - started
    assert dataset.classes is not None
    classes = np.unique(dataset.classes[scored], return_inverse=True)[1].astype(np.int64)
    scores = evaluate_embeddings(
        embeddings[scored], classes, partitions=[cell.seed], groups=groups, device=trained.info.machine["device"]
    )
    found = versions()
    gpu = trained.info.machine.get("gpu", trained.info.machine["processor"])
    return {
        "cell": asdict(cell),
        "accuracies": [round(each, 6) for each in scores.accuracies[0]],
        "fold_hash": scores.partitions[0].fold_hash,
        "effective rank": round(effective_rank(embeddings), 4),
        "loss": round(trained.metrics[-1].loss, 6),
        "seconds of pre-training": round(trained_in, 2),
        "seconds of scoring": round(time.perf_counter() - started - trained_in, 2),
        "made with": f"joao {found['joao']} ({found['source']}), torch {found['torch']}, {gpu}",
    }


def work(share: tuple[Sequence[Cell], Path, Path | None, str, float]) -> int:
    """Compute cells until ``end``; every record is appended when it is there."""
    todo, path, root, device, end = share
    torch.set_num_threads(1)
    done = 0
    with path.open("a", encoding="utf-8") as file:
        for cell in todo:
            if time.time() > end:
                break
            file.write(json.dumps(compute(cell, root, device)) + "\n")
            file.flush()
            done += 1
    return done


def read_records(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """One record per cell, sorted by cell."""
    lines = [json.loads(line) for path in paths if path.exists() for line in path.read_text("utf-8").splitlines()]
    found = {tuple(record["cell"].values()): record for record in lines}
    return [found[key] for key in sorted(found)]


Scores = Mapping[tuple[str, float], NDArray[np.float64]]


def whole_seeds(records: Sequence[Mapping[str, Any]], dataset: str) -> Scores:
    """Of every arm ``(seeds, folds)`` accuracies in percent, of the seeds that all arms and policies have."""
    by_arm: dict[tuple[str, float], dict[int, list[float]]] = defaultdict(dict)
    for record in records:
        cell = record["cell"]
        if cell["dataset"] == dataset:
            by_arm[cell["arm"], cell["strength"]][cell["seed"]] = record["accuracies"]
    wanted = {(cell.arm, cell.strength) for cell in cells([dataset], 1)}
    if set(by_arm) < wanted:
        return {}
    seeds = sorted(set.intersection(*(set(by_arm[arm]) for arm in wanted)))
    return {arm: 100 * np.array([by_arm[arm][seed] for seed in seeds]) for arm in wanted} if seeds else {}


def oracle(scores: Scores) -> tuple[float, float, list[str]]:
    """Accuracy of the arm chosen by one half of the folds on the other half, uniform's on the same, and the arms."""
    arms = [arm for arm in scores if arm[0] not in POLICIES]
    best, uniform, names = [], [], []
    for chosen_on, scored_on in (HALVES, HALVES[::-1]):
        arm = max(arms, key=lambda arm: float(scores[arm][:, chosen_on].mean()))
        best.append(float(scores[arm][:, scored_on].mean()))
        uniform.append(float(scores["uniform", 0.2][:, scored_on].mean()))
        names.append(f"{arm[0]} {arm[1]}")
    return float(np.mean(best)), float(np.mean(uniform)), names


def interval(values: Sequence[float]) -> str:
    """Mean and Student's 95 % interval with the set as the unit."""
    return with_interval(estimate_over_sets(values).interval()) if len(values) > 1 else f"{np.mean(values):+.2f}"


def page(records: Sequence[Mapping[str, Any]]) -> str:
    header = ["data set", "seeds", *POLICIES, "random arm", "oracle", "oracle - uniform", "chosen arms"]
    lines, gains = [], defaultdict(list)
    for dataset in SETS:
        scores = whole_seeds(records, dataset)
        if not scores:
            continue
        best, uniform, names = oracle(scores)
        random = float(np.mean([values.mean() for arm, values in scores.items() if arm[0] not in POLICIES]))
        means = {policy: float(scores[policy, 0.2].mean()) for policy in POLICIES}
        gains["oracle"].append(best - uniform)
        gains["random arm"].append(random - means["uniform"])
        for policy in POLICIES[1:]:
            gains[policy].append(means[policy] - means["uniform"])
        lines.append(
            [
                dataset,
                str(len(scores["uniform", 0.2])),
                *(f"{means[policy]:.2f}" for policy in POLICIES),
                f"{random:.2f}",
                f"{best:.2f}",
                f"{best - uniform:+.2f}",
                ", ".join(dict.fromkeys(names)),
            ]
        )
    summary = [[name, interval(values)] for name, values in gains.items()]
    seeds = [int(line[1]) for line in lines]
    decided = len(seeds) == len(SETS) and min(seeds) >= 5
    status = "" if decided else " Not all runs are finished, so the rule takes no decision yet."
    return "\n\n".join(
        [
            "# Headroom of choosing augmentation pairs and strengths",
            "Generated by `python -m repro.studies.headroom page`; do not edit. Accuracy % of an SVM on frozen embeddings. The oracle "
            "chooses the best of 42 arms by labels on one half of the folds and is scored on the other half. The rule is in "
            f"`repro/decision-rules.md`.{status}",
            markdown(header, lines),
            "Gain over uniform, mean over data sets (95 % interval, the data set is the unit):",
            markdown(["choice", "gain"], summary) + "\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("compute")
    run.add_argument("records", type=Path)
    run.add_argument("--data", default=",".join(SETS))
    run.add_argument("--data-root", type=Path)
    run.add_argument("--seeds", type=int, default=10)
    run.add_argument("--jobs", type=int, default=1)
    run.add_argument("--device", default="auto")
    run.add_argument("--minutes", type=float, default=600.0)
    show = commands.add_parser("page")
    show.add_argument("records", type=Path)
    show.add_argument("page", type=Path)
    given = parser.parse_args()
    if given.command == "page":
        write_file(given.page, page(read_records([given.records])))
        return
    done = {tuple(record["cell"].values()) for record in read_records([given.records])}
    todo = [cell for cell in cells(given.data.split(","), given.seeds) if tuple(asdict(cell).values()) not in done]
    end = time.time() + 60 * given.minutes
    parts = [given.records.with_suffix(f".{number}.part") for number in range(given.jobs)]
    shares = [
        (todo[number :: given.jobs], part, given.data_root, given.device, end) for number, part in enumerate(parts)
    ]
    if given.jobs == 1:
        work(shares[0])
    else:
        print(sum(count for _, count in map_in_processes(work, shares, given.jobs)), "of", len(todo), flush=True)
    records = read_records([given.records, *parts])
    write_file(given.records, "".join(json.dumps(record) + "\n" for record in records))
    for part in parts:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
