"""The paper's transfer table: pre-training on unlabelled molecules, fine-tuning on eight sets of labelled ones."""

import dataclasses
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.baselines.forests import FOREST, Forests, molecule_columns
from joao.config.recipe import Recipe, make_recipe
from joao.core.errors import UserError
from joao.core.registry import make_record
from joao.data import read_whole
from joao.data.dataset import Dataset, concatenate_datasets
from joao.data.features import Features, make_store
from joao.encoders import Encoder, MoleculeGin
from joao.evaluation.folds import Indices
from joao.evaluation.splits import SHARES, Split, split_graphs
from joao.evaluation.targets import BinaryTargets, roc_auc, select_tasks
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance
from joao.runs.trained import TrainedEncoder, load_run, make_untrained
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.cells import RunOptions, check_known, compute_and_write, dataset_of, load_grid
from repro.protocols.stacked_fits import can_be_stacked
from repro.protocols.transfer.overlap import find_test_molecules
from repro.protocols.transfer.score import parts_of, score_seeds
from repro.record_files import Record, RecordFile
from repro.splits import split_hash
from repro.tasks import run_tasks

grid = partial(load_grid, "transfer")
PROTOCOL = {
    "name": "transfer",
    "pre-training": "other molecules, no labels",
    "split": "scaffold, 80/10/10",
    "epoch": "chosen by the validation molecules; the last one, as published, beside it",
}
WITHOUT = " without test molecules"  # ends the name of a corpus that has none


@dataclass(frozen=True)
class Cell:
    """A method on a data set, all its seeds."""

    dataset: str
    method: str

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.dataset}/{self.method}"


