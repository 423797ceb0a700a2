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

from joao.core.codes import NUM_ELEMENTS, OGB_ATOM_SIZES, OGB_BOND_SIZES
from joao.core.errors import UserError, short_repr
from joao.core.processes import map_chunks
from joao.data.dataset import Dataset, Failure, Standardised, add_counts, sizes_to_offsets

# Increase this number when the codes of any molecule change: encoders depend on them.
FEATURISER = 1
NO_ELEMENT = NUM_ELEMENTS - 1
# Starting a process takes as long as converting this many molecules.
_MIN_MOLECULES_PER_PROCESS, _MIN_STANDARDISED_PER_PROCESS = 4096, 512
STANDARDISED = ", standardised"
MAX_ATOMS = 1 << 16
MAX_SMILES_LENGTH = 16 * MAX_ATOMS
# RDKit's time grows with the cube of the size of rings, and its memory with the square; a ring of 42,000 atoms crashes
# it. Molecules of this size take up to half a second and 170 MB.
MAX_CYCLIC_ATOMS = 1 << 11
_CYCLIC, _BRACKETS = re.compile(r"[0-9%/\\]"), re.compile(r"\[[^]]*\]")
_MAX_MATRIX_ATOMS = 128
_ATOM_OR_END = re.compile(r"\[[^]\n]*\]|Br|Cl|[BCNOPSFIbcnops*\n]")
# Codes of the atoms in a text, in one byte each: the element, plus 128 if the text has an ``@``; 255 ends a SMILES.
_END, _MAY_BE_CHIRAL = 255, 128
_BOND_TYPES = {"SINGLE": 0, "DOUBLE": 1, "TRIPLE": 2, "AROMATIC": 3}
_DIRECTIONS = {"ENDUPRIGHT": 1, "ENDDOWNRIGHT": 2}
# Orders of 1, 2 and 3 are single, double and triple bonds, 1.5 is aromatic; other bonds have type 0, too.
_TYPE_OF_TWICE_THE_ORDER = np.array([0, 0, 0, 3, 1, 0, 2, 0, 0, 0, 0, 0, 0])

Indices = NDArray[np.int64]
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
    """Convert one chunk of SMILES, in one process.

    Querying RDKit for every atom and bond takes as long as parsing. Without OGB's codes, elements are therefore taken
    from the text of the atoms, and bonds from matrices of bond orders, for the whole chunk at once. Only molecules for
    which this is ambiguous are queried atom by atom or bond by bond.
    """
    from rdkit import rdBase

    failures: list[Failure] = []
    standard_smiles: list[str] = []
    as_written, counts, reasons = smiles, None, dict[int, str]()
    with rdBase.BlockLogs():
        if standardise:
            smiles, counts, reasons = _standardise(as_written)
        # Texts that are too long are skipped: each atom takes more memory than its letter.
        texts = [text if len(text) <= MAX_SMILES_LENGTH else "" for text in smiles]
        collected: list[Any] = [_OgbCodes(texts)] if as_ogb else [_Atoms(texts), _Edges(texts)]
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
        size = len(_ATOM_OR_END.findall(text))
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


def _element(atom: Any) -> int:
    number = atom.GetAtomicNum()
    return number - 1 if 0 < number <= NO_ELEMENT else NO_ELEMENT


class _Codes(dict[str, int]):
    """Cache of atom codes by their text in a SMILES, such as ``Cl`` or ``[C@H]``: element, and a chirality flag."""

    def __missing__(self, text: str) -> int:
        from rdkit import Chem

        alone = Chem.MolFromSmiles(text, sanitize=False)
        element = NO_ELEMENT if alone is None else _element(alone.GetAtomWithIdx(0))
        self[text] = element + _MAY_BE_CHIRAL * ("@" in text)
        return self[text]


