"""An exported file embeds and predicts as its run does, in another process too, and no other file is taken for one."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import joao
from joao.baselines import forests
from joao.config.recipe import make_recipe
from joao.core.errors import WriteError
from joao.core.files import write_file
from joao.data.features import Features
from joao.data.molecules import FEATURISER, featurise
from joao.data.synthetic import random_graphs
from joao.runs import trained as shipping
from joao.runs.export import export
from joao.runs.finetuning import finetune, load_finetuned
from joao.runs.folder import FILE_FORMAT, Run
from joao.runs.pretraining import pretrain
from joao.runs.trained import bundled_model_path, bundled_models, load_run
from joao.training.finetune import Finetune
from tests.messages import assert_mentions, refused

GRAPHS = random_graphs(20, mean_nodes=6, num_edge_attributes=2, seed=1)
UNSEEN = random_graphs(9, mean_nodes=8, num_edge_attributes=2, seed=2)
RECIPE = make_recipe(
    {
        "data": "/home/somebody/secret/graphs.jsonl",
        "features": "auto",
        "encoder": {"name": "gin", "width": 24, "readout": "sum"},
        "training": {"epochs": 2, "batch_size": 10, "seed": 3},
    }
)
SMILES = ["CCO", "c1ccccc1", "C[C@H](N)C(=O)O", "[Na+].[Cl-]", "C", "F/C=C/F", "CC(=O)Oc1ccccc1C(=O)O", "N#N"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    pretrain(RECIPE, GRAPHS, folder=folder, device="cpu")
    return folder


@pytest.fixture(scope="module")
def tuned(run, tmp_path_factory):
    how = Finetune(epochs=2, batch_size=10, learning_rate=0.01, standardise=True)
    folder = tmp_path_factory.mktemp("runs") / "tuned"
    finetune(load_run(run, device="cpu"), GRAPHS, how, device="cpu").save(folder)
    return folder


@pytest.fixture
def file(run, tmp_path):
    return export(run, tmp_path / "model.safetensors").file


def metadata(path):
    with safe_open(path, "pt") as opened:
        return opened.metadata()


def test_exported_file_is_the_run_without_heads(run, file):
    before, after = load_run(run, device="cpu"), load_run(file, device="cpu")
    assert before.info == after.info
    assert after.recipe == dataclasses.replace(before.recipe, data="graphs.jsonl")
    assert list(after.metrics) == list(before.metrics)
    kept = {name for name in before.weights if not name.startswith("heads.")}
    assert set(after.weights) == kept < set(before.weights)
    for name in kept:
        assert after.weights[name].numpy().tobytes() == before.weights[name].numpy().tobytes()
    assert torch.equal(after.embed(UNSEEN), before.embed(UNSEEN))


def test_export_is_deterministic(run, file, tmp_path):
    (tmp_path / "again").mkdir()
    for _ in range(3):
        again = export(run, tmp_path / "again" / "model.safetensors").file
        assert again.read_bytes() == file.read_bytes()
        again.unlink()
        again.with_suffix(".md").unlink()


def test_export_does_not_contain_data_paths(file):
    for path in (file, file.with_suffix(".md")):
        assert b"secret" not in path.read_bytes()


def test_only_matrices_are_stored_in_half_precision(run, tmp_path):
    exported = export(run, tmp_path / "half.safetensors", half=True)
    expected = load_run(run, device="cpu")
    stored = load_file(exported.file)
    rounded = {}
    for name, value in expected.encoder.state_dict().items():
        matrix = value.dim() == 2
        assert stored[f"encoder.{name}"].dtype == (torch.float16 if matrix else value.dtype)
        rounded[name] = torch.from_numpy(value.numpy().astype(np.float16).astype(np.float32)) if matrix else value
    before = expected.embed(UNSEEN)
    expected.encoder.load_state_dict(rounded)
    after = expected.embed(UNSEEN)
    loaded = load_run(exported.file, device="cpu")
    assert torch.equal(loaded.embed(UNSEEN), after)
    assert {value.dtype for value in loaded.weights.values()} == {torch.float32, torch.int64}
    change = ((after - before).norm(dim=1) / before.norm(dim=1)).max()
    assert change / 30 < exported.half_change < 30 * change  # other graphs, so only its size can be compared
    assert_mentions(exported.card.read_text(), f"{exported.half_change:.2g}")


def test_matrix_too_large_for_half_precision_is_unchanged(run, tmp_path):
    folder = tmp_path / "large"
    shutil.copytree(run, folder)
    weights = load_file(run / "weights.safetensors")
    weights["encoder.mlps.0.0.weight"][0, 0] = 70000.0  # the largest number of half precision is 65504
    save_file(weights, folder / "weights.safetensors")
    stored = load_file(export(folder, tmp_path / "large.safetensors", half=True).file)
    assert stored["encoder.mlps.0.0.weight"].tolist()[0][0] == 70000
    assert stored["encoder.mlps.0.2.weight"].dtype == torch.float16


@pytest.mark.parametrize("where", [np.s_[:], np.s_[3], np.s_[:, 3]])
def test_matrix_too_small_for_half_precision_is_unchanged(where, run, tmp_path):
    folder = tmp_path / "small"
    shutil.copytree(run, folder)
    weights = load_file(run / "weights.safetensors")
    weights["encoder.mlps.0.2.weight"][where] *= 1e-6
    weights["encoder.mlps.1.0.weight"][3, 3] = 1e-9  # one number in a row of others
    weights["encoder.mlps.1.2.weight"][3] = 0
    save_file(weights, folder / "weights.safetensors")
    stored = load_file(export(folder, tmp_path / "small.safetensors", half=True).file)
    assert torch.equal(stored["encoder.mlps.0.2.weight"], weights["encoder.mlps.0.2.weight"])
    for name in ("0.0", "1.0", "1.2"):
        assert stored[f"encoder.mlps.{name}.weight"].dtype == torch.float16


@pytest.mark.parametrize("half", [False, True])
def test_half_precision_survives_another_export(half, run, tmp_path):
    first = export(run, tmp_path / "first.safetensors", half=True)
    second = export(first.file, tmp_path / "second.safetensors", half=half)
    third = export(second.file, tmp_path / "third.safetensors")
    assert first.half_change == second.half_change == third.half_change > 0
    assert third.card.read_text() == first.card.read_text().replace("first.safetensors", "third.safetensors")
    before, after = load_file(first.file), load_file(third.file)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value.dtype == after[name].dtype
        assert torch.equal(value, after[name])


def test_damaged_half_precision_record_is_rejected(run, tmp_path):
    file = export(run, tmp_path / "half.safetensors", half=True).file
    changed(file, "half_change", lambda text: "much")
    with refused(file, "half_change", "'much'"):
        export(file, tmp_path / "again.safetensors")


def test_exported_file_can_be_exported_again(file, tmp_path):
    again = export(file, tmp_path / "again.safetensors").file
    before, after = metadata(file), metadata(again)
    assert before.pop("card.md").replace("model.safetensors", "again.safetensors") == after.pop("card.md")
    assert before == after
    assert load_file(file).keys() == load_file(again).keys()


def test_fine_tuned_export_keeps_the_classifier(tuned, tmp_path):
    file = export(tuned, tmp_path / "tuned.safetensors").file
    before, after = load_finetuned(tuned, device="cpu"), load_finetuned(file, device="cpu")
    assert torch.equal(before.predict_logits(UNSEEN), after.predict_logits(UNSEEN))
    loaded = joao.load(file, device="cpu")
    assert isinstance(loaded, joao.JOAOClassifier)
    np.testing.assert_array_equal(loaded.predict(UNSEEN), joao.load(tuned, device="cpu").predict(UNSEEN))
    card = file.with_suffix(".md").read_text()
    accuracy = before.scores["validation"]["accuracy"]
    assert_mentions(card, "synthetic", "class (0, 1)", "16 graphs", "4 for validation", f"accuracy {accuracy:.4g}")
    assert "model.predict(" in card


def test_exported_regressor_predicts_numbers(run, tmp_path):
    sizes = np.diff(GRAPHS.first_node).astype(np.float32)
    joao.JOAORegressor(run, epochs=2, device="cpu").fit(GRAPHS, sizes).save(tmp_path / "sizes")
    file = export(tmp_path / "sizes", tmp_path / "sizes.safetensors").file
    loaded = joao.load(file, device="cpu")
    assert isinstance(loaded, joao.JOAORegressor)
    np.testing.assert_array_equal(loaded.predict(UNSEEN), joao.load(tmp_path / "sizes", device="cpu").predict(UNSEEN))
    assert "numbers (0)" in file.with_suffix(".md").read_text()


def test_small_targets_survive_half_precision(run, tmp_path):
    sizes = np.diff(GRAPHS.first_node).astype(np.float32) * 1e-9
    joao.JOAORegressor(run, epochs=5, device="cpu").fit(GRAPHS, sizes).save(tmp_path / "small")
    exported = export(tmp_path / "small", tmp_path / "small.safetensors", half=True)
    whole, half = (joao.load(each, device="cpu").predict(UNSEEN) for each in (tmp_path / "small", exported.file))
    assert whole.std() > 0
    assert np.abs(half - whole).max() < 0.05 * whole.std()
    stored, weights = load_file(exported.file), load_file(tmp_path / "small" / "weights.safetensors")
    kept = [name for name in weights if name.startswith("classifier.")]
    assert kept
    for name in kept:
        assert torch.equal(stored[name], weights[name])
    rmse = load_finetuned(tmp_path / "small", device="cpu").scores["validation"]["rmse"]
    assert f"rmse {rmse:.4g}," in exported.card.read_text()
    assert float(f"{rmse:.4g}") > 0


@pytest.mark.parametrize("name", ["run", "tuned", "sizes"])
def test_weights_are_read_once(name, run, tuned, tmp_path, monkeypatch):
    sizes = np.diff(GRAPHS.first_node).astype(np.float32)
    joao.JOAORegressor(run, epochs=1, device="cpu").fit(GRAPHS, sizes).save(tmp_path / "sizes")
    folder = {"run": run, "tuned": tuned, "sizes": tmp_path / "sizes"}[name]
    read, weights = [], Run.weights
    monkeypatch.setattr(Run, "weights", lambda self: read.append(self.folder) or weights(self))
    file = export(folder, tmp_path / "model.safetensors").file
    joao.load(file, device="cpu")
    joao.load(folder, device="cpu")
    assert read == [folder, file, folder]


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (lambda text: None, ["joao finetune"]),
        (lambda text: text[:-9], ["finetune.json"]),
        (lambda text: "[]", ["finetune.json"]),
        (lambda text: json.dumps({**json.loads(text), "kind": "songs"}), ["finetune.json", "songs"]),
        (lambda text: json.dumps({**json.loads(text), "format": 99}), ["finetune.json", "format 99"]),
    ],
)
def test_changed_fine_tuning_record_is_rejected(change, values, tuned, tmp_path):
    file = export(tuned, tmp_path / "tuned.safetensors").file
    changed(file, "finetune.json", change)
    with refused(file, *values):
        joao.load(file, device="cpu")


def test_exported_encoder_has_no_classifier(file):
    with refused(file, "joao finetune"):
        load_finetuned(file)
    assert isinstance(joao.load(file, device="cpu"), joao.JOAO)


@pytest.mark.slow
def test_another_process_computes_the_same_embeddings(run, file, tmp_path):
    program = (
        "import joao, numpy, sys\n"
        "from joao.data.synthetic import random_graphs\n"
        "graphs = random_graphs(9, mean_nodes=8, num_edge_attributes=2, seed=2)\n"
        "numpy.save(sys.argv[2], joao.load(sys.argv[1], device='cpu').transform(graphs))"
    )
    subprocess.run([sys.executable, "-c", program, file, tmp_path / "made.npy"], check=True, timeout=120)
    expected = load_run(run, device="cpu").embed(UNSEEN).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "made.npy"), expected, rtol=1e-5, atol=1e-6)


def test_model_card_matches_the_run(run, file):
    card = file.with_suffix(".md").read_text()
    assert metadata(file)["card.md"] == card
    trained = load_run(run, device="cpu")
    size = 4 * 24 + 24 + 5 * (24 * 24 + 24) + 3 * 2 * 24  # two linear layers and a norm in each of three layers
    assert_mentions(card, "20 graphs", "synthetic", GRAPHS.fingerprint)
    assert_mentions(card, 'gin (width = 24, layers = 3, readout = "sum")', f"{size:,} parameters")
    assert_mentions(card, "2 epochs", "of 10", "learning rate 0.01", "seed 3")
    first, second, probability = trained.policy.top(1)[0]
    assert f"| {first} + {second} | {probability:.3f} | {trained.drawn[first, second]:.3f} |" in card
    assert "half" not in card.lower()
    assert "Licence" in card


def test_python_example_of_the_model_card_runs(file, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    graph = {"edges": [[0, 1], [1, 2]], "node_labels": [0, 1, 2], "edge_attributes": [[1, 0], [0, 1]]}
    (tmp_path / "graphs.jsonl").write_text(json.dumps(graph))
    code = re.search(r"```python\n(.*?)```", file.with_suffix(".md").read_text(), re.DOTALL).group(1)
    names = {}
    exec(compile(code, "card.md", "exec"), names)
    assert names["result"].shape == (1, 72)


def molecules(smiles):
    return dataclasses.replace(featurise(smiles), name="some", featuriser=f"codes {FEATURISER}, by hand")


@pytest.fixture(scope="module")
def molecule_run(tmp_path_factory):
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("runs") / "molecules"
    recipe = make_recipe(
        {
            "augmentations": ["node_drop", "identity"],
            "encoder": {"name": "molecule_gin", "width": 16, "layers": 2},
            "training": {"epochs": 1, "batch_size": 4},
        }
    )
    pretrain(recipe, molecules(SMILES), folder=folder, device="cpu")
    return folder


def card_of(model, path):
    model.save(path)
    return export(path, path.with_suffix(".safetensors")).card.read_text()


def test_card_describes_the_columns_that_the_encoder_reads(molecule_run, tmp_path):
    pytest.importorskip("rdkit")
    plain = export(molecule_run, tmp_path / "plain.safetensors").card.read_text()
    assert "hybridisation" not in plain
    assert "targets" not in plain
    assert "standardised" not in plain
    encoder = {"name": "molecule_gine", "width": 8, "layers": 2}
    model = joao.JOAO(epochs=1, encoder=encoder, targets={"ecfp": 0.5}, device="cpu")
    rich = card_of(model.fit(list(SMILES)), tmp_path / "rich")
    assert_mentions(rich, "hybridisation", "charge", "stereochemistry")
    assert "| targets | { contrastive = 1.0, ecfp = 0.5 }, not included |" in rich
    salts = joao.read([f"{text}.Cl" for text in SMILES], standardise=True)
    small = {"name": "molecule_gin", "width": 8, "layers": 2}
    fitted = joao.JOAO(epochs=1, encoder=small, device="cpu").fit(dataclasses.replace(salts, notices=()))
    assert_mentions(card_of(fitted, tmp_path / "salts"), "standardised", "charge parent")


def test_card_describes_an_ensemble(molecule_run, tmp_path, monkeypatch):
    monkeypatch.setitem(forests.FOREST, "numbers", {"n_estimators": 2})
    smiles = [f"{'C' * length}{end}" for length in range(1, 9) for end in ("O", "N", "F")]
    model = joao.JOAORegressor(molecule_run, ensemble=True, device="cpu").fit(smiles, np.arange(24.0))
    card = card_of(model, tmp_path / "ensemble")
    assert_mentions(card, "ensemble", "24 molecules for training", "descriptors", "kernel ridge")
    assert "fine-tuned" not in card
    assert "for validation" not in card


def test_card_names_the_licence_of_the_data_of_the_bundled_encoder(run, tuned, tmp_path):
    found = []
    for path in (bundled_model_path("molecules"), run, tuned):
        card = export(path, tmp_path / f"{len(found)}.safetensors").card.read_text()
        found.append([line for line in card.splitlines() if "Licence" in line])
    bundled, plain, both = found
    assert_mentions(*bundled, "ChEMBL", "CC BY-SA 3.0", "ZINC")  # as docs/exported-models.md says
    assert "not recorded" not in bundled[0]
    assert_mentions(*plain, GRAPHS.name, "not recorded")
    assert both[0] == plain[0]
    assert_mentions(both[1], "labelled", GRAPHS.name, "not recorded")


def test_half_precision_file_embeds_molecules(molecule_run, tmp_path):
    whole = export(molecule_run, tmp_path / "whole.safetensors")
    exported = export(molecule_run, tmp_path / "half.safetensors", half=True)
    assert exported.num_bytes < whole.num_bytes
    card = exported.card.read_text()
    assert f"| featuriser | codes {FEATURISER}, by hand |" in card
    assert 'model.transform(["CCO", "c1ccccc1"])' in card
    expected = load_run(molecule_run, device="cpu").embed(molecules(SMILES))
    made = torch.from_numpy(joao.load(exported.file, device="cpu").transform(molecules(SMILES)))
    change = (made - expected).norm(dim=1) / expected.norm(dim=1)
    assert 0 < change.max() < 30 * exported.half_change


def test_molecules_with_other_features(tmp_path):
    pytest.importorskip("rdkit")
    table = {"features": "labels", "encoder": {"name": "gin", "width": 8, "readout": "sum"}}
    table["training"] = {"epochs": 1, "batch_size": 4}
    pretrain(make_recipe(table), molecules(SMILES), folder=tmp_path / "run", device="cpu")
    file = export(tmp_path / "run", tmp_path / "model.safetensors", half=True).file
    assert joao.load(file, device="cpu").transform(molecules(SMILES)).shape == (8, 24)


def test_other_atom_codes_are_rejected(molecule_run, tmp_path):
    file = export(molecule_run, tmp_path / "model.safetensors").file
    changed(file, "run.json", lambda text: json.dumps({**json.loads(text), "codes": FEATURISER + 1}))
    with refused(file, f"version {FEATURISER + 1}", f"version {FEATURISER}."):
        joao.load(file)


def changed(file, name, change):
    """Writes the file anew with one of its texts changed, or without it."""
    texts, weights = metadata(file), load_file(file)
    made = change(texts.pop(name))
    save_file(weights, file, {**texts, **({} if made is None else {name: made})})


def with_field(key, value):
    return lambda text: json.dumps({**json.loads(text), key: value})


# More digits than Python converts to a number, digits of other scripts, and what only Python takes for a number.
ODD_NUMBERS = ("9" * 5000, "\u0661", "\u00b2", "1_0", " 1", "-1", "1e3", "")


@pytest.mark.parametrize(
    ("name", "change", "values"),
    [
        ("joao.format", lambda text: None, ["joao export"]),
        *(("joao.format", lambda text, odd=odd: odd, ["joao export"]) for odd in ODD_NUMBERS),
        ("joao.format", lambda text: str(FILE_FORMAT + 1), [f"format {FILE_FORMAT + 1}"]),
        ("run.json", lambda text: None, ["run.json", "joao pretrain"]),
        ("run.json", lambda text: text[:-9], ["run.json"]),
        ("run.json", lambda text: "[]", ["run.json"]),
        ("run.json", with_field("num_features", -4), ["run.json"]),
        ("run.json", with_field("num_features", "four"), ["run.json"]),
        ("run.json", with_field("num_features", 5), ["run.json", "4 columns", 5]),
        ("run.json", with_field("finished", False), ["joao pretrain --resume"]),
        ("recipe.toml", lambda text: None, ["recipe.toml"]),
        ("recipe.toml", lambda text: text[:-9] + "[", ["recipe.toml", "TOML"]),
        ("recipe.toml", lambda text: text.replace('"gin"', '"jin"'), ["recipe.toml", "'jin'", "'gin'"]),
        ("recipe.toml", lambda text: text.replace("width = 24", "width = 10000000"), ["500000220000003"]),
        ("recipe.toml", lambda text: text.replace("width = 24", "width = 12"), ["mlps.0.0.weight", "[24, 4]"]),
        ("metrics.jsonl", lambda text: text[:-9], ["metrics.jsonl"]),
        ("metrics.jsonl", lambda text: None, ["metrics.jsonl", "2 epochs"]),
    ],
)
def test_changed_file_is_rejected(name, change, values, file):
    changed(file, name, change)
    with refused(file, *values):
        load_run(file, device="cpu")


def test_flipped_bytes_in_weights_are_detected(run, file, tuned, tmp_path):
    for path in (
        file,
        export(run, tmp_path / "half.safetensors", half=True).file,
        export(tuned, tmp_path / "tuned.safetensors").file,
    ):
        whole = path.read_bytes()
        place = len(whole) - 400
        flipped = bytes(byte ^ 1 for byte in whole[place : place + 4])
        path.write_bytes(whole[:place] + flipped + whole[place + 4 :])
        with refused(path):
            joao.load(path, device="cpu")
        changed(path, "joao.checksum", lambda text: None)  # as files of an earlier version are
        joao.load(path, device="cpu")


def test_truncated_or_foreign_file_is_rejected(file, tmp_path):
    whole = file.read_bytes()
    foreign = {
        "cut": whole[: len(whole) - 100],
        "header": whole[:60],
        "lying": (2**62).to_bytes(8, "little") + whole[8:],
        "empty": b"",
        "zeros": bytes(1000),
        "text": b"graph,source,target\n",
    }
    for name, content in foreign.items():
        (tmp_path / name).write_bytes(content)
    torch.save({"weight": torch.ones(2)}, tmp_path / "pickle")
    for name in (*foreign, "pickle"):
        with refused(tmp_path / name, "joao export"):
            joao.load(tmp_path / name)


def test_export_does_not_overwrite_files(run, tmp_path):
    (tmp_path / "model.md").write_text("mine")
    for name, values in (("model.safetensors", ["model.md"]), ("model.pt", ["model.pt", ".safetensors"])):
        with refused(*values):
            export(run, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["model.md"]


def test_a_failed_export_leaves_nothing(run, tmp_path, monkeypatch):
    def fail_at_the_model(path, *content, write=write_file, **options):
        if path.suffix == ".safetensors":
            raise WriteError("full")
        write(path, *content, **options)

    monkeypatch.setattr("joao.runs.export.write_file", fail_at_the_model)
    with pytest.raises(WriteError):
        export(run, tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_unfinished_run_is_not_exported(tmp_path):
    info = dataclasses.replace(pretrain(RECIPE, GRAPHS, device="cpu").info, finished=False)
    Run.create(tmp_path / "run", RECIPE, info)
    with refused(f"joao pretrain --resume {tmp_path / 'run'}"):
        export(tmp_path / "run", tmp_path / "model.safetensors")


def test_bundled_models_are_listed(file, run, tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "PRETRAINED", tmp_path / "none")
    with refused("'model'", "joao export"):
        bundled_model_path("model")
    monkeypatch.setattr(shipping, "PRETRAINED", tmp_path)
    assert bundled_models() == ["model"]
    assert bundled_model_path("model") == file
    with refused("'mdel'", "'model'"):
        bundled_model_path("mdel")
    embeddings = joao.load("model", device="cpu").transform(UNSEEN)
    np.testing.assert_array_equal(embeddings, load_run(run, device="cpu").embed(UNSEEN).numpy())


def test_bundled_models_load():
    for name in bundled_models():
        assert joao.load(name, device="cpu").history_


def test_bundled_model_embeds_molecules():
    """Oracle: chemistry. Homologues lie nearer to each other than to an aromatic amine."""
    pytest.importorskip("rdkit")
    model = joao.load("molecules", device="cpu")
    rows = model.transform(["CCCCCCO", "CCCCCCCO", "Nc1ccccc1C(=O)O"])
    assert rows.shape == (3, 2560)
    near, far = np.linalg.norm(rows[0] - rows[1]), np.linalg.norm(rows[0] - rows[2])
    assert near < far / 2


def test_features_are_kept(file):
    assert Run.open(file).info.features == Features.from_dataset(GRAPHS)
