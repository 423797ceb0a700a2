"""Which readout, node features and size should ``JOAO()`` have? Alternatives on development sets.

    python -m repro.studies.embedding --jobs 6

The rule is in ``repro/decision-rules.md``.
"""

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.config.recipe import make_recipe
from joao.data import read_whole
from joao.encoders.base import LayeredEncoder
from joao.encoders.layers import Readout
from joao.evaluation.tables import markdown, with_interval
from joao.runs.pretraining import pretrain
from repro.studies.common import generated, make_page
from repro.studies.sweep import SETS, interval, load, made_with, main, score

MOST_SCORED = 2000
SEEDS = 5
PRESENT, READOUTS = "sum", ("log(sum+mean+max+input)", "sum+mean+max+input", "log(sum+max)")
FEATURES = ("with_degree", "random_walks", "two_encoders")
# Readouts of the second round, with the seeds SEEDS to 2 * SEEDS - 1.
SECOND_ROUND = {"present": (PRESENT,), "random_walks": (READOUTS[0], READOUTS[2])}
# Recipes whose CPU time is compared, and the cells that measure it.
_FEATURES: Mapping[str, Mapping[str, Any]] = {
    "present": {"features": "auto"},
    "random_walks": {"features": "random_walks"},
}
_SIZES: Mapping[str, Mapping[str, Any]] = {"default": {}, "large": {"preset": "large"}}
TIMES = {
    "cpu_time": _FEATURES,
    "cpu_time_compiled": _FEATURES,
    "cpu_time_large": _SIZES,
    "cpu_time_large_compiled": _SIZES,
}
REPETITIONS = {"cpu_time_large": 3, "cpu_time_large_compiled": 3}  # fits take minutes; others are repeated SEEDS times
Embeddings = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Cell:
    """Pre-trainings on one data set with all its kinds of features.

    ``training`` is ``present``, ``with_degree``, ``random_walks`` or ``large``, or one of :data:`TIMES`: one repetition
    of a measurement of time, for the second round or for the preset ``large``, also with the compiled core.
    """

    dataset: str
    training: str
    seed: int


def cells(sets: Sequence[str], seeds: int) -> Iterator[Cell]:
    """What takes longest comes first in the first round, and last in the second."""
    trainings = ("present", "large", "with_degree", "random_walks")
    for dataset, training, seed in itertools.product(reversed(sets), trainings, range(seeds)):
        yield Cell(dataset, training, seed)
    for dataset, seed, training in itertools.product(sets, range(SEEDS, SEEDS + seeds), SECOND_ROUND):
        yield Cell(dataset, training, seed)
    for training in TIMES:
        repetitions = min(seeds, REPETITIONS.get(training, SEEDS))
        yield from (Cell("NCI1", training, seed) for seed in range(SEEDS, SEEDS + repetitions))


def compute(cell: Cell, root: Path | None, device: str) -> dict[str, Any]:
    if cell.training in TIMES:
        return measure_time(cell, root)
    dataset = load(cell.dataset, root, MOST_SCORED)[0].without_labels()
    bare = replace(dataset, node_labels=None, node_attributes=None)
    has_labels = dataset.node_labels is not None
    places = {"own": (dataset, "auto")} if has_labels else {}
    places["degree"] = (bare, "degree")
    if has_labels or cell.training == "present":
        places["constant"] = (bare, "constant")
    is_second = cell.seed >= SEEDS
    if is_second or cell.training in FEATURES:
        places.pop("constant", None)
    if cell.training in FEATURES:
        places = {place: (graphs, cell.training) for place, (graphs, _) in places.items()}
    readouts: Sequence[str] = (PRESENT, *READOUTS) if cell.training == "present" else (PRESENT, READOUTS[0])
    if is_second:
        readouts = SECOND_ROUND[cell.training]
    found: dict[str, Embeddings] = {}
    seconds = {}
    for place, (graphs, features) in places.items():
        settings: dict[str, Any] = {"features": features, "training": {"seed": cell.seed}}
        if cell.training == "large":
            settings |= {"encoder": {"name": "gin", "width": 128}}
            settings["training"]["epochs"] = 40
        started = time.perf_counter()
        trained = pretrain(make_recipe(settings, source=str(cell)), graphs, device=device)
        seconds[place] = round(time.perf_counter() - started, 2)
        assert isinstance(trained.encoder, LayeredEncoder)
        found[place] = {}
        for readout in readouts:
            trained.encoder.readout = Readout(readout)
            found[place][readout] = trained.embed(graphs).cpu().numpy()
    if cell.training == "present" and not is_second:
        for place, simpler in itertools.pairwise(found):
            for readout in (PRESENT, READOUTS[0]):
                both = (found[place][readout], found[simpler][readout])
                found[place][f"two_encoders {readout}"] = np.concatenate(both, axis=1)
        if not has_labels:
            del found["constant"]
    scores = {
        place: {
            name: score(rows, cell.dataset, root, MOST_SCORED, cell.seed, trained.info.machine["device"])["accuracies"]
            for name, rows in each.items()
        }
        for place, each in found.items()
    }
    return {"accuracies": scores, "seconds of pre-training": seconds, "made with": made_with(trained)}


