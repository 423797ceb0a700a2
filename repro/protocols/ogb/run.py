"""The paper's large-scale table: OGB's own splits and metrics, with 1 % and 10 % of the training part's labels."""

import copy
import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from joao.config.recipe import Recipe, make_recipe
from joao.core.errors import UserError
from joao.core.registry import make_record
from joao.data import list_datasets
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.data.names import ogb_path
from joao.encoders import OgbGin, OgbMoleculeGin, SyntaxGin
from joao.evaluation.splits import Split
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance
from joao.runs.trained import TrainedEncoder, load_run, make_untrained
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.cells import RunOptions, check_known, compute_and_write, load_grid, training_facts
from repro.protocols.ogb.benchmark import Benchmark, OfficialScore, benchmark_of, score_seed
from repro.record_files import Record, RecordFile
from repro.splits import split_hash

grid = partial(load_grid, "ogb")
OgbEncoder = OgbGin | OgbMoleculeGin | SyntaxGin
PROTOCOL = {
    "name": "OGB",
    "pre-training": "the training part of the official split, no labels",
    "labels": "a share of the training part, the same for all methods",
    "epoch": "chosen by the validation part of the official split",
}


@dataclass(frozen=True)
class Cell:
    """A method on a data set, fine-tuned at one label rate, in percent, with all its seeds."""

    dataset: str
    method: str
    label_rate: int

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.dataset}/{self.method}-{self.label_rate}"


@dataclass(frozen=True)
class Work:
    """A pre-training and the label rates for fine-tuning it."""

    dataset: str
    method: str
    label_rates: tuple[int, ...]

    def cells(self) -> list[Cell]:
        return [Cell(self.dataset, self.method, rate) for rate in self.label_rates]


def cells(datasets: Sequence[str] = (), methods: Sequence[str] = (), label_rates: Sequence[int] = ()) -> list[Cell]:
    """Return the cells of the table, or of the named ones. ``none`` is always included."""
    check_known("data set", datasets, [*grid()["datasets"]])
    check_known("method", methods, [*grid()["methods"]])
    check_known("label rate", label_rates, grid()["label_rates"])
    return [
        Cell(dataset, method, rate)
        for dataset in dict.fromkeys(datasets or grid()["datasets"])
        for method in dict.fromkeys(["none", *(methods or grid()["methods"])])
        for rate in dict.fromkeys(label_rates or grid()["label_rates"])
    ]


def split_available(wanted: Sequence[Cell], data_root: str | None, *, named: bool) -> tuple[list[Cell], list[str]]:
    """Return the cells whose data are available, and the missing data sets. A ``named`` one must be available."""
    there = list_datasets(data_root)
    absent = [name for name in dict.fromkeys(cell.dataset for cell in wanted) if name not in there]
    if absent and (named or len(absent) == len({cell.dataset for cell in wanted})):
        ogb_path(absent[0], data_root)  # raises an error that says what to do
    return [cell for cell in wanted if cell.dataset not in absent], absent


def works(missing: Sequence[Cell]) -> list[Work]:
    """Return the pre-trainings that the cells need."""
    rates: dict[tuple[str, str], list[int]] = {}
    for cell in missing:
        rates.setdefault((cell.dataset, cell.method), []).append(cell.label_rate)
    return [Work(*key, tuple(values)) for key, values in rates.items()]


def family_of(dataset: str) -> dict[str, Any]:
    """Return the settings for this kind of data set."""
    family: dict[str, Any] = grid()["families"][grid()["datasets"][dataset]]
    return family


def cell_recipe(dataset: str, method: str) -> Recipe:
    """Return the recipe of a pre-training: that of JOAO for the row without pre-training."""
    family, given = family_of(dataset), grid()["methods"][method] or grid()["methods"]["joao"]
    shared = {key: family[key] for key in ("features", "encoder", "augmentations", "training")}
    merged = {**grid()["recipe"], **shared, **given, "data": dataset}
    if given["method"] == "graphcl":
        merged["policy"] = {"name": "rule_pool", "pool": family["pool"]}
    return make_recipe(merged, source=f"{method} on {dataset}")


def finetuning_of(dataset: str) -> dict[str, Any]:
    """Return all settings of fine-tuning, including seeds."""
    family = family_of(dataset)
    return {"seeds": grid()["seeds"], "metric": family["metric"], **family["finetuning"], **family.get("words", {})}


