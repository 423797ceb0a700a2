"""Do a fixed last epoch, averaged weights or an ensemble improve fine-tuning with few labels?

    python -m repro.studies.few_labels

The rule is in ``repro/decision-rules.md``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from joao.core.provenance import versions
from joao.core.randomness import derive_seed
from joao.data import read_whole
from joao.data.features import make_store
from joao.evaluation.targets import ClassTargets
from joao.runs.scoring import require_classes
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning
from joao.training.metrics import FitEpoch
from repro.protocols.semi_supervised.run import Work, grid, start_of
from repro.protocols.semi_supervised.score import score_splits
from repro.splits import few_label_splits
from repro.studies.sweep import main

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
    finetuning.how = replace(finetuning.how, epochs=max(EPOCHS))
    for number, split in enumerate(splits):
        labelled = torch.from_numpy(np.sort(np.concatenate([split.train, split.validation])))
        seeds = [derive_seed(cell.seed, f"fold {number} head {head}") for head in range(HEADS)]
        heads = [fit_and_predict(finetuning, labelled, torch.from_numpy(split.test), seed) for seed in seeds]
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


def fit_and_predict(finetuning: Finetuning, train: Tensor, test: Tensor, seed: int) -> dict[str, Tensor]:
    """Probabilities of ``test`` after each of ``EPOCHS``, with the last and with averaged weights."""
    found: dict[str, Tensor] = {}
    sums: dict[int, list[Tensor]] = {}
    epoch = 0

    def look(_: FitEpoch) -> None:
        nonlocal epoch
        epoch += 1
        state = finetuning.state()
        for last in EPOCHS:
            if last - round(AVERAGED * last) < epoch <= last:
                before = sums.get(last)
                sums[last] = state if before is None else [old + new for old, new in zip(before, state, strict=True)]
            if epoch == last:
                found[f"last of {last}"] = finetuning.logits(test).softmax(dim=1).cpu()
                # Batch normalisation also counts its batches, which no prediction uses.
                averages = [each / round(AVERAGED * last) if each.is_floating_point() else each for each in sums[last]]
                finetuning.set_state(averages)
                found[f"average of {last}"] = finetuning.logits(test).softmax(dim=1).cpu()
                finetuning.set_state(state)

    finetuning.fit(train, train[:0], seed, look, start=finetuning.initial_weights(seed))
    return found


if __name__ == "__main__":
    main(__doc__, "few-labels", cells, compute)
