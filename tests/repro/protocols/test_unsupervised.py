"""The paper's table: its cells, what is computed for each, and how an interrupted computation goes on."""

import copy
import itertools
import json
import re

import numpy as np
import pytest
import torch

from joao.baselines import Histogram
from joao.data.sources import read
from joao.evaluation import svm
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.svm import score_folds
from joao.runs.pretraining import pretrain
from joao.runs.trained import make_untrained
from repro.baselines import BASELINES
from repro.protocols.cells import RunOptions
from repro.protocols.unsupervised import run as reproduce
from repro.protocols.unsupervised.run import (
    REFERENCES,
    Cell,
    cell_recipe,
    cells,
    compute,
    compute_missing,
    has_encoder,
    is_done,
    record_file,
    rows_of,
    why_not,
)
from tests.messages import refused

GRID = reproduce.grid()


@pytest.fixture(scope="module")
def root(made_data):
    """A folder of data sets in which MUTAG is 24 made graphs."""
    return made_data("MUTAG", num_graphs=24)


@pytest.fixture
def short(monkeypatch):
    """The table with two seeds and one epoch, and two values of C to choose from."""
    monkeypatch.setattr(svm, "C_GRID", (0.1, 1.0))
    table = copy.deepcopy(GRID)
    table["seeds"] = [0, 1]
    for training in (table["recipe"]["training"], *(row.get("training", {}) for row in table["methods"].values())):
        training["epochs"] = 1
    monkeypatch.setattr(reproduce, "grid", lambda: table)
    return table


def untimed(record):
    return {key: value for key, value in record.items() if not re.search("seconds|per second|bytes", key)}


def test_grid_has_the_whole_table():
    everything = cells()
    assert len(everything) == len(set(everything))
    columns, rows = list(GRID["datasets"]), [*REFERENCES, *rows_of("unsupervised")]
    left_out = {(name, method) for method, table in GRID["methods"].items() for name in table.get("not_on", {})}
    whole = [Cell(*each) for each in itertools.product(columns, rows, GRID["seeds"])]
    assert everything == [cell for cell in whole if (cell.dataset, cell.method) not in left_out]
    assert left_out == {("DD", "dgk"), ("COLLAB", "dgk"), ("REDDIT-MULTI-5K", "dgk")} | {
        (name, "node2vec") for name in ("DD", "COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K")
    }
    assert {"gl", "wl", "dgk", "node2vec", "sub2vec", "graph2vec", "mvgrl", "infograph", "graphcl"} < set(rows)


def test_grid_of_objectives():
    rows = rows_of("objectives")
    assert {cell.dataset for cell in cells(table="objectives")} == set(GRID["objectives"]["datasets"])
    assert {*rows, *rows_of("unsupervised")} == set(GRID["methods"])
    for without, learned in zip(rows[::2], rows[1::2], strict=True):
        one, other = (cell_recipe(Cell("NCI1", row, 0)).table() for row in (without, learned))
        assert {key for key in one if one[key] != other[key]} == {"policy"}
    with refused("'NCI1'"):
        cells(["NCI1"], table="objectives")


def test_named_rows_and_columns_include_the_baselines():
    some = cells(["MUTAG", "DD"], ["joao"])
    assert {cell.dataset for cell in some} == {"MUTAG", "DD"}
    assert {cell.method for cell in some} == {*REFERENCES, "joao"}
    assert {cell.seed for cell in some} == set(GRID["seeds"])
    assert cells(["MUTAG"], ["untrained"]) == [cell for cell in cells(["MUTAG"]) if cell.method in REFERENCES]


def test_repeated_names_count_once():
    assert cells(["MUTAG", "MUTAG"], ["joao", "joao"]) == cells(["MUTAG"], ["joao"])


def test_baselines_are_never_inductive():
    assert {(cell.method, cell.inductive) for cell in cells(["MUTAG"], ["joao"], inductive=True)} == {
        *((name, False) for name in REFERENCES),
        ("joao", True),
    }


@pytest.mark.parametrize(
    ("datasets", "methods", "values"),
    [
        (["mutag"], [], ["'mutag'", "'MUTAG'"]),
        (["NCI-1"], [], ["'NCI-1'", "'NCI1'"]),
        ([], ["joao2"], ["'joao2'", "'joaov2'"]),
        (["MUTAG", ""], [], ["''"]),
    ],
)
def test_unknown_names_are_rejected(datasets, methods, values):
    with refused(*values):
        cells(datasets, methods)


