"""The semi-supervised tables: their cells and recipes, what is computed for each cell, and how it goes on."""

import copy
import json
import tomllib
from dataclasses import asdict, replace

import pytest
import torch

from joao.config.builder import build_method
from joao.config.recipe import METHODS, POOL, make_recipe
from joao.core.randomness import torch_generator
from joao.core.registry import snake_case
from joao.data import list_datasets, read
from joao.data.synthetic import random_graphs
from joao.evaluation.targets import ClassTargets
from joao.policies.fixed import POOLS
from joao.runs.pretraining import pretrain
from joao.training.finetune import Finetune, Finetuning
from joao.training.model import calibrate
from repro.protocols.cells import RunOptions
from repro.protocols.check import check_record
from repro.protocols.semi_supervised import run as reproduce
from repro.protocols.semi_supervised.run import (
    PAIRS,
    Cell,
    Work,
    cell_recipe,
    cells,
    compute,
    compute_missing,
    finetuning_of,
    finetuning_pool,
    is_done,
    methods_of,
    record_file,
    split_available,
    start_of,
    works,
)
from repro.protocols.semi_supervised.score import score_splits
from repro.splits import few_label_splits, split_hash
from repro.tasks import run_tasks
from tests.messages import refused
from tests.repro.records import remove

GRID = reproduce.grid()
EVERY_METHOD = [*GRID["methods"], *PAIRS]
LEARNED = ("joao", "joaov2")


@pytest.fixture(scope="module")
def root(made_data):
    """A folder of data sets in which NCI1 and PROTEINS are 30 made graphs."""
    return str(made_data("NCI1", "PROTEINS", num_graphs=30))


@pytest.fixture(scope="module")
def nci1(root):
    return read("NCI1", root)


@pytest.fixture
def short(monkeypatch):
    """Tables at 20 % and 50 % of the labels, with two seeds, few epochs and narrow encoders."""
    table = copy.deepcopy(GRID)
    table["seeds"] = [0, 1]
    table["recipe"]["encoder"] |= {"width": 4, "layers": 1}
    for training in (table["recipe"]["training"], *(row.get("training", {}) for row in table["methods"].values())):
        training["epochs"] = 1
    table["finetuning"]["epochs"] = 2
    table["tables"]["semi_supervised"]["columns"] = {"20": ["NCI1"], "50": ["NCI1", "PROTEINS", "github_stargazers"]}
    table["tables"]["pairs"]["columns"] = {"50": ["PROTEINS"]}
    monkeypatch.setattr(reproduce, "grid", lambda: table)
    return table


def untimed(record):
    return {key: value for key, value in record.items() if "seconds" not in key and "per second" not in key}


def compute_all(missing, records, root, **options):
    return list(compute_missing(missing, RunOptions(records, data_root=root, device="cpu", **options)))


# The grid.


def test_grid_matches_the_published_table():
    everything = cells("semi_supervised")
    assert len(everything) == len(set(everything))
    # 3 columns at 1 %, 7 at 10 %; no pre-training and 8 methods; 5 seeds
    assert len(everything) == (3 + 7) * 9 * 5
    assert {cell.dataset for cell in everything if cell.label_rate == 1} == {"NCI1", "COLLAB", "github_stargazers"}
    assert {cell.method for cell in cells("strength")} == {"none", *LEARNED, *(f"{name}_stronger" for name in LEARNED)}
    assert {(cell.dataset, cell.label_rate) for cell in cells("strength")} == {("NCI1", 1), ("PROTEINS", 10)}
    assert {cell.method for cell in cells("prior")} == {"none", "joao", "joao_without_prior"}


def test_grid_of_pairs_has_all_ordered_pairs():
    assert len(PAIRS) == 25
    assert PAIRS["identity+node_drop"] == ("identity", "node_drop")
    assert {*methods_of("pairs")} == {"none", "joao", *PAIRS}
    assert len(cells("pairs")) == 4 * 27 * 5


