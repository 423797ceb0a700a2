"""Do a fixed last epoch, averaged weights or an ensemble improve fine-tuning with few labels?

    python -m repro.studies.few_labels

The rule is in ``repro/decision-rules.md``.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from joao.core.provenance import versions
from joao.core.randomness import derive_seed
from joao.data import read_whole
from joao.data.features import make_store
from joao.evaluation.tables import markdown, with_interval
from joao.evaluation.targets import ClassTargets
from joao.runs.scoring import require_classes
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning
from joao.training.metrics import FitEpoch
from repro.protocols.semi_supervised.run import Work, grid, start_of
from repro.protocols.semi_supervised.score import score_splits
from repro.protocols.stacked_fits import Part, StackedFits, can_be_stacked
from repro.splits import few_label_splits
from repro.studies.common import generated, make_page
from repro.studies.sweep import interval, main

LABEL_RATE = 10
EPOCHS = (100, 50, 200)
AVERAGED = 0.2  # share of the epochs, the last ones
HEADS = 5


@dataclass(frozen=True)
class Cell:
    """One pre-training and its fine-tunings in all folds."""

    dataset: str
    seed: int


def cells(sets: Sequence[str], seeds: int) -> Iterator[Cell]:
    for dataset, seed in itertools.product(sets, range(seeds)):
        if dataset in grid()["development"]:
            yield Cell(dataset, seed)


def compute(cell: Cell, root: Path | None, device: str) -> dict[str, Any]:
    dataset = read_whole(cell.dataset, root=root)
    classes = require_classes(dataset)
    work = Work(cell.dataset, "joao", cell.seed, (LABEL_RATE,))
    encoder, features, _ = start_of(work, dataset, device=device)
    finetuning = Finetuning(
        make_store(dataset, features),
        ClassTargets(torch.from_numpy(classes), len(dataset.class_names)),
        encoder,
        Finetune(**grid()["finetuning"]),
        make_fabric(device, "32-true"),
        seed=cell.seed,
    )
    splits = few_label_splits(classes, cell.seed, LABEL_RATE / 100, class_names=dataset.class_names)
    present = score_splits(finetuning, classes, splits, cell.seed)
    found = defaultdict(list, present=[fold.accuracy for fold in present.folds])
    finetuning.settings = replace(finetuning.settings, epochs=max(EPOCHS))
    all_labelled = [np.sort(np.concatenate([split.train, split.validation])) for split in splits]
    parts = []
    for number, labelled in enumerate(map(torch.from_numpy, all_labelled)):
        for head in range(HEADS):
            seed = derive_seed(cell.seed, f"fold {number} head {head}")
            # Stacked fits need a validation graph; the epoch that it selects is not used.
            parts.append(Part(labelled, labelled[:1], seed, finetuning.initial_weights(seed)))
    tests = [torch.from_numpy(split.test) for split in splits for _ in range(HEADS)]
    fits = list(predictions(finetuning, parts, tests))
    for number, split in enumerate(splits):
        heads = fits[HEADS * number : HEADS * (number + 1)]
        for name, probabilities in heads[0].items():
            ensemble = torch.stack([head[name] for head in heads]).mean(dim=0)
            for arm, rows in ((name, probabilities), (f"{name}, ensemble", ensemble)):
                found[arm].append(float((rows.argmax(1).numpy() == classes[split.test]).mean()))
    used = versions()
    made_with = f"joao {used['joao']} ({used['source']}), torch {used['torch']}, {finetuning.device.type}"
    return {
        "accuracies": {arm: [round(each, 6) for each in accuracies] for arm, accuracies in found.items()},
        "made with": made_with,
    }


class Watch:
    """Copies of the weights after each of ``EPOCHS``, and their averages over the last fifth of the epochs."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Tensor]] = {}

    def look(self, epoch: int, state: Sequence[Tensor]) -> None:
        for last in EPOCHS:
            count, name = round(AVERAGED * last), f"average of {last}"
            if last - count < epoch <= last:
                sums = self.kept.setdefault(name, [torch.zeros_like(each) for each in state])
                for total, each in zip(sums, state, strict=True):
                    # Batch normalisation also counts its batches, which no prediction uses.
                    total += each / count if each.is_floating_point() else each
            if epoch == last:
                self.kept[f"last of {last}"] = [each.clone() for each in state]


