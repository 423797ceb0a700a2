"""Embeddings and predictions of any number of rows: a folder of Parquet parts that any number of workers can write.

======================= ===============================================================================================
``_manifest.json``      what the rows are made from (input, model, settings) and, when all are there, the parts
``part-000000.parquet`` some rows each, in order: ``row``, ``id``, and ``embedding`` or the columns of predictions
``_failures.csv``       rows that RDKit cannot parse; in their part they are null
======================= ===============================================================================================

The process that was started reads the source in blocks of rows. A worker turns one block into one part, which appears
under its name when it is complete. Each part says in its metadata what it was made from and which rows it has, so that
the parts in a folder are all that a later process needs to go on. Blocks depend on nothing but the source and
``part_rows``, and every part is computed by one thread from its own block, so that its bytes depend neither on the
number of workers nor on the engine. Names with ``_`` are skipped by readers of folders of Parquet files.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from joao.core.engines import check_engine, map_on, ray_cluster
from joao.core.errors import JoaoNotice, UserError, join_names, short_repr, user_error_on_failure
from joao.core.files import (
    already_exists,
    as_path,
    import_parquet,
    lock_folder,
    make_folder,
    open_parquet,
    parse_json,
    read_regular,
    write_file,
    write_json,
)  # fmt: skip
from joao.core.processes import in_order
from joao.core.provenance import versions
from joao.core.registry import check_value
from joao.core.tables import format_csv
from joao.data import Dataset, read
from joao.data.dataset import Standardised, add_counts, as_bytes
from joao.data.formats import TABLE_SUFFIXES, detect_format
from joao.data.formats.smiles import Columns, MoleculeTable
from joao.data.molecules import ReadOptions, make_molecules
from joao.data.shards.index import is_shard_store
from joao.data.shards.writer import BlockSource, block_graphs
from joao.runs.finetuning import FinetunedModel, Prediction, load_finetuned
from joao.runs.result_files import to_parquet
from joao.runs.trained import TrainedEncoder, load_run, model_path
from joao.training.device import pick_device

PART_ROWS, MOST_PART_ROWS = 1 << 14, 1 << 20
MANIFEST, FAILURES = "_manifest.json", "_failures.csv"
FORMAT = 1
_MOST_NOTICES = 10
_FAILURE_LETTERS = 1 << 22  # of all names, of all texts and of all reasons of a part: readers refuse a footer of 100 MB
Model = TrainedEncoder | FinetunedModel


class Block(NamedTuple):
    """Rows ``first_row`` on of the source; their molecules are not converted yet."""

    number: int
    first_row: int
    content: MoleculeTable | Dataset

    @property
    def num_rows(self) -> int:
        content = self.content
        return content.num_rows if isinstance(content, Dataset) else len(content.smiles)

    def __repr__(self) -> str:  # in messages about workers that died
        return f"rows {self.first_row} to {self.first_row + self.num_rows - 1}"


@dataclass(frozen=True)
class Part:
    """Entry of a part in the manifest. ``unknown_labels`` are node labels that did not occur in training."""

    file: str
    first_row: int
    rows: int
    failures: int
    unknown_labels: int


@dataclass(frozen=True)
class Parts:
    """A complete folder of parts.

    Attributes:
        folder: the folder, which ``pandas.read_parquet`` and other readers take as one table.
        parts: the parts in the order of their rows.
        computed: number of parts that were computed now; the others were there already.
        notices: remarks on the source that the user should know about; the first ones if there are many.
    """

    folder: Path
    parts: tuple[Part, ...]
    computed: int
    notices: tuple[str, ...]

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def num_failures(self) -> int:
        """Number of rows that RDKit cannot parse."""
        return sum(part.failures for part in self.parts)


class Embedder:
    """Adds embeddings to batches of SMILES: a callable class for ``ray.data.Dataset.map_batches``.

    Args:
        model: a run, a file of ``joao export``, or the name of a bundled model, which every worker loads once.
        column: name of the column of SMILES.
        to: name of the new column ``(rows, d)``; SMILES that RDKit cannot parse get NaN.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.

    >>> batch = Embedder("molecules", device="cpu")({"smiles": ["CCO", "c1ccccc1", "C("]})
    >>> batch["embedding"].shape, batch["embedding"][:, 0] == batch["embedding"][:, 0]
    ((3, 2560), array([ True,  True, False]))
    """

    def __init__(self, model: str | Path, column: str = "smiles", to: str = "embedding", device: str = "auto") -> None:
        self.trained, self.column, self.to = load_run(model_path(model), device=device), column, to

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return the columns of the batch by name, with the new one; a batch may also be a pandas or Arrow table."""
        names = batch.keys() if hasattr(batch, "keys") else getattr(batch, "column_names", None)
        if names is None:
            raise UserError(f"Embedder: expected a batch with columns by name, got {short_repr(batch)}.")
        if self.column not in names:
            raise UserError(f"no column {short_repr(self.column)}. Columns: {', '.join(map(str, names))}.")
        columns = {**batch} if isinstance(batch, Mapping) else {name: np.asarray(batch[name]) for name in names}
        cells = np.asarray(columns[self.column], dtype=object)
        if cells.ndim != 1 or any(isinstance(cell, bytes) for cell in cells):
            raise UserError(f"Embedder: expected one text per row in column {short_repr(self.column)}.")
        texts = [cell if isinstance(cell, str) else "" for cell in cells]  # missing: None, NaN or pandas.NA
        info = self.trained.info
        options = ReadOptions(standardise=info.standardised, as_ogb=info.features.as_ogb)
        dataset = make_molecules("molecules", texts, options=options)
        return {**columns, self.to: dataset.in_rows(_outputs(self.trained, dataset)["embedding"])}