def measure_time(cell: Cell, root: Path | None) -> dict[str, Any]:
    """CPU seconds of a fit on one thread, including the features."""
    torch.set_num_threads(1)
    is_compiled = cell.training.endswith("compiled")
    os.environ["JOAO_NATIVE"] = "avx512" if is_compiled else "off"
    dataset = read_whole(cell.dataset, root=root).without_labels()
    seconds = {}
    for name, settings in TIMES[cell.training].items():
        recipe = make_recipe({**settings, "training": {"seed": cell.seed}}, source=str(cell))
        started = time.process_time()
        trained = pretrain(recipe, dataset, device="cpu", fast=is_compiled)
        seconds[name] = round(time.process_time() - started, 2)
        assert bool(trained.info.compiled) == is_compiled
    return {"accuracies": {}, "CPU seconds": seconds, "made with": made_with(trained)}


def relative_time(records: Sequence[Mapping[str, Any]]) -> str:
    """Sentences about the time of a fit; without the measurements that are not finished."""
    sentences = {
        "With random walks a fit on NCI1 on one CPU thread takes": ("cpu_time", "cpu_time_compiled"),
        'Compared with `JOAO()` with default settings, `preset="large"` takes': tuple(REPETITIONS),
    }
    text = ""
    for start, trainings in sentences.items():
        found = []
        for training in trainings:
            seconds = [record["CPU seconds"] for record in records if record["cell"]["training"] == training]
            if len(seconds) >= REPETITIONS.get(training, SEEDS):
                before, new = (float(np.median([each[name] for each in seconds])) for name in TIMES[training])
                where = " in the compiled core" if training.endswith("compiled") else ""
                found.append(f"{new / before:.{2 if new < 2 * before else 1}f} times as long{where}")
        text += f" {start} {' and '.join(found)}." if found else ""
    return text


Scores = Mapping[tuple[str, str, str, str], NDArray[np.float64]]


def scores_of(records: Sequence[Mapping[str, Any]]) -> Scores:
    """Accuracies in percent ``(seeds, folds)`` by data set, kind of features, training and readout."""
    found: dict[tuple[str, str, str, str], list[list[float]]] = {}
    for record in records:
        cell = record["cell"]
        for place, of_readout in record["accuracies"].items():
            for name, accuracies in of_readout.items():
                training, _, readout = name.rpartition(" ")
                found.setdefault((cell["dataset"], place, training or cell["training"], readout), []).append(accuracies)
    return {key: 100 * np.array(values) for key, values in found.items()}


@dataclass(frozen=True)
class Choice:
    """A training and a readout."""

    training: str
    readout: str

    def __str__(self) -> str:
        return f"{'older default' if self.training == 'present' else self.training}, `{self.readout}`"

    @property
    def counts_constant(self) -> bool:
        """Alternatives of the features replace a constant, too, and are not counted there."""
        return self.training not in FEATURES


