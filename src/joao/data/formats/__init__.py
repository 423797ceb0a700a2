"""File formats: one module per format, and the registry that detection, messages and help texts derive from.

To add a format, write a module whose reader ends in :func:`joao.data.validation.make_dataset`, add an entry to
:data:`FORMATS`, and describe the layout in ``docs/data-formats.md``.

The command line takes help texts from here, so this module imports neither numpy nor the readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from joao.data.dataset import Dataset
    from joao.data.formats.smiles import MoleculeTable


@dataclass(frozen=True)
class FileFormat:
    """How to recognise and read one file format.

    Functions are given as ``"module:function"`` and imported on first use. If ``has_columns`` is set, readers take the
    named columns and the options of molecules as further arguments.

    Attributes:
        title: name in help texts and messages.
        reader: reads a path into a data set.
        suffixes: suffixes of files, in lower case.
        folder_files: patterns of the files read from a folder; empty if the format has no folders.
        detector: returns whether a path has this format. Needed for folders and where formats share a suffix.
        piece_reader: reads ``size`` rows at a time after the first ``skip``, for files larger than memory: graphs, or
            tables of molecules, which other processes can convert.
        has_columns: whether the columns of SMILES, identifiers and tasks can be named.
        has_options: whether the reader takes the options of :func:`joao.read` that are not columns.
        cached: whether large sources are kept in the cache.
    """

    title: str
    reader: str
    suffixes: tuple[str, ...] = ()
    folder_files: tuple[str, ...] = ()
    detector: str = ""
    piece_reader: str = ""
    has_columns: bool = False
    has_options: bool = False
    cached: bool = True

    def detect(self, path: Path) -> bool:
        return bool(_load(self.detector)(path))

    def read(self, path: Path, *options: Any) -> Dataset:
        dataset: Dataset = _load(self.reader)(path, *options)
        return dataset

    def read_pieces(self, path: Path, size: int, skip: int, **options: Any) -> Iterator[MoleculeTable | Dataset]:
        """Read ``size`` rows at a time after the first ``skip``."""
        pieces: Iterator[MoleculeTable | Dataset] = _load(self.piece_reader)(path, size=size, skip=skip, **options)
        return pieces

    def __str__(self) -> str:
        """Title and suffixes, as in help texts.

        >>> print(FileFormat("JSON lines", "", (".jsonl", ".jsonl.gz")))
        JSON lines (.jsonl)
        """
        plain = [suffix for suffix in self.suffixes if not suffix.endswith((".gz", ".xz"))]
        return f"{self.title} ({' or '.join([*plain, *(['folder'] if self.folder_files else [])])})"


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(f"joao.data.formats.{module}"), name)


# In the order of detection. Of several formats with the same suffix, the last one is the fallback.
FORMATS = (
    FileFormat(
        "molecules",
        "smiles:read_molecules",
        suffixes=(".csv", ".csv.gz", ".csv.xz", ".smi", ".smi.gz", ".smi.xz", ".parquet", ".sdf", ".sdf.gz"),
        detector="smiles:is_molecule_table",
        piece_reader="smiles:iterate_molecule_table",
        has_columns=True,
    ),
    FileFormat("edge list", "edge_list:read_edge_list", suffixes=(".csv", ".csv.gz", ".csv.xz")),
    FileFormat(
        "JSON lines",
        "jsonl:read_jsonl",
        suffixes=(".jsonl", ".jsonl.gz"),
        piece_reader="jsonl:iterate_jsonl",
        has_options=True,
    ),
    FileFormat(
        "GraphML",
        "graphml:read_graphml",
        suffixes=(".graphml",),
        folder_files=("*.graphml",),
        detector="graphml:is_graphml",
        has_options=True,
    ),
    FileFormat(
        "OGB",
        "ogb:read_ogb",
        suffixes=(".zip",),
        folder_files=("raw/*.csv.gz", "mapping/*.csv.gz"),
        detector="ogb:is_ogb",
    ),
    FileFormat("TU", "tu:read_tu", suffixes=(".zip",), folder_files=("*.txt", "raw/*.txt"), detector="tu:is_tu"),
    FileFormat("packed graphs", "packed:read_packed_file", suffixes=(".safetensors", ".safetensors.xz"), cached=False),
)
SUFFIXES = tuple(dict.fromkeys(suffix for each in FORMATS for suffix in each.suffixes))
TABLE_SUFFIXES = tuple(suffix for each in FORMATS if each.has_columns for suffix in each.suffixes)
PACKED_SUFFIXES = next(each.suffixes for each in FORMATS if each.reader.startswith("packed:"))
DATA_HELP = (
    f"DATA is the name of a data set, or the path of a file or folder: {', '.join(map(str, FORMATS))}, "
    "or shards written by 'joao pack' (folder)."
)


def known_suffix(path: Path) -> str | None:
    """The suffix of a file if a format has it."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def detect_format(path: Path, has_columns: bool = False) -> FileFormat | None:
    """The format of an existing file or folder; None if there is no reader for it.

    With ``has_columns``, only formats whose columns can be named are considered.
    """
    if path.is_dir():
        return next((each for each in FORMATS if each.folder_files and each.detect(path)), None)
    suffix = known_suffix(path)
    formats = [each for each in FORMATS if suffix in each.suffixes and each.has_columns >= has_columns]
    return next((each for each in formats[:-1] if each.detect(path)), formats[-1] if formats else None)