def embed(
    source: Any,
    model: str | Path,
    out: str | Path | None = None,
    *,
    engine: str = "local",
    workers: int | None = None,
    device: str = "auto",
    smiles: str | None = None,
    identifiers: str | None = None,
    standardise: bool | None = None,
    part_rows: int = PART_ROWS,
) -> NDArray[np.float32] | Parts:
    """Embed graphs on one machine or on a Ray cluster.

    Args:
        source: anything that :func:`joao.read` takes, a list of paths, or a folder of tables of molecules. Files are
            read in blocks.
        model: a run, a file of ``joao export``, or the name of a bundled model.
        out: folder for Parquet parts. An interrupted call goes on where it stopped.
        engine: ``local`` or ``ray``.
        workers: number of processes, see :func:`joao.core.engines.map_on`.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        smiles, identifiers: columns of a table (detected if not given).
        standardise: see :func:`joao.read`; None: as the molecules that the model learned from.
        part_rows: rows per part, at most 2^20.

    Returns:
        Without ``out``, ``(rows, d)`` embeddings, NaN for SMILES that RDKit cannot parse. With ``out``, the
        :class:`joao.runs.parts.Parts`.

    >>> import joao
    >>> joao.embed(["CCO", "c1ccccc1"], "molecules", device="cpu").shape
    (2, 2560)
    """
    if isinstance(source, str | os.PathLike):
        as_path(source, "source")
    _check_sizes(workers, part_rows)
    if left_out := unread_notice(source):
        warnings.warn(left_out, JoaoNotice, stacklevel=2)
    trained = load_run(model_path(model), device="cpu")
    options: dict[str, Any] = {"engine": engine, "workers": workers, "device": device, "part_rows": part_rows}
    standardise = trained.info.standardised if standardise is None else standardise
    sources = open_sources(source, Columns(smiles, identifiers, ()), standardise=standardise)
    if out is not None:
        return write_parts(sources, trained, as_path(out, "out"), **options)
    blocks = _blocks(sources, part_rows)
    with _device_of(engine, device) as kind:
        compute = _RowsOf(trained, sources[0].columns, sources[0].options, kind)
        rows = list(in_order(map_on(engine, compute, blocks, workers, on_gpu=kind != "cpu")))
    if not rows:
        raise UserError(f"{source}: the source has no rows.")
    return np.concatenate(rows)


