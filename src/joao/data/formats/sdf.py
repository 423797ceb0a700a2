"""Structure-data files: ``.sdf``, optionally with ``.gz``. Each record is a row of a table of molecules.

The structure becomes RDKit's SMILES, the first line of a record its ``title``, and every property a column. Many
programs write Latin-1, so lines that are not UTF-8 are read as such.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from joao.core.errors import UserError
from joao.data.formats.text import file_budget, text_lines
from joao.data.molecules import MAX_CYCLIC_ATOMS, explain_rejection, require_rdkit

TITLE, END = "title", "$$$$"
_MAX_STRUCTURE_LINES = 16 * MAX_CYCLIC_ATOMS
_PROPERTY = re.compile(r">.*?<([^<>]+)>")
_COUNTS = re.compile(r"^(?:M  V30 COUNTS +([0-9]+)|(?:.*\n){3}([ 0-9]{3})[ 0-9]{3})", re.MULTILINE)


class Record(NamedTuple):
    """One record: the line of its title, its structure without the properties, and the properties by name."""

    line: int
    structure: list[str]
    properties: dict[str, str]

    @property
    def title(self) -> str:
        return self.structure[0].strip() if self.structure else ""


def sdf_records(path: Path, with_values: bool = True) -> Iterator[Record]:
    """Read the records of a file; ``with_values`` False leaves all values of properties empty."""
    record, name = Record(1, [], {}), None
    in_structure, number = True, 0
    for number, text in enumerate(text_lines(path, or_latin_1=True), 1):
        line = text.rstrip("\r\n")
        if line.startswith(END):
            yield record
            record, name, in_structure = Record(number + 1, [], {}), None, True
        elif match := _PROPERTY.match(line):
            in_structure, name = False, " ".join(match[1].split())
            if name in record.properties:
                raise UserError(f"{path}:{number}: property {name!r} occurs twice in the record.")
            record.properties[name] = ""
        elif in_structure:
            # One line more than allowed shows that there are too many.
            if len(record.structure) <= _MAX_STRUCTURE_LINES:
                record.structure.append(line)
            in_structure = line != "M  END"
        elif not line.strip():
            name = None  # a blank line ends the value
        elif name is not None and with_values:
            record.properties[name] = f"{record.properties[name]} {line.strip()}".strip()
    if any(map(str.strip, record.structure)) or record.properties:  # the last record may lack its end
        yield record


def sdf_rows(path: Path, ignored: frozenset[str], reasons: dict[int, str]) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and cells, preceded by a header.

    Args:
        path: the file, which is read twice, because any record may have further properties.
        ignored: names of properties to leave out, in lower case.
        reasons: receives why a structure cannot be parsed, by line; its SMILES is empty.
    """
    require_rdkit()
    names: dict[str, None] = {}
    num_records = 0
    for record in sdf_records(path, with_values=False):
        names |= dict.fromkeys(record.properties)
        num_records += 1
    names = {name: None for name in names if name.casefold() not in ignored}
    file_budget(path).take(4 * num_records * len(names), f"{len(names)} properties of {num_records} records")
    if num_records:
        yield 1, ["smiles", TITLE, *names]
    for record in sdf_records(path):
        smiles, reason = _to_smiles(record.structure)
        if reason:
            reasons[record.line] = reason
        yield record.line, [smiles, record.title, *(record.properties.get(name, "") for name in names)]


def _to_smiles(structure: list[str]) -> tuple[str, str]:
    """The SMILES of a structure, or an empty text and the reason why there is none."""
    from rdkit import Chem, rdBase

    if len(structure) > _MAX_STRUCTURE_LINES:
        return "", f"more than {_MAX_STRUCTURE_LINES} lines"
    block = "\n".join([*structure, ""])
    counts = [int(count) for match in _COUNTS.findall(block) for count in match if count.strip().isdigit()]
    if max(counts, default=0) > MAX_CYCLIC_ATOMS:
        return "", f"{max(counts)} atoms; the limit is {MAX_CYCLIC_ATOMS}"
    with rdBase.BlockLogs():
        try:
            molecule = Chem.MolFromMolBlock(block)
            if molecule is not None:
                return Chem.MolToSmiles(molecule), "no atoms" if not molecule.GetNumAtoms() else ""
            molecule = Chem.MolFromMolBlock(block, sanitize=False)
            return "", "not a valid structure" if molecule is None else explain_rejection(molecule)
        except Exception:  # RDKit raises many kinds
            return "", "RDKit cannot process it"