def gain(scores: Scores, dataset: str, choice: Choice, base: Choice) -> float | None:
    """Mean difference over the kinds of features of a set; None unless both have five seeds of each kind."""
    kinds = ["own", "degree", "constant"] if (dataset, "own", "present", PRESENT) in scores else ["degree"]
    differences = []
    for kind in kinds:
        if kind == "constant" and not choice.counts_constant:
            continue
        both = [scores.get((dataset, kind, each.training, each.readout)) for each in (choice, base)]
        new, old = both
        if new is None or old is None or min(len(new), len(old)) < SEEDS:
            return None
        differences.append(new.mean() - old.mean())
    return float(np.mean(differences))


def page(records: Sequence[Mapping[str, Any]]) -> str:
    scores = scores_of([record for record in records if record["cell"]["seed"] < SEEDS])
    second = scores_of([record for record in records if record["cell"]["seed"] >= SEEDS])
    present = Choice("present", PRESENT)
    steps = {
        "readout": [(Choice("present", readout), present) for readout in READOUTS],
        "features": [
            (Choice(name, readout), Choice("present", readout))
            for readout in (READOUTS[0], PRESENT)
            for name in FEATURES
        ],
        "size": [
            (Choice("large", readout), base)
            for readout in (READOUTS[0], PRESENT)
            for base in dict.fromkeys((Choice("present", readout), present))
        ],
    }
    steps["second round"] = [(Choice("random_walks", readout), present) for readout in SECOND_ROUND["random_walks"]]
    lines = []
    for step, comparisons in steps.items():
        for choice, base in comparisons:
            gains = [gain(second if step == "second round" else scores, dataset, choice, base) for dataset in SETS]
            known = [each for each in gains if each is not None]
            total = with_interval(interval(known)) if len(known) > 1 else ""
            cells_ = ["" if each is None else f"{each:+.2f}" for each in gains]
            lines.append([step, str(choice), str(base), total, *cells_])
    rows = []
    for dataset in SETS:
        for kind in ("own", "degree", "constant"):
            row = []
            for training, readout in itertools.product(("present", *FEATURES, "large"), (PRESENT, *READOUTS)):
                found = scores.get((dataset, kind, training, readout))
                if training == "present" or readout in (PRESENT, READOUTS[0]):
                    row.append("" if found is None else f"{found.mean():.2f}")
            if any(row):
                rows.append([dataset, kind, *row])
    tried = [(training, readout) for training, readouts in SECOND_ROUND.items() for readout in readouts]
    second_rows = []
    for dataset, kind in itertools.product(SETS, ("own", "degree")):
        new = [second.get((dataset, kind, *each), np.zeros(0)) for each in tried]
        if min(map(len, new)) >= SEEDS:
            second_rows.append([dataset, kind, *(f"{each.mean():.2f}" for each in new)])
    titles = [str(Choice("present", readout)) for readout in (PRESENT, *READOUTS)]
    titles += [str(Choice(name, readout)) for name in (*FEATURES, "large") for readout in (PRESENT, READOUTS[0])]
    return make_page(
        "The default embedding",
        f"{generated('embedding')} Accuracy in percent of an SVM on frozen embeddings, on development data sets, five seeds. The rule is in "
        "`repro/decision-rules.md`. *Older default*: that until 2026-11-18, with readout `sum`: GIN 3 x 32, 20 epochs. *with_degree*: the "
        "degree as a number and one-hot beside its features. *random_walks*: return probabilities of random walks of 2 to 9 steps beside "
        "them. *two_encoders*: a second encoder with the next simpler features, side by side. *large*: width 128 and 40 epochs.",
        "## Gain over the choice so far",
        markdown(["step", "alternative", "against", "gain (95 % interval over sets)", *SETS], lines),
        "A set with node labels counts with its own features, with degrees only and with a constant; alternatives of the features are not "
        "counted with a constant. The second round has new seeds and folds. An empty cell has fewer than five seeds."
        + relative_time(records),
        "## Accuracy",
        markdown(["data set", "features", *titles], rows),
        "## Accuracy, second round",
        markdown(["data set", "features", *(str(Choice(*each)) for each in tried)], second_rows),
    )


if __name__ == "__main__":
    main(__doc__, "embedding", cells, compute)