def open_sources(
    source: Any, columns: Columns, root: str | os.PathLike[str] | None = None, *, standardise: bool = False
) -> list[BlockSource]:
    """Open a source, a list of paths, or the tables in a folder, to be read one after the other in blocks.

    Of several tables, some may have a header only, as programs write them that divide rows among files.
    """
    if isinstance(source, list | tuple) and source and all(map(_is_file, source)):
        paths: list[Any] = [*source]
    elif isinstance(source, str | os.PathLike):
        paths = _tables_in(Path(source)) or [source]
    else:
        paths = [read(source, standardise=standardise)]
    options = ReadOptions(standardise=standardise)
    return [BlockSource(each, root, columns, options, may_be_empty=len(paths) > 1) for each in paths]


def _is_file(source: Any) -> bool:
    return isinstance(source, str | os.PathLike) and os.path.isfile(source)


def _tables_in(folder: Path) -> list[Path]:
    """The tables of molecules in a folder that is not a data set itself, in the order of their names."""
    if not folder.is_dir() or is_shard_store(folder) or detect_format(folder) is not None:
        return []
    return [path for path in _visible_in(folder) if path.name.lower().endswith(TABLE_SUFFIXES)]


def _visible_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._")


def unread_notice(source: Any) -> str:
    """A notice about everything in a folder of tables that is not a table; empty if there is nothing else."""
    tables = _tables_in(Path(source)) if isinstance(source, str | os.PathLike) else []
    others = [path.name for path in _visible_in(Path(source)) if path not in tables] if tables else []
    return f"{source}: {join_names(others)}: not a table of molecules, not read." if others else ""


def _check_sizes(workers: int | None, part_rows: int) -> None:
    """Raise an error for numbers of workers or of rows per part that are not possible."""
    if not 1 <= check_value(part_rows, int, "part_rows") <= MOST_PART_ROWS:
        raise UserError(f"part_rows must be from 1 to {MOST_PART_ROWS}, got {part_rows}.")
    if workers is not None and check_value(workers, int, "workers") < 1:
        raise UserError(f"workers must be at least 1, got {workers}.")


def load_model(path: str | Path, what: str) -> Model:
    """Load a model to ``embed`` or ``predict``, on the CPU: workers move it to their device."""
    return load_run(model_path(path), device="cpu") if what == "embed" else load_finetuned(Path(path), device="cpu")


def encoder_of(model: Model) -> TrainedEncoder:
    """The encoder of a model, which knows how its data were read."""
    return model if isinstance(model, TrainedEncoder) else model.trained


def write_parts(
    sources: Sequence[BlockSource],
    model: Model,
    folder: Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    device: str = "auto",
    part_rows: int = PART_ROWS,
    on_part: Callable[[int, int], None] = lambda parts, rows: None,
) -> Parts:
    """Write the embeddings or predictions of all sources to ``folder``, or continue an interrupted call.

    Args:
        sources: see :func:`open_sources`.
        model: see :func:`load_model`.
        folder: a new or empty folder, or one that was started with the same input, model and settings.
        engine, workers, device, part_rows: see :func:`embed`.
        on_part: called with the numbers of parts and rows that are there, after each new part.
    """
    _check_sizes(workers, part_rows)
    import_parquet(folder)
    check_engine(engine)
    if folder.exists() and not folder.is_dir():
        raise already_exists(folder)
    with _device_of(engine, device) as kind:
        origin = _origin(sources, model, kind, part_rows)
        stamp = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()
        make_folder(folder)
        with lock_folder(folder):
            expected = _begin(folder, origin)
            done = _read_done(folder, stamp)
            computed, rows = 0, sum(part.rows for part in done.values())
            # Nothing is computed, and no process started, for a complete folder in which all parts are still there.
            if expected is None or list(expected) != [done.get(number) for number in range(len(expected))]:
                how_to_read = sources[0].columns, sources[0].options
                compute = _PartWriter(model, *how_to_read, kind, folder.absolute(), stamp)
                missing = _blocks(sources, part_rows, done)
                for _, (number, part) in map_on(engine, compute, missing, workers, on_gpu=kind != "cpu"):
                    done[number], computed, rows = part, computed + 1, rows + part.rows
                    on_part(len(done), rows)
                _check_written(folder, stamp, done)
            return _finish(folder, origin, [done[number] for number in sorted(done)], computed)


