"""Splits of labelled graphs into training, validation and test parts: at random or by scaffold."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, quantity, short_repr, suggest
from joao.core.processes import map_chunks
from joao.core.randomness import numpy_generator
from joao.data.dataset import Dataset
from joao.data.molecules import parse_molecule, require_rdkit
from joao.evaluation.folds import Indices


class Split(NamedTuple):
    """Training, validation and test graphs. The validation graphs choose the epoch."""

    train: Indices
    validation: Indices
    test: Indices


def hold_out(classes: NDArray[np.int64], share: float, generator: np.random.Generator) -> tuple[Indices, Indices]:
    """Divide labelled graphs into training positions and about a ``share`` of held-out positions.

    Every class keeps at least one training graph. The held-out graphs are stratified as far as that allows.
    """
    if not 0 < share < 1:
        raise UserError(f"labels: validation_share must be between 0 and 1, got {share}.")
    num_classes = len(np.unique(classes))
    most = len(classes) - num_classes
    held_out = min(max(1, round(share * len(classes))), most)
    if held_out < 1:
        raise UserError(
            f"labels: {len(classes)} labelled {'graph' if len(classes) == 1 else 'graphs'} for {num_classes} "
            f"{'class leaves' if num_classes == 1 else 'classes leave'} none for validation. Label more graphs."
        )
    learn = sample_stratified(classes, len(classes) - held_out, generator)
    return learn, np.setdiff1d(np.arange(len(classes)), learn)


def sample_stratified(classes: NDArray[np.int64], number: int, generator: np.random.Generator) -> Indices:
    """Draw ``number`` positions in ascending order, stratified by largest remainder, at least one per class."""
    values, sizes = np.unique(classes, return_counts=True)
    assert number >= len(values)
    exact = number * sizes / len(classes)
    counts = np.maximum(np.floor(exact).astype(np.int64), 1)
    while counts.sum() < number:
        counts[np.argmax(np.where(counts < sizes, exact - counts, -np.inf))] += 1
    while counts.sum() > number:  # if a rare class was raised to one
        counts[np.argmax(np.where(counts > 1, counts - exact, -np.inf))] -= 1
    chosen = [
        generator.choice(np.flatnonzero(classes == value), count, replace=False)
        for value, count in zip(values, counts, strict=True)
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def scaffolds(
    smiles: Sequence[str], *, jobs: int = 1, on_chunk: Callable[[int], None] | None = None
) -> tuple[str, ...]:
    """Compute the Bemis-Murcko scaffold of every molecule, with chirality, as SMILES; empty without rings.

    Args:
        jobs: number of processes.
        on_chunk: called with the number of molecules of each finished chunk, for a progress bar.
    """
    require_rdkit()
    texts = [each for chunk in map_chunks(_scaffolds, smiles, jobs=jobs, on_chunk=on_chunk) for each in chunk]
    if None in texts:
        row = texts.index(None)
        raise UserError(f"scaffolds: molecule {row}, '{smiles[row][:60]}', cannot be parsed by RDKit. Remove it.")
    return tuple(scaffold for scaffold in texts if scaffold is not None)


def scaffold_numbers(smiles: Sequence[str], *, jobs: int = 1, on_chunk: Callable[[int], None] | None = None) -> Indices:
    """Number the scaffolds ``(M,)`` by first occurrence; :func:`split_by_scaffold` takes numbers without RDKit."""
    numbers: dict[str, int] = {}
    texts = scaffolds(smiles, jobs=jobs, on_chunk=on_chunk)
    return np.array([numbers.setdefault(each, len(numbers)) for each in texts], dtype=np.int64)


def split_by_scaffold(scaffolds: Sequence[str] | Sequence[int], train: float = 0.8, validation: float = 0.1) -> Split:
    """Split molecules so that those with the same scaffold are in the same part (the transfer protocol).

    Sets of molecules with one scaffold are assigned whole, the largest first. Among sets of equal size, the one whose
    first molecule comes *last* is assigned first, as published. A set goes to the training part if that then has at
    most ``train`` of all molecules, else to the validation part if both then have at most ``train + validation``, else
    to the test part. So the validation part may exceed its share. With the default shares the result equals the
    official splits of ogbg-molbbbp and ogbg-molbace.

    Args:
        scaffolds: scaffold, or its number, of each molecule; molecules without rings share the empty scaffold.
        train, validation: shares of the molecules.
    """
    if not (train > 0 and validation >= 0 and train + validation <= 1):
        raise UserError(f"scaffold split: expected shares above 0 with sum at most 1, got {train} and {validation}.")
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
    from rdkit import rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    with rdBase.BlockLogs():
        molecules = map(parse_molecule, smiles)  # the SMILES of a packed file may be anything
        return [
            None if isinstance(each, str) else MurckoScaffoldSmiles(mol=each, includeChirality=True)
            for each in molecules
        ]


# Default shares of validation and test graphs for each kind of split.
SHARES = {"random": (0.2, 0.0), "scaffold": (0.1, 0.1)}
_MOLECULES = ("molecules", "ogb_molecules")


def default_split(dataset: Dataset) -> str:
    """Return ``scaffold`` for molecules with tasks whose SMILES or scaffolds are known, else ``random``."""
    is_known = dataset.smiles or dataset.groups is not None
    return "scaffold" if is_known and dataset.classes is None else "random"


def split_notice(dataset: Dataset, test_share: float | None) -> str | None:
    """Return a notice if molecules with tasks cannot be split by scaffold."""
    if dataset.kind not in _MOLECULES or dataset.classes is not None or default_split(dataset) == "scaffold":
        return None
    untested = "" if test_share else " without a test part"
    return (
        f"{dataset.name}: has no SMILES or scaffolds, so it is split at random{untested}. Pack it with --scaffolds to "
        "split by scaffold."
    )


def split_graphs(dataset: Dataset, kind: str, validation_share: float, test_share: float, seed: int) -> Split:
    """Split graphs that all have a label.

    Args:
        kind: ``random`` is stratified by class; ``scaffold`` keeps molecules with the same scaffold in one part (see
            :func:`split_by_scaffold`), because new molecules will differ from the known ones.
    """
    if kind not in SHARES:
        raise UserError(f"split: unknown kind '{kind}'. {suggest(kind, list(SHARES))}")
    if len(dataset) < 3:
        raise UserError(f"{dataset.name}: expected at least 3 labelled {dataset.kind}, got {len(dataset)}. Label more.")
    if not 0 < validation_share < 1:
        raise UserError(f"split: validation_share must be between 0 and 1, got {validation_share}.")
    if not 0 <= test_share < 1 - validation_share:
        raise UserError(
            f"split: test_share must be at least 0 and leave training graphs, got {test_share} with a validation_share "
            f"of {validation_share}."
        )
    if kind == "scaffold":
        parts = split_by_scaffold(_scaffold_groups(dataset), 1 - validation_share - test_share, validation_share)
    else:
        parts = _random_split(dataset, validation_share, test_share, seed)
    sizes = [len(part) for part in parts]
    if sizes[0] < 2 or not sizes[1] or (test_share and not sizes[2]):
        raise UserError(
            f"{dataset.name}: too few labelled {dataset.kind} ({len(dataset)}): a {kind} split gives {sizes[0]} for "
            f"training, {sizes[1]} for validation and {sizes[2]} for testing. Label more"
            + (", or use split 'random'." if kind == "scaffold" else ".")
        )
    return parts


def _random_split(dataset: Dataset, validation_share: float, test_share: float, seed: int) -> Split:
    all_graphs = np.arange(len(dataset))
    classes = np.zeros_like(all_graphs) if dataset.classes is None else dataset.classes
    remaining, test = all_graphs, all_graphs[:0]
    if test_share:
        remaining, test = hold_out(classes, test_share, numpy_generator(seed, "test"))
    share = validation_share / (1 - test_share)
    learn, choose = hold_out(classes[remaining], share, numpy_generator(seed, "validation"))
    return Split(remaining[learn], remaining[choose], test)


def _scaffold_groups(dataset: Dataset) -> Sequence[str] | Sequence[int]:
    if dataset.kind not in _MOLECULES:
        raise UserError(f"{dataset.name}: a scaffold split needs molecules, got other graphs. Use split 'random'.")
    if not dataset.smiles and dataset.groups is None:
        raise UserError(
            f"{dataset.name}: a scaffold split needs SMILES, which this data set lacks. Use split 'random'."
        )
    return scaffolds(dataset.smiles) if dataset.groups is None else dataset.groups.tolist()


def molecule_folds(dataset: Dataset, kind: str, num_folds: int, partition: int, *, jobs: int = 1) -> list[Split]:
    """Divide molecules with tasks into folds; a tenth of each training part is for validation.

    Groups of molecules are never divided. They go to the smallest fold, the largest group first, and groups of one size
    in the order of their labels in the first task, so that all folds have similar labels; equal ones in random order.

    Args:
        kind: ``scaffold``: a group is a scaffold; ``random``: a group is a molecule with its duplicates.
        partition: number of the partition, a seed.
        jobs: number of processes.
    """
    from rdkit import Chem, rdBase

    generator = numpy_generator(partition, "folds of molecules")
    with rdBase.BlockLogs():
        groups = (
            scaffold_numbers(dataset.smiles, jobs=jobs)
            if kind == "scaffold"
            else np.unique([Chem.CanonSmiles(text) for text in dataset.smiles], return_inverse=True)[1]
        )
    if len(np.unique(groups)) < 2 * num_folds:
        what, fix = ("scaffolds", "Use split 'random' or") if kind == "scaffold" else ("molecules", "Use")
        count = quantity(len(np.unique(groups)), what)
        raise UserError(f"{dataset.name}: {count}, too few for {num_folds} folds. {fix} fewer folds.")
    assert dataset.targets is not None
    labels = np.nan_to_num(dataset.targets[:, 0], nan=-np.inf)
    fold = _divide(groups, labels, num_folds, generator)
    splits = []
    for number in range(num_folds):
        rest, test = (np.flatnonzero(part) for part in (fold != number, fold == number))
        is_validation = _divide(groups[rest], labels[rest], 10, generator) == 0
        splits.append(Split(rest[~is_validation], rest[is_validation], test))
    return splits


def _divide(groups: Indices, labels: NDArray[np.float32], parts: int, generator: np.random.Generator) -> Indices:
    names, first, member = np.unique(groups, return_index=True, return_inverse=True)
    sizes = np.bincount(member)
    order = np.lexsort((generator.random(len(names)), labels[first], -sizes))
    part, filled = np.zeros(len(names), dtype=np.int64), np.zeros(parts, dtype=np.int64)
    for group in order:
        part[group] = filled.argmin()
        filled[part[group]] += sizes[group]
    part_of_item: Indices = part[member]
    return part_of_item


def given_split(dataset: Dataset, parts: Sequence[str]) -> Split:
    """Read a split that the user gives: ``train``, ``test`` and, optionally, ``validation`` for each molecule."""
    names = np.array([str(part).strip().casefold() for part in parts])
    known = {"train": "train", "test": "test", "validation": "validation", "valid": "validation", "val": "validation"}
    unknown = next((row for row, name in enumerate(names) if name not in known), None)
    if unknown is not None:
        raise UserError(
            f"{dataset.name}: molecule {unknown}: expected train, validation or test in the split column, got "
            f"{short_repr(parts[unknown])}."
        )
    of = np.array([known[name] for name in names])
    train, validation, test = (np.flatnonzero(of == part) for part in ("train", "validation", "test"))
    if len(train) < 10 or not len(test):
        raise UserError(
            f"{dataset.name}: the split column has {len(train)} molecules for training and {len(test)} for testing; "
            "expected at least 10 and 1."
        )
    if not len(validation):
        is_validation = np.zeros(len(train), dtype=bool)
        is_validation[numpy_generator(0, "validation molecules").permutation(len(train))[: len(train) // 10]] = True
        train, validation = train[~is_validation], train[is_validation]
    return Split(train, validation, test)