@pytest.mark.parametrize("table", GRID["tables"])
def test_cells_are_ordered_by_seed(table):
    everything = cells(table)
    seeds = [cell.seed for cell in everything]
    assert seeds == sorted(seeds)
    assert sorted(set(seeds)) == GRID["seeds"]
    of_seed = [[replace(cell, seed=0) for cell in everything if cell.seed == seed] for seed in GRID["seeds"]]
    assert of_seed == [of_seed[0]] * 5
    pretrainings = [work.seed for work in works(everything)]
    assert pretrainings == sorted(pretrainings)


def test_named_methods_include_no_pretraining():
    some = cells("semi_supervised", ["NCI1", "DD"], ["joao"], [10])
    assert {cell.dataset for cell in some} == {"NCI1", "DD"}
    assert {cell.method for cell in some} == {"none", "joao"}
    assert {cell.label_rate for cell in some} == {10}
    assert len(some) == 2 * 2 * 5
    # What has no column at a label rate is not there.
    assert {(cell.dataset, cell.label_rate) for cell in cells("semi_supervised", ["NCI1", "DD"])} == {
        *(("NCI1", 1), ("NCI1", 10), ("DD", 10))
    }


def test_repeated_names_count_once():
    once = cells("semi_supervised", ["NCI1"], ["joao"], [10])
    assert cells("semi_supervised", ["NCI1", "NCI1"], ["joao", "joao", "none"], [10, 10]) == once


@pytest.mark.parametrize(
    ("table", "given", "values"),
    [
        ("semi_supervised", {"datasets": ["nci1"]}, ["'nci1'", "'NCI1'", "NCI1, "]),
        ("semi_supervised", {"datasets": ["MUTAG"]}, ["'MUTAG'"]),
        ("prior", {"datasets": ["COLLAB"]}, ["'COLLAB'", "NCI1, PROTEINS"]),
        ("semi_supervised", {"methods": ["joao2"]}, ["'joao2'", "'joaov2'"]),
        ("semi_supervised", {"methods": ["node_drop+subgraph"]}, ["'node_drop+subgraph'"]),
        ("semi_supervised", {"label_rates": [5]}, ["'5'", "1, 10"]),
        ("pairs", {"label_rates": [1]}, ["'1'", "'10'"]),
        ("semi_supervised", {"datasets": ["PROTEINS"], "label_rates": [1]}, ["PROTEINS", "1 %"]),
    ],
)
def test_unknown_names_are_rejected(table, given, values):
    with refused(*values):
        cells(table, **given)


def test_pairs_can_be_named_in_their_table():
    assert {cell.method for cell in cells("pairs", methods=["node_drop+subgraph"])} == {"none", "node_drop+subgraph"}


def test_different_cells_have_different_keys():
    every = {cell for table in GRID["tables"] for cell in cells(table)}
    assert len({cell.key for cell in every}) == len(every)
    assert Cell("NCI1", "joao", 3, 10).key == "NCI1/joao-10-3"


def test_one_pretraining_serves_all_label_rates():
    missing = cells("semi_supervised", ["NCI1", "PROTEINS"], ["joao"])
    found = works(missing)
    assert sorted(found, key=str) == sorted(
        (
            Work(dataset, method, seed, rates)
            for dataset, rates in (("NCI1", (1, 10)), ("PROTEINS", (10,)))
            for method in ("none", "joao")
            for seed in range(5)
        ),
        key=str,
    )
    assert {cell for work in found for cell in work.cells()} == set(missing)
    assert works([Cell("NCI1", "joao", 0, 10)]) == [Work("NCI1", "joao", 0, (10,))]


def test_missing_data_set_is_skipped_unless_named(root):
    wanted = cells("semi_supervised")
    there, absent = split_available(wanted, root, named=False)
    assert absent == ["github_stargazers"]
    assert there == [cell for cell in wanted if cell.dataset != "github_stargazers"]  # the others can be downloaded
    with refused("github_stargazers.zip", "--data-root"):
        split_available(wanted, root, named=True)


def test_supplied_data_set_is_included(made_data):
    root = made_data("github_stargazers", num_graphs=3)
    assert "github_stargazers" in list_datasets(root)
    wanted = cells("semi_supervised")
    assert split_available(wanted, str(root), named=False) == (wanted, [])


# The recipes.


