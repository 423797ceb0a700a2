"""The transfer table: its cells and recipes, what is computed for each cell, and how it goes on."""

import copy
import json

import numpy as np
import pytest

from joao.data import read
from joao.errors import UserError
from joao.reproduce import transfer as reproduce
from joao.reproduce.transfer import (
    Cell,
    cell_recipe,
    cells,
    compute_missing,
    encoder_of,
    finetuning_of,
    is_done,
    pretrain_missing,
    read_record,
)

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
    grid["recipe"]["encoder"] |= {"width": 8, "layers": 2}
    grid["recipe"]["training"] |= {"epochs": 1, "batch_size": 16}
    grid["finetuning"] |= {"epochs": 2}
    monkeypatch.setattr(reproduce, "grid", lambda: grid)
    monkeypatch.setattr(reproduce, "NUM_TREES", 5)
    monkeypatch.setattr("joao.evaluation.forest.NUM_TREES", 5)
    return grid


def test_the_table_has_every_row_of_the_paper_and_the_two_of_chemists():
    wanted = cells()
    assert len(wanted) == len(set(wanted)) == 10 * 8
    assert cells(["hiv"], ["joao"]) == [Cell("hiv", "joao")]
    for given in ((["HIV"], []), ([], ["joa"])):
        with pytest.raises(UserError, match="reproduce: unknown"):
            cells(*given)


def test_methods_differ_in_what_makes_them_one_and_share_all_else():
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


def test_fine_tuning_is_as_published_except_on_the_two_large_sets():
    published = {"epochs": 100, "batch_size": 32, "learning_rate": 0.001, "dropout": 0.5}
    assert finetuning_of(Cell("bbbp", "none")) == {"seeds": [*range(10)], **published}
    assert finetuning_of(Cell("muv", "joao")) == {"seeds": [0, 1, 2], **published, "epochs": 30, "batch_size": 256}
    assert finetuning_of(Cell("hiv", "ecfp")) == {"seeds": [0, 1, 2], "trees": 100}


def test_cells_are_computed_once_and_go_on(short, root, tmp_path):
    records, encoders = tmp_path / "records", tmp_path / "encoders"
    wanted = cells(["bace"], ["none", "joao", "attr_masking", "ecfp", "joao_ecfp"])
    made = list(pretrain_missing([cell.method for cell in wanted], encoders, source=None, data_root=root, device="cpu"))
    assert made == ["joao", "attr_masking"]
    assert not list(pretrain_missing(["joao"], encoders, source=None, data_root=root, device="cpu"))
    done = list(compute_missing(wanted, records, encoders, data_root=root, device="cpu"))
    assert done == wanted
    assert all(is_done(cell, records) for cell in wanted)
    found = {cell.method: read_record(cell.path(records)) for cell in wanted}
    assert len({record["split_hash"] for record in found.values()}) == 1
    assert sum(found["joao"]["molecules"].values()) == found["joao"]["data"]["graphs"] == len(SMILES)
    assert found["joao"]["corpus"]["molecules"] == 40
    assert found["none"]["corpus"] is found["ecfp"]["corpus"] is None
    for record in found.values():
        assert record["scores"]["seed"] == [0, 1]
        assert all(0 <= score <= 1 for score in record["scores"]["test"])
    assert len(set(found["none"]["scores"]["validation"])) == 2  # each seed has first weights of its own
    assert found["ecfp"]["scores"] != found["joao_ecfp"]["scores"]


def test_a_record_or_an_encoder_of_another_recipe_is_told(short, root, tmp_path):
    cell = Cell("bbbp", "none")
    list(compute_missing([cell], tmp_path, tmp_path, data_root=root, device="cpu"))
    list(pretrain_missing(["infomax"], tmp_path / "encoders", source=None, data_root=root, device="cpu"))
    short["finetuning"]["dropout"] = 0.1
    short["recipe"]["training"]["epochs"] = 3
    with pytest.raises(UserError, match="was made by another recipe than none on bbbp has now"):
        is_done(cell, tmp_path)
    with pytest.raises(UserError, match="was pre-trained by another recipe than infomax has now"):
        list(pretrain_missing(["infomax"], tmp_path / "encoders", source=None, data_root=root, device="cpu"))


def test_labels_of_a_file_are_those_that_are_scored(short, root, tmp_path):
    dataset = read("bace", root)
    assert dataset.target_names == ("active", "toxic")
    record = reproduce.compute(Cell("bace", "none"), dataset, None, device="cpu")
    assert record["tasks"] == 2
    assert record["finetuning"]["dropout"] == 0.5