def test_different_cells_have_different_keys():
    ways = itertools.product((False, True), repeat=2)
    every = [cell for one, other in ways for cell in cells(inductive=one, twins_together=other)]
    assert len({cell.key for cell in every}) == len(set(every))
    names = {(False, False): "joao-3", (True, False): "joao-inductive-3", (False, True): "joao-twins-3"}
    for way, name in {**names, (True, True): "joao-twins-inductive-3"}.items():
        assert Cell("MUTAG", "joao", 3, *way).key == f"MUTAG/{name}"


def test_recipes_match_the_documented_settings():
    joao, joaov2 = (cell_recipe(Cell("NCI1", method, 2)) for method in ("joao", "joaov2"))
    assert (joao.policy.options["gamma"], joao.policy.options["step"]) == (0.1, 1.0)
    assert (joao.training.epochs, joao.training.learning_rate) == (20, 0.01)
    assert (joaov2.training.epochs, joaov2.training.learning_rate) == (40, 0.001)
    assert joao.objective.options["temperature"] == 0.2
    assert (joao.features, joao.training.seed) == ("labels", 2)
    budget = cell_recipe(Cell("NCI1", "joaov2_joao_budget", 2))
    assert (budget.heads, budget.training) == (joaov2.heads, joao.training)
    pools = {name: cell_recipe(Cell(name, "graphcl", 0)).policy.options["pool"] for name in GRID["datasets"]}
    assert {pools[name] for name in ("NCI1", "PROTEINS", "DD", "MUTAG")} == {"molecules"}
    assert {pools[name] for name in ("COLLAB", "IMDB-BINARY")} == {"dense"}
    assert {pools[name] for name in ("REDDIT-BINARY", "REDDIT-MULTI-5K")} == {"sparse"}


def test_rows_without_encoder_have_options_instead_of_a_recipe():
    assert [name for name in GRID["methods"] if not has_encoder(name)] == [
        *("gl", "wl", "dgk", "node2vec", "sub2vec", "graph2vec", "ldp")
    ]
    assert cell_recipe(Cell("NCI1", "wl", 0)) is cell_recipe(Cell("NCI1", "histogram", 0)) is None


def test_kernel_score_matches_a_hand_computation(root, short, tmp_path):
    dataset = read("MUTAG", root)
    record = compute(Cell("MUTAG", "wl", 1), dataset, device="cpu")
    rows = BASELINES["wl"](iterations=3).fit_transform(dataset)
    expected = evaluate_embeddings(rows, dataset.classes, partitions=[1], kernel="linear")
    assert record["scores"] == expected.to_json()
    assert (record["recipe"], record["baseline"]) == (None, {"name": "wl", "iterations": 3})
    assert record["peak bytes"] >= 0


def test_baseline_embedding_uses_the_seed_of_its_cell(root, short):
    pytest.importorskip("gensim")
    dataset = read("MUTAG", root)
    record = compute(Cell("MUTAG", "graph2vec", 1), dataset, device="cpu")
    rows = BASELINES["graph2vec"](seed=1).fit_transform(dataset)
    assert record["scores"] == evaluate_embeddings(rows, dataset.classes, partitions=[1]).to_json()
    assert record["baseline"]["seed"] == 1


def test_skipped_cell_has_a_reason(short):
    short["methods"]["wl"]["not_on"] = {"DD": "slow."}
    left = cells(["DD", "MUTAG"], ["wl"])
    assert {cell.dataset for cell in left if cell.method == "wl"} == {"MUTAG"}
    assert (why_not("DD", "wl"), why_not("MUTAG", "wl")) == ("slow.", None)


def test_graphcl_differs_from_joao_only_in_its_policy():
    graphcl, joao = (cell_recipe(Cell("NCI1", method, 0)).table() for method in ("graphcl", "joao"))
    assert {key for key in joao if joao[key] != graphcl[key]} == {"policy"}


def test_seed_determines_pretraining_and_partition(root, short):
    dataset = read("MUTAG", root)
    record = compute(Cell("MUTAG", "joao", 1), dataset, device="cpu")
    recipe = cell_recipe(Cell("MUTAG", "joao", 1))
    assert recipe.training.seed == 1
    trained = pretrain(recipe, dataset, device="cpu")
    embeddings = trained.embed(dataset).numpy()
    assert record["scores"] == evaluate_embeddings(embeddings, dataset.classes, partitions=[1]).to_json()
    assert record["recipe"] == recipe.table()
    assert record["protocol"]["pre-training"].startswith("transductive")
    assert record["policy"]["probabilities"] == trained.metrics[-1].probabilities
    assert record["losses"] == [trained.metrics[0].loss]
    assert record["policy"]["drawn"] == np.sum([epoch.drawn for epoch in trained.metrics], axis=0).tolist()
    assert np.sum(record["policy"]["drawn"]) == 24 * recipe.training.epochs
    assert json.loads(json.dumps(record, allow_nan=False)) == record


