"""Convert SMILES to graphs with RDKit; atoms and bonds get the codes of :mod:`joao.core.codes`.

Atoms keep the order of the SMILES. Hydrogens are merged into their atoms as RDKit does by default; isotopes (``[2H]``)
and hydrogens without a neighbour are kept. A salt is one graph with several components. The published code stops at
elements and bonds that are not in its lists; its table of 120 elements has a row for 118.

Standardised molecules are RDKit's charge parents: functional groups are normalised, metals disconnected, the fragment
with the most atoms is kept, and charges are neutralised where possible. Their SMILES are canonical.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES
from joao.core.errors import UserError, short_repr
from joao.core.processes import map_chunks
from joao.data.dataset import Dataset, Failure, Standardised, add_counts, sizes_to_offsets
from joao.data.molecule_codes import ATOM_OR_END, MAX_ATOMS, Atoms, Edges, Indices, OgbCodes

# Increase this number when the codes of any molecule change: encoders depend on them.
FEATURISER = 1
# Starting a process takes as long as converting this many molecules.
_MIN_MOLECULES_PER_PROCESS, _MIN_STANDARDISED_PER_PROCESS = 4096, 512
STANDARDISED = ", standardised"
MAX_SMILES_LENGTH = 16 * MAX_ATOMS
# RDKit's time grows with the cube of the size of rings, and its memory with the square; a ring of 42,000 atoms crashes
# it. Molecules of this size take up to half a second and 170 MB.
MAX_CYCLIC_ATOMS = 1 << 11
_CYCLIC, _BRACKETS = re.compile(r"[0-9%/\\]"), re.compile(r"\[[^]]*\]")

Bytes = NDArray[np.uint8]
NodeNumbers = NDArray[np.uint8] | NDArray[np.uint16]


def require_rdkit() -> None:
    """Raise an error with the install command if RDKit is missing."""
    if featuriser_version() is None:
        raise UserError("rdkit is not installed: pip install rdkit")


def featuriser_version(standardise: bool = False) -> str | None:
    """Versions of the codes and of RDKit, and whether it standardises molecules; None without RDKit."""
    try:
        from rdkit import __version__
    except ImportError:
        return None
    return f"codes {FEATURISER}, RDKit {__version__}{STANDARDISED if standardise else ''}"


def is_standardised(featuriser: str) -> bool:
    """Whether a ``featuriser`` of :class:`Dataset`, or all of several that are joined there, standardises molecules.

    >>> is_standardised("codes 1, RDKit 2026.9.1, standardised")
    True
    >>> is_standardised("codes 1, RDKit 2026.9.1, standardised, codes 1, RDKit 2026.9.1")
    False
    """
    return all(each.endswith(STANDARDISED) for each in re.split("[,;] (?=codes )", featuriser))


@dataclass(frozen=True)
class ReadOptions:
    """Options of :func:`joao.read` that are not columns: ``jobs``, ``on_rows``, ``node_label``, ``standardise``.

    ``as_ogb``: give molecules OGB's codes at once, see :func:`to_ogb_codes`.
    """

    jobs: int = 1
    on_rows: Callable[[int, int], None] | None = None
    node_label: str = ""
    standardise: bool = False
    as_ogb: bool = False

    def count_rows(self, done: int, total: int) -> None:
        """Report every thousandth row, and the rest at the end, of more than a thousand; ``done`` have been read."""
        if self.on_rows is not None and total > 1000 and (done % 1000 == 0 or done == total):
            self.on_rows((done - 1) % 1000 + 1, total)


def make_molecules(
    name: str, smiles: Sequence[str], names: Sequence[str] = (), options: ReadOptions | None = None
) -> Dataset:
    """Convert SMILES, optionally with one name each, to a data set, which may be empty."""
    options = options or ReadOptions()
    on_rows = options.on_rows
    min_per_process = _MIN_STANDARDISED_PER_PROCESS if options.standardise else _MIN_MOLECULES_PER_PROCESS
    dataset = featurise(
        smiles,
        jobs=max(1, min(options.jobs, len(smiles) // min_per_process)),
        on_chunk=None if on_rows is None else lambda done: on_rows(done, len(smiles)),
        standardise=options.standardise,
        as_ogb=options.as_ogb,
    )
    rows = dataset.rows.tolist()
    valid = tuple(smiles[row] for row in rows)
    dataset = replace(dataset, name=name)
    return replace(
        dataset,
        graph_names=tuple(names[row] for row in rows) if names else (),
        smiles=dataset.smiles or valid,
        failures=tuple(each._replace(name=names[each.row]) if names else each for each in dataset.failures),
        notices=(*_trailing_text_notice(name, valid), *standardised_notice(dataset)),
    )


def standardised_notice(dataset: Dataset) -> tuple[str, ...]:
    """What standardisation changed in molecules that were read at once, as a notice; empty if it was not done."""
    if dataset.standardised is None:
        return ()
    repeats = f"{len(dataset) - len({*dataset.smiles})} repeat the structure of an earlier row"
    return (f"{dataset.name}: {dataset.standardised}; {repeats}.",)


def from_rdkit(molecules: Sequence[Any], options: ReadOptions | None = None) -> Dataset:
    """Convert RDKit molecules by way of their SMILES, so that they equal molecules from files; None is a failure."""
    smiles = ["" if molecule is None else _write_smiles(molecule) for molecule in molecules]
    names = ["" if each is None or not each.HasProp("_Name") else each.GetProp("_Name") for each in molecules]
    return make_molecules("molecules", smiles, names if any(names) else (), options)


def _write_smiles(molecule: Any) -> str:
    from rdkit import Chem

    if molecule.GetNumAtoms() > MAX_CYCLIC_ATOMS:
        return "?"  # RDKit may crash
    try:
        return str(Chem.MolToSmiles(molecule))
    except Exception:  # RDKit raises many kinds
        return "?"


def _trailing_text_notice(name: str, smiles: Sequence[str]) -> tuple[str, ...]:
    """RDKit takes text after a blank for the name of the molecule, unless it is an extension (``|...|``)."""
    words = ((text, text.split(None, 1)[1:]) for text in smiles)
    with_name = [text for text, rest in words if rest and not rest[0].startswith("|")]
    if not with_name:
        return ()
    rows = f"{len(with_name)} of {len(smiles)} molecules, the first {short_repr(with_name[0])}"
    return (f"{name}: text after the SMILES is ignored ({rows}).",)


def featurise(
    smiles: Sequence[str],
    *,
    jobs: int = 1,
    on_chunk: Callable[[int], None] | None = None,
    standardise: bool = False,
    as_ogb: bool = False,
) -> Dataset:
    """Convert every SMILES that RDKit can parse to a graph. The result depends on nothing but the arguments.

    Node labels are ``(N, 2)`` element and chirality, edge attributes ``(E, 2)`` bond type and direction, or OGB's
    ``(N, 9)`` and ``(E, 3)``. Node numbers are bytes, unless a molecule has more than 256 atoms.

    Args:
        smiles: one molecule each. Duplicates are kept; empty texts are failures.
        jobs: number of processes.
        on_chunk: called with the number of newly converted SMILES.
        standardise: whether to convert RDKit's charge parent of every molecule; the result has its SMILES.
        as_ogb: whether to use OGB's codes; the data set is then of the kind ``ogb_molecules``.
    """
    require_rdkit()
    convert = partial(_featurise_chunk, standardise=standardise, as_ogb=as_ogb)
    chunks = list(map_chunks(convert, smiles, jobs=jobs, on_chunk=on_chunk))
    first_rows = accumulate((chunk.num_rows for chunk in chunks), initial=0)
    failures = tuple(
        failure._replace(row=first + failure.row)
        for first, chunk in zip(first_rows, chunks, strict=False)
        for failure in chunk.failures
    )
    return Dataset(
        name="molecules",
        first_node=sizes_to_offsets(_concatenate(chunks, "num_nodes", np.zeros(0, np.int64))),
        first_edge=sizes_to_offsets(_concatenate(chunks, "num_edges", np.zeros(0, np.int64))),
        source=_concatenate(chunks, "source", np.zeros(0, np.uint8)),
        target=_concatenate(chunks, "target", np.zeros(0, np.uint8)),
        node_labels=_concatenate(chunks, "atoms", np.zeros((0, len(OGB_ATOM_SIZES) if as_ogb else 2), np.uint8)),
        edge_attr=_concatenate(chunks, "bonds", np.zeros((0, len(OGB_BOND_SIZES) if as_ogb else 2), np.uint8)),
        kind="ogb_molecules" if as_ogb else "molecules",
        row_of_graph=np.delete(np.arange(len(smiles)), [each.row for each in failures]) if failures else None,
        failures=failures,
        featuriser=featuriser_version(standardise) or "",
        smiles=tuple(text for chunk in chunks for text in chunk.standard_smiles),
        standardised=add_counts(chunk.standardised for chunk in chunks),
    )


@dataclass
class _Chunk:
    """Converted molecules of one chunk: sizes instead of offsets, rows counted from the start of the chunk.

    If they were standardised, ``standard_smiles`` has their SMILES.
    """

    num_rows: int
    num_nodes: Indices
    num_edges: Indices
    atoms: Bytes
    bonds: Bytes
    source: NodeNumbers
    target: NodeNumbers
    failures: list[Failure]
    standard_smiles: list[str]
    standardised: Standardised | None


def _concatenate(chunks: list[_Chunk], name: str, empty: NDArray[Any]) -> NDArray[Any]:
    """Concatenate one array of all chunks, and free it in the chunks to halve the memory."""
    joined = np.concatenate([empty, *(getattr(chunk, name) for chunk in chunks)])
    for chunk in chunks:
        setattr(chunk, name, None)
    return joined


def _featurise_chunk(smiles: Sequence[str], standardise: bool = False, as_ogb: bool = False) -> _Chunk:
    """Convert one chunk of SMILES, in one process."""
    from rdkit import rdBase

    failures: list[Failure] = []
    standard_smiles: list[str] = []
    as_written, counts, reasons = smiles, None, dict[int, str]()
    with rdBase.BlockLogs():
        if standardise:
            smiles, counts, reasons = _standardise(as_written)
        # Texts that are too long are skipped: each atom takes more memory than its letter.
        texts = [text if len(text) <= MAX_SMILES_LENGTH else "" for text in smiles]
        collected: list[Any] = [OgbCodes(texts)] if as_ogb else [Atoms(texts), Edges(texts)]
        for row, text in enumerate(smiles):
            molecule = parse_molecule(text)
            if isinstance(molecule, str):
                failures.append(Failure(row, as_written[row], reasons.get(row, molecule)))
            else:
                if standardise:
                    standard_smiles.append(text)
                for each in collected:
                    each.add(molecule, row)
            del molecule  # so that the next one reuses its memory, which is still in the processor's cache
    return _Chunk(
        num_rows=len(smiles),
        **reduce(or_, (each.packed() for each in collected)),
        failures=failures,
        standard_smiles=standard_smiles,
        standardised=counts,
    )


def _standardise(smiles: Sequence[str]) -> tuple[list[str], Standardised, dict[int, str]]:
    """SMILES of RDKit's charge parents, how many changed, and why some could not be standardised, by row.

    What RDKit cannot parse stays as it is; what it cannot standardise becomes an empty text.
    """
    from rdkit import Chem
    from rdkit.Chem.MolStandardize.rdMolStandardize import ChargeParent

    texts, reasons = list(smiles), dict[int, str]()
    molecules = changed = lost_atoms = 0
    for row, text in enumerate(smiles):
        molecule = parse_molecule(text)
        if isinstance(molecule, str):
            continue
        texts[row], reasons[row] = "", "RDKit cannot standardise it"
        if molecule.GetNumAtoms() > MAX_CYCLIC_ATOMS:  # RDKit may crash
            reasons[row] = f"{molecule.GetNumAtoms()} atoms; the limit for standardising is {MAX_CYCLIC_ATOMS}"
            continue
        with suppress(Exception):  # RDKit raises many kinds
            parent = ChargeParent(molecule)
            before, after = Chem.MolToSmiles(molecule), Chem.MolToSmiles(parent)
            if not isinstance(parse_molecule(after), str):
                del reasons[row]
                texts[row] = after
                molecules += 1
                changed += after != before
                lost_atoms += parent.GetNumAtoms() < molecule.GetNumAtoms()
    return texts, Standardised(molecules, changed, lost_atoms), reasons


def parse_molecule(text: str) -> Any:
    """Return RDKit's molecule, or the reason why there is none."""
    from rdkit import Chem

    if not text.strip():
        return "empty"
    if len(text) > MAX_SMILES_LENGTH:
        return f"{len(text)} characters; the limit is {MAX_SMILES_LENGTH}"
    if len(text) > MAX_CYCLIC_ATOMS and _CYCLIC.search(_BRACKETS.sub("", text)):
        size = len(ATOM_OR_END.findall(text))
        if size > MAX_CYCLIC_ATOMS:
            return f"{size} atoms; the limit with rings or directed bonds is {MAX_CYCLIC_ATOMS}"
    try:
        molecule = Chem.MolFromSmiles(text)
        if molecule is not None and 0 < molecule.GetNumAtoms() <= MAX_ATOMS:
            return molecule
        molecule = Chem.MolFromSmiles(text, sanitize=False)
        if molecule is None:
            return "not a valid SMILES"
        if not 0 < molecule.GetNumAtoms() <= MAX_ATOMS:
            return f"{molecule.GetNumAtoms()} atoms; expected 1 to {MAX_ATOMS}"
        return explain_rejection(molecule)
    except Exception:  # RDKit raises many kinds, for example for elements that it does not know
        return "RDKit cannot process it"


