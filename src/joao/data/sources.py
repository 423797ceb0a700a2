"""The one way in: names, files and graphs in memory.

=============================================== ==========================================================
a name such as ``"NCI1"``                       a TU data set, see :func:`read`
a zip file or folder in the TU layout           :mod:`joao.data.formats.tu`
``.graphml``, or a folder of such files         :mod:`joao.data.formats.networkx_graphs`
``.csv`` with a column of SMILES, ``.smi``      molecules, :mod:`joao.data.molecules.smiles` and :mod:`joao.data.molecules.featurise`
``.csv`` with graph, source and target          :mod:`joao.data.formats.edge_list`
``.jsonl``, ``.jsonl.gz``                       :mod:`joao.data.formats.jsonl`
a name such as ``"ogbg-molbbbp"``, its zip      a data set of OGB as distributed, :mod:`joao.data.formats.ogb`
or folder
``.safetensors``                                any of these, packed by ``joao pack``, :mod:`joao.data.formats.packed`
a folder of shards                              likewise; not read but opened, :mod:`joao.data.shards.shards`
a folder with protein networks, as published    :mod:`joao.data.formats.ppi`
a list of SMILES                                :mod:`joao.data.molecules.featurise`
a list of ``Data``, a torch-geometric data set  :mod:`joao.data.formats.geometric`
a list of networkx graphs                       :mod:`joao.data.formats.networkx_graphs`
=============================================== ==========================================================

Tables may have ``.gz`` or ``.xz`` behind.

>>> dataset = read("MUTAG")
>>> len(dataset), dataset.class_names
(188, ('-1', '1'))
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from joao.core.errors import UserError
from joao.data import cache as _download
from joao.data.cache import MIN_TABLE_BYTES, read_cached
from joao.data.dataset import Dataset
from joao.data.formats import ogb_files as _ogb_files
from joao.data.formats.edge_list import read_edge_list
from joao.data.formats.in_memory import from_objects
from joao.data.formats.jsonl import read_jsonl
from joao.data.formats.networkx_graphs import read_graphml
from joao.data.formats.ogb import read_ogb
from joao.data.formats.ogb_files import is_ogb
from joao.data.formats.packed import SUFFIXES as PACKED
from joao.data.formats.packed import read_packed
from joao.data.formats.text import column_names
from joao.data.formats.tu import is_tu, read_tu
from joao.data.molecules.sets import ReadOptions, is_molecule_table, read_molecules
from joao.data.molecules.smiles import SUFFIXES as TABLES
from joao.data.molecules.smiles import Columns
from joao.data.shards.index import is_shard_store
from joao.data.shards.shards import Shards


def _read_zip(path: Path) -> Dataset:
    return read_ogb(path) if is_ogb(path) else read_tu(path)


READERS: dict[str, Callable[[Path], Dataset]] = {
    ".zip": _read_zip,
    ".graphml": read_graphml,
    **dict.fromkeys(TABLES, read_edge_list),  # or molecules, as their first line tells
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_jsonl,
}
# fmt: off
TU_DATASETS = (
    "AIDS", "BZR", "BZR_MD", "COIL-DEL", "COIL-RAG", "COLLAB", "COLORS-3", "COX2", "COX2_MD", "Cuneiform",
    "DBLP_v1", "DD", "deezer_ego_nets", "DHFR", "DHFR_MD", "ENZYMES", "ER_MD", "facebook_ct1", "facebook_ct2",
    "Fingerprint", "FIRSTMM_DB", "FRANKENSTEIN", "github_stargazers", "highschool_ct1", "highschool_ct2",
    "IMDB-BINARY", "IMDB-MULTI", "infectious_ct1", "infectious_ct2", "KKI", "Letter-high", "Letter-low",
    "Letter-med", "MCF-7", "MCF-7H", "MOLT-4", "MOLT-4H", "MSRC_21", "MSRC_21C", "MSRC_9", "MUTAG", "Mutagenicity",
    "NCI-H23", "NCI-H23H", "NCI1", "NCI109", "OHSU", "OVCAR-8", "OVCAR-8H", "P388", "P388H", "PC-3", "PC-3H",
    "Peking_1", "PROTEINS", "PROTEINS_full", "PTC_FM", "PTC_FR", "PTC_MM", "PTC_MR", "REDDIT-BINARY",
    "REDDIT-MULTI-12K", "REDDIT-MULTI-5K", "reddit_threads", "SF-295", "SF-295H", "SN12C", "SN12CH", "SW-620",
    "SW-620H", "SYNTHETIC", "SYNTHETICnew", "Synthie", "TRIANGLES", "tumblr_ct1", "tumblr_ct2", "twitch_egos",
    "TWITTER-Real-Graph-Partial", "UACC257", "UACC257H", "Yeast", "YeastH",
)
# fmt: on
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
BUNDLED = Path(__file__).parent / "bundled"
_SUBFOLDERS = ("", "tu", "tu_dev", "TUDataset")
MOLECULES = "molecules"
OGB = "ogb"


def read(
    source: Any,
    root: str | os.PathLike[str] | None = None,
    *,
    smiles: str | None = None,
    identifiers: str | None = None,
    tasks: Sequence[str] | None = None,
    jobs: int = 1,
    on_rows: Callable[[int, int], None] | None = None,
) -> Dataset | Shards:
    """Reads graphs; those of a store of shards stay where they are, and are read as they are needed.

    Args:
        source: anything in the table above, or a :class:`Dataset` or :class:`Shards`, which is returned. A bare name
            is looked for under ``root`` (``ROOT/NAME.zip`` or ``ROOT/NAME/``, also in ``tu``, ``tu_dev`` and
            ``TUDataset``, or a table or packed file ``ROOT/molecules/NAME.csv.gz``), in the package, in the working
            folder, among earlier downloads, and then downloaded. A name of OGB, ``ogbg-...``, is looked for in
            ``ROOT/ogb`` and ``ROOT`` as OGB's package or archive names it, and not downloaded. A path is anything with
            a slash or a suffix: write ``./NAME`` for a folder whose name is also that of a data set.
        root: the folder of data sets; without it, the environment variable ``JOAO_DATA``.
        smiles: of a table of molecules, the column of SMILES, where its name does not tell.
        identifiers: the column of identifiers, likewise.
        tasks: the columns of labels; None is all that hold numbers and nothing else.
        jobs: processes that make graphs of molecules. A script that asks for several must keep its own calls under
            ``if __name__ == "__main__":``.
        on_rows: told, while molecules are made, how many further ones are done, and of how many.

    What a large file or folder was read into is kept for the next time, see :mod:`joao.data.cache`.

    >>> import networkx
    >>> read([networkx.path_graph(3), networkx.cycle_graph(4)])
    Dataset('graphs', 2 graphs, 7 nodes, 6 edges)
    >>> read("MUTAG").class_names
    ('-1', '1')
    """
    if isinstance(tasks, str):
        raise UserError(f"tasks must be a list of columns, got {tasks!r}. Write [{tasks!r}].")
    columns, work = Columns(smiles, identifiers, None if tasks is None else tuple(tasks)), ReadOptions(jobs, on_rows)
    if isinstance(source, str | os.PathLike):
        path = resolve_path(source, root)
        if columns != Columns() and known_suffix(path) not in TABLES:
            raise UserError(f"{path}: columns can be named of tables of molecules ({', '.join(TABLES)}), not of this.")
        return read_path(path, columns, work)
    if columns != Columns():
        raise UserError("columns can be named of tables of molecules, not of graphs in memory.")
    return source if isinstance(source, Dataset | Shards) else from_objects(source, work)


def read_whole(source: Any, root: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Like :func:`read`, with all graphs in memory, also those of a store."""
    found = read(source, root, **options)
    return found.whole() if isinstance(found, Shards) else found


