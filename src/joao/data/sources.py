"""Read graphs from a name, a file, a folder or Python objects.

Files and folders are read by the formats of :data:`joao.data.formats.FORMATS`, names are resolved by
:mod:`joao.data.names`. In Python, a list of SMILES, of RDKit ``Mol``, of torch-geometric ``Data``, of networkx graphs
or of data sets is accepted as well.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from joao.core.errors import JoaoNotice, UserError, join_names, quantity, short_repr
from joao.core.registry import check_value
from joao.data.cache import MIN_TABLE_BYTES, read_cached
from joao.data.dataset import Dataset, concatenate_datasets, sizes_to_offsets
from joao.data.formats import SUFFIXES, TABLE_SUFFIXES, detect_format, known_suffix
from joao.data.formats.smiles import SMILES_NAMES, Columns
from joao.data.formats.text import column_names
from joao.data.formats.tu import is_tu
from joao.data.molecules import (
    ReadOptions,
    featurise,
    featuriser_version,
    from_rdkit,
    is_standardised,
    make_molecules,
)
from joao.data.names import TU_DATASETS, list_datasets, resolve_path, suggest_file
from joao.data.shards.index import is_shard_store
from joao.data.shards.shards import Shards

if TYPE_CHECKING:
    from joao.core.progress import Progress
    from joao.data.features import Features

# Classes of other packages, tested in this order: a Batch is also a Data.
_MODULES = dict.fromkeys(("HeteroData", "Batch", "Data"), "torch_geometric.data") | {
    "Graph": "networkx",
    "Mol": "rdkit.Chem.rdchem",
}
_GRAPHS = ("Data", "Graph", "Mol")
_EXPECTED = "a list of torch_geometric Data, networkx graphs, SMILES or RDKit Mol, or a torch_geometric data set"
# A warning points at the first line of code outside of these packages; contextlib calls functions that it decorates.
_INTERNAL_PACKAGES = ("joao", "sklearn", "joblib", "contextlib")
_CONVERT = "Convert it, or read it in Python and give joao.read a list of networkx graphs or of SMILES."
_NO_NUMBERS = np.zeros(0, dtype=np.int64)
_NO_GRAPHS = Dataset("graphs", sizes_to_offsets(_NO_NUMBERS), sizes_to_offsets(_NO_NUMBERS), _NO_NUMBERS, _NO_NUMBERS)


def read(
    source: Any,
    root: str | os.PathLike[str] | None = None,
    *,
    smiles: str | None = None,
    identifiers: str | None = None,
    tasks: Sequence[str] | None = None,
    node_label: str | None = None,
    standardise: bool = False,
    jobs: int = 1,
    on_rows: Callable[[int, int], None] | None = None,
) -> Dataset | Shards:
    """Read graphs. A store of shards is opened, and its graphs are read as they are needed.

    Args:
        source: a name, a path, Python objects, or a :class:`Dataset` or :class:`Shards`, which is returned. A name is
            looked up under ``root`` (``ROOT/NAME.zip`` or ``ROOT/NAME/``, also in ``tu``, ``tu_dev`` and
            ``TUDataset``, or as a table or packed file ``ROOT/molecules/NAME.csv.gz``), in the package, in the working
            folder and among earlier downloads, and is then downloaded. An OGB name, ``ogbg-...``, is looked up in
            ``ROOT/ogb`` and ``ROOT`` and never downloaded. A path contains a slash or a suffix: write ``./NAME`` for
            a folder that has the name of a data set.
        root: folder of data sets; by default the environment variable ``JOAO_DATA``.
        smiles: SMILES column of a table (detected if not given).
        identifiers: identifier column of a table (detected if not given).
        tasks: label columns of a table; by default all numeric columns.
        node_label: attribute of the nodes of networkx graphs or GraphML that is a category, with integers or text;
            by default ``label``.
        standardise: whether to convert RDKit's standard form of every molecule: the fragment with the most atoms,
            without charges where possible (``rdMolStandardize.ChargeParent``). All rows are kept, also those that then
            have the same structure; what it cannot standardise is a failure. Packed graphs must have been packed so.
        jobs: number of processes that convert molecules. With more than one, a script must guard its calls with
            ``if __name__ == "__main__":``.
        on_rows: called with the numbers of newly converted and of all molecules, networkx graphs or lines of JSON, for
            a progress bar.

    Large sources are cached, see :mod:`joao.data.cache`.

    >>> import networkx
    >>> read([networkx.path_graph(3), networkx.cycle_graph(4)])
    Dataset('graphs', 2 graphs, 7 nodes, 6 edges)
    >>> read("MUTAG").class_names
    ('-1', '1')
    """
    if isinstance(tasks, str):
        raise UserError(f"tasks must be a list of columns, got {tasks!r}. Use [{tasks!r}].")
    if tasks is not None:
        tasks = tuple(tasks) if isinstance(tasks, Iterable) else (tasks,)
        if not all(isinstance(task, str) for task in tasks):
            raise UserError(f"tasks must be a list of columns, got {short_repr(tasks)}.")
    if check_value(jobs, int, "jobs") < 1:
        raise UserError(f"jobs must be at least 1, got {jobs}.")
    columns = Columns(smiles, identifiers, tasks)
    options = ReadOptions(jobs, on_rows, node_label or "", standardise)
    if isinstance(source, str | os.PathLike):
        path = resolve_path(source, root)
        if columns != Columns() and known_suffix(path) not in TABLE_SUFFIXES:
            raise UserError(f"{path}: columns can only be given for tables of molecules ({', '.join(TABLE_SUFFIXES)}).")
        return read_path(path, columns, options)
    if columns != Columns():
        raise UserError("columns can only be given for tables of molecules, not for graphs in memory.")
    dataset = source if isinstance(source, Dataset | Shards) else from_objects(source, options)
    return check_standardised(dataset) if standardise else dataset


def check_standardised(dataset: Dataset | Shards) -> Dataset | Shards:
    """Return standardised molecules; raise an error for others, whose SMILES were converted as written."""
    if not is_standardised(dataset.featuriser):
        fix = "Standardise the table that they come from, or use" if dataset.featuriser else "Use"
        what = "molecules that were not standardised when they were converted" if dataset.featuriser else "no molecules"
        raise UserError(f"{dataset.name}: standardise: these are {what}. {fix} --no-standardise.")
    return dataset


def read_whole(source: Any, root: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Like :func:`read`, but load the graphs of a store of shards into memory."""
    dataset = read(source, root, **options)
    return dataset.whole() if isinstance(dataset, Shards) else dataset