def explain_rejection(molecule: Any) -> str:
    """Why RDKit rejects a molecule that it could read."""
    from rdkit import Chem

    problems = Chem.DetectChemistryProblems(molecule)
    return str(problems[0].Message()) if problems else "RDKit rejects it"


def to_ogb_codes(dataset: Dataset) -> Dataset:
    """Replace the codes of atoms and bonds by OGB's nine and three, computed from the SMILES; the graphs are the same.

    Args:
        dataset: of the kind ``molecules``, with its SMILES.
    """
    require_rdkit()
    if dataset.kind != "molecules" or len(dataset.smiles) != len(dataset):
        what = "no SMILES" if dataset.kind == "molecules" else f"{dataset.kind}, not molecules"
        raise UserError(
            f"{dataset.name}: features 'ogb_atoms' are computed from SMILES, and the data have {what}. Use the table "
            "of molecules, pack it with its SMILES, or use features 'atoms'."
        )
    recoded = featurise(dataset.smiles, as_ogb=True)
    if not np.array_equal(recoded.first_node, dataset.first_node) or len(recoded.source) != len(dataset.source):
        raise UserError(
            f"{dataset.name}: the SMILES have {recoded.num_nodes} atoms, the graphs {dataset.num_nodes}. "
            "Use the table again."
        )
    return replace(dataset, kind=recoded.kind, node_labels=recoded.node_labels, edge_attr=recoded.edge_attr)
