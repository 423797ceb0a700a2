"""Runs with and without graphs, scores and encoder."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from joao.augmentations import Identity, NodeDrop
from joao.baselines import forests
from joao.config.methods import titles
from joao.config.recipe import METHODS, make_recipe
from joao.core.errors import UserError
from joao.data.sources import read
from joao.data.synthetic import random_graphs
from joao.estimators.joao import JOAO
from joao.report.rendering import RunText, page_data, verdicts
from joao.report.reported_run import display_names, method_of, open_reported_run
from joao.runs.finetuning import finetune
from joao.runs.pretraining import pretrain
from joao.runs.trained import bundled_model_path, load_run
from joao.training.finetune import Finetune
from repro.tables.names import NAMES
from tests.messages import assert_mentions, refused


def nowhere(source, columns):
    raise UserError("MUTAG: nowhere.")


def unfinished(folder, run, lines):
    shutil.copytree(run, folder)
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "finished": False}))
    (folder / "metrics.jsonl").write_text(lines)
    return folder


def test_method_of_a_recipe():
    for name in METHODS:
        found = method_of(make_recipe({"method": name}))
        assert METHODS[found] == METHODS[name]
    assert method_of(make_recipe({"policy": "kullback_leibler"})) == ""
    assert method_of(make_recipe({"method": "joao", "policy": {"gamma": 5.0}})) == "joao"


def test_a_scored_run(scored_run, open_run):
    run = open_run(scored_run)
    text = RunText(run)
    assert text.method == "JOAO"
    assert_mentions(text.status, "188 graphs", "5 epochs")
    record = json.loads((scored_run / "evaluation.json").read_text())
    assert text.headline.figure == f"{100 * record['run']['mean']:.2f}"
    assert len(re.findall(r"\w+ \+ \w[\w ]* \(0\.\d\d\)", text.pairs)) == 3
    assert dict(text.facts)["seed"] == "0"
    assert (run.why_not_graphs, run.why_not_trained) == ("", "")


def test_missing_graphs_leave_out_map_and_drawings(scored_run):
    run = open_reported_run(scored_run, "run", nowhere, 100)
    assert "MUTAG: nowhere." in run.why_not_graphs
    (data,) = page_data([run])
    assert (data["map"], data["examples"], data["set"]) == (None, [], None)
    assert "MUTAG: nowhere." in data["why"]["map"]
    assert len(data["tables"]["epochs"]) == 5
    assert RunText(run).headline is not None


def test_changed_graphs_are_not_used(scored_run, open_run):
    run = open_run(scored_run, random_graphs(10))
    assert run.graphs is None
    assert_mentions(run.why_not_graphs, "synthetic", f"joao report {scored_run} DATA")


@pytest.mark.parametrize("rest", ["", '{"epoch": 3, "lo'])
def test_unfinished_runs(scored_run, open_run, tmp_path, rest):
    lines = (scored_run / "metrics.jsonl").read_text().splitlines()
    folder = unfinished(tmp_path / "half", scored_run, "\n".join(lines[:2]) + "\n" + rest)
    run = open_run(folder)
    assert [each.epoch for each in run.metrics] == [1, 2]
    assert run.trained is None
    assert f"joao pretrain --resume {folder}" in run.why_not_trained
    assert_mentions(RunText(run).status, "188 graphs", "2 of 5 epochs")
    (data,) = page_data([run])
    assert data["map"] is None
    assert data["examples"] != []  # the graphs are there, and the augmentations need no weights
    assert page_data([open_run(unfinished(tmp_path / "new", scored_run, ""))])[0]["epochs"] == []


def test_large_data_sets_are_sampled(scored_run, open_run, mutag_data):
    run = open_run(scored_run, most_graphs=50)
    numbers = run.graphs.numbers
    assert len(run.graphs.sample) == len(numbers) == len(set(numbers.tolist())) == 50
    assert run.graphs.total == 188
    assert run.graphs.sample.classes.tolist() == mutag_data.classes[numbers].tolist()
    assert len(page_data([run])[0]["map"]["x"]) == 50


def test_methods_without_learned_pairs(new_run, open_run, mutag_data):
    infomax = open_run(new_run(mutag_data, "infomax", method="infomax"))
    assert (RunText(infomax).method, infomax.run.info.pool) == ("Infomax", ("identity",))
    assert not re.search(r"\d", RunText(infomax).pairs)  # nothing was chosen
    assert f"joao evaluate {infomax.run.folder}" in RunText(infomax).hint
    assert page_data([infomax])[0]["examples"] == []
    uniform = open_run(new_run(mutag_data, "uniform", method="uniform"))
    assert "uniform" in RunText(uniform).pairs
    assert page_data([uniform])[0]["tables"]["losses"] is None


def test_learned_strengths(new_run, open_run, mutag_data):
    run = open_run(new_run(mutag_data, method="joao_strengths"))
    (data,) = page_data([run])
    assert (len(data["pool"]), len(data["groups"])) == (13, 5)
    assert [member["name"] for member in data["examples"][0]["members"]] == data["pool"]
    assert "attribute mask" in RunText(run).pairs or "node drop" in RunText(run).pairs
    assert RunText(run).method == NAMES["joao_strengths"]


def test_custom_parts(tmp_path, open_run, mutag_data):
    folder = tmp_path / "own"
    JOAO(augmentations=[NodeDrop(), Identity()], epochs=1).fit(mutag_data).save(folder)
    path = folder / "recipe.toml"
    path.write_text(path.read_text().replace('data = ""', 'data = "MUTAG"'))
    run = open_run(folder)
    assert run.method == ""
    (data,) = page_data([run])
    assert data["why"]["changes"]
    assert data["map"] is not None
    JOAO(encoder=torch.nn.Module(), epochs=1)  # an encoder of one's own is refused by load_run, in its words
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "own": {"encoder": "Mine()"}}))
    assert "encoder" in open_run(folder).why_not_trained


def test_graphs_without_classes(new_run, open_run):
    dataset = random_graphs(12, num_classes=0)
    text = RunText(open_run(new_run(dataset), dataset))
    assert_mentions(text.hint, "classes", "map")
    assert text.bars == ()


def test_scores_of_older_versions_say_what_is_missing(scored_run, open_run, tmp_path):
    assert RunText(open_run(scored_run)).missing == ""
    folder = tmp_path / "an old run"
    shutil.copytree(scored_run, folder)
    record = json.loads((folder / "evaluation.json").read_text())
    new = ("wl", "ldp", "gain over wl", "gain over ldp")
    (folder / "evaluation.json").write_text(json.dumps({key: each for key, each in record.items() if key not in new}))
    text = RunText(open_run(folder))
    assert_mentions(text.missing, titles()["wl"], titles()["ldp"], f"joao evaluate {shlex.quote(str(folder))}")
    assert len(text.bars) == len(RunText(open_run(scored_run)).bars) - 2


def test_graphs_that_were_given(scored_run, open_run, mutag_data):
    some = mutag_data.subset(np.arange(0, 188, 4))
    run = open_reported_run(scored_run, "run", nowhere, 100, replacement=some)
    assert (run.graphs.total, run.graphs.of_run) == (47, False)
    (data,) = page_data([run])
    assert len(data["map"]["x"]) == 47
    assert "MUTAG" in data["map"]["note"]
    assert RunText(run).headline is not None  # the score on the graphs of the run
    same = open_reported_run(scored_run, "run", nowhere, 100, replacement=mutag_data)
    assert same.graphs.of_run
    assert page_data([same])[0]["map"]["note"] == ""


def test_runs_from_python_name_their_data(tmp_path, open_run, mutag_data):
    JOAO(epochs=1).fit("MUTAG").save(tmp_path / "named")
    run = open_run(tmp_path / "named")
    assert run.map is not None
    assert dict(RunText(run).facts)["data"].endswith("MUTAG")
    JOAO(epochs=1).fit(mutag_data).save(tmp_path / "in memory")
    run = open_run(tmp_path / "in memory")
    assert_mentions(dict(RunText(run).facts)["data"], "MUTAG", "188 graphs", mutag_data.fingerprint, "Python")
    assert_mentions(page_data([run])[0]["why"]["map"], "MUTAG", f"joao report '{tmp_path / 'in memory'}' DATA")


def test_scores_of_fine_tuned_runs(mutag_data, tmp_path, open_run):
    trained = pretrain(make_recipe({"training": {"epochs": 1}}), mutag_data, device="cpu")
    finetune(trained, mutag_data, Finetune(epochs=2), test_share=0.2, device="cpu").save(tmp_path / "tuned")
    fields = json.loads((tmp_path / "tuned" / "finetune.json").read_text())
    text = RunText(open_run(tmp_path / "tuned"))
    assert text.headline.figure == f"{100 * fields['scores']['test']['accuracy']:.1f} %"
    assert_mentions(text.headline.unit, f"{fields['info']['num_test']} test graphs", "66.5 %")  # 125 of 188
    assert [part for part, _ in text.parts] == ["validation", "test"]
    # Tasks: the mean over tasks first, then each task; undefined metrics are left out.
    scores = {"roc_auc": 0.75, "labels": 9, "tasks": {"a": {"roc_auc": 0.75, "labels": 5}, "b": {"roc_auc": None}}}
    forest = {"tasks": {"c": {"rmse": 1.25, "mae": 0.5}}}
    numbers = {
        "forest": forest,
        "rmse": 1.5,
        "mae": 1.0,
        "rmse_in_deviations": 0.5,
        "tasks": {"c": {"rmse": 1.5, "mae": 1.0}},
    }
    fields["scores"] = {"validation": scores, "test": numbers}
    (tmp_path / "tuned" / "finetune.json").write_text(json.dumps(fields))
    text = RunText(open_run(tmp_path / "tuned"))
    assert dict(text.parts) == {
        "validation": [("ROC-AUC", "0.750"), ("ROC-AUC, a", "0.750")],
        "test": [("RMSE", "1.5"), ("MAE", "1")],
        "test, random forest on ECFP": [("RMSE", "1.25"), ("MAE", "0.5")],
    }
    assert text.headline.figure == "1.5"
    assert "1.25" in text.headline.unit
    fields["scores"] = {"validation": None}
    (tmp_path / "tuned" / "finetune.json").write_text(json.dumps(fields))
    assert RunText(open_run(tmp_path / "tuned")).headline is None


def test_ensembles_have_members_and_no_epochs(tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    for kind, settings in forests.FOREST.items():
        monkeypatch.setitem(forests.FOREST, kind, settings | {"n_estimators": 5})
    dataset = read(["C" * length + end for length in range(1, 11) for end in ("O", "N", "F")])
    labels = np.arange(30, dtype=np.float32)[:, None]
    dataset = replace(dataset, targets=labels, target_names=("y",))
    trained = load_run(bundled_model_path("molecules"), device="cpu")
    how = {"split": "random", "validation_share": 0.2, "test_share": 0.2, "device": "cpu"}
    finetune(trained, dataset, Finetune(), ensemble=True, **how).save(tmp_path / "tuned")
    run = open_reported_run(tmp_path / "tuned", "tuned", nowhere, 100)
    text = RunText(run)
    assert_mentions(text.status, 24, 6)  # 18 + 6 for training
    assert "validation" not in f"{text.status} {text.hint} {text.headline.unit}"
    scores = json.loads((tmp_path / "tuned" / "finetune.json").read_text())["scores"]["test"]
    shown = dict(text.parts)
    for name in ("descriptors", "encoder"):
        expected = scores["members"][name]["tasks"]["y"]["rmse"]
        assert ("RMSE", f"{expected:.4g}") in shown[f"test, {name} alone"]
    assert_mentions(verdicts([run])[0].answer, "Ensemble")


def test_display_names():
    assert display_names([Path("a/x"), Path("b/y")]) == ["x", "y"]
    with refused(Path("a/x")):
        display_names([Path("a/x"), Path("a/x")])