def is_table(source: str, root: str | os.PathLike[str] | None = None) -> bool:
    """Whether a name or path is a table whose columns can be named."""
    return known_suffix(resolve_path(source, root)) in TABLE_SUFFIXES


def source_or_smiles(source: str, root: str | os.PathLike[str] | None = None) -> str | list[str]:
    """Return ``source``, or a list with it if it is a SMILES and neither a path nor the name of a data set."""
    missing = f"{source}: no such file or folder."
    try:
        exists = resolve_path(source, root).exists()
    except UserError as error:
        exists, missing = False, str(error)
    if exists or featuriser_version() is None:
        return source
    failures = featurise([source]).failures
    if failures and known_suffix(Path(source)) is None:
        raise UserError(f"{missing} It is not a SMILES either ({failures[0].reason}).")
    return source if failures else [source]


def csv_header(source: str, root: str | os.PathLike[str] | None = None) -> list[str]:
    """Column names of a CSV file; empty for other sources and missing files."""
    path = resolve_path(source, root)
    return column_names(path) if (known_suffix(path) or "").startswith(".csv") and path.is_file() else []


def read_path(path: Path, columns: Columns, options: ReadOptions) -> Dataset | Shards:
    """Read a file or folder of any known format."""
    dataset = _read_path(path, columns, options)
    return check_standardised(dataset) if options.standardise else dataset


def _read_path(path: Path, columns: Columns, options: ReadOptions) -> Dataset | Shards:
    try:
        if path.is_dir() and is_shard_store(path):
            return Shards(path)
        if not path.exists():
            raise UserError(f"{path}: no such file or folder.{suggest_file(path)}")
        data_format = detect_format(path, has_columns=columns.are_given)
        if data_format is None:
            raise UserError(_no_format_message(path))
        if options.node_label and not data_format.reader.startswith("graphml:"):
            raise UserError(
                f"{path}: a node label can be chosen for networkx graphs and GraphML, not for {data_format.title}."
            )
        if not data_format.cached:
            return data_format.read(path)
        if data_format.has_options:
            return read_cached(path, lambda path: data_format.read(path, options), options.node_label)
        if not data_format.has_columns:
            return read_cached(path, data_format.read)
        reader = lambda path: data_format.read(path, columns, options)  # noqa: E731
        options_key = f"{columns!r}{' standardise' if options.standardise else ''}"
        return read_cached(path, reader, options_key, min_bytes=MIN_TABLE_BYTES)
    except MemoryError as error:
        fix = "'joao pack' converts tables and JSON lines into shards piece by piece"
        raise UserError(f"{path}: not enough memory. {fix}.") from error