@pytest.mark.slow
def test_baselines_are_scored_on_the_same_folds(root, short):
    dataset = read("MUTAG", root)
    recipe = cell_recipe(Cell("MUTAG", "untrained", 1))
    features = pretrain(recipe, dataset, device="cpu").info.features
    vectors = {
        "histogram": Histogram().fit_transform(dataset),
        "untrained_initial": make_untrained(recipe, dataset, features, calibrated=False, device="cpu")
        .embed(dataset)
        .numpy(),
        "untrained": make_untrained(recipe, dataset, features, device="cpu").embed(dataset).numpy(),
    }
    assert set(vectors) == set(REFERENCES)
    for method, embeddings in vectors.items():
        record = compute(Cell("MUTAG", method, 1), dataset, device="cpu")
        assert record["scores"] == evaluate_embeddings(embeddings, dataset.classes, partitions=[1]).to_json()
        assert "policy" not in record
        assert (record["recipe"] is None) == (method == "histogram")


def test_inductive_pretraining_sees_only_the_training_part(root, short, monkeypatch):
    dataset = read("MUTAG", root)
    seen = []

    def spied(recipe, part, **options):
        seen.append(part.fingerprint)
        return pretrain(recipe, part, **options)

    monkeypatch.setattr(reproduce, "pretrain", spied)
    record = compute(Cell("MUTAG", "joao", 1, inductive=True), dataset, device="cpu")
    parts = folds(dataset.classes, 1)
    assert seen == [dataset.subset(train).fingerprint for train, _ in parts]
    (scores,) = record["scores"]["partitions"]
    assert scores["fold_hash"] == fold_hash(parts)
    assert record["protocol"]["pre-training"].startswith("inductive")
    # The last fold by hand.
    train, test = parts[-1]
    trained = pretrain(cell_recipe(Cell("MUTAG", "joao", 1)), dataset.subset(train), device="cpu")
    by_hand = score_folds(trained.embed(dataset).numpy(), dataset.classes, [(train, test)])
    assert (scores["accuracies"][-1], scores["chosen_c"][-1]) == (by_hand.accuracies[0], by_hand.chosen_c[0])


@pytest.fixture
def pairs(root):
    """MUTAG's 24 made graphs twice, the second time behind the first."""
    return read("MUTAG", root)[np.r_[0:24, 0:24]]


@pytest.mark.parametrize(("method", "kernel"), [("histogram", "rbf"), ("wl", "linear")])
def test_twins_together(pairs, short, method, kernel):
    """Also of rows that have no encoder; a graph and its copy are 24 apart."""
    cell = Cell("MUTAG", method, 1, twins_together=True)
    record = compute(cell, pairs, device="cpu")
    rows = Histogram().fit_transform(pairs) if method == "histogram" else BASELINES["wl"]().fit_transform(pairs)
    together = np.r_[0:24, 0:24]
    parts = folds(pairs.classes, 1, groups=together)
    assert all(set(test) == {(graph + 24) % 48 for graph in test} for _, test in parts)
    by_hand = score_folds(rows, pairs.classes, parts, kernel=kernel, groups=together)
    (scores,) = record["scores"]["partitions"]
    assert (tuple(scores["accuracies"]), scores["fold_hash"]) == (by_hand.accuracies, fold_hash(parts))
    assert record["protocol"]["folds"] == reproduce.TWINS_TOGETHER
    assert record["twins"] == {"with_twin": 48, "with_twin_of_another_class": 0}
    assert Cell(**json.loads(json.dumps(record))["cell"]) == cell