def cells(datasets: Sequence[str] = (), methods: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of the table, or of the named data sets and methods."""
    check_known("data set", datasets, list(grid()["datasets"]))
    check_known("method", methods, list(grid()["methods"]))
    return [
        Cell(dataset, method)
        for method in dict.fromkeys(methods or grid()["methods"])
        for dataset in dict.fromkeys(datasets or grid()["datasets"])
    ]


def cell_recipe(method: str) -> Recipe:
    """Return the recipe of a pre-training: that of JOAO for methods without pre-training."""
    given = dict(grid()["methods"][method])
    if "method" not in given:
        given = grid()["methods"]["joao"]
    shared = dict(grid()["recipe"])
    if "policy" not in given:  # an objective of nodes: molecules as they are
        del shared["objective"], shared["augmentations"]
    return make_recipe({**shared, **given, "data": "+".join(grid()["corpus"]["sources"])}, source=f"{method}")


def is_forest(method: str) -> bool:
    """Return whether a method is a random forest."""
    return bool(grid()["methods"][method].get("forest", False))


def encoder_of(method: str) -> str | None:
    """Return the pre-training that a method needs, or None."""
    given = grid()["methods"][method]
    needed: str | None = given.get("embeddings") or (method if "method" in given else None)
    return needed


def finetuning_of(cell: Cell) -> dict[str, Any]:
    """Return all settings of fine-tuning, including seeds."""
    own = dict(grid()["datasets"][cell.dataset])
    seeds = grid()["seeds"][: own.pop("seeds", None)]
    if is_forest(cell.method):
        forest = {
            "seeds": grid()["methods"][cell.method]["seeds"],
            **FOREST["binary"],
            **grid()["forests"].get(cell.dataset, {}),
        }
        return {**forest, "seeds": seeds[: forest["seeds"]]}
    return {"seeds": seeds, **grid()["finetuning"], **own}


def corpus(source: str | None, data_root: str | None, jobs: int = 1, left_out: Indices | None = None) -> Dataset:
    """Read the molecules for pre-training: ``source``, or those of the grid; without the test molecules of all sets.

    ``left_out`` are the numbers of these molecules, if they are known; see :func:`left_out_of`. With none of them it is
    the whole corpus, which the first rows of the table were pre-trained on.
    """
    whole = _whole_corpus(source, data_root, jobs)
    if left_out is None:
        left_out = left_out_of(whole, data_root)
    elif not len(left_out):
        return whole
    kept = whole.subset(np.setdiff1d(np.arange(len(whole)), left_out))
    return dataclasses.replace(kept, name=whole.name + WITHOUT)


def _whole_corpus(source: str | None, data_root: str | None, jobs: int = 1) -> Dataset:
    names = grid()["corpus"]["sources"] if source is None else [source]
    return concatenate_datasets(
        [read_whole(name, data_root, jobs=jobs) for name in names], name=None if source else "+".join(names)
    )


def left_out_of(whole: Dataset, data_root: str | None) -> Indices:
    """Numbers of the molecules of a corpus that are in the test part of a set of the table."""
    return find_test_molecules(whole, list(grid()["datasets"]), data_root)


def pretrain_missing(
    methods: Sequence[str], source: str | None, options: RunOptions, *, whole: bool = False
) -> Iterator[str]:
    """Pre-train the encoders that the methods need and that do not exist; yield each when it is done.

    Args:
        methods: of the table.
        source: the molecules, see :func:`corpus`.
        options: its ``encoders`` are the folder of the runs.
        whole: pre-train with the test molecules in the corpus, to make an older record again.
    """
    needed = list(dict.fromkeys(name for name in map(encoder_of, methods) if name is not None))
    if not needed:
        return
    runs = {name: _run_of(name, options.encoders) for name in needed}
    missing = [name for name, run in runs.items() if run is None or not run.info.finished]
    there = [(options.encoders / name, run.info) for name, run in runs.items() if run is not None]
    known = {(info.data, info.fingerprint) for _, info in there}
    usual = "+".join(grid()["corpus"]["sources"]) + ("" if whole else WITHOUT)
    if source is None and not missing and len(known) == 1 and usual in dict(known):
        return  # all were pre-trained on the usual corpus, which need not be available
    # Read and compared with the test molecules once, here: other processes find it in the cache.
    everything = _whole_corpus(source, options.data_root, options.jobs or 1)
    left_out = np.zeros(0, dtype=np.int64) if whole else left_out_of(everything, options.data_root)
    fingerprint = corpus(source, options.data_root, left_out=left_out).fingerprint
    for folder, info in there:
        if info.fingerprint != fingerprint:
            raise UserError(f"{folder}: was pre-trained on other molecules, {info.data}. Remove it, or name them.")
    yield from run_tasks(
        partial(_pretrain_one, source=source, options=options, left_out=left_out), missing, options.jobs
    )


def _run_of(name: str, encoders: Path) -> Run | None:
    folder = encoders / name
    if not (folder / "run.json").exists():
        return None
    run = Run.open(folder)
    if run.recipe != dataclasses.replace(cell_recipe(name), data=run.recipe.data):
        raise UserError(f"{folder}: was pre-trained by another recipe than {name} has now. Remove it.")
    return run


def _pretrain_one(name: str, source: str | None, options: RunOptions, left_out: Indices) -> None:
    folder, recipe = options.encoders / name, cell_recipe(name)
    pretrain(
        recipe if source is None else dataclasses.replace(recipe, data=source),
        corpus(source, options.data_root, left_out=left_out),
        folder=folder,
        resume=(folder / "run.json").exists(),
        device=options.device,
        precision=options.precision,
        checkpoint_every=1,
    )


def compute_missing(missing: Sequence[Cell], options: RunOptions) -> Iterator[Cell]:
    """Compute cells and write their records, each as soon as it is done; yield the cell.

    Their encoders are those that :func:`pretrain_missing` made.
    """
    return compute_and_write(_records_of, missing, options, record_file)


def _records_of(cell: Cell, options: RunOptions) -> list[Record]:
    needed, dataset = encoder_of(cell.method), dataset_of(cell.dataset, options.data_root)
    trained = None if needed is None else load_run(options.encoders / needed, device=options.device)
    return [compute(cell, dataset, trained, device=options.device, precision=options.precision)]


def compute(
    cell: Cell, dataset: Dataset, trained: TrainedEncoder | None, *, device: str = "auto", precision: str = "32-true"
) -> Record:
    """The record of a cell; ``trained`` is the pre-training that :func:`encoder_of` names."""
    started = time.perf_counter()
    dataset = select_tasks(dataset)
    split = split_graphs(dataset, "scaffold", *SHARES["scaffold"], seed=0)
    facts = None if trained is None else corpus_facts(trained)  # now: fine-tuning changes the weights
    if is_forest(cell.method):
        scores, how = _forest_scores(cell, dataset, split, trained), "forest"
    else:
        scores, how = _finetuned_scores(cell, dataset, split, trained, device, precision)
    return {
        "cell": dataclasses.asdict(cell),
        "protocol": PROTOCOL,
        "data": describe_data(dataset),
        "tasks": len(dataset.target_names),
        "molecules": {kind: len(part) for kind, part in split._asdict().items()},
        "split_hash": split_hash([split]),
        "scores": scores,
        "recipe": _recipe_table(cell.method),
        "finetuning": finetuning_of(cell),
        "fine-tuned": how,
        "precision": precision,
        "corpus": facts,
        "seconds": time.perf_counter() - started,
        **provenance(device),
    }


def _recipe_table(method: str) -> dict[str, Any] | None:
    """Return the recipe of the encoder of a method; None for a forest on fingerprints alone."""
    needed = encoder_of(method)
    if needed is None and is_forest(method):
        return None
    return cell_recipe(needed or method).table()


def corpus_facts(trained: TrainedEncoder) -> dict[str, Any]:
    """Return what a record says about a pre-training and its molecules."""
    info = trained.info
    facts: dict[str, Any] = {
        "data": info.data,
        "fingerprint": info.fingerprint,
        "molecules": info.num_graphs,
        "weights": _weights_hash(trained),
        "precision": info.precision,
        "fast": info.fast,
        "command": info.command,
        "versions": dict(info.versions),
        "machine": dict(info.machine),
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        "molecules per second": float(np.median([epoch.graphs_per_second for epoch in trained.metrics])),
        "losses": [epoch.loss for epoch in trained.metrics],
    }
    return facts


def _weights_hash(trained: TrainedEncoder) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(trained.encoder.state_dict().items()):
        digest.update(name.encode() + b"/" + value.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _finetuned_scores(
    cell: Cell, dataset: Dataset, split: Split, trained: TrainedEncoder | None, device: str, precision: str
) -> tuple[dict[str, Any], str]:
    """Return scores by kind, one per seed, and how the seeds were fitted."""
    settings = finetuning_of(cell)
    seeds, dropout = settings.pop("seeds"), settings.pop("dropout")
    recipe = cell_recipe(cell.method)
    assert dataset.targets is not None
    known = dataset.subset(np.sort(np.concatenate([split.train, split.validation])))  # of the test, nothing
    first = _initial(recipe, seeds[0], known, device) if trained is None else trained.encoder
    assert isinstance(first, MoleculeGin)
    first.dropout = dropout
    finetuning = Finetuning(
        make_store(dataset, Features.from_dataset(dataset, recipe.features)),
        BinaryTargets(torch.from_numpy(dataset.targets)),
        first,
        Finetune(**settings),
        make_fabric(device, precision),
    )
    starts = {
        seed: finetuning.initial_weights(seed, None if trained is not None else _initial(recipe, seed, known, device))
        for seed in seeds
    }
    found = [dataclasses.asdict(score) for score in score_seeds(finetuning, split, starts)]
    side_by_side = can_be_stacked(finetuning, parts_of(split, starts))
    how = (
        "side by side" if side_by_side else "one after another" + (", on padded batches" if finetuning.is_fast else "")
    )
    return {name: [score[name] for score in found] for name in found[0]}, how


def _initial(recipe: Recipe, seed: int, dataset: Dataset, device: str) -> Encoder:
    """Return the encoder with the initial weights of a seed, calibrated on ``dataset``."""
    training = dataclasses.replace(recipe.training, seed=seed)
    return make_untrained(dataclasses.replace(recipe, training=training), dataset, device=device).encoder


def _forest_scores(cell: Cell, dataset: Dataset, split: Split, trained: TrainedEncoder | None) -> dict[str, Any]:
    columns = molecule_columns(dataset.smiles, ["ecfp"])["ecfp"]
    if trained is not None:
        columns = np.concatenate([columns, trained.embed(dataset).numpy()], axis=1)
    assert dataset.targets is not None
    settings = finetuning_of(cell)
    seeds = settings.pop("seeds")
    return {"seed": seeds, "test": [forest_score(columns, dataset.targets, split, seed, settings) for seed in seeds]}


def forest_score(
    columns: NDArray[np.float32],
    labels: NDArray[np.float32],
    split: Split,
    seed: int,
    settings: Mapping[str, Any] | None = None,
) -> float:
    """The mean ROC-AUC on the test graphs over the tasks that have both labels there.

    Every task has a forest of its own, grown on the training graphs that have its label; the validation graphs are not
    used. A task of one label only among them tells nothing, and counts as a half.

    Args:
        columns: ``(G, d)``.
        labels: ``(G, T)`` 0 or 1, NaN for missing labels.
        split: of the graphs.
        seed: of the forests.
        settings: of scikit-learn's forest; None: :data:`joao.baselines.forests.FOREST`.
    """
    both = [len({0.0, 1.0} & {*column[split.test].tolist()}) == 2 for column in labels.T]
    forests = Forests.fit(columns[split.train], labels[split.train][:, both], "binary", seed, settings)
    predicted = torch.from_numpy(forests.predict(columns[split.test]))
    return float(roc_auc(predicted, torch.from_numpy(labels[split.test][:, both])).mean())


def record_file(folder: Path) -> RecordFile:
    """Return the records of this table."""
    return RecordFile(folder / "transfer.jsonl", _key)


def _key(record: Record) -> str:
    _ = record["scores"]["test"], record["split_hash"]
    return make_record(Cell, record["cell"], "cell").key


def is_done(cell: Cell, records: Path) -> bool:
    """Return whether a cell has a record. A record of another recipe is an error."""
    expected = {"recipe": _recipe_table(cell.method), "finetuning": finetuning_of(cell), "protocol": PROTOCOL}
    return record_file(records).is_current(cell.key, expected, f"{cell.method} on {cell.dataset}")