def is_table(source: str, root: str | os.PathLike[str] | None = None) -> bool:
    """Whether the columns of ``source``, a name or path, can be named."""
    return known_suffix(resolve_path(source, root)) in TABLES


def csv_header(source: str, root: str | os.PathLike[str] | None = None) -> list[str]:
    """The names of the columns of a table with commas; of any other ``source``, or where it is not there, none."""
    path = resolve_path(source, root)
    if not (known_suffix(path) or "").startswith(".csv") or not path.is_file():
        return []
    return column_names(path)


def ogb_path(source: str, root: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder or zip file of ``source``, a name or path, if it is of OGB; None if it is of another kind."""
    path = resolve_path(source, root)
    return path if path.exists() and is_ogb(path) else None


def resolve_path(source: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Path:
    """Where a name or path leads; a name may have to be downloaded."""
    text = os.fspath(source)
    if isinstance(source, str) and _NAME.fullmatch(source):
        return _path_of_name(source, _root(root))
    if not text:
        raise UserError("an empty name. Give a data set's name or a path.")
    return Path(text).expanduser()


def list_datasets(root: str | os.PathLike[str] | None = None) -> list[str]:
    """The names that :func:`read` finds without a download: under ``root``, in the package, downloaded before."""
    entries = _entries(*_folders(_root(root)), BUNDLED, _download.download_folder())
    names = {entry.stem if entry.suffix == ".zip" else entry.name for entry in entries if is_tu(entry)}
    names |= {*_molecules(_root(root)), *_ogb(_root(root))}
    return sorted((name for name in names if _NAME.fullmatch(name)), key=str.casefold)


def _root(root: str | os.PathLike[str] | None) -> Path | None:
    place = "data root" if root is not None else "JOAO_DATA"
    given = os.fspath(root) if root is not None else os.environ.get("JOAO_DATA")
    if not given:
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise UserError(f"{place}: {folder} is not a folder.")
    return folder


def _entries(*folders: Path) -> Iterator[Path]:
    """What is in those of the folders that are there."""
    return (entry for folder in folders if folder.is_dir() for entry in sorted(folder.iterdir()))


def _folders(root: Path | None) -> Iterator[Path]:
    if root is not None:
        yield from (root / subfolder for subfolder in _SUBFOLDERS)


def _molecules(root: Path | None) -> dict[str, Path]:
    """The tables of molecules, and packed files, under ``root``, by their names without suffixes."""
    found: dict[str, Path] = {}
    for path in _entries(root / MOLECULES) if root is not None else ():
        suffix = known_suffix(path)
        if suffix in TABLES or suffix in PACKED:
            found.setdefault(path.name[: -len(suffix)], path)
    return found


def _ogb(root: Path | None) -> dict[str, Path]:
    """The data sets of OGB under ``root``, by their names."""
    found: dict[str, Path] = {}
    for entry in _entries(root / OGB, root) if root is not None else ():
        if (entry.suffix == ".zip" or entry.is_dir()) and is_ogb(entry):
            found.setdefault(_ogb_files.dataset_name(entry), entry)
    return found


def _path_of_ogb(name: str, root: Path | None) -> Path:
    if found := _ogb(root).get(name):
        return found
    looked = f"under {root}" if root is not None else "(JOAO_DATA is not set)"
    archives = " or ".join(f"{stem}.zip" for stem in _ogb_files.archive_stems(name))
    raise UserError(
        f"{name}: no such data set {looked}. Put OGB's own archive or folder, {archives}, into ROOT/{OGB}, with ROOT "
        "given by JOAO_DATA or --data-root."
    )


def _path_of_name(name: str, root: Path | None) -> Path:
    if name.startswith("ogbg-"):
        return _path_of_ogb(name, root)
    candidates = [path for folder in _folders(root) for path in (folder / f"{name}.zip", folder / name)]
    candidates += [BUNDLED / f"{name}.zip", Path(name), _download.download_folder() / f"{name}.zip"]
    if name in (molecules := _molecules(root)):
        return molecules[name]
    for path in candidates:
        if path.is_file() if path.suffix == ".zip" else path.is_dir() and (path == Path(name) or is_tu(path)):
            if path.parent == _download.download_folder():
                _download.check_download_hash(path)
            return path
    return Path(name) if Path(name).is_file() else _download_or_explain(name, root)


def _download_or_explain(name: str, root: Path | None) -> Path:
    close = _suggest_name(name, root)
    try:
        if close is not None and _normalize(close) == _normalize(name):
            raise UserError("a known one is spelled otherwise")
        if name not in TU_DATASETS:  # it may be anything, a structure that nobody else should see for instance
            raise UserError("it is not looked for elsewhere, as it is no well-known one")
        return _download.download(name)
    except UserError as error:
        looked = f"under {root}" if root is not None else "(JOAO_DATA is not set)"
        guess = _suggest_file(Path(name)) or (f" Did you mean '{close}'?" if close else "")
        raise UserError(
            f"{name}: no such data set {looked}, and {error}.{guess} "
            f"A copy can be put at ROOT/{name}.zip, with ROOT given by JOAO_DATA or --data-root."
        ) from error


def known_suffix(path: Path) -> str | None:
    """The known end of a file's name."""
    return next((each for each in (*READERS, *PACKED) if path.name.lower().endswith(each)), None)


def read_path(path: Path, columns: Columns, work: ReadOptions) -> Dataset | Shards:
    """What :func:`read` makes of a path."""
    try:
        return _read_path(path, columns, work)
    except MemoryError as error:
        raise UserError(
            f"{path}: needs more memory than there is. 'joao pack' cuts tables and JSON lines into shards."
        ) from error


def _read_path(path: Path, columns: Columns, work: ReadOptions) -> Dataset | Shards:
    if path.is_dir():
        if is_shard_store(path):
            return Shards(path)
        if any(path.glob("*.graphml")):
            return read_cached(path, read_graphml)
        if is_tu(path):
            return read_cached(path, read_tu)
        if is_ogb(path):
            return read_cached(path, read_ogb)
        from joao.data.formats.ppi import is_ppi, read_ppi

        if is_ppi(path):
            return read_ppi(path).graphs
        raise UserError(f"{path}: a folder without NAME_A.txt or .graphml files.{_data_inside(path)}")
    suffix = known_suffix(path)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder.{_suggest_file(path)}")
    if suffix is None:
        if is_tu(path.parent):
            raise UserError(f"{path}: one of several files of a data set. Give their folder: {path.parent}")
        raise UserError(f"{path}: unknown kind of file. Known: {', '.join((*READERS, *PACKED))}, and folders.")
    if suffix in PACKED:
        return read_packed(path)
    if suffix in TABLES and is_molecule_table(path, columns):
        reader = partial(read_molecules, columns=columns, work=work)
        return read_cached(path, reader, repr(columns), least=MIN_TABLE_BYTES)
    return read_cached(path, READERS[suffix])


def _data_inside(folder: Path) -> str:
    """What can be read among the entries of a folder that cannot, in a sentence."""
    folders = sorted(str(entry) for entry in folder.iterdir() if entry.is_dir() and is_tu(entry))
    if folders:
        return f" Give one of the folders in it: {', '.join(folders)}."
    zips = sorted(entry.stem for entry in folder.glob("*.zip"))
    return f" To read one of {', '.join(zips)}, give its name and this folder as root." if zips else ""


def _suggest_file(path: Path) -> str:
    """The entry of its folder whose name is most like that of a path that is not there, as a question."""
    names = [entry.name for entry in islice(path.parent.iterdir(), 1000)] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


def _suggest_name(name: str, root: Path | None) -> str | None:
    """The known name most like ``name``; None where ``name`` is known itself, or like none of them."""
    if name in TU_DATASETS:
        return None
    known = {_normalize(other): other for other in (*TU_DATASETS, *list_datasets(root))}
    close = difflib.get_close_matches(_normalize(name), known, n=1)
    return known[close[0]] if close else None


def _normalize(name: str) -> str:
    return re.sub("[-_]", "", name).casefold()