@contextmanager
def _device_of(engine: str, device: str) -> Iterator[str]:
    """Yield the device of workers; Ray, which gives each of them one GPU, is connected inside the context."""
    if engine != "ray":
        yield str(pick_device(device))
        return
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"device: must be auto, cpu or cuda with Ray, which assigns the GPUs, got {short_repr(device)}."
        )
    with ray_cluster() as ray:
        yield "cuda" if device == "cuda" or (device == "auto" and ray.cluster_resources().get("GPU")) else "cpu"


def _origin(sources: Sequence[BlockSource], model: Model, device: str, part_rows: int) -> dict[str, Any]:
    """Everything that the bytes of the parts depend on."""
    installed = versions()
    return {
        "what": "embed" if isinstance(model, TrainedEncoder) else "predict",
        "input": [[source.path.name, hashlib.sha256(source.stamp.encode()).hexdigest()] for source in sources],
        "model": model_hash(model),
        **({"standardise": True} if sources[0].options.standardise else {}),
        "part_rows": part_rows,
        "device": device.partition(":")[0],
        "versions": {name: installed[name] for name in ("joao", "torch", "rdkit") if name in installed}
        | {"pyarrow": import_parquet().__version__},
    }


def model_hash(model: Model) -> str:
    """Hash of everything in a model that its outputs depend on."""
    trained = encoder_of(model)
    outputs = () if isinstance(model, TrainedEncoder) else (model.kind, model.classes, model.tasks)
    digest = hashlib.sha256(repr((trained.recipe.encoder, trained.info.features, outputs)).encode())
    modules = trained.encoder if isinstance(model, TrainedEncoder) else model.classifier
    members = {} if isinstance(model, TrainedEncoder) else model.members
    tensors = {f"{kind}.{name}": each for kind, of in members.items() for name, each in of.to_tensors().items()}
    for name, value in sorted({**modules.state_dict(), **tensors}.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode() + as_bytes(value.cpu().numpy()))
    return digest.hexdigest()


def _begin(folder: Path, origin: dict[str, Any]) -> list[Part] | None:
    """Create the manifest or compare it with ``origin``; return the parts of a complete folder."""
    path = folder / MANIFEST
    if not path.exists() or not any(folder.glob("part-*.parquet")):
        if not path.exists() and any(not each.name.startswith(f".{MANIFEST}") for each in folder.iterdir()):
            raise already_exists(folder)
        write_json(path, {"format": FORMAT, "complete": False, "made from": origin})
        return None
    with user_error_on_failure(f"{path}: is damaged", "Choose another folder."):
        manifest = parse_json(read_regular(path))
        if manifest["format"] > FORMAT:
            raise UserError(f"{path}: format {manifest['format']} is newer than this version of joao. Update joao.")
        earlier = manifest["made from"]
        for key in sorted(origin | earlier, key="standardise".__ne__):  # it also changes the hash of the input
            if earlier.get(key) != origin.get(key):
                before, now = short_repr(earlier.get(key)), short_repr(origin.get(key))
                raise UserError(
                    f"{folder}: was started with another {key}: {before}, now {now}. Choose another folder."
                )
        return [Part(**each) for each in manifest["parts"]] if manifest["complete"] else None


def _part_name(number: int) -> str:
    return f"part-{number:06}.parquet"


