"""The transfer table: its cells and recipes, what is computed for each cell, and how it goes on."""

import copy
import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from joao.baselines.forests import molecule_columns
from joao.core.randomness import derive_seed
from joao.data import read
from joao.data.features import Features, make_store
from joao.evaluation.splits import scaffolds, split_by_scaffold
from joao.evaluation.targets import BinaryTargets
from joao.runs.folder import Run
from joao.runs.trained import load_run, make_untrained
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.cells import RunOptions
from repro.protocols.check import check_record
from repro.protocols.transfer import run as reproduce
from repro.protocols.transfer.overlap import molecules_of_test
from repro.protocols.transfer.run import (
    Cell,
    cell_recipe,
    cells,
    compute_missing,
    encoder_of,
    finetuning_of,
    forest_score,
    is_done,
    pretrain_missing,
    record_file,
)
from tests.messages import refused

pytest.importorskip("rdkit")
GRID = reproduce.grid()
RINGS = [f"C1{'C' * size}{atom}1" for size in range(1, 8) for atom in "CNS"]
SMILES = [f"{'C' * tail}{ring}{'O' * ((tail + number) % 2)}" for tail in (1, 2, 3) for number, ring in enumerate(RINGS)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of made molecules: two sets with labels and a corpus."""
    folder = tmp_path_factory.mktemp("data") / "molecules"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for name in ("bace", "bbbp"):
        lines = [f"{smiles},{int('O' in smiles)},{draw.choice(['0', '1', ''])}" for smiles in SMILES]
        (folder / f"{name}.csv").write_text("smiles,active,toxic\n" + "\n".join(lines) + "\n")
    for name in GRID["corpus"]["sources"]:
        (folder / f"{name}.csv").write_text("smiles\n" + "\n".join(SMILES[:20]) + "\n")
    return str(folder.parent)


@pytest.fixture
def short(monkeypatch):
    grid = copy.deepcopy(GRID)
    grid["seeds"] = [0, 1]
    grid["datasets"] = {name: grid["datasets"][name] for name in ("bbbp", "bace")}
    grid["recipe"]["encoder"] |= {"width": 8, "layers": 2}
    grid["recipe"]["training"] |= {"epochs": 1, "batch_size": 16}
    grid["finetuning"] |= {"epochs": 2}
    monkeypatch.setattr(reproduce, "grid", lambda: grid)
    monkeypatch.setitem(reproduce.FOREST["binary"], "n_estimators", 5)
    return grid


def test_table_has_every_row_of_the_paper_and_two_fingerprint_rows():
    wanted = cells()
    assert len(wanted) == len(set(wanted)) == 10 * 8
    assert cells(["hiv"], ["joao"]) == [Cell("hiv", "joao")]
    for given, value in (((["HIV"], []), "HIV"), (([], ["joa"]), "joa")):
        with refused(f"'{value}'"):
            cells(*given)


def test_methods_share_all_settings_but_their_own():
    recipes = {name: cell_recipe(name) for name in GRID["methods"] if encoder_of(name) == name}
    assert len(recipes) == 7
    assert len({json.dumps(recipe.table()["encoder"]) for recipe in recipes.values()}) == 1
    assert len({str(recipe.training) for recipe in recipes.values()}) == 1
    assert {name: recipe.objective.name for name, recipe in recipes.items()} == {
        "infomax": "infomax",
        "edge_pred": "edge_reconstruction",
        "attr_masking": "attribute_masking",
        "context_pred": "context_prediction",
        **dict.fromkeys(("graphcl", "joao", "joaov2"), "nt_xent"),
    }
    assert recipes["joao"].heads != recipes["joaov2"].heads
    assert recipes["joao"].objective.options["temperature"] == 0.1
    assert {part.options.get("fill") for part in recipes["joao"].augmentations} == {None, "token"}
    assert [part.name for part in recipes["infomax"].augmentations] == ["identity"]
    assert cell_recipe("none") == recipes["joao"]
    assert encoder_of("none") is encoder_of("ecfp") is None
    assert encoder_of("joao_ecfp") == "joao"


def test_fine_tuning_is_as_published_except_on_two_large_data_sets():
    published = {"epochs": 100, "batch_size": 32, "learning_rate": 0.001, "dropout": 0.5}
    assert finetuning_of(Cell("bbbp", "none")) == {"seeds": [*range(10)], **published}
    assert finetuning_of(Cell("muv", "joao")) == {"seeds": [0, 1, 2], **published, "epochs": 30, "batch_size": 256}
    assert finetuning_of(Cell("hiv", "joao")) == {"seeds": [*range(10)], **published, "epochs": 30, "batch_size": 256}
    assert finetuning_of(Cell("bace", "ecfp")) == {"seeds": [0, 1, 2], **reproduce.FOREST["binary"]}
    assert finetuning_of(Cell("toxcast", "ecfp")) == {"seeds": [0], **reproduce.FOREST["binary"], "n_estimators": 100}


def test_cells_are_computed_once_and_resume(short, root, tmp_path):
    records, encoders = tmp_path / "records", tmp_path / "encoders"
    wanted = cells(["bace"], ["none", "joao", "attr_masking", "ecfp", "joao_ecfp"])
    made = list(
        pretrain_missing(
            [cell.method for cell in wanted],
            None,
            RunOptions(encoders, encoders=encoders, data_root=root, device="cpu"),
        )
    )
    assert made == ["joao", "attr_masking"]
    assert not list(
        pretrain_missing(["joao"], None, RunOptions(encoders, encoders=encoders, data_root=root, device="cpu"))
    )
    done = list(compute_missing(wanted, RunOptions(records, encoders=encoders, data_root=root, device="cpu")))
    assert done == wanted
    assert all(is_done(cell, records) for cell in wanted)
    found = {cell.method: record_file(records)[cell.key] for cell in wanted}
    assert len({record["split_hash"] for record in found.values()}) == 1
    assert sum(found["joao"]["molecules"].values()) == found["joao"]["data"]["graphs"] == len(SMILES)
    clean = set(SMILES[:20]) - set(molecules_of_test("bace", root))
    assert found["joao"]["corpus"]["molecules"] == 2 * len(clean) < 40
    assert found["none"]["corpus"] is found["ecfp"]["corpus"] is None
    for record in found.values():
        assert record["scores"]["seed"] == [0, 1]
        assert all(0 <= score <= 1 for score in record["scores"]["test"])
    assert len(set(found["none"]["scores"]["validation"])) == 2  # each seed has first weights of its own
    assert found["ecfp"]["scores"] != found["joao_ecfp"]["scores"]


def by_hand(short, root, start_of):
    """The scores of seeds 0 and 1 on bace, fitted one by one; ``start_of`` makes the encoder of a seed."""
    dataset = read("bace", root)
    parts = [torch.from_numpy(part) for part in split_by_scaffold(scaffolds(dataset.smiles))]
    scores = {"validation": [], "test": [], "last_test": [], "epoch": []}
    for seed in (0, 1):
        encoder = start_of(seed, dataset.subset(np.sort(torch.cat(parts[:2]).numpy())))
        encoder.dropout = 0.5
        store = make_store(dataset, Features.from_dataset(dataset))
        how = Finetune(epochs=2, batch_size=32, learning_rate=0.001)
        finetuning = Finetuning(store, BinaryTargets(torch.from_numpy(dataset.targets)), encoder, how, seed=seed)
        fit = finetuning.fit(parts[0], parts[1], derive_seed(seed, "transfer"))
        scores["epoch"].append(fit.chosen)
        scores["validation"].append(fit.epochs[fit.chosen - 1].validation_score)
        scores["test"].append(finetuning.score(parts[2]))
        finetuning.restore_last_epoch()
        scores["last_test"].append(finetuning.score(parts[2]))
    return scores


def test_pre_trained_cell_matches_a_hand_computation(short, root, tmp_path):
    list(pretrain_missing(["joao"], None, RunOptions(tmp_path, encoders=tmp_path, data_root=root, device="cpu")))
    (done,) = compute_missing(
        [Cell("bace", "joao")], RunOptions(tmp_path / "records", encoders=tmp_path, data_root=root, device="cpu")
    )
    record = record_file(tmp_path / "records")[done.key]
    expected = by_hand(short, root, lambda seed, known: load_run(tmp_path / "joao", device="cpu").encoder)
    assert {name: record["scores"][name] for name in expected} == expected
    assert "side" not in record["fine-tuned"]
    assert record["corpus"]["fingerprint"] == reproduce.corpus(None, root).fingerprint
    digest = hashlib.sha256()
    for name, value in sorted(load_run(tmp_path / "joao", device="cpu").encoder.state_dict().items()):
        digest.update(f"{name}/".encode() + value.numpy().tobytes())
    assert record["corpus"]["weights"] == digest.hexdigest()[:16]  # of pre-training, not as fine-tuning left them


def test_cell_without_pre_training_matches_a_hand_computation(short, root):
    def start_of(seed, known):
        recipe = cell_recipe("none")
        return make_untrained(
            replace(recipe, training=replace(recipe.training, seed=seed)), known, device="cpu"
        ).encoder

    record = reproduce.compute(Cell("bace", "none"), read("bace", root), None, device="cpu")
    expected = by_hand(short, root, start_of)
    assert {name: record["scores"][name] for name in expected} == expected


def test_forests_match_a_hand_computation(short, root, tmp_path):
    list(pretrain_missing(["joao_ecfp"], None, RunOptions(tmp_path, encoders=tmp_path, data_root=root, device="cpu")))
    trained, dataset = load_run(tmp_path / "joao", device="cpu"), read("bace", root)
    split = split_by_scaffold(scaffolds(dataset.smiles))
    counts = molecule_columns(dataset.smiles, ["ecfp"])["ecfp"]
    both = np.concatenate([counts, trained.embed(dataset).numpy()], axis=1)
    for method, columns, given in (("ecfp", counts, None), ("joao_ecfp", both, trained)):
        record = reproduce.compute(Cell("bace", method), dataset, given, device="cpu")
        assert record["scores"]["test"] == [forest_score(columns, dataset.targets, split, seed) for seed in (0, 1)]


def test_encoder_of_another_corpus_is_rejected_and_killed_one_resumes(short, root, tmp_path, monkeypatch):
    def pretrained(source=None):
        return list(
            pretrain_missing(
                ["infomax"], source, RunOptions(tmp_path / "e", encoders=tmp_path / "e", data_root=root, device="cpu")
            )
        )

    def die(run, weights):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", die)
        with pytest.raises(KeyboardInterrupt):
            pretrained()
    assert pretrained() == ["infomax"]
    assert (tmp_path / "e" / "infomax" / "weights.safetensors").exists()
    with refused(tmp_path / "e" / "infomax", "zinc_moses+zinc250k"):
        pretrained("bace")
    assert not pretrained()
    monkeypatch.setattr(reproduce, "corpus", lambda *given: pytest.fail("what is pre-trained needs no corpus"))
    assert not pretrained()


def test_record_or_encoder_of_another_recipe_is_rejected(short, root, tmp_path):
    cell = Cell("bbbp", "none")
    list(compute_missing([cell], RunOptions(tmp_path, encoders=tmp_path, data_root=root, device="cpu")))
    list(
        pretrain_missing(
            ["infomax"],
            None,
            RunOptions(tmp_path / "encoders", encoders=tmp_path / "encoders", data_root=root, device="cpu"),
        )
    )
    short["finetuning"]["dropout"] = 0.1
    short["recipe"]["training"]["epochs"] = 3
    with refused(record_file(tmp_path).path, cell.key, "recipe", " none "):
        is_done(cell, tmp_path)
    short["finetuning"]["dropout"] = 0.5
    short["recipe"]["encoder"]["width"] = 9
    with refused(record_file(tmp_path).path, cell.key, "recipe", " none "):
        is_done(cell, tmp_path)
    short["recipe"]["encoder"]["width"] = 8
    with refused(tmp_path / "encoders" / "infomax", "recipe", " infomax "):
        list(
            pretrain_missing(
                ["infomax"],
                None,
                RunOptions(tmp_path / "encoders", encoders=tmp_path / "encoders", data_root=root, device="cpu"),
            )
        )


def test_labels_of_the_file_are_scored(short, root, tmp_path):
    dataset = read("bace", root)
    assert dataset.target_names == ("active", "toxic")
    record = reproduce.compute(Cell("bace", "none"), dataset, None, device="cpu")
    assert record["tasks"] == 2
    assert record["finetuning"]["dropout"] == 0.5


@pytest.mark.parametrize("method", ["none", "joao", "ecfp"])
def test_a_record_is_made_again_bit_for_bit(short, root, tmp_path, method):
    cell, options = Cell("bace", method), RunOptions(tmp_path, root, "cpu", encoders=tmp_path / "encoders")
    list(pretrain_missing([method], None, options))
    list(compute_missing([cell], options))
    # With the encoder at hand, and with a new one: its folder is made, as if it had been lost.
    for encoders in ("encoders", "others"):
        findings = check_record(tmp_path, cell.key, RunOptions(tmp_path, root, "cpu", encoders=tmp_path / encoders))
        assert {"finetuning", "splits", "score"} <= {each.what for each in findings}
        assert all(each.difference == 0 for each in findings)


def test_an_older_record_is_made_again_with_the_whole_corpus(short, root, tmp_path):
    options = RunOptions(tmp_path, encoders=tmp_path, data_root=root, device="cpu")
    assert list(pretrain_missing(["infomax"], None, options, whole=True)) == ["infomax"]
    info = Run.open(tmp_path / "infomax").info
    assert (info.num_graphs, info.data) == (40, "zinc_moses+zinc250k")
    assert not list(pretrain_missing(["infomax"], None, options, whole=True))
    with refused(tmp_path / "infomax", "zinc_moses+zinc250k"):  # the table needs one without test molecules
        list(pretrain_missing(["infomax"], None, options))