class _Atoms:
    """The atoms of the molecules of a chunk."""

    def __init__(self, smiles: Sequence[str]) -> None:
        # A SMILES followed by a name or an extension is replaced by an empty text: RDKit is queried for its atoms.
        alone = (words[0] if len(words) == 1 else "" for words in map(str.split, smiles))
        texts = _ATOM_OR_END.findall("".join(f"{text}\n" for text in alone))
        codes = np.fromiter(map(_Codes({"\n": _END}).__getitem__, texts), dtype=np.uint8, count=len(texts))
        ends = np.flatnonzero(codes == _END)
        codes = np.delete(codes, ends)
        first = sizes_to_offsets(np.diff(ends, prepend=-1) - 1)
        self.first = first.tolist()  # offsets of the SMILES in the list of atoms
        self.elements = codes % _MAY_BE_CHIRAL
        self.centres: dict[int, list[int]] = {}
        for position in np.flatnonzero(codes >= _MAY_BE_CHIRAL):
            row = int(np.searchsorted(first, position, side="right")) - 1
            self.centres.setdefault(row, []).append(int(position - first[row]))
        self.sizes: list[int] = []
        self.row: list[int] = []  # row of a molecule whose elements are taken from its text, else -1
        self.queried: list[int] = []
        self.chiral: list[tuple[int, int, int]] = []  # molecule, atom, tag

    def add(self, molecule: Any, row: int) -> None:
        size = molecule.GetNumAtoms()
        from_text = self.first[row + 1] - self.first[row] == size
        centres: Sequence[int] = self.centres.get(row, ()) if from_text else range(size)
        if not from_text:  # RDKit has merged hydrogens, so texts and atoms do not correspond
            self.queried += [_element(molecule.GetAtomWithIdx(atom)) for atom in range(size)]
        tags = (molecule.GetAtomWithIdx(atom).GetChiralTag() for atom in centres)
        # RDKit's tags: unspecified, clockwise, counter-clockwise, others.
        self.chiral += [(len(self.sizes), atom, min(int(tag), 3)) for atom, tag in zip(centres, tags, strict=True)]
        self.sizes.append(size)
        self.row.append(row if from_text else -1)

    def packed(self) -> dict[str, NDArray[Any]]:
        """Return the number of atoms of each molecule and ``(N, 2)`` elements and chiralities."""
        row, first = np.array(self.row, dtype=np.int64), np.array(self.first)
        from_text = np.repeat(row >= 0, self.sizes)
        is_used = np.zeros(len(first) - 1, dtype=bool)
        is_used[row[row >= 0]] = True
        atoms = np.zeros((len(from_text), 2), dtype=np.uint8)
        atoms[from_text, 0] = self.elements[np.repeat(is_used, np.diff(first))]
        atoms[~from_text, 0] = self.queried
        molecule, atom, tag = np.array(self.chiral, dtype=np.int64).reshape(-1, 3).T
        sizes = np.array(self.sizes, dtype=np.int64)
        atoms[sizes_to_offsets(sizes)[molecule] + atom, 1] = tag
        return {"num_nodes": sizes, "atoms": atoms}


