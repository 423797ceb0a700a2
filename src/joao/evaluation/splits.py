"""Labelled graphs, parted once: to learn from, to choose the epoch with, and to test on."""

from __future__ import annotations

import numpy as np

from joao.data.base import Dataset
from joao.errors import UserError, nearest
from joao.evaluation.labels import Split, hold_out
from joao.evaluation.scaffolds import filled, scaffolds
from joao.randomness import numpy_generator

# The shares that choose the epoch and test, where nothing else is said.
SHARES = {"random": (0.2, 0.0), "scaffold": (0.1, 0.1)}
_MOLECULES = ("molecules", "ogb_molecules")


def usual_split(dataset: Dataset) -> str:
    """``scaffold`` for molecules with tasks, where their SMILES or scaffolds are known, else ``random``."""
    is_known = dataset.smiles or dataset.groups is not None
    return "scaffold" if is_known and dataset.classes is None else "random"


def notice_of_split(dataset: Dataset, test_share: float | None) -> str | None:
    """Says so where the usual split of molecules with tasks cannot be made."""
    if dataset.kind not in _MOLECULES or dataset.classes is not None or usual_split(dataset) == "scaffold":
        return None
    untested = "" if test_share else ", without a test"
    return f"{dataset.name}: no SMILES or scaffolds in it: split at random{untested}; pack it with --scaffolds."


def split_graphs(dataset: Dataset, kind: str, validation_share: float, test_share: float, seed: int) -> Split:
    """Parts graphs that all have a label.

    Args:
        dataset: the graphs.
        kind: ``random``, where every class has its share in all parts, or ``scaffold``, where molecules with one
            skeleton are in one part (see :mod:`joao.evaluation.scaffolds`): as new molecules will be unlike the known.
        validation_share: chooses the epoch.
        test_share: is tested on; it may be 0.
        seed: of the random split.
    """
    if kind not in SHARES:
        raise UserError(f"split: unknown kind '{kind}'. {nearest(kind, list(SHARES))}")
    if len(dataset) < 3:
        raise UserError(f"{dataset.name}: {len(dataset)} labelled {dataset.kind} are too few. Label more.")
    if not 0 < validation_share < 1:
        raise UserError(f"split: the share of validation graphs must be between 0 and 1, got {validation_share}.")
    if not 0 <= test_share < 1 - validation_share:
        raise UserError(
            f"split: the share of test graphs must be at least 0 and leave some to learn from, got {test_share} beside "
            f"{validation_share} for validation."
        )
    parts = (_by_scaffold if kind == "scaffold" else _at_random)(dataset, validation_share, test_share, seed)
    sizes = [len(part) for part in parts]
    if sizes[0] < 2 or not sizes[1] or (test_share and not sizes[2]):
        cure = "Label more, or split at random." if kind == "scaffold" else "Label more."
        raise UserError(
            f"{dataset.name}: {len(dataset)} labelled {dataset.kind} in a {kind} split are {sizes[0]} to learn from, "
            f"{sizes[1]} to choose the epoch with and {sizes[2]} to test on: too few. {cure}"
        )
    return parts


def _at_random(dataset: Dataset, validation_share: float, test_share: float, seed: int) -> Split:
    everything = np.arange(len(dataset))
    classes = np.zeros_like(everything) if dataset.classes is None else dataset.classes
    rest, test = everything, everything[:0]
    if test_share:
        rest, test = hold_out(classes, test_share, numpy_generator(seed, "test"))
    share = validation_share / (1 - test_share)
    learn, choose = hold_out(classes[rest], share, numpy_generator(seed, "validation"))
    return Split(rest[learn], rest[choose], test)


def _by_scaffold(dataset: Dataset, validation_share: float, test_share: float, seed: int) -> Split:
    if dataset.kind not in _MOLECULES:
        raise UserError(f"{dataset.name}: a scaffold split is of molecules; these are other graphs. Split at random.")
    if not dataset.smiles and dataset.groups is None:
        raise UserError(f"{dataset.name}: a scaffold split needs SMILES, which were left out. Split at random.")
    groups = scaffolds(dataset.smiles) if dataset.groups is None else dataset.groups.tolist()
    return filled(groups, 1 - validation_share - test_share, validation_share)