def predictions(finetuning: Finetuning, parts: Sequence[Part], tests: Sequence[Tensor]) -> Iterator[dict[str, Tensor]]:
    """Probabilities of the test graphs of each part, with the last and with averaged weights; stacked if possible."""
    if can_be_stacked(finetuning, parts):
        stacked, watch = StackedFits(finetuning, parts), Watch()
        stacked.run(lambda epoch: watch.look(epoch, stacked.state))
        for number, test in enumerate(tests):
            finetuning.statistics.copy_(stacked.statistics[number])
            yield _predict(finetuning, {name: [v[number] for v in each] for name, each in watch.kept.items()}, test)
        return
    for part, test in zip(parts, tests, strict=True):
        watch, epochs = Watch(), itertools.count(1)
        finetuning.fit(
            part.train,
            part.train[:0],
            part.seed,
            partial(_look, watch, epochs, finetuning),
            start=part.start,
        )
        yield _predict(finetuning, watch.kept, test)


def _look(watch: Watch, epochs: Iterator[int], finetuning: Finetuning, _: FitEpoch) -> None:
    watch.look(next(epochs), finetuning.state())


def _predict(finetuning: Finetuning, kept: dict[str, list[Tensor]], test: Tensor) -> dict[str, Tensor]:
    found = {}
    for name in sorted(kept):
        finetuning.set_state(kept[name])
        found[name] = finetuning.logits(test).softmax(dim=1).cpu()
    return found


ADOPTED = "last of 100"  # by the rule; the alternatives of the later steps are compared with it


def gain_of_adopted(records: Sequence[Mapping[str, Any]]) -> str:
    """The gain of the adopted last epoch over the present protocol, over sets, with its interval."""
    by_set: dict[str, list[float]] = {}
    for each in records:
        difference = np.mean(each["accuracies"][ADOPTED]) - np.mean(each["accuracies"]["present"])
        by_set.setdefault(each["cell"]["dataset"], []).append(100 * float(difference))
    return with_interval(interval([float(np.mean(values)) for values in by_set.values()]))


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """The study as Markdown: means over seeds and folds by set, and differences with the set as the unit."""
    shown = [f"last of {epochs}" for epochs in EPOCHS]
    later = [f"average of {EPOCHS[0]}", f"{ADOPTED}, ensemble"]
    arms = ["present", *shown, *later]
    sets = sorted({record["cell"]["dataset"] for record in records})
    means = {
        (arm, name): 100
        * float(np.mean([np.mean(each["accuracies"][arm]) for each in records if each["cell"]["dataset"] == name]))
        for arm in arms
        for name in sets
    }

    def gain(arm: str, other: str) -> str:
        return with_interval(interval([means[arm, name] - means[other, name] for name in sets]))

    compared = {**dict.fromkeys(shown, "present"), **dict.fromkeys(later, ADOPTED)}
    rows = [
        [
            arm,
            *(f"{means[arm, name]:.1f}" for name in sets),
            f"{np.mean([means[arm, name] for name in sets]):.1f}",
            f"{gain(arm, compared[arm])} over {compared[arm]}" if arm in compared else "",
        ]
        for arm in arms
    ]
    seeds = len(records) / len(sets)
    return make_page(
        "Fine-tuning with few labels: last epoch, averaged weights, ensemble",
        f"{generated('few_labels')} The rule is in `repro/decision-rules.md`.",
        f"Accuracy in percent after fine-tuning JOAO with {LABEL_RATE} % of the labels on development sets, {seeds:g} seeds, ten folds. *Present* selects one of "
        "100 epochs by a tenth of the labelled graphs; all other rows train on all labelled graphs. Averages are over the last fifth of the epochs, ensembles have five heads. Intervals are over sets (Student, 95 %).",
        markdown(["fine-tuning", *sets, "mean", "difference (95 % CI)"], rows),
        "By the rule the last of 100 epochs is adopted, and neither the average nor the ensemble. Adopted means that it is run once on [the table's sets](semi-supervised/last-epoch.md), as rows of their own. There no gain was found, and the protocol of the table stays as it is.",
    )


if __name__ == "__main__":
    main(__doc__, "few-labels", cells, compute)