def differences(first, second):
    """Keys of two recipes in which they differ, dots reaching into parts."""
    found = set()
    for key in first:
        if isinstance(first[key], dict) and first[key].get("name") == second[key].get("name"):
            inside = first[key].keys() | second[key].keys()
            found |= {f"{key}.{each}" for each in inside if first[key].get(each) != second[key].get(each)}
        elif first[key] != second[key]:
            found.add(key)
    return found


def recipe(method, dataset="NCI1", seed=0):
    return cell_recipe(dataset, method, seed).table()


@pytest.mark.parametrize("dataset", GRID["datasets"])
def test_every_cell_has_a_recipe(dataset):
    for method in EVERY_METHOD:
        made = cell_recipe(dataset, method, 3)
        assert (made.data, made.features, made.training.seed) == (dataset, "with_degree", 3), method
        assert made.max_degree == (10 if dataset in ("DD", "REDDIT-BINARY", "REDDIT-MULTI-5K") else 100), method
        assert made.encoder.table() == {"name": "res_gcn", "width": 128, "layers": 3, "residual": False}, method
        assert (made.training.batch_size, made.training.learning_rate) == (128, 0.001), method
        assert make_recipe(tomllib.loads(made.toml())) == made, method


@pytest.mark.parametrize(
    ("method", "other", "expected"),
    [
        ("graphcl", "joao", {"policy"}),
        ("none", "joao", set()),
        ("augmentations", "joao", set()),
        ("joaov2", "joao", {"heads", "training.epochs"}),
        ("joao_stronger", "joao", {"augmentations"}),
        ("joaov2_stronger", "joaov2", {"augmentations"}),
        ("joao_without_prior", "joao", {"policy.gamma"}),
        *((pair, "graphcl", {"policy"}) for pair in PAIRS),
    ],
)
def test_methods_share_all_other_settings(method, other, expected):
    assert differences(recipe(method), recipe(other)) == expected


@pytest.mark.parametrize("method", ["gae", "infomax", "context_pred"])
def test_node_objectives_see_unaugmented_graphs(method):
    made = recipe(method)
    assert differences(made, recipe("joao")) == {"augmentations", "heads", "objective", "policy"}
    assert [each["name"] for each in made["augmentations"]] == ["identity"]
    assert made["objective"]["name"] == METHODS[method]["objective"]
    assert made["heads"]["name"] == "no_head"


def test_differences_between_methods():
    assert recipe("joao")["policy"] == {"name": "min_max", "gamma": 0.1, "step": 1.0, "prior": None}
    assert recipe("joao_without_prior")["policy"]["gamma"] == 0
    epochs = {method: recipe(method)["training"]["epochs"] for method in (*LEARNED, "graphcl")}
    assert epochs == {"joao": 100, "joaov2": 200, "graphcl": 100}
    assert recipe("joaov2")["heads"]["name"] == "head_per_augmentation"
    for method, strength in (("joao", 0.2), ("joao_stronger", 0.25)):
        pool = recipe(method)["augmentations"]
        assert [each["name"] for each in pool] == list(POOL)
        assert {each["strength"] for each in pool if "strength" in each} == {strength}
        assert pool[3]["fill"] == "mean"
    pools = {name: recipe("graphcl", name)["policy"]["pool"] for name in GRID["datasets"]}
    assert set(pools.values()) == set(POOLS)
    assert {name for name, pool in pools.items() if pool == "molecules"} == {"NCI1", "PROTEINS", "DD"}


def test_fixed_pair_is_always_drawn_from_the_same_pool(nci1, short):
    for pair, names in PAIRS.items():
        assert recipe(pair)["policy"] == {"name": "fixed", "pair": list(names)}
    _, _, facts = start_of(Work("NCI1", "subgraph+identity", 0, (50,)), nci1, device="cpu")
    assert facts["policy"]["augmentations"] == list(POOL)
    expected = [[0] * 5 for _ in range(5)]
    expected[1][4] = 30
    assert facts["policy"]["drawn"] == expected