def compute(work: Work, benchmark: Benchmark, options: RunOptions) -> list[Record]:
    """Pre-train once, fine-tune at every label rate with every seed, and return the records."""
    device, precision = options.device, options.precision
    recipe, unlabelled = cell_recipe(work.dataset, work.method), benchmark.unlabelled()
    trained = None
    if grid()["methods"][work.method]:
        folder = options.encoders / work.dataset / work.method
        trained = _pretrained(folder, recipe, unlabelled, device=device, precision=precision)
    fabric = make_fabric(device, precision)
    store = make_store(benchmark.graphs, Features.from_dataset(unlabelled, recipe.features)).to(fabric.device)
    settings = finetuning_of(work.dataset)
    how = Finetune(**{key: settings[key] for key in ("epochs", "batch_size", "learning_rate")})

    def score(split: Split, seed: int) -> OfficialScore:
        encoder = _start(recipe, trained, unlabelled, seed, device)
        encoder.layers.dropout = settings["dropout"]
        targets = benchmark.targets(split, settings)
        return score_seed(Finetuning(store, targets, encoder, how, fabric, seed=seed), split, seed)

    shared = {
        "recipe": recipe.table(),
        "finetuning": settings,
        "precision": precision,
        "pre-training": None if trained is None else _facts(trained),
        **provenance(device),
    }
    records = []
    for cell in work.cells():
        begun = time.perf_counter()
        splits = [benchmark.labelled(cell.label_rate / 100, seed) for seed in settings["seeds"]]
        scores = [score(split, seed) for split, seed in zip(splits, settings["seeds"], strict=True)]
        took = {"seconds of fine-tuning": time.perf_counter() - begun}
        records.append({**_described(cell, benchmark, splits, scores), **shared, **took})
    return records


def _described(
    cell: Cell, benchmark: Benchmark, splits: Sequence[Split], scores: Sequence[OfficialScore]
) -> dict[str, Any]:
    """Return the part of a record about data and scores."""
    official, found = benchmark.split, [dataclasses.asdict(score) for score in scores]
    return {
        "cell": dataclasses.asdict(cell),
        "protocol": PROTOCOL,
        "data": describe_data(benchmark.graphs),
        "split": {
            "by": official.name,
            "train": len(official.train),
            "labelled": len(splits[0].train),
            "validation": len(official.validation),
            "test": len(official.test),
        },
        "split_hash": split_hash(splits),
        "scores": {name: [score[name] for score in found] for name in found[0]},
    }


def _start(recipe: Recipe, trained: TrainedEncoder | None, dataset: Dataset, seed: int, device: str) -> OgbEncoder:
    """Return the encoder from which fine-tuning starts: pre-trained, or with the initial weights of a seed."""
    if trained is None:
        training = dataclasses.replace(recipe.training, seed=seed)
        encoder = make_untrained(dataclasses.replace(recipe, training=training), dataset, device=device).encoder
    else:
        encoder = copy.deepcopy(trained.encoder)
    assert isinstance(encoder, OgbEncoder)
    return encoder


def _pretrained(folder: Path, recipe: Recipe, dataset: Dataset, *, device: str, precision: str) -> TrainedEncoder:
    """Load the finished run in ``folder``, resume an unfinished one, or start a new one."""
    run = Run.open(folder) if (folder / "run.json").exists() else None
    if run is not None and (run.recipe != recipe or run.info.fingerprint != dataset.fingerprint):
        raise UserError(f"{folder}: was pre-trained by another recipe or on other graphs. Remove it.")
    if run is not None and run.info.finished:
        return load_run(folder, device=device)
    return pretrain(
        recipe, dataset, folder=folder, resume=run is not None, device=device, precision=precision, checkpoint_every=1
    )


def _facts(trained: TrainedEncoder) -> dict[str, Any]:
    return {
        "graphs": trained.info.num_graphs,
        "fingerprint": trained.info.fingerprint,
        **training_facts(trained),
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        "command": trained.info.command,
    }


def compute_missing(missing: Sequence[Cell], options: RunOptions) -> Iterator[Work]:
    """Compute cells and write their records after each pre-training; yield the work just done."""
    return compute_and_write(_records_of, works(missing), options, record_file)


def _records_of(work: Work, options: RunOptions) -> list[Record]:
    return compute(work, benchmark_of(work.dataset, options.data_root), options)


def record_file(folder: Path) -> RecordFile:
    """Return the records of this table."""
    return RecordFile(folder / "ogb.jsonl", _key)


def _key(record: Record) -> str:
    _ = record["scores"]["test"], record["split_hash"], record["finetuning"]["metric"]
    return make_record(Cell, record["cell"], "cell").key


def is_done(cell: Cell, records: Path) -> bool:
    """Return whether a cell has a record. A record of another recipe is an error."""
    expected = {
        "recipe": cell_recipe(cell.dataset, cell.method).table(),
        "finetuning": finetuning_of(cell.dataset),
        "protocol": PROTOCOL,
    }
    return record_file(records).is_current(cell.key, expected, f"{cell.method} on {cell.dataset}")