def _read_done(folder: Path, stamp: str) -> dict[int, Part]:
    """The parts in ``folder`` that were made from the same things, by number."""
    done = {}
    for path in folder.glob("part-*.parquet"):
        with suppress(UserError, ValueError, KeyError):  # not one of ours, or damaged: it is written again
            about = _about(path)
            if about["made from"] == stamp:
                done[int(path.stem.removeprefix("part-"))] = _entry(path.name, about)
    return done


def _check_written(folder: Path, stamp: str, parts: Mapping[int, Part]) -> None:
    """Raise an error if parts are not in ``folder``: another machine may have a folder of its own at this path."""
    found = _read_done(folder, stamp)
    for number, part in parts.items():
        if found.get(number) != part:
            fix = "Workers on other machines must write to the same folder. Run the same command again."
            raise UserError(f"{folder / part.file}: was written, but is missing or damaged now. {fix}")


def _about(path: Path) -> dict[str, Any]:
    """The metadata of a part: what it was made from, and its rows, failures and notices."""
    with open_parquet(path) as file:
        about: dict[str, Any] = parse_json(file.metadata.metadata[b"joao"])
    return about


def _entry(file: str, about: Mapping[str, Any]) -> Part:
    """The entry of a part in the manifest, from the metadata of the part."""
    counts = {key: about[key] for key in ("first_row", "rows", "unknown_labels")}
    return Part(file, failures=len(about["failures"]), **counts)


def _blocks(sources: Sequence[BlockSource], size: int, done: Container[int] = ()) -> Iterator[Block]:
    """Read the blocks of all sources, except those whose numbers are ``done``."""
    number = first_row = 0
    for content in chain.from_iterable(source.blocks(0, size) for source in sources):
        block = Block(number, first_row, content)
        if number not in done:
            yield block
        number, first_row = number + 1, first_row + block.num_rows


class _RowsOf:
    """Computes the embeddings of a block ``(rows, d)``, NaN for failures; other processes get a copy with the model."""

    def __init__(self, model: Model, columns: Columns, options: ReadOptions, device: str) -> None:
        self.model, self.columns, self.device = model, columns, device
        self.options = replace(options, as_ogb=encoder_of(model).info.features.as_ogb)

    def __call__(self, block: Block) -> Any:
        dataset, outputs = self.compute(block)
        return dataset.in_rows(outputs["embedding"])

    def compute(self, block: Block) -> tuple[Dataset, dict[str, NDArray[Any]]]:
        module = self.model.encoder if isinstance(self.model, TrainedEncoder) else self.model.classifier
        module.to(pick_device(self.device))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums of several threads round differently
        try:
            dataset = block_graphs(block.content, self.columns, self.options)
            return dataset, _outputs(self.model, dataset)
        finally:
            torch.set_num_threads(threads)


