"""Few labels: which graphs of a training part have one, and which of those choose the epoch.

The scaffold split of the transfer protocol: molecules with one skeleton are never in two parts.

Labelled graphs, parted once: to learn from, to choose the epoch with, and to test on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, suggest
from joao.core.processes import map_chunks
from joao.core.randomness import numpy_generator
from joao.data.dataset import Dataset
from joao.data.molecules import require_rdkit
from joao.evaluation.folds import Indices, folds


class Split(NamedTuple):
    """Graphs to learn from, to choose the epoch with, and to test on."""

    train: Indices
    validation: Indices
    test: Indices


def few_label_splits(
    classes: NDArray[np.int64],
    partition: int,
    label_rate: float,
    *,
    num_folds: int = 10,
    validation_share: float = 0.1,
    class_names: Sequence[str] = (),
) -> list[Split]:
    r"""The folds of partition ``partition`` with few labels each.

    Of a training part of :math:`n` graphs, :math:`\mathrm{round}(r n)` have a label, every class its share of them and
    one graph at least. :func:`hold_out` takes the validation graphs out of this budget. The test part is no part of
    either, and the graphs between are unlabelled.

    A function of its arguments alone, so that all methods learn from the same labels.

    Args:
        classes: ``(G,)`` class numbers.
        partition: which of the shared partitions, see :func:`joao.evaluation.folds.folds`.
        label_rate: :math:`r`, the share of the training part that has a label.
        num_folds: of the partition.
        validation_share: of the labelled graphs.
        class_names: what messages call the classes.
    """
    if not 0 < label_rate <= 1:
        raise UserError(f"labels: the label rate must be above 0 and at most 1 (100 %), got {label_rate}.")
    splits = []
    for number, (train, test) in enumerate(folds(classes, partition, num_folds, class_names=class_names)):
        generator = numpy_generator(partition, f"labels of fold {number} at {label_rate}")
        budget = round(label_rate * len(train))
        needed = len(np.unique(classes)) + 1
        if budget < needed:
            enough = np.ceil(1000 * needed / len(train)) / 10
            raise UserError(
                f"labels: a label rate of {100 * label_rate:.3g} % gives {budget} labelled graphs; {needed - 1} "
                f"classes need one each to learn from and one more to choose the epoch. Use at least {enough:g} %."
            )
        labelled = sample_stratified(classes[train], budget, generator)
        learn, choose = hold_out(classes[train[labelled]], validation_share, generator)
        splits.append(Split(train[labelled[learn]], train[labelled[choose]], test))
    return splits


def split_hash(splits: Sequence[Split]) -> str:
    """16 hexadecimal digits of all parts of all folds; scores with equal hashes may be paired."""
    digest = hashlib.sha256()
    for split in splits:
        for part in split:
            digest.update(part.astype("<i8").tobytes() + b"/")
    return digest.hexdigest()[:16]


def hold_out(classes: NDArray[np.int64], share: float, generator: np.random.Generator) -> tuple[Indices, Indices]:
    """The places of labelled graphs to learn from, and of about a ``share`` of them held out to choose the epoch with.

    Every class keeps a graph to learn from; what is held out is stratified as far as that allows.
    """
    if not 0 < share < 1:
        raise UserError(f"labels: the share of validation graphs must be between 0 and 1, got {share}.")
    num_classes = len(np.unique(classes))
    most = len(classes) - num_classes
    held_out = min(max(1, round(share * len(classes))), most)
    if held_out < 1:
        raise UserError(
            f"labels: {len(classes)} labelled graphs of {num_classes} classes leave none to choose the epoch with. "
            "Label more graphs."
        )
    learn = sample_stratified(classes, len(classes) - held_out, generator)
    return learn, np.setdiff1d(np.arange(len(classes)), learn)


def sample_stratified(classes: NDArray[np.int64], number: int, generator: np.random.Generator) -> Indices:
    """``number`` places, ascending, every class with its share of them (by largest remainder) and one at least."""
    values, sizes = np.unique(classes, return_counts=True)
    assert number >= len(values)
    exact = number * sizes / len(classes)
    counts = np.maximum(np.floor(exact).astype(np.int64), 1)
    while counts.sum() < number:
        counts[np.argmax(np.where(counts < sizes, exact - counts, -np.inf))] += 1
    while counts.sum() > number:  # where a rare class got its one
        counts[np.argmax(np.where(counts > 1, counts - exact, -np.inf))] -= 1
    chosen = [
        generator.choice(np.flatnonzero(classes == value), count, replace=False)
        for value, count in zip(values, counts, strict=True)
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def scaffolds(
    smiles: Sequence[str], *, jobs: int = 1, on_chunk: Callable[[int], None] | None = None
) -> tuple[str, ...]:
    """The Bemis-Murcko scaffold of every molecule, with chirality, as SMILES; empty for one without rings.

    Args:
        smiles: molecules that RDKit can read; :func:`joao.data.molecules` says which.
        jobs: processes to work in.
        on_chunk: told how many further molecules are done, for a progress bar.
    """
    require_rdkit()
    found = [each for chunk in map_chunks(_scaffolds, smiles, jobs=jobs, on_chunk=on_chunk) for each in chunk]
    if None in found:
        row = found.index(None)
        raise UserError(f"scaffolds: molecule {row}, '{smiles[row][:60]}', cannot be read by RDKit. Leave it out.")
    return tuple(scaffold for scaffold in found if scaffold is not None)


def scaffold_numbers(smiles: Sequence[str], *, jobs: int = 1, on_chunk: Callable[[int], None] | None = None) -> Indices:
    """``(M,)`` a number for every scaffold, from 0 on as they come; :func:`split_by_scaffold` takes them, without RDKit."""
    numbers: dict[str, int] = {}
    found = scaffolds(smiles, jobs=jobs, on_chunk=on_chunk)
    return np.array([numbers.setdefault(each, len(numbers)) for each in found], dtype=np.int64)


def split_by_scaffold(scaffolds: Sequence[str] | Sequence[int], train: float = 0.8, validation: float = 0.1) -> Split:
    """Fills the three parts with whole sets of molecules that share a scaffold, largest set first.

    Of sets of one size, the one whose first molecule comes *last* is the first, as published. A set goes to the first
    part that has room: training has room for ``train`` of all molecules, training and validation together for
    ``train + validation``, and the test part takes what is left. So validation may get more than its share. With the
    usual shares, the official splits of ogbg-molbbbp and ogbg-molbace are the same.

    Args:
        scaffolds: of each molecule, or their numbers; molecules without rings share the empty one.
        train, validation: shares of the molecules.
    """
    if not (train > 0 and validation >= 0 and train + validation <= 1):
        raise UserError(f"scaffold split: shares {train} and {validation} are not positive and at most 1 together.")
    members: dict[object, list[int]] = {}
    for number, scaffold in enumerate(scaffolds):
        members.setdefault(scaffold, []).append(number)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for numbers in sorted(members.values(), key=lambda numbers: (len(numbers), numbers[0]), reverse=True):
        if len(parts[0]) + len(numbers) <= train * len(scaffolds):
            parts[0].extend(numbers)
        elif len(parts[0]) + len(parts[1]) + len(numbers) <= (train + validation) * len(scaffolds):
            parts[1].extend(numbers)
        else:
            parts[2].extend(numbers)
    return Split(*(np.array(sorted(part), dtype=np.int64) for part in parts))


def _scaffolds(smiles: Sequence[str]) -> list[str | None]:
    from rdkit import Chem, rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    found: list[str | None] = []
    with rdBase.BlockLogs():
        for text in smiles:
            molecule = Chem.MolFromSmiles(text)
            is_molecule = molecule is not None and molecule.GetNumAtoms() > 0
            found.append(MurckoScaffoldSmiles(mol=molecule, includeChirality=True) if is_molecule else None)
    return found


# The shares that choose the epoch and test, where nothing else is said.
SHARES = {"random": (0.2, 0.0), "scaffold": (0.1, 0.1)}
_MOLECULES = ("molecules", "ogb_molecules")


def default_split(dataset: Dataset) -> str:
    """``scaffold`` for molecules with tasks, where their SMILES or scaffolds are known, else ``random``."""
    is_known = dataset.smiles or dataset.groups is not None
    return "scaffold" if is_known and dataset.classes is None else "random"


def split_notice(dataset: Dataset, test_share: float | None) -> str | None:
    """Says so where the usual split of molecules with tasks cannot be made."""
    if dataset.kind not in _MOLECULES or dataset.classes is not None or default_split(dataset) == "scaffold":
        return None
    untested = "" if test_share else ", without a test"
    return f"{dataset.name}: no SMILES or scaffolds in it: split at random{untested}; pack it with --scaffolds."


def split_graphs(dataset: Dataset, kind: str, validation_share: float, test_share: float, seed: int) -> Split:
    """Parts graphs that all have a label.

    Args:
        dataset: the graphs.
        kind: ``random``, where every class has its share in all parts, or ``scaffold``, where molecules with one
            skeleton are in one part (see :mod:`joao.evaluation.splits`): as new molecules will be unlike the known.
        validation_share: chooses the epoch.
        test_share: is tested on; it may be 0.
        seed: of the random split.
    """
    if kind not in SHARES:
        raise UserError(f"split: unknown kind '{kind}'. {suggest(kind, list(SHARES))}")
    if len(dataset) < 3:
        raise UserError(f"{dataset.name}: {len(dataset)} labelled {dataset.kind} are too few. Label more.")
    if not 0 < validation_share < 1:
        raise UserError(f"split: the share of validation graphs must be between 0 and 1, got {validation_share}.")
    if not 0 <= test_share < 1 - validation_share:
        raise UserError(
            f"split: the share of test graphs must be at least 0 and leave some to learn from, got {test_share} beside "
            f"{validation_share} for validation."
        )
    parts = (_scaffold_split if kind == "scaffold" else _random_split)(dataset, validation_share, test_share, seed)
    sizes = [len(part) for part in parts]
    if sizes[0] < 2 or not sizes[1] or (test_share and not sizes[2]):
        fix = "Label more, or split at random." if kind == "scaffold" else "Label more."
        raise UserError(
            f"{dataset.name}: {len(dataset)} labelled {dataset.kind} in a {kind} split are {sizes[0]} to learn from, "
            f"{sizes[1]} to choose the epoch with and {sizes[2]} to test on: too few. {fix}"
        )
    return parts


def _random_split(dataset: Dataset, validation_share: float, test_share: float, seed: int) -> Split:
    everything = np.arange(len(dataset))
    classes = np.zeros_like(everything) if dataset.classes is None else dataset.classes
    rest, test = everything, everything[:0]
    if test_share:
        rest, test = hold_out(classes, test_share, numpy_generator(seed, "test"))
    share = validation_share / (1 - test_share)
    learn, choose = hold_out(classes[rest], share, numpy_generator(seed, "validation"))
    return Split(rest[learn], rest[choose], test)


def _scaffold_split(dataset: Dataset, validation_share: float, test_share: float, seed: int) -> Split:
    if dataset.kind not in _MOLECULES:
        raise UserError(f"{dataset.name}: a scaffold split is of molecules; these are other graphs. Split at random.")
    if not dataset.smiles and dataset.groups is None:
        raise UserError(f"{dataset.name}: a scaffold split needs SMILES, which were left out. Split at random.")
    groups = scaffolds(dataset.smiles) if dataset.groups is None else dataset.groups.tolist()
    return split_by_scaffold(groups, 1 - validation_share - test_share, validation_share)