@pytest.mark.parametrize(("dataset", "columns"), [("NCI1", 101), ("DD", 11)])
@pytest.mark.parametrize("labels", [4, 0])
def test_features_are_labels_or_a_constant_with_degrees(dataset, columns, labels, short):
    graphs = random_graphs(12, 6, seed=1, num_node_labels=labels)
    encoder, features, _ = start_of(Work(dataset, "none", 0, (10,)), graphs)
    width = (labels or 1) + 1 + columns
    assert features.columns(graphs).shape == (graphs.num_nodes, width)
    assert width in {size for value in encoder.state_dict().values() for size in value.shape}


# What is computed.


def by_hand(method, dataset, seed, label_rate, encoder, features_of, pool=()):
    """The scores of a cell, put together from parts."""
    store = features_of.store(dataset)
    how = Finetune(epochs=2, batch_size=128, learning_rate=0.001)
    targets = ClassTargets(torch.from_numpy(dataset.classes), 2)
    fitting = Finetuning(store, targets, encoder, how, pool=pool, seed=seed)
    splits = few_label_splits(dataset.classes, seed, label_rate)
    return score_splits(fitting, dataset.classes, splits, seed).to_json(), splits


def test_record_matches_a_hand_computation(nci1, short):
    few, many = compute(Work("NCI1", "joao", 1, (20, 50)), nci1, device="cpu")
    trained = pretrain(cell_recipe("NCI1", "joao", 1), nci1, device="cpu")
    for record, rate in ((few, 20), (many, 50)):
        again = pretrain(cell_recipe("NCI1", "joao", 1), nci1, device="cpu")
        scores, splits = by_hand("joao", nci1, 1, rate / 100, again.encoder, again)
        assert record["scores"] == scores
        assert record["cell"] == {"dataset": "NCI1", "method": "joao", "seed": 1, "label_rate": rate}
        assert record["split_hash"] == split_hash(splits)
        # Of 27 training graphs round(0.2 * 27) = 5 have a label, 14 of them at 50 %; a tenth of these, one, validates.
        labelled = {20: 5, 50: 14}[rate]
        assert record["graphs"] == {"train": [labelled - 1] * 10, "validation": [1] * 10, "test": [3] * 10}
        assert record["losses"] == [trained.metrics[0].loss]
        assert record["policy"]["probabilities"] == trained.metrics[-1].probabilities
        assert record["policy"]["drawn"] == trained.counts.tolist()
        assert sum(map(sum, record["policy"]["drawn"])) == 30


# The augmentations of fine-tuning on molecules, by GraphCL's rule.
AUGMENTED = {"augmentations": ["node_drop", "subgraph"], "augmentations_all": True}


@pytest.mark.parametrize("method", ["none", *AUGMENTED])
def test_no_pretraining_starts_from_the_same_initial_weights(nci1, short, method):
    (record,) = compute(Work("NCI1", method, 1, (50,)), nci1, device="cpu")
    joao = cell_recipe("NCI1", "joao", 1)
    trained = pretrain(joao, nci1, device="cpu")  # for its features
    parts = build_method(joao, trained.store(nci1))
    generator = torch_generator(1, "calibration")
    calibrate(parts.encoder, trained.store(nci1), joao.training.batch_size, generator)  # or it is a straw man
    pool = {"none": 0, "augmentations": 2, "augmentations_all": 5}[method]
    pool = list(parts.augmentations.values())[:pool]
    scores, _ = by_hand(method, nci1, 1, 0.5, parts.encoder, trained, pool)
    assert record["scores"] == scores
    assert record["finetuning"]["augmented"] == AUGMENTED.get(method, False)
    assert "policy" not in record
    assert "losses" not in record


def test_augmentations_only_augments_finetuning_batches(nci1, short, monkeypatch):
    seen = {}

    def spied(store, targets, encoder, how, fabric, pool, seed):
        seen[method] = [type(each).__name__ for each in pool]
        return Finetuning(store, targets, encoder, how, fabric, pool, seed=seed)

    monkeypatch.setattr(reproduce, "Finetuning", spied)
    for method in ("none", *AUGMENTED, "joao"):
        compute(Work("NCI1", method, 0, (50,)), nci1, device="cpu")
    names = ["NodeDrop", "Subgraph", "EdgePerturb", "AttributeMask", "Identity"]
    assert seen == {"none": [], "augmentations": names[:2], "augmentations_all": names, "joao": []}


