"""The large-scale table: its cells and recipes, and the whole protocol on small files in OGB's layout."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from joao.core.randomness import derive_seed
from joao.data.features import Features, make_store
from joao.evaluation.targets import BinaryTargets
from joao.runs.trained import load_run
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.cells import RunOptions
from repro.protocols.check import check_record
from repro.protocols.ogb import benchmark as ogb_benchmark
from repro.protocols.ogb import run as reproduce
from repro.protocols.ogb.benchmark import Benchmark, benchmark_of, labelled_part
from repro.protocols.ogb.run import (
    Cell,
    Work,
    cell_recipe,
    cells,
    compute,
    compute_missing,
    finetuning_of,
    is_done,
    record_file,
    split_available,
    works,
)
from tests.messages import refused
from tests.repro.records import remove

GRID = copy.deepcopy(reproduce.grid())
SMALL = {"ogbg-ppa": "ppa", "ogbg-code2": "code", "ogbg-molbbbp": "mol"}


@pytest.fixture(scope="module")
def root(tmp_path_factory, ogb_tables, write_ogb):
    folder = tmp_path_factory.mktemp("data")
    for name, kind in SMALL.items():
        write_ogb(folder / "ogb" / f"{name.replace('-', '_')}.zip", ogb_tables(kind))
    return str(folder)


@pytest.fixture
def short(monkeypatch):
    grid = copy.deepcopy(GRID)
    grid["seeds"], grid["label_rates"] = [0, 1], [10, 50]
    for family in grid["families"].values():
        family["encoder"] |= {"width": 8, "layers": 2}
        family["training"] |= {"epochs": 1, "batch_size": 16}
        family["finetuning"] |= {"epochs": 2, "batch_size": 8}
    grid["families"]["code"]["words"]["most"] = 4
    monkeypatch.setattr(reproduce, "grid", lambda: grid)
    return grid


def test_table_has_every_row_of_the_paper():
    wanted = cells(["ogbg-ppa", "ogbg-code2"])
    assert len(wanted) == len(set(wanted)) == 2 * 4 * 2
    assert cells(["ogbg-molbace"], ["joao"], [1]) == [Cell("ogbg-molbace", "none", 1), Cell("ogbg-molbace", "joao", 1)]
    for given, value in (((["ogbg-mol"], []), "ogbg-mol"), (([], ["joa"]), "joa"), (([], [], [5]), "5")):
        with refused(f"'{value}'"):
            cells(*given)
    assert works(cells(["ogbg-ppa"], ["joao"])) == [Work("ogbg-ppa", name, (1, 10)) for name in ("none", "joao")]


PUBLISHED = {
    # pool, GraphCL's pool, pre-training and fine-tuning epochs, batch, dropout: the protocol sheet's columns
    "ogbg-ppa": ("node_drop subgraph edge_perturb identity", 3, 100, 100, 32, 0.5),
    "ogbg-code2": ("node_drop subgraph edge_perturb attribute_mask identity", 2, 30, 30, 128, 0.0),
}


@pytest.mark.parametrize("dataset", PUBLISHED)
def test_two_large_data_sets_have_the_published_settings(dataset):
    pool, of_graphcl, epochs, finetuned, batch_size, dropout = PUBLISHED[dataset]
    recipes = {method: cell_recipe(dataset, method) for method in GRID["methods"]}
    for recipe in recipes.values():
        assert [part.name for part in recipe.augmentations] == pool.split()
        assert {part.options["strength"] for part in recipe.augmentations} == {0.2}
        options = {part.name: part.options for part in recipe.augmentations}
        assert options["edge_perturb"]["drop_only"]
        assert options.get("attribute_mask", {"fill": "token"})["fill"] == "token"
        training = recipe.training
        assert (training.epochs, training.batch_size, training.learning_rate) == (epochs, batch_size, 0.001)
        assert training.update_batches == 1
        assert recipe.objective.options["temperature"] == 0.5
        encoder = recipe.encoder.options
        assert (encoder["width"], encoder["layers"], encoder["dropout"]) == (300, 5, dropout)
    from joao.policies import RulePool

    policy = RulePool([part.name for part in recipes["graphcl"].augmentations], **recipes["graphcl"].policy.options)
    assert int((policy.probabilities > 0).sum()) == of_graphcl**2
    assert recipes["none"] == recipes["joao"]
    assert recipes["joao"].heads != recipes["joaov2"].heads
    settings = finetuning_of(dataset)
    assert (settings["epochs"], settings["batch_size"], settings["dropout"]) == (finetuned, batch_size, dropout)
    if dataset == "ogbg-code2":
        assert (settings["length"], settings["most"], settings["metric"]) == (5, 5000, "F1")
        assert recipes["joao"].encoder.options["most_depth"] == 20


@pytest.mark.parametrize("dataset", SMALL)
def test_whole_protocol_resumes(dataset, short, root, tmp_path):
    records, encoders = tmp_path / "records", tmp_path / "encoders"
    wanted = cells([dataset])
    where = {"data_root": root, "device": "cpu"}
    assert len(list(compute_missing(wanted[:4], RunOptions(records, encoders=encoders, **where)))) == 2
    remove(record_file(records), f"{dataset}/graphcl-50")
    weights = (encoders / dataset / "graphcl" / "weights.safetensors").stat().st_mtime_ns
    missing = [cell for cell in wanted if not is_done(cell, records)]
    assert len(missing) == 5
    assert len(list(compute_missing(missing, RunOptions(records, encoders=encoders, **where)))) == 3
    assert (encoders / dataset / "graphcl" / "weights.safetensors").stat().st_mtime_ns == weights  # not made again
    found = {cell: record_file(records)[cell.key] for cell in wanted}
    for rate in (10, 50):
        assert len({found[cell]["split_hash"] for cell in wanted if cell.label_rate == rate}) == 1
    for cell, record in found.items():
        assert record["split"] | {"by": ""} == {
            "by": "",
            "train": 40,
            "labelled": 4 if cell.label_rate == 10 else 20,
            "validation": 10,
            "test": 10,
        }
        assert all(0 <= score <= 1 for score in record["scores"]["test"])
        assert record["scores"]["seed"] == [0, 1]
        assert "training part" in record["protocol"]["pre-training"]
        assert (record["pre-training"] is None) == (cell.method == "none")
    benchmark = benchmark_of(dataset, root)
    facts = found[Cell(dataset, "joao", 10)]["pre-training"]
    assert facts["graphs"] == 40
    assert facts["fingerprint"] == benchmark.graphs.subset(benchmark.split.train).fingerprint
    size = 4 if dataset == "ogbg-ppa" else 5
    assert np.array(facts["policy"]["probabilities"]).shape == (size, size)


def test_pre_training_sees_only_unlabelled_training_graphs(short, root, tmp_path):
    """The weights are the same whatever the labels, and whatever the graphs of validation and test are."""
    benchmark = benchmark_of("ogbg-molbbbp", root)
    draw = np.random.default_rng(0)
    nodes = benchmark.graphs.node_labels.copy()
    elsewhere = ~np.isin(benchmark.graphs.graph_of_node, benchmark.split.train)
    nodes[elsewhere, 0] = draw.integers(0, 119, elsewhere.sum())
    other = replace(benchmark.graphs, targets=1 - benchmark.graphs.targets, node_labels=nodes)
    weights = []
    for number, graphs in enumerate((benchmark.graphs, other)):
        work = Work("ogbg-molbbbp", "joao", (50,))
        where = RunOptions(tmp_path, device="cpu", encoders=tmp_path / str(number))
        compute(work, Benchmark(graphs, benchmark.split), where)
        weights.append(load_run(tmp_path / str(number) / "ogbg-molbbbp" / "joao", device="cpu").weights)
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_score_matches_a_step_by_step_computation(short, root, tmp_path):
    """The recorded score of a seed, by the same steps done by hand and scikit-learn's ROC-AUC."""
    benchmark = benchmark_of("ogbg-molbbbp", root)
    where = RunOptions(tmp_path, device="cpu", encoders=tmp_path)
    (record,) = compute(Work("ogbg-molbbbp", "graphcl", (50,)), benchmark, where)
    trained = load_run(tmp_path / "ogbg-molbbbp" / "graphcl", device="cpu")
    split = labelled_part(benchmark.split, 0.5, 1, benchmark.graphs.targets[:, 0].astype(np.int64))
    trained.encoder.layers.dropout = 0.5
    finetuning = Finetuning(
        make_store(benchmark.graphs, Features("ogb_atoms")),
        BinaryTargets(torch.from_numpy(benchmark.graphs.targets)),
        trained.encoder,
        Finetune(epochs=2, batch_size=8, learning_rate=0.001),
        seed=1,
    )
    fit = finetuning.fit(torch.from_numpy(split.train), torch.from_numpy(split.validation), derive_seed(1, "OGB"))
    outputs = finetuning.logits(torch.from_numpy(split.test))[:, 0].numpy()
    assert record["scores"]["test"][1] == pytest.approx(roc_auc_score(benchmark.graphs.targets[split.test, 0], outputs))
    assert record["scores"]["epoch"][1] == fit.chosen