class _PartWriter(_RowsOf):
    """Writes the part of a block, and returns its number and entry."""

    def __init__(
        self, model: Model, columns: Columns, options: ReadOptions, device: str, folder: Path, stamp: str
    ) -> None:
        super().__init__(model, columns, options, device)
        self.folder, self.stamp = folder, stamp

    def __call__(self, block: Block) -> tuple[int, Part]:
        dataset, outputs = self.compute(block)
        trained = encoder_of(self.model)
        most = max(8, _FAILURE_LETTERS // max(1, len(dataset.failures)))
        failures = [[_shorten(cell, most) for cell in each.cells(block.first_row)] for each in dataset.failures]
        about = {
            "made from": self.stamp,
            "first_row": block.first_row,
            "rows": dataset.num_rows,
            "failures": failures,
            "unknown_labels": trained.info.features.unknown_labels(dataset) if len(dataset) else 0,
            "notices": dataset.notices,
            **({"standardised": dataset.standardised} if dataset.standardised is not None else {}),
        }
        path = self.folder / _part_name(block.number)
        write_file(path, [to_parquet(outputs, dataset, block.first_row, {"joao": json.dumps(about)})])
        return block.number, _entry(path.name, about)


def _shorten(cell: object, most: int) -> object:
    return f"{cell[: most - 3]}..." if isinstance(cell, str) and len(cell) > most else cell


def _outputs(model: Model, dataset: Dataset) -> dict[str, NDArray[Any]]:
    """Columns of embeddings ``(G, d)`` or predictions ``(G,)`` by name; there may be no graphs."""
    if isinstance(model, TrainedEncoder):
        empty = np.zeros((0, model.encoder.embedding_size), dtype=np.float32)
        return {"embedding": model.embed(dataset).numpy() if len(dataset) else empty}
    no_rows = torch.zeros(0, len(model.classes or model.tasks))
    no_predictions = Prediction(no_rows, no_rows if model.members else None, no_rows)
    return prediction_columns(model, model.predict_with_std(dataset) if len(dataset) else no_predictions)


def prediction_columns(model: FinetunedModel, predicted: Prediction) -> dict[str, NDArray[Any]]:
    """Columns of predictions by name, as in CSV files; ``std_TASK`` for the tasks of an ensemble.

    A task with the name of another column, such as ``row``, becomes ``predicted_row``.
    """
    reserved = {"graph", "row", "id", *(f"std_{name}" for name in model.tasks if predicted.std is not None)}
    columns: dict[str, NDArray[Any]] = {}
    for name, values in zip(model.class_names or model.tasks, predicted.values.numpy().T, strict=True):
        column = name if model.kind == "numbers" else f"p_{name}"
        while column in reserved or column in columns:
            column = f"predicted_{column}"
        columns[column] = values
    if model.kind == "classes":
        most_probable = predicted.values.argmax(dim=1).numpy()
        return {"predicted": np.array(model.class_names)[most_probable], **columns}
    if predicted.std is not None:
        columns |= dict(zip((f"std_{name}" for name in model.tasks), predicted.std.numpy().T, strict=True))
    return columns


def _finish(folder: Path, origin: dict[str, Any], parts: list[Part], computed: int) -> Parts:
    """Write the list of failures and the complete manifest, after checking that no row is missing."""
    first_row = 0
    for number, part in enumerate(parts):
        if part.file != _part_name(number) or part.first_row != first_row:
            is_not = f"is not the part with the rows from {first_row} on"
            raise UserError(f"{folder / part.file}: {is_not}. Remove it and run the same command again.")
        first_row += part.rows
    names = {part.file for part in parts}
    for path in sorted(folder.glob("part-*.parquet")):
        if path.name not in names:
            raise UserError(f"{path}: is none of the {len(parts)} parts. Remove it and run the same command again.")
    if not parts:
        raise UserError(f"{folder}: the source has no rows.")
    if any(part.failures for part in parts):
        write_file(folder / FAILURES, _failure_lines(folder, parts))
    notices: dict[str, None] = {}
    for part in parts if computed else ():
        notices |= dict.fromkeys(_about(folder / part.file)["notices"])
        if len(notices) >= _MOST_NOTICES:
            break
    if computed and origin.get("standardise"):
        abouts = (_about(folder / part.file) for part in parts)
        counts = add_counts(Standardised(*about["standardised"]) for about in abouts if "standardised" in about)
        notices = {f"{folder}: {counts}.": None, **notices} if counts is not None else notices
    rows, failures = first_row, sum(part.failures for part in parts)
    result = {"rows": rows, "failures": failures, "parts": [asdict(part) for part in parts]}
    write_json(folder / MANIFEST, {"format": FORMAT, "complete": True, "made from": origin, **result})
    for partial_file in folder.glob(".*"):  # partial files of killed processes
        with suppress(OSError):
            partial_file.unlink()
    return Parts(folder, tuple(parts), computed, tuple(notices)[:_MOST_NOTICES])


def _failure_lines(folder: Path, parts: Sequence[Part]) -> Iterator[bytes]:
    yield b"line,name,smiles,reason\n"
    for part in parts:
        if part.failures:
            yield format_csv(_about(folder / part.file)["failures"]).encode()