class _Edges:
    """The bonds of the molecules of a chunk, in both directions."""

    def __init__(self, smiles: Sequence[str]) -> None:
        from rdkit import Chem

        self.smiles, self.orders_of = smiles, Chem.GetAdjacencyMatrix
        self.types = {getattr(Chem.BondType, name): code for name, code in _BOND_TYPES.items()}
        self.directions = {getattr(Chem.BondDir, name): code for name, code in _DIRECTIONS.items()}
        self.matrices: list[NDArray[np.float64]] = []
        self.counted: list[tuple[int, int, int]] = []  # molecule, number of atoms, number of edges: with a matrix
        self.queried: list[tuple[int, int, int, int]] = []  # molecule, target, source, type: the other edges
        self.directed: list[tuple[int, int, int, int]] = []  # molecule, target, source, direction
        self.largest = self.num_molecules = 0

    def add(self, molecule: Any, row: int) -> None:
        number, size, num_bonds = self.num_molecules, molecule.GetNumAtoms(), molecule.GetNumBonds()
        self.num_molecules, self.largest = number + 1, max(size, self.largest)
        for bond in map(molecule.GetBondWithIdx, range(num_bonds) if _has_directions(self.smiles[row]) else ()):
            if direction := self.directions.get(bond.GetBondDir(), 0):
                self.directed += ((number, *ends, direction) for ends in _both_ways(bond))
        if size <= _MAX_MATRIX_ATOMS:
            matrix = self.orders_of(molecule, useBO=True)
            if np.count_nonzero(matrix) == 2 * num_bonds:  # dative bonds have one entry, unspecified ones none
                self.matrices.append(matrix.ravel())
                self.counted.append((number, size, 2 * num_bonds))
                return
        for bond in map(molecule.GetBondWithIdx, range(num_bonds)):
            self.queried += ((number, *ends, self.types.get(bond.GetBondType(), 0)) for ends in _both_ways(bond))

    def packed(self) -> dict[str, NDArray[Any]]:
        """Return the number of edges of each molecule ``(M,)``, targets and sources ``(E,)``, and bonds ``(E, 2)``."""
        number, sizes, counts = np.array(self.counted, dtype=np.int64).reshape(-1, 3).T
        orders = np.concatenate([np.zeros(0), *self.matrices])
        # Row and column of a nonzero cell of a molecule's matrix are target and source; the value is the bond order.
        cells = np.flatnonzero(orders)
        cell = cells - np.repeat(sizes_to_offsets(sizes**2)[:-1], counts)
        columns = [np.repeat(number, counts), *np.divmod(cell, np.repeat(sizes, counts))]
        edges = np.stack([*columns, _TYPE_OF_TWICE_THE_ORDER[(2 * orders[cells]).astype(np.int64)]])
        if self.queried:
            edges = np.concatenate([edges, np.array(self.queried, dtype=np.int64).T], axis=1)
            edges = edges[:, np.lexsort(edges[2::-1])]
        molecule, target, source, types = edges
        bonds = np.stack([types, np.zeros_like(types)], axis=1).astype(np.uint8)
        if self.directed:
            directed = np.array(self.directed, dtype=np.int64).T
            bonds[np.searchsorted(_keys(edges), _keys(directed)), 1] = directed[3]
        num_edges = np.bincount(molecule, minlength=self.num_molecules)
        return {"num_edges": num_edges, "bonds": bonds, **_narrow(target, source, self.largest)}


def _has_directions(smiles: str) -> bool:
    return "/" in smiles or "\\" in smiles


def _narrow(target: Indices, source: Indices, largest: int) -> dict[str, NDArray[Any]]:
    """Store the ends of edges in bytes where no molecule is too large."""
    dtype = np.uint8 if largest <= 256 else np.uint16
    return {"target": target.astype(dtype), "source": source.astype(dtype)}