def test_vocabulary_comes_from_labelled_graphs(short, root):
    benchmark = benchmark_of("ogbg-code2", root)
    split = benchmark.labelled(0.1, 0)
    targets = benchmark.targets(split, {"length": 5, "most": 5000})
    seen = {word for graph in split.train for word in benchmark.names[graph]}
    assert targets.num_classes == len(seen) + 2


def test_record_or_run_of_another_recipe_is_rejected(short, root, tmp_path):
    cell = Cell("ogbg-molbbbp", "joao", 50)
    list(compute_missing([cell], RunOptions(tmp_path / "r", encoders=tmp_path / "e", data_root=root, device="cpu")))
    short["families"]["molecules"]["finetuning"]["epochs"] = 3
    with refused(record_file(tmp_path / "r").path, cell.key, "joao", "recipe"):
        is_done(cell, tmp_path / "r")
    short["families"]["molecules"]["training"]["epochs"] = 2
    with refused(tmp_path / "e" / "ogbg-molbbbp" / "joao", "recipe"):
        list(
            compute_missing(
                [cell], RunOptions(tmp_path / "other", encoders=tmp_path / "e", data_root=root, device="cpu")
            )
        )
    record_file(tmp_path / "r").path.write_text(json.dumps({"cell": {}}))
    with refused(record_file(tmp_path / "r").path, "line 1"):
        is_done(cell, tmp_path / "r")


def test_missing_data_sets_are_skipped_or_rejected_if_named(root, tmp_path):
    there, absent = split_available(cells(), root, named=False)
    assert {cell.dataset for cell in there} == set(SMALL)
    assert "ogbg-molhiv" in absent
    with refused("ogbg-molhiv", root):
        split_available(cells(["ogbg-molbbbp", "ogbg-molhiv"]), root, named=True)
    with refused("ogbg-ppa", tmp_path):
        split_available(cells(), str(tmp_path), named=False)


def test_only_ogb_files_are_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(ogb_benchmark, "ogb_path", lambda name, root: None)
    with refused("mine", "OGB"):
        benchmark_of("mine", str(tmp_path))


def test_a_record_is_made_again_bit_for_bit(short, root, tmp_path):
    cell, options = Cell("ogbg-molbbbp", "joao", 50), RunOptions(tmp_path, root, "cpu", encoders=tmp_path / "encoders")
    list(compute_missing([cell], options))
    findings = check_record(tmp_path, cell.key, options)
    assert {"finetuning", "splits", "loss, epoch 1", "score"} <= {each.what for each in findings}
    assert all(each.difference == 0 for each in findings)
