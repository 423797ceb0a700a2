"""``joao export``: one file, which every command takes where it takes the folder of a run."""

import json

import pytest

from joao.runs import trained as shipping


@pytest.fixture
def model(joao, mutag_run):
    assert joao("export", mutag_run, "--out", "model.safetensors", "--quiet").code == 0
    return "model.safetensors"


def test_what_it_says(joao, mutag_run, tmp_path):
    outcome = joao("export", mutag_run, "--out", "model.safetensors", "--half")
    assert (outcome.code, outcome.err) == (0, "")
    size = (tmp_path / "model.safetensors").stat().st_size
    first, second, last = outcome.out.splitlines()
    assert first == f"model.safetensors: {size / 1000:.1f} kB. Model card: model.md"
    assert second.startswith("Half precision changes embeddings by up to 0.0")
    assert last == "Next: joao embed model.safetensors MUTAG --out embeddings.csv"


def test_json(joao, mutag_run, tmp_path):
    told = json.loads(joao("export", mutag_run, "--out", "model.safetensors", "--json").out)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert told == {"file": "model.safetensors", "card": "model.md", "bytes": size, "half_change": None}


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_embeddings_are_those_of_the_folder(joao, mutag_run, model, tmp_path, kind):
    for source, name in ((mutag_run, "folder"), (model, "file")):
        outcome = joao("embed", source, "MUTAG", "--out", f"{name}.{kind}", "--device", "cpu")
        assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / f"folder.{kind}").read_bytes() == (tmp_path / f"file.{kind}").read_bytes()


def test_evaluate_and_export_take_the_file(joao, model, labelled, tmp_path):
    assert joao("pretrain", labelled, "--out", "run", "--epochs", 1).code == 0
    assert joao("export", "run", "--out", "small.safetensors").code == 0
    outcome = joao("evaluate", "small.safetensors", "--folds", 2)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads((tmp_path / "small-evaluation.json").read_text())["data"]["graphs"] == 24
    assert joao("export", model, "--out", "again.safetensors").code == 0


def test_finetune_and_predict_take_the_file(joao, model, mutag_tuned, tmp_path):
    outcome = joao("finetune", model, "MUTAG", "--out", "tuned", "--epochs", 1, "--device", "cpu")
    assert (outcome.code, outcome.err) == (0, "")
    outcome = joao("export", mutag_tuned, "--out", "classifier.safetensors")
    assert outcome.out.splitlines()[-1] == "Next: joao predict classifier.safetensors MUTAG --out predictions.csv"
    for source, name in ((mutag_tuned, "folder"), ("classifier.safetensors", "file")):
        assert joao("predict", source, "MUTAG", "--out", f"{name}.csv", "--device", "cpu").code == 0
    assert (tmp_path / "folder.csv").read_bytes() == (tmp_path / "file.csv").read_bytes()


def test_a_model_of_the_package(joao, model, mutag_run, tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "PRETRAINED", tmp_path)
    outcome = joao("embed", "--pretrained", "model", "MUTAG", "--out", "shipped.csv", "--device", "cpu")
    assert (outcome.code, outcome.err) == (0, "")
    assert joao("embed", mutag_run, "MUTAG", "--out", "run.csv", "--device", "cpu").code == 0
    assert (tmp_path / "shipped.csv").read_bytes() == (tmp_path / "run.csv").read_bytes()


def test_names_and_numbers_of_arguments_of_embed(joao, mutag_run, tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "PRETRAINED", tmp_path)
    for arguments, message in (
        (("--pretrained", "molecules", "MUTAG"), "unknown pre-trained model 'molecules'. None comes with this version"),
        (("--pretrained", "molecules", mutag_run, "MUTAG"), "name a run or --pretrained, not both"),
        (("MUTAG",), "name a run and DATA, or --pretrained NAME and DATA"),
    ):
        outcome = joao("embed", *arguments, "--out", "e.csv")
        assert outcome.code == 2
        assert message in outcome.err
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "--out", "m.safetensors"), "nowhere: is not a run"),
        (("RUN", "--out", "m.pt"), "m.pt: unknown kind of file '.pt'. Use .safetensors."),
        (("RUN", "--out", "missing/m.safetensors"), "its folder missing does not exist"),
        (("RUN",), "Missing option '--out'"),
    ],
)
def test_bad_input(joao, mutag_run, arguments, message):
    outcome = joao("export", *(mutag_run if word == "RUN" else word for word in arguments))
    assert outcome.code == 2
    assert outcome.err.startswith("joao: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