def _both_ways(bond: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
    return (begin, end), (end, begin)


def _keys(edges: Indices) -> Indices:
    """A number per edge that sorts by molecule, target and source."""
    molecule, target, source = edges[:3]
    keys: Indices = (molecule * MAX_ATOMS + target) * MAX_ATOMS + source
    return keys


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


class _OgbCodes:
    """The atoms and bonds of the molecules of a chunk, with OGB's codes."""

    def __init__(self, smiles: Sequence[str]) -> None:
        from rdkit import Chem

        atom, bond = Chem.Atom, Chem.Bond
        self.smiles = smiles
        self.of_atoms = (
            *(atom.GetAtomicNum, atom.GetFormalCharge, atom.GetTotalNumHs, atom.GetNumRadicalElectrons),
            *(atom.GetHybridization, atom.GetIsAromatic, atom.IsInRing, atom.GetChiralTag),
        )
        self.of_bonds = (
            *(bond.GetBeginAtomIdx, bond.GetEndAtomIdx, bond.GetBondType, bond.GetIsConjugated, bond.GetStereo),
        )
        self.atoms: list[list[Any]] = [[] for _ in self.of_atoms]
        self.bonds: list[list[Any]] = [[] for _ in self.of_bonds]
        self.sizes, self.num_bonds = list[int](), list[int]()

    def add(self, molecule: Any, row: int) -> None:
        text = self.smiles[row]
        self.sizes.append(molecule.GetNumAtoms())
        self.num_bonds.append(molecule.GetNumBonds())
        has_extension = "|" in text  # CXSMILES may describe stereochemistry
        atoms = [*map(molecule.GetAtomWithIdx, range(self.sizes[-1]))]
        bonds = [*map(molecule.GetBondWithIdx, range(self.num_bonds[-1]))]
        # One call of map per property is twice as fast as a loop over the atoms. The last one is 0 in most molecules.
        for values, parts, queries, has_stereo in (
            (self.atoms, atoms, self.of_atoms, has_extension or "@" in text),
            (self.bonds, bonds, self.of_bonds, has_extension or _has_directions(text)),
        ):
            for column, query in zip(values[:-1], queries[:-1], strict=True):
                column += map(query, parts)
            values[-1] += map(queries[-1], parts) if has_stereo else [0] * len(parts)

    def packed(self) -> dict[str, NDArray[Any]]:
        """Return what :class:`_Atoms` and :class:`_Edges` do, with atoms ``(N, 9)`` and bonds ``(E, 3)``."""
        from rdkit import Chem

        number, charge, hydrogens, radicals, hybridisation, is_aromatic, in_ring, chirality = (
            np.fromiter(column, np.int64, len(column)) for column in self.atoms
        )
        begin, end, order, is_conjugated, stereo = (np.fromiter(column, np.int64, len(column)) for column in self.bonds)
        sizes, num_bonds = np.array(self.sizes, dtype=np.int64), np.array(self.num_bonds, dtype=np.int64)
        first = np.repeat(sizes_to_offsets(sizes)[:-1], num_bonds)
        target, source = np.concatenate([begin, end]), np.concatenate([end, begin])
        shift = np.tile(first, 2)
        kinds, mixed, orders = Chem.ChiralType, Chem.HybridizationType, Chem.BondType
        # Values that are not listed have the last code of their column, except for stereo, where all are listed.
        tags = (kinds.CHI_UNSPECIFIED, kinds.CHI_TETRAHEDRAL_CW, kinds.CHI_TETRAHEDRAL_CCW, kinds.CHI_OTHER)
        stereos = ("NONE", "Z", "E", "CIS", "TRANS", "ANY")
        atoms = (
            np.where((number > 0) & (number <= NO_ELEMENT), number - 1, NO_ELEMENT),
            _code(chirality, tags, 4),
            (np.bincount(target + shift, minlength=len(number)) + hydrogens).clip(max=11),
            np.where(abs(charge) <= 5, charge + 5, 11),
            hydrogens.clip(max=9),
            radicals.clip(max=5),
            _code(hybridisation, (mixed.SP, mixed.SP2, mixed.SP3, mixed.SP3D, mixed.SP3D2), 5),
            is_aromatic,
            in_ring,
        )
        bonds = (
            _code(order, (orders.SINGLE, orders.DOUBLE, orders.TRIPLE, orders.AROMATIC), 4),
            _code(stereo, [getattr(Chem.BondStereo, f"STEREO{name}") for name in stereos], 5),
            is_conjugated,
        )
        by_target = np.lexsort((source + shift, target + shift))
        return {
            "num_nodes": sizes,
            "num_edges": 2 * num_bonds,
            "atoms": np.stack(atoms, axis=1).astype(np.uint8),
            "bonds": np.tile(np.stack(bonds, axis=1), (2, 1))[by_target].astype(np.uint8),
            **_narrow(target[by_target], source[by_target], max(self.sizes, default=0)),
        }


def _code(values: Indices, listed: Sequence[int], other: int) -> Indices:
    """Replace the listed values, members of an enumeration of RDKit, by their position and all others by ``other``."""
    known = [*map(int, listed)]
    codes = np.full(max(*known, values.max(initial=0)) + 1, other)
    codes[known] = range(len(known))
    return codes[values]