@pytest.mark.slow
def test_twins_together_changes_only_the_folds(pairs, short, monkeypatch):
    seen = []

    def spied(recipe, part, **options):
        seen.append((recipe, part.fingerprint))
        return pretrain(recipe, part, **options)

    monkeypatch.setattr(reproduce, "pretrain", spied)
    usual, together = (compute(Cell("MUTAG", "joao", 1, twins_together=way), pairs, device="cpu") for way in (0, 1))
    assert seen[0] == seen[1]
    assert usual["losses"] == together["losses"]
    assert "folds" not in usual["protocol"]
    assert "twins" not in usual
    del seen[:]
    both = compute(Cell("MUTAG", "joao", 1, inductive=True, twins_together=True), pairs, device="cpu")
    parts = folds(pairs.classes, 1, groups=np.r_[0:24, 0:24])
    assert [fingerprint for _, fingerprint in seen] == [pairs.subset(train).fingerprint for train, _ in parts]
    assert both["scores"]["partitions"][0]["fold_hash"] == together["scores"]["partitions"][0]["fold_hash"]


def test_records_without_a_newer_cell_attribute_are_accepted(root, short, tmp_path):
    cell = Cell("MUTAG", "histogram", 0)
    list(compute_missing([cell], RunOptions(tmp_path, data_root=str(root), device="cpu")))
    record = json.loads(record_file(tmp_path).path.read_text())
    assert record["cell"].pop("twins_together") is False
    record_file(tmp_path).path.write_text(json.dumps(record) + "\n")
    assert is_done(cell, tmp_path)
    assert not is_done(Cell("MUTAG", "histogram", 0, twins_together=True), tmp_path)


@pytest.mark.slow
def test_interrupted_computation_resumes(root, short, tmp_path):
    wanted = cells(["MUTAG"], ["uniform"])
    assert len(wanted) == 2 * len([*REFERENCES, "uniform"])
    computing = compute_missing(wanted, RunOptions(tmp_path / "new" / "records", data_root=str(root), device="cpu"))
    assert [next(computing), next(computing)] == wanted[:2]
    computing.close()
    records = tmp_path / "new" / "records"
    before = record_file(records).path.read_text().splitlines()
    assert [Cell(**json.loads(line)["cell"]) for line in before] == wanted[:2]
    missing = [cell for cell in wanted if not is_done(cell, records)]
    assert list(compute_missing(missing, RunOptions(records, data_root=str(root), device="cpu"))) == wanted[2:]
    after = record_file(records).path.read_text().splitlines()
    assert set(before) < set(after)
    keys = [Cell(**json.loads(line)["cell"]).key for line in after]
    assert keys == sorted(keys)
    for cell in wanted:
        record = record_file(records)[cell.key]
        assert Cell(**record["cell"]) == cell


def test_record_of_another_recipe_is_not_accepted(root, short, tmp_path):
    cell = Cell("MUTAG", "uniform", 0)
    assert not is_done(cell, tmp_path)
    assert list(compute_missing([cell], RunOptions(tmp_path, data_root=str(root), device="cpu"))) == [cell]
    assert is_done(cell, tmp_path)
    assert not is_done(Cell("MUTAG", "uniform", 1), tmp_path)
    short["recipe"]["training"]["epochs"] = 2
    with refused("unsupervised.jsonl", "MUTAG/uniform-0", "recipe", " uniform "):
        is_done(cell, tmp_path)


@pytest.mark.slow
def test_number_of_processes_does_not_change_the_result(root, tmp_path):
    cell = Cell("MUTAG", "uniform", 0)  # one, for every process loads torch anew
    for jobs in (1, 2):
        done = compute_missing([cell], RunOptions(tmp_path / str(jobs), data_root=str(root), device="cpu", jobs=jobs))
        assert list(done) == [cell]
    one, two = (untimed(record_file(tmp_path / str(jobs))[cell.key]) for jobs in (1, 2))
    assert one == two
    assert one["machine"]["threads"] == 1


def test_every_process_uses_one_thread_and_restores_the_setting(root, short, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        list(compute_missing([Cell("MUTAG", "histogram", 0)], RunOptions(tmp_path, data_root=str(root), device="cpu")))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert record_file(tmp_path)[Cell("MUTAG", "histogram", 0).key]["machine"]["threads"] == 1


def test_unwritable_folder_is_rejected_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("precious")
    monkeypatch.setattr(reproduce, "compute", lambda *given, **options: pytest.fail("it worked"))
    with refused(tmp_path / "file"):
        next(compute_missing(cells(["MUTAG"]), RunOptions(tmp_path / "file")))
    assert (tmp_path / "file").read_text() == "precious"


def test_missing_record_is_rejected(tmp_path):
    with refused(tmp_path / "unsupervised.jsonl", "MUTAG/joao-0"):
        record_file(tmp_path)["MUTAG/joao-0"]