def test_augmentations_only_are_those_of_graphcl():
    for dataset, table in GRID["datasets"].items():
        kinds = [
            type(each).__name__ for each in finetuning_pool("augmentations", dataset, cell_recipe(dataset, "none", 0))
        ]
        names = finetuning_of("augmentations", dataset)["augmented"]
        assert [snake_case(kind) for kind in kinds] == names == [*POOLS[table["pool"]]]


@pytest.mark.parametrize("method", [*GRID["methods"], "node_drop+subgraph"])
def test_records_contain_all_settings(nci1, short, method):
    (record,) = compute(Work("NCI1", method, 1, (50,)), nci1, device="cpu")
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["cell"] == asdict(Cell("NCI1", method, 1, 50))
    assert record["recipe"] == recipe(method, seed=1)
    augmented = {"augmented": AUGMENTED.get(method, False)}
    assert record["finetuning"] == asdict(Finetune(epochs=2, choose_by="accuracy")) | augmented
    assert record["data"] == {"name": "NCI1", "fingerprint": nci1.fingerprint, "graphs": 30, "classes": 2}
    assert (record["chance"], record["precision"]) == (0.5, "32-true")
    assert record["command"]
    assert {"joao", "source", "python", "torch"} <= record["versions"].keys()
    assert record["machine"]["device"] == "cpu"
    assert record["features"] == "with_degree"
    assert len(record["scores"]["accuracy"]) == len(record["scores"]["epoch"]) == 10
    assert record["scores"]["mean"] == pytest.approx(sum(record["scores"]["accuracy"]) / 10)
    assert all(record[f"seconds of {what}"] > 0 for what in ("pre-training", "fine-tuning"))
    # The same labels for all methods.
    assert record["split_hash"] == split_hash(few_label_splits(nci1.classes, 1, 0.5))
    is_trained = "method" in GRID["methods"].get(method, {"method": "graphcl"})
    assert ("policy" in record, "losses" in record, "fast" in record) == (is_trained,) * 3


def test_labels_differ_between_seeds_and_label_rates(nci1, short):
    records = [
        record for seed in (0, 1) for record in compute(Work("NCI1", "none", seed, (20, 50)), nci1, device="cpu")
    ]
    assert len({record["split_hash"] for record in records}) == 4


def test_label_rates_do_not_influence_each_other(nci1, short, monkeypatch):
    trained = []

    def spied(recipe, *given, **options):
        trained.append(recipe)
        return pretrain(recipe, *given, **options)

    monkeypatch.setattr(reproduce, "pretrain", spied)
    both = compute(Work("NCI1", "graphcl", 0, (20, 50)), nci1, device="cpu")
    assert trained == [cell_recipe("NCI1", "graphcl", 0)]
    alone = [compute(Work("NCI1", "graphcl", 0, (rate,)), nci1, device="cpu")[0] for rate in (20, 50)]
    assert [untimed(record) for record in both] == [untimed(record) for record in alone]


# How it goes on.


def test_interrupted_computation_resumes(root, short, tmp_path):
    wanted, records = cells("semi_supervised", ["NCI1"], ["joao"]), tmp_path / "new" / "records"
    pretrainings = works(wanted)
    assert [work.label_rates for work in pretrainings] == [(20, 50)] * 4
    computing = compute_missing(wanted, RunOptions(records, data_root=root, device="cpu"))
    assert [next(computing), next(computing)] == pretrainings[:2]
    computing.close()
    complete = record_file(records).path.read_text().splitlines()
    first = {cell for work in pretrainings[:2] for cell in work.cells()}
    assert {Cell(**json.loads(line)["cell"]) for line in complete} == first
    # And one of two label rates was lost.
    lost = pretrainings[1].cells()[1]
    before = untimed(record_file(records)[lost.key])
    remove(record_file(records), lost.key)

    missing = [cell for cell in wanted if not is_done(cell, records)]
    assert set(missing) == {lost, *(cell for work in pretrainings[2:] for cell in work.cells())}
    done = compute_all(missing, records, root)
    assert sorted(done, key=str) == sorted([replace(pretrainings[1], label_rates=(50,)), *pretrainings[2:]], key=str)
    assert [cell for cell in wanted if not is_done(cell, records)] == []
    assert untimed(record_file(records)[lost.key]) == before
    assert len(set(complete) & set(record_file(records).path.read_text().splitlines())) == len(complete) - 1