def _no_format_message(path: Path) -> str:
    if path.is_file() and is_tu(path.parent):
        return f"{path}: is one file of a TU data set. Give its folder: {path.parent}"
    if path.is_file():
        return f"{path}: unknown file type. Known: {', '.join(SUFFIXES)}, and folders. {_CONVERT}"
    if not path.is_dir():
        return f"{path}: expected a file or folder, got a device, pipe or socket."
    message = f"{path}: the folder contains no data set (no NAME_A.txt or .graphml files)."
    folders = sorted(str(entry) for entry in path.iterdir() if entry.is_dir() and is_tu(entry))
    if folders:
        return f"{message} Give one of its folders: {join_names(folders, 20)}."
    zips = sorted(entry.stem for entry in path.glob("*.zip"))
    return f"{message} To read {' or '.join(zips)}, give its name, and this folder as root." if zips else message


def from_objects(source: Any, options: ReadOptions | None = None) -> Dataset:
    """Read a sequence of torch-geometric, networkx or RDKit graphs, of SMILES, or of data sets, which are joined."""
    single = _class_name(source)
    if single in _GRAPHS:
        raise UserError(f"expected a list of graphs, got one {type(source).__name__}. Use [graph].")
    if single is not None:
        raise UserError(_not_a_graph_message("the source", single))
    graphs, name = _items(source), _dataset_name(source)
    if not graphs:
        raise UserError(f"{name}: contains no graphs.")
    if all(isinstance(graph, Dataset) for graph in graphs):
        return concatenate_datasets(graphs)
    if any(isinstance(item, str) for item in graphs) and all(isinstance(i, str) or _is_missing(i) for i in graphs):
        # Tables in memory have None or NaN for missing values.
        return make_molecules("molecules", ["" if _is_missing(text) else text for text in graphs], options=options)
    if any(map(_is_mol, graphs)) and all(_is_mol(item) or item is None for item in graphs):
        return from_rdkit(graphs, options)  # RDKit's readers return None for what they cannot parse
    classes = [_class_name(graph) for graph in graphs]
    for index, each in enumerate(classes):
        if each not in _GRAPHS:
            raise UserError(_not_a_graph_message(f"{name}[{index}]", each, graphs[index]))
        if each != classes[0]:
            raise UserError(
                f"{name}[{index}] has the type {type(graphs[index]).__name__}, but {name}[0] has "
                f"the type {type(graphs[0]).__name__}. All graphs must have the same type."
            )
    if classes[0] == "Graph":
        from joao.data.formats.graphml import from_networkx

        return from_networkx(graphs, name, options=options)
    if options is not None and options.node_label:
        raise UserError(f"{name}: a node label can be chosen for networkx graphs and GraphML; Data has it in x.")
    from joao.data.formats.geometric import from_geometric

    return from_geometric(graphs, name)


def _is_mol(item: object) -> bool:
    return _is_instance(item, _MODULES["Mol"], "Mol")


def _is_missing(item: object) -> bool:
    return item is None or (isinstance(item, float) and math.isnan(item))


def _items(source: Any) -> list[Any]:
    """The items of any sequence. They are taken one by one, because numpy would convert graphs to arrays."""
    is_sequence = callable(getattr(source, "__len__", None)) and callable(getattr(source, "__getitem__", None))
    if not is_sequence or isinstance(source, dict | bytes) or getattr(source, "ndim", 1) == 0:
        raise UserError(f"cannot read graphs from {short_repr(source)}. Give {_EXPECTED}.")
    if _is_instance(source, "pandas", "Series"):
        return list(source)
    return [source[index] for index in range(len(source))]


def _dataset_name(source: Any) -> str:
    if not _is_instance(source, "torch_geometric.data", "Dataset"):
        return "graphs"
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name else type(source).__name__


def _class_name(value: Any) -> str | None:
    return next((name for name, module in _MODULES.items() if _is_instance(value, module, name)), None)


