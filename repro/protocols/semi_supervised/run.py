"""The paper's semi-supervised tables, with the ablations and the grid of pairs that share their cells."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from joao.augmentations import Augmentation
from joao.config.builder import build_pool
from joao.config.recipe import POOL, Recipe, make_recipe
from joao.core.errors import UserError
from joao.core.registry import make_record
from joao.data import list_datasets
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.encoders import Encoder
from joao.evaluation.splits import Split
from joao.evaluation.statistics import chance_level
from joao.evaluation.targets import ClassTargets
from joao.policies.fixed import POOLS
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance, require_classes
from joao.runs.trained import make_untrained
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.cells import RunOptions, check_known, compute_and_write, dataset_of, load_grid, training_facts
from repro.protocols.semi_supervised.score import score_splits
from repro.record_files import Record, RecordFile
from repro.splits import few_label_splits, split_hash

grid = partial(load_grid, "semi_supervised")


@dataclass(frozen=True)
class Cell:
    """One seed of one method on one data set, fine-tuned at one label rate, in percent."""

    dataset: str
    method: str
    seed: int
    label_rate: int

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.dataset}/{self.method}-{self.label_rate}-{self.seed}"


@dataclass(frozen=True)
class Work:
    """A pre-training and the label rates for fine-tuning it."""

    dataset: str
    method: str
    seed: int
    label_rates: tuple[int, ...]

    def cells(self) -> list[Cell]:
        return [Cell(self.dataset, self.method, self.seed, rate) for rate in self.label_rates]


PAIRS = {f"{first}+{second}": (first, second) for first, second in product(POOL, POOL)}


def methods_of(table: str) -> list[str]:
    """Return the methods of a table. Each pair of augmentations is a method if the table contains the pairs."""
    named: list[str] = grid()["tables"][table]["methods"]
    return [method for name in named for method in (PAIRS if name == "pairs" else [name])]


def cells(
    table: str, datasets: Sequence[str] = (), methods: Sequence[str] = (), label_rates: Sequence[int] = ()
) -> list[Cell]:
    """Return the cells of a table, or of the named data sets, methods and label rates. ``none`` is always included."""
    columns: dict[str, list[str]] = grid()["tables"][table]["columns"]
    rates = [int(rate) for rate in columns]
    all_sets = list(dict.fromkeys(name for names in columns.values() for name in names))
    pairs = PAIRS if "pairs" in grid()["tables"][table]["methods"] else {}
    check_known("data set", datasets, all_sets)
    check_known("method", methods, [*grid()["methods"], *pairs])
    check_known("label rate", label_rates, rates)
    found = [
        Cell(dataset, method, seed, rate)
        for seed in grid()["seeds"]  # the first complete tables have one seed
        for rate in dict.fromkeys(label_rates or rates)
        for dataset in dict.fromkeys(datasets or columns[str(rate)])
        if dataset in columns[str(rate)]
        for method in dict.fromkeys(["none", *(methods or methods_of(table))])
    ]
    if not found:
        raise UserError(f"the table has no {', '.join(datasets)} at {_percent(label_rates)}.")
    return found


def missing_columns(table: str, datasets: Sequence[str], label_rates: Sequence[int]) -> list[str]:
    """Return the requested combinations of data set and label rate that the table does not have."""
    columns: dict[str, list[str]] = grid()["tables"][table]["columns"]
    asked = product(dict.fromkeys(datasets), dict.fromkeys(label_rates))
    return [f"{dataset} at {_percent([rate])}" for dataset, rate in asked if dataset not in columns[str(rate)]]


def _percent(label_rates: Sequence[int]) -> str:
    return " and ".join(f"{rate} %" for rate in label_rates)


def split_available(wanted: Sequence[Cell], data_root: str | None, *, named: bool) -> tuple[list[Cell], list[str]]:
    """Return the cells whose data are available, and the missing data sets, which the user must supply.

    A data set that the user ``named`` must be available.
    """
    there = list_datasets(data_root)
    names = dict.fromkeys(cell.dataset for cell in wanted)
    absent = [name for name in names if grid()["datasets"][name].get("supplied") and name not in there]
    if named and absent:
        raise UserError(f"{absent[0]} not found. Put {absent[0]}.zip, in TU layout, under --data-root.")
    return [cell for cell in wanted if cell.dataset not in absent], absent


def works(missing: Sequence[Cell]) -> list[Work]:
    """Return the pre-trainings that the cells need, one for all label rates."""
    rates: dict[tuple[str, str, int], list[int]] = {}
    for cell in missing:
        rates.setdefault((cell.dataset, cell.method, cell.seed), []).append(cell.label_rate)
    return [Work(*key, tuple(values)) for key, values in rates.items()]


def cell_recipe(dataset: str, method: str, seed: int) -> Recipe:
    """Return the recipe of a pre-training: that of JOAO for methods without pre-training."""
    table = grid()
    of_data = (table["datasets"] | table["development"])[dataset]
    if method in PAIRS:
        given: dict[str, Any] = {"method": "graphcl", "policy": {"name": "fixed", "pair": list(PAIRS[method])}}
    else:
        given = {
            key: value for key, value in table["methods"][method].items() if key not in ("augmented", "last_epoch")
        }
    shared = dict(table["recipe"])
    training = {**shared["training"], **given.get("training", {}), "seed": seed}
    if given.get("method") in ("gae", "infomax", "context_pred"):  # objectives of nodes: graphs as they are
        del shared["objective"], shared["augmentations"]
    merged = {**shared, **given, "data": dataset, "max_degree": of_data["max_degree"], "training": training}
    if given.get("method") == "graphcl" and method not in PAIRS:
        merged["policy"] = {"name": "rule_pool", "pool": of_data["pool"]}
    return make_recipe(merged, source=f"{method} on {dataset}")


PROTOCOL = {
    "name": "semi-supervised",
    "pre-training": "all graphs, no labels",
    "epoch": "chosen by validation graphs out of the labelled ones",
}


def keeps_last_epoch(method: str) -> bool:
    """Return whether all labelled graphs train and the last epoch is kept."""
    return bool(grid()["methods"].get(method, {}).get("last_epoch"))


def protocol_of(method: str) -> dict[str, str]:
    return PROTOCOL | {"epoch": "the last one; all labelled graphs train"} if keeps_last_epoch(method) else PROTOCOL


def finetuning_of(method: str, dataset: str) -> dict[str, Any]:
    """Return the settings of fine-tuning. ``augmented`` names the augmentations, or is true for all of the recipe."""
    augmented = grid()["methods"].get(method, {}).get("augmented", False)
    if augmented == "rule_pool":
        augmented = list(POOLS[(grid()["datasets"] | grid()["development"])[dataset]["pool"]])
    return dataclasses.asdict(Finetune(**grid()["finetuning"])) | {"augmented": augmented}


def finetuning_pool(method: str, dataset: str, recipe: Recipe) -> list[Augmentation]:
    """Return the augmentations of training batches in fine-tuning; empty: none."""
    augmented = finetuning_of(method, dataset)["augmented"]
    if not augmented:
        return []
    pool = build_pool(recipe)
    return list(pool.values()) if augmented is True else [pool[name] for name in augmented]


def compute(work: Work, dataset: Dataset, *, device: str = "auto", precision: str = "32-true") -> list[dict[str, Any]]:
    """Pre-train once, fine-tune at every label rate, and return the records."""
    recipe = cell_recipe(work.dataset, work.method, work.seed)
    classes = require_classes(dataset)
    started = time.perf_counter()
    encoder, features, facts = start_of(work, dataset, device=device, precision=precision)
    facts["seconds of pre-training"] = time.perf_counter() - started
    how = Finetune(**grid()["finetuning"])
    store = make_store(dataset, features)
    finetuning = Finetuning(
        store,
        ClassTargets(torch.from_numpy(classes), len(dataset.class_names)),
        encoder,
        how,
        make_fabric(device, precision),
        finetuning_pool(work.method, work.dataset, recipe),
        seed=work.seed,
    )
    records = []
    for cell in work.cells():
        begun = time.perf_counter()
        splits = few_label_splits(classes, cell.seed, cell.label_rate / 100, class_names=dataset.class_names)
        scores = score_splits(finetuning, classes, splits, cell.seed, last_epoch=keeps_last_epoch(work.method))
        records.append(
            {
                "cell": dataclasses.asdict(cell),
                "protocol": protocol_of(work.method),
                "data": describe_data(dataset),
                "chance": chance_level(classes),
                "graphs": {kind: [len(getattr(split, kind)) for split in splits] for kind in Split._fields},
                "split_hash": split_hash(splits),
                "scores": scores.to_json(),
                "features": recipe.features,
                "recipe": recipe.table(),
                "finetuning": finetuning_of(work.method, work.dataset),
                "precision": precision,
                "fine-tuned": "on padded batches" if finetuning.is_fast else "batch by batch",
                **facts,
                "seconds of fine-tuning": time.perf_counter() - begun,
                **provenance(device),
            }
        )
    return records


def start_of(
    work: Work, dataset: Dataset, *, device: str = "auto", precision: str = "32-true"
) -> tuple[Encoder, Features, dict[str, Any]]:
    """Return the encoder from which fine-tuning starts, its features, and facts about its pre-training."""
    recipe = cell_recipe(work.dataset, work.method, work.seed)
    if work.method not in PAIRS and "method" not in grid()["methods"][work.method]:
        start = make_untrained(recipe, dataset, device=device)
        return start.encoder, start.info.features, {}
    trained = pretrain(recipe, dataset, device=device, precision=precision)
    return trained.encoder, trained.info.features, {**training_facts(trained), "fast": trained.info.fast}


def compute_missing(missing: Sequence[Cell], options: RunOptions) -> Iterator[Work]:
    """Compute cells and write their records after each pre-training; yield the work just done."""
    return compute_and_write(_records_of, works(missing), options, record_file)


def _records_of(work: Work, options: RunOptions) -> list[Record]:
    dataset = dataset_of(work.dataset, options.data_root)
    return compute(work, dataset, device=options.device, precision=options.precision)


def record_file(folder: Path, table: str = "semi-supervised") -> RecordFile:
    """Return the records of these tables, or another file with cells of this kind."""
    return RecordFile(folder / f"{table}.jsonl", _key)


def _key(record: Record) -> str:
    _ = record["scores"]["accuracy"], record["split_hash"]
    return make_record(Cell, record["cell"], "cell").key


def is_done(cell: Cell, records: Path) -> bool:
    """Return whether a cell has a record. A record of another recipe is an error."""
    expected = {
        "recipe": cell_recipe(cell.dataset, cell.method, cell.seed).table(),
        "finetuning": finetuning_of(cell.method, cell.dataset),
        "protocol": protocol_of(cell.method),
    }
    return record_file(records).is_current(cell.key, expected, f"{cell.method} on {cell.dataset}")