def test_record_of_another_recipe_is_not_accepted(root, short, tmp_path):
    cell = Cell("NCI1", "none", 0, 50)
    assert not is_done(cell, tmp_path)
    assert compute_all([cell], tmp_path, root) == [Work("NCI1", "none", 0, (50,))]
    assert is_done(cell, tmp_path)
    for other in (replace(cell, seed=1), replace(cell, method="joao"), replace(cell, label_rate=20)):
        assert not is_done(other, tmp_path)
    for part, key, value in (("recipe", "strength", 0.3), ("finetuning", "epochs", 3)):
        before = short[part][key]
        short[part][key] = value
        with refused(record_file(tmp_path).path, cell.key, "recipe", " none "):
            is_done(cell, tmp_path)
        short[part][key] = before
    short["methods"]["none"]["augmented"] = True
    with refused(record_file(tmp_path).path, cell.key, "recipe", " none "):
        is_done(cell, tmp_path)
    short["methods"]["none"]["augmented"] = False
    assert is_done(cell, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", "{}", '{"cell": {}}', '{"cell": 3, "scores": {"accuracy": []}, "split_hash": "a"}'),
        '{"cell": {"dataset": "NCI1", "method": "none", "seed": 0, "label_rate": 50}, "scores": {}, "split_hash": "a"}',
        '{"cell": {"dataset": "NCI1", "method": "none", "seed": 0}, "scores": {"accuracy": []}, "split_hash": "a"}',
        '{"cell": {"dataset": "NCI1", "method": "none", "seed": 0, "label_rate": 50}, "scores": {"accuracy": []}}',
        b"\xff\xfe",
    ],
)
def test_damaged_record_is_rejected(content, tmp_path):
    path = record_file(tmp_path).path
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(path):
        is_done(Cell("NCI1", "none", 0, 50), tmp_path)


def test_unwritable_folder_is_rejected_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("precious")
    monkeypatch.setattr(reproduce, "compute", lambda *given, **options: pytest.fail("it worked"))
    with refused(tmp_path / "file"):
        next(compute_missing(cells("prior"), RunOptions(tmp_path / "file")))
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.slow
def test_number_of_processes_does_not_change_the_result(root, short, tmp_path):
    cell = Cell("PROTEINS", "joao", 0, 50)
    for jobs in (1, 2):
        code = (  # another process has a table of its own, so it is given the short one
            "from pathlib import Path\n"
            "from repro.protocols.semi_supervised import run as reproduce\n"
            f"reproduce.grid = lambda: {short!r}\n"
            f"work, place = [reproduce.{cell!r}], Path({str(tmp_path / str(jobs))!r})\n"
            f"list(reproduce.compute_missing(work, reproduce.RunOptions(place, data_root={root!r}, device='cpu')))\n"
        )
        assert list(run_tasks(exec, [code], jobs)) == [code]
    one, two = (untimed(record_file(tmp_path / str(jobs))[cell.key]) for jobs in (1, 2))
    assert one == two
    assert one["machine"]["threads"] == 1


@pytest.mark.slow
def test_whole_recipe_in_two_processes(root, tmp_path):
    cell = Cell("PROTEINS", "none", 0, 50)
    for jobs in (1, 2):
        assert compute_all([cell], tmp_path / str(jobs), root, jobs=jobs) == works([cell])
    one, two = (untimed(record_file(tmp_path / str(jobs))[cell.key]) for jobs in (1, 2))
    assert one == two


def test_a_record_is_made_again_bit_for_bit(short, root, tmp_path):
    cell = Cell("NCI1", "joao", 1, 50)
    compute_all([cell], tmp_path, root)
    findings = check_record(tmp_path, cell.key, RunOptions(tmp_path, data_root=root, device="cpu"))
    assert {"finetuning", "splits", "loss, epoch 1", "score"} <= {each.what for each in findings}
    assert all(each.difference == 0 for each in findings)
