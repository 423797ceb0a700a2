"""Data sets of molecules: from a table (:mod:`joao.data.molecules.smiles`), or from SMILES in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joao.core.errors import UserError, short_repr
from joao.data.dataset import Dataset
from joao.data.formats.edge_list import NEEDED
from joao.data.formats.text import column_names
from joao.data.molecules.featurise import featurise
from joao.data.molecules.smiles import SMILES_NAMES, Columns, MoleculeTable, iterate_molecule_table, read_molecule_table

# Starting a process takes as long as reading that many molecules.
_MIN_MOLECULES_PER_PROCESS = 4096


@dataclass(frozen=True)
class ReadOptions:
    """How molecules are made: in how many processes, and who is told, of how many, how many further ones are done."""

    jobs: int = 1
    on_rows: Callable[[int, int], None] | None = None


def read_molecules(path: Path, columns: Columns, work: ReadOptions) -> Dataset:
    """Reads the molecules of a table; it must have one that RDKit can read."""
    dataset = _from_table(read_molecule_table(path, columns), columns, work)
    if not len(dataset):
        raise UserError(no_molecules_message(path, dataset))
    return dataset


def iterate_molecules(path: Path, columns: Columns, work: ReadOptions, size: int, skip: int = 0) -> Iterator[Dataset]:
    """The molecules of a table of any length, ``size`` rows at a time after the first ``skip``; one may be empty."""
    return (
        _from_table(table, columns, work) for table in iterate_molecule_table(path, size, skip=skip, columns=columns)
    )


def no_molecules_message(path: Path, dataset: Dataset) -> str:
    """What to say of a table of which no row is a molecule."""
    first = dataset.failures[0]
    return (
        f"{path}:{first.line}: {short_repr(first.text)} is no SMILES ({first.reason}), nor is any other of "
        f"{len(dataset.failures)} rows. Name the column of SMILES, if it is another."
    )


def _from_table(table: MoleculeTable, columns: Columns, work: ReadOptions) -> Dataset:
    notices = [
        f"{table.name}: column {short_repr(column)} is left out as a task: {why}."
        for column, why in table.spoiled.items()
    ]
    without = [column for column in table.ignored if column not in table.spoiled]
    if without and columns.tasks is None:
        notices.append(f"{table.name}: columns without numbers are left out: {', '.join(without)}.")
    dataset = make_molecules(table.name, table.smiles, table.identifiers, work)
    rows = slice(None) if dataset.row_of_graph is None else dataset.row_of_graph
    return replace(
        dataset,
        targets=table.labels[rows] if table.tasks else None,
        target_names=table.tasks,
        failures=tuple(each._replace(line=int(table.lines[each.row])) for each in dataset.failures),
        notices=(*notices, *dataset.notices),
    )


def make_molecules(
    name: str, smiles: Sequence[str], names: Sequence[str] = (), work: ReadOptions | None = None
) -> Dataset:
    """Makes a data set of SMILES, whose ``names`` are one for each or none at all; it may come out empty."""
    work = work or ReadOptions()
    on_rows = work.on_rows
    made = featurise(
        smiles,
        jobs=max(1, min(work.jobs, len(smiles) // _MIN_MOLECULES_PER_PROCESS)),
        on_chunk=None if on_rows is None else lambda done: on_rows(done, len(smiles)),
    )
    rows = made.row_of_graph

    def of_graphs(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(texts) if rows is None or not texts else tuple(texts[row] for row in rows.tolist())

    return replace(
        made,
        name=name,
        graph_names=of_graphs(names),
        smiles=of_graphs(smiles),
        failures=tuple(each._replace(name=names[each.row]) if names else each for each in made.failures),
        notices=_trailing_text_notice(name, of_graphs(smiles)),
    )


def _trailing_text_notice(name: str, smiles: Sequence[str]) -> tuple[str, ...]:
    """A notice of what RDKit takes for the names of molecules, which stand behind a blank; extensions are read."""
    rests = ((text, text.split(None, 1)[1:]) for text in smiles)
    named = [text for text, rest in rests if rest and not rest[0].startswith("|")]
    if not named:
        return ()
    which = f"{len(named)} of {len(smiles)} molecules, the first {short_repr(named[0])}"
    return (f"{name}: text behind the SMILES and a blank is left out ({which}).",)


def is_molecule_table(path: Path, columns: Columns) -> bool:
    """Whether a file of text, by its name or its first line, is a table of molecules; otherwise it is an edge list."""
    if ".csv" not in path.name.lower() or columns != Columns():
        return True
    header = column_names(path)
    if {*NEEDED} <= {*header}:
        return False
    if {*SMILES_NAMES} & {cell.casefold() for cell in header}:
        return True
    if {*NEEDED} & {*header}:
        return False  # its reader will tell what is missing
    found = ", ".join(header)[:200] or "an empty file"
    raise UserError(
        f"{path}:1: neither a table of molecules, with a column 'smiles' (--smiles, in Python smiles=, tells another "
        f"name), nor an edge list, with the columns {', '.join(NEEDED)}. Found: {found}."
    )
