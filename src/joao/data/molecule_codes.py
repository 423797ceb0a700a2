"""Codes of the atoms and bonds of parsed molecules, collected for a chunk of molecules at once.

:class:`Atoms` with :class:`Edges`, or :class:`OgbCodes`, see every molecule of a chunk (``add``) and then return its
arrays (``packed``). Querying RDKit for every atom and bond takes as long as parsing. :class:`Atoms` and :class:`Edges`
therefore take elements from the text of the atoms, and bonds from matrices of bond orders, for the whole chunk. Only
molecules for which this is ambiguous are queried atom by atom or bond by bond.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.codes import NUM_ELEMENTS
from joao.data.dataset import sizes_to_offsets

NO_ELEMENT = NUM_ELEMENTS - 1
MAX_ATOMS = 1 << 16
ATOM_OR_END = re.compile(r"\[[^]\n]*\]|Br|Cl|[BCNOPSFIbcnops*\n]")
_MAX_MATRIX_ATOMS = 128
# Codes of the atoms in a text, in one byte each: the element, plus 128 if the text has an ``@``; 255 ends a SMILES.
_END, _MAY_BE_CHIRAL = 255, 128
_BOND_TYPES = {"SINGLE": 0, "DOUBLE": 1, "TRIPLE": 2, "AROMATIC": 3}
_DIRECTIONS = {"ENDUPRIGHT": 1, "ENDDOWNRIGHT": 2}
# Orders of 1, 2 and 3 are single, double and triple bonds, 1.5 is aromatic; other bonds have type 0, too.
_TYPE_OF_TWICE_THE_ORDER = np.array([0, 0, 0, 3, 1, 0, 2, 0, 0, 0, 0, 0, 0])

Indices = NDArray[np.int64]


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


class Atoms:
    """The atoms of the molecules of a chunk."""

    def __init__(self, smiles: Sequence[str]) -> None:
        # A SMILES followed by a name or an extension is replaced by an empty text: RDKit is queried for its atoms.
        alone = (words[0] if len(words) == 1 else "" for words in map(str.split, smiles))
        texts = ATOM_OR_END.findall("".join(f"{text}\n" for text in alone))
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


class Edges:
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


class OgbCodes:
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
        """Return what :class:`Atoms` and :class:`Edges` do, with atoms ``(N, 9)`` and bonds ``(E, 3)``."""
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