def _is_instance(value: Any, module: str, name: str) -> bool:
    """isinstance without an import: objects of a module that is not loaded cannot exist."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _not_a_graph_message(place: str, class_name: str | None, value: object = None) -> str:
    if class_name == "HeteroData":
        return f"{place} is heterogeneous (HeteroData). Only one type of nodes and edges is supported."
    if class_name == "Batch":
        return f"{place} is a Batch of several graphs. Use batch.to_data_list()."
    if isinstance(value, str):
        return f"{place} is text ({short_repr(value)}). Do not mix SMILES with other graphs in one list."
    return f"{place} is not a graph: {short_repr(value)}. Give {_EXPECTED}."


def read_graphs(
    X: Any,
    *,
    may_be_empty: bool = False,
    standardise: bool = False,
    as_ogb: bool = False,
    shown: Progress | None = None,
) -> Dataset:
    """Read the graphs passed to an estimator, anything that :func:`joao.read` takes, and warn about changes.

    ``may_be_empty`` accepts an empty list, and molecules of which none is valid. ``standardise`` is for SMILES; a
    :class:`Dataset` stays as it was read. ``as_ogb``: :class:`ReadOptions` for SMILES. ``shown`` shows the progress.
    """
    _check_not_table_or_smiles(X)
    if may_be_empty and isinstance(X, Sized) and not isinstance(X, str | bytes | Mapping) and not len(X):
        return X if isinstance(X, Dataset) else _NO_GRAPHS
    with nullcontext() if shown is None else shown.bar("reading", None) as bar:
        if standardise and isinstance(X, Dataset) and not is_standardised(X.featuriser):
            fix = "Use joao.read(..., standardise=True)."
            warn_user(f"{X.name}: was not standardised, but the molecules that the encoder learned from were. {fix}")
        standardise = standardise and not isinstance(X, Dataset)
        on_rows = None if bar is None else bar.add
        if isinstance(X, str | os.PathLike | Dataset | Shards):
            dataset = read_whole(X, on_rows=on_rows, standardise=standardise)
        else:
            dataset = from_objects(X, ReadOptions(on_rows=on_rows, standardise=standardise, as_ogb=as_ogb))
            if standardise:
                check_standardised(dataset)
    first = ""
    if dataset.failures:
        row, text, reason, *_ = dataset.failures[0]
        first = f"row {row} (from 0), {short_repr(text)}: {reason}"
    elif not len(dataset):
        raise UserError(f"{dataset.name}: contains no graphs.")
    if not len(dataset) and not may_be_empty:
        raise UserError(
            f"{dataset.name}: none of {len(dataset.failures)} texts is a valid molecule; {first}. "
            "Give a list of SMILES, or a name or path that is not in a list."
        )
    for notice in dataset.notices:
        warn_user(notice)
    if first and X is not dataset:
        what = "have rows of NaN" if may_be_empty else "are left out"
        warn_user(f"{dataset.failure_notice} and {what}; the first: {first}.")
    return dataset


def as_shards(X: Any) -> Shards | None:
    """Open ``X`` if it is a store of shards or the path of one."""
    is_store = isinstance(X, str | os.PathLike) and os.path.isdir(X) and is_shard_store(Path(X))
    opened = read(X) if is_store else X
    return opened if isinstance(opened, Shards) else None


def warn_about_unknown_labels(dataset: Dataset, features: Features) -> None:
    """Warn about node labels that did not occur in training."""
    unknown = features.unknown_labels(dataset)
    if unknown:
        warn_user(f"{dataset.name}: {quantity(unknown, 'node labels')} did not occur in training.")


def warn_user(notice: str) -> None:
    """Warn at the line of the user's code that called this package, directly or through scikit-learn."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(notice, JoaoNotice, stacklevel=level)


def _check_not_table_or_smiles(X: Any) -> None:
    """Refuse a data frame and a single SMILES, which readers would report as something else."""
    columns = [str(name) for name in getattr(X, "columns", ())]
    if columns:
        column = next((name for name in columns if name.casefold() in SMILES_NAMES), columns[0])
        raise UserError(f"expected a list of graphs, got a table ({type(X).__name__}). Give a column: df[{column!r}].")
    if not isinstance(X, str) or X in TU_DATASETS or os.path.exists(os.path.expanduser(X)) or X in list_datasets():
        return
    if featuriser_version() is not None and not featurise([X]).failures:
        text = short_repr(X)
        raise UserError(f"{text} is a SMILES, not the name of a data set or file. Give a list: [{text}].")
