"""The paper's unsupervised table."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Rows
from joao.config.builder import CustomParts
from joao.config.recipe import METHODS, Recipe, make_recipe
from joao.core.errors import UserError
from joao.core.provenance import measure_run
from joao.core.registry import make_record
from joao.data.dataset import Dataset
from joao.data.refinement import count_twins, find_twins
from joao.evaluation.embeddings import PartitionScores, Scores, evaluate_embeddings
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.statistics import chance_level
from joao.evaluation.svm import FoldScores, Kernel, score_folds
from joao.kernels.svm_dual import has_fast_solver
from joao.runs.pretraining import pretrain
from joao.runs.scoring import TWINS_TOGETHER, describe_data, provenance, require_classes
from joao.runs.trained import make_untrained
from joao.training.device import pick_device
from repro.baselines import BASELINES
from repro.protocols.cells import RunOptions, check_known, compute_and_write, dataset_of, load_grid, training_facts
from repro.protocols.unsupervised.multi_view import MultiViewNtXent
from repro.record_files import Record, RecordFile

grid = partial(load_grid, "unsupervised")
# Rows of every table, whatever methods are chosen.
REFERENCES = ("histogram", "untrained_initial", "untrained")


@dataclass(frozen=True)
class Cell:
    """One seed of one method on one data set.

    Attributes:
        inductive: whether pre-training sees the training part of a fold alone.
        twins_together: whether indistinguishable graphs are in the same fold (:mod:`joao.data.refinement`).
    """

    dataset: str
    method: str
    seed: int
    inductive: bool = False
    twins_together: bool = False

    @property
    def variant(self) -> str:
        """The variant of the protocol: ``twins``, ``inductive``, ``twins-inductive``, or empty for the standard one."""
        return "-".join(["twins"] * self.twins_together + ["inductive"] * self.inductive)

    @property
    def row(self) -> str:
        """The row of the table, such as ``joao`` or ``joao-twins``."""
        return "-".join(filter(None, [self.method, self.variant]))

    @property
    def parts(self) -> list[str]:
        """The method, and baselines whose kernels are added to its own: ``joao_default+wl``."""
        return self.method.split("+")

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.dataset}/{self.row}-{self.seed}"


def rows_of(table: str) -> list[str]:
    """The rows of the paper's table, ``unsupervised``, or of ``objectives``: every objective of two views, without and
    with JOAO."""
    of_objectives = [name for name, row in grid()["methods"].items() if "objective" in row]
    if table == "objectives":
        return ["uniform", "joao", *of_objectives]
    return [name for name in grid()["methods"] if name not in of_objectives]


def cells(
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    *,
    inductive: bool = False,
    twins_together: bool = False,
    table: str = "unsupervised",
) -> list[Cell]:
    """Return the cells of a table (:func:`rows_of`), or of the named rows and columns.

    Untrained encoders and the histogram are always included.
    """
    known_sets = list(grid()["datasets"] if table == "unsupervised" else grid()[table]["datasets"])
    known_methods = [*rows_of(table), *REFERENCES]
    check_known("data set", datasets, known_sets)
    check_known("method", methods, known_methods)
    rows = [*REFERENCES, *(methods or rows_of(table))]
    columns = datasets or known_sets
    return [
        Cell(column, row, seed, inductive and has_encoder(row) and row not in REFERENCES, twins_together)
        for column in dict.fromkeys(columns)
        for row in dict.fromkeys(rows)
        for seed in grid()["seeds"]
        if why_not(column, row) is None
    ]


def has_encoder(method: str) -> bool:
    """Return whether a row of the table has an encoder, trained or not."""
    return method != "histogram" and "baseline" not in grid()["methods"].get(method, {})


def why_not(dataset: str, method: str) -> str | None:
    """Return the reason why a cell is not computed, or None."""
    reason: str | None = grid()["methods"].get(method, {}).get("not_on", {}).get(dataset)
    return reason


def cell_recipe(cell: Cell) -> Recipe | None:
    """Return the recipe of a cell: that of JOAO for untrained encoders, None for methods without encoder."""
    if not has_encoder(cell.method):
        return None
    table = grid()
    dataset = table["datasets"][cell.dataset]
    method = table["methods"]["joao" if cell.method in REFERENCES else cell.parts[0]]
    training = {**table["recipe"]["training"], **method.get("training", {}), "seed": cell.seed}
    own = METHODS[method["method"]]
    shared = dict(table["recipe"])
    if "augmentations" in own:  # an objective of nodes: graphs as they are
        del shared["objective"], shared["strength"]
    elif "strengths" in own:
        del shared["strength"]
    given = {key: value for key, value in method.items() if key != "custom_objective"}
    merged = {**shared, "features": dataset["features"], **given, "data": cell.dataset}
    if method["method"] == "graphcl":
        merged["policy"] = {"name": "rule_pool", "pool": dataset["pool"]}
    return make_recipe({**merged, "training": training}, source=f"{cell.method} on {cell.dataset}")


def custom_parts(method: str) -> CustomParts | None:
    """Return the objects of a row that the package has no name for, or None."""
    options = grid()["methods"].get(method, {}).get("custom_objective")
    return None if options is None else CustomParts(objective=MultiViewNtXent(**options))


def compute(cell: Cell, dataset: Dataset, *, device: str = "auto") -> Record:
    """Pre-train with the seed of a cell, score on the partition of the same number, and return the record."""
    (record,) = compute_together([cell], dataset, device=device)
    return record


def compute_together(works: Sequence[Cell], dataset: Dataset, *, device: str = "auto") -> Iterator[Record]:
    """Yield the records of cells that differ in the added baselines alone; all but inductive ones share an encoder."""
    made: tuple[Rows, dict[str, Any]] | None = None
    for cell in works:
        started = time.perf_counter()
        where = pick_device(device).type if has_encoder(cell.method) else "cpu"
        if made is None and not cell.inductive:
            recipe = cell_recipe(cell)
            (rows, learnt), seconds, memory = measure_run(partial(cell_rows, cell, recipe, dataset, where), where)
            made = rows, {**learnt, "seconds of pre-training": seconds, **memory}
        yield _record(cell, dataset, made, started, device)


def _record(
    cell: Cell, dataset: Dataset, made: tuple[Rows, dict[str, Any]] | None, started: float, device: str
) -> Record:
    """Score a cell, given its embeddings and facts about them unless it is inductive."""
    classes = require_classes(dataset)
    facts: dict[str, Any] = {}
    groups = find_twins(dataset) if cell.twins_together else None
    if made is None:
        recipe = cell_recipe(cell)
        assert recipe is not None
        scores = _inductive_scores(cell, recipe, dataset, classes, groups, device)
    else:
        rows, facts = made
        embeddings, kernel = with_baselines(cell, rows, dataset)
        scores = evaluate_embeddings(
            embeddings,
            classes,
            class_names=dataset.class_names,
            partitions=[cell.seed],
            kernel=kernel,
            groups=groups,
            device=pick_device(device).type,
        )
    return {
        "cell": dataclasses.asdict(cell),
        "protocol": {
            "name": "unsupervised",
            "pre-training": "inductive: each training part"
            if cell.inductive
            else "transductive: all graphs, no labels",
            **({} if groups is None else {"folds": TWINS_TOGETHER}),
        },
        "data": describe_data(dataset),
        **({} if groups is None else {"twins": count_twins(groups, classes)._asdict()}),
        "chance": chance_level(classes),
        "scores": scores.to_json(),
        **_settings(cell),
        **facts,
        "seconds": time.perf_counter() - started,
        **provenance(device),
    }


def _settings(cell: Cell) -> dict[str, Any]:
    """Return the settings of a cell: a recipe, or the options of a baseline."""
    recipe, row = cell_recipe(cell), grid()["methods"].get(cell.method, {})
    if "baseline" not in row:
        custom = custom_parts(cell.method)
        made = {"recipe": None if recipe is None else recipe.table()}
        if added := cell.parts[1:]:
            made["added"] = {name: BASELINES[name].settings() for name in added}
        return made if custom is None else {**made, "custom": custom.describe()}
    options = BASELINES[row["baseline"]].settings()
    seed = {"seed": cell.seed} if "seed" in options else {}
    return {"recipe": None, "baseline": {"name": row["baseline"], **options, **row.get("options", {}), **seed}}


def cell_kernel(method: str) -> Kernel:
    """Return the kernel of a row of the table."""
    baseline = grid()["methods"].get(method, {}).get("baseline")
    return "linear" if baseline is not None and BASELINES[baseline].kernel else "rbf"


def with_baselines(cell: Cell, rows: Rows, dataset: Dataset) -> tuple[Any, Kernel]:
    """Return what is scored, and its kernel: the rows of a cell alone, or beside those of the added baselines."""
    first, *added = cell.parts
    if not added:
        return rows, cell_kernel(first)
    graphs = dataset.without_labels()
    others = [
        (BASELINES[name]().fit_transform(graphs), "linear" if BASELINES[name].kernel else "rbf") for name in added
    ]
    return [(rows, cell_kernel(first)), *others], "mean"


def cell_rows(cell: Cell, recipe: Recipe | None, dataset: Dataset, device: str) -> tuple[Rows, dict[str, Any]]:
    """Return the embeddings of a cell, and facts about the pre-training."""
    if recipe is None:
        options = dict(_settings(cell).get("baseline", {}))
        name = options.pop("name", "histogram")
        return BASELINES[name](**options).fit_transform(dataset.without_labels()), {}
    if cell.method in REFERENCES:
        start = make_untrained(recipe, dataset, calibrated=cell.method == "untrained", device=device)
        return start.embed(dataset).numpy(), {}
    trained = pretrain(recipe, dataset, device=device, custom=custom_parts(cell.method))
    return trained.embed(dataset).numpy(), training_facts(trained)


def _inductive_scores(
    cell: Cell,
    recipe: Recipe,
    dataset: Dataset,
    classes: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    device: str,
) -> Scores:
    """Pre-train on each training part alone, so that the encoder does not see test graphs."""
    partition, where = recipe.training.seed, pick_device(device).type
    parts = []
    shared = folds(classes, partition, class_names=dataset.class_names, groups=groups)
    for train, test in shared:
        trained = pretrain(recipe, dataset.subset(train), device=device, custom=custom_parts(cell.method))
        rows, kernel = with_baselines(cell, trained.embed(dataset).numpy(), dataset)
        parts.append(score_folds(rows, classes, [(train, test)], kernel=kernel, groups=groups, device=where))
    accuracies = tuple(part.accuracies[0] for part in parts)
    chosen = tuple(part.chosen_c[0] for part in parts)
    found = PartitionScores(partition, fold_hash(shared), FoldScores(accuracies, chosen))
    return Scores((found,), side_by_side=has_fast_solver(len(classes), where))


def compute_missing(missing: Sequence[Cell], options: RunOptions) -> Iterator[Cell]:
    """Compute cells and write their records, each as soon as it is done; yield the cell just done."""
    for method in dict.fromkeys(cell.method for cell in missing):  # check before any work
        baseline = grid()["methods"].get(method, {}).get("baseline")
        if baseline is not None and (package := BASELINES[baseline].missing_package()) is not None:
            raise UserError(
                f"{method} needs {package}, which is not installed: pip install {package}, or name other --methods."
            )
    works: dict[Cell, list[Cell]] = {}
    for cell in missing:
        works.setdefault(dataclasses.replace(cell, method=cell.parts[0]), []).append(cell)
    for work in compute_and_write(_records_of, list(works.values()), options, record_file):
        yield from work


def _records_of(work: Sequence[Cell], options: RunOptions) -> Iterator[Record]:
    return compute_together(work, dataset_of(work[0].dataset, options.data_root), device=options.device)


def record_file(folder: Path, table: str = "unsupervised") -> RecordFile:
    """Return the records of this table, or of a study with cells of this kind."""
    return RecordFile(folder / f"{table}.jsonl", _key)


def _key(record: Record) -> str:
    cell = make_record(Cell, record["cell"], "cell")
    record["cell"] = dataclasses.asdict(cell)  # older records do not have every attribute
    _ = record["scores"]["partitions"][0]["accuracies"], record["scores"]["partitions"][0]["fold_hash"]
    return cell.key


def is_done(cell: Cell, records: Path) -> bool:
    """Return whether a cell has a record. A record of another recipe is an error."""
    return record_file(records).is_current(cell.key, _settings(cell), f"{cell.method} on {cell.dataset}")
