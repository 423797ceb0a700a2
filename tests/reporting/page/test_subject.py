"""What is at hand of a run, and what is said where something is not."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from joao.augmentations import Identity, NodeDrop
from joao.config.recipe import METHODS, make_recipe
from joao.core.errors import UserError
from joao.data.synthetic import random_graphs
from joao.estimators.joao import JOAO
from joao.report.rendering import page_data, tell
from joao.report.subject import method_of, names_of, open_subject
from repro.tables.names import NAMES
from tests.messages import assert_mentions, refused


def nowhere(run):
    raise UserError("MUTAG: nowhere.")


def unfinished(folder, run, lines):
    shutil.copytree(run, folder)
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "finished": False}))
    (folder / "metrics.jsonl").write_text(lines)
    return folder


def test_every_method_is_known_by_its_parts():
    for name in METHODS:
        found = method_of(make_recipe({"method": name}))
        assert METHODS[found] == METHODS[name]
    assert method_of(make_recipe({"policy": "kullback_leibler"})) == ""
    assert method_of(make_recipe({"method": "joao", "policy": {"gamma": 5.0}})) == "joao"


def test_a_scored_run(scored_run, subject_of):
    subject = subject_of(scored_run)
    told = tell(subject)
    assert told.method == "JOAO"
    assert_mentions(told.status, "188 graphs", "5 epochs")
    record = json.loads((scored_run / "evaluation.json").read_text())
    assert told.score.mean == pytest.approx(100 * record["run"]["mean"])
    assert len(re.findall(r"\w+ \+ \w[\w ]* \(0\.\d\d\)", told.pairs)) == 3
    assert dict(told.facts)["seed"] == "0"
    assert (subject.why_not_dataset, subject.why_not_trained) == ("", "")


def test_a_run_without_its_graphs_has_neither_map_nor_drawings(scored_run):
    subject = open_subject(scored_run, "run", nowhere, 100)
    assert "MUTAG: nowhere." in subject.why_not_dataset
    (data,) = page_data([subject])
    assert (data["map"], data["examples"], data["set"]) == (None, [], None)
    assert "MUTAG: nowhere." in data["why"]["map"]
    assert len(data["tables"]["epochs"]) == 5
    assert tell(subject).score is not None


def test_other_graphs_than_those_of_the_run_are_not_taken_for_them(scored_run, subject_of):
    subject = subject_of(scored_run, random_graphs(10))
    assert subject.dataset is None
    assert "synthetic" in subject.why_not_dataset


@pytest.mark.parametrize("rest", ["", '{"epoch": 3, "lo'])
def test_an_unfinished_run_shows_its_whole_epochs(scored_run, subject_of, tmp_path, rest):
    lines = (scored_run / "metrics.jsonl").read_text().splitlines()
    folder = unfinished(tmp_path / "half", scored_run, "\n".join(lines[:2]) + "\n" + rest)
    subject = subject_of(folder)
    assert [each.epoch for each in subject.metrics] == [1, 2]
    assert subject.trained is None
    assert f"joao pretrain --resume {folder}" in subject.why_not_trained
    assert_mentions(tell(subject).status, "188 graphs", "2 of 5 epochs")
    (data,) = page_data([subject])
    assert data["map"] is None
    assert data["examples"] != []  # the graphs are there, and the augmentations need no weights
    assert page_data([subject_of(unfinished(tmp_path / "new", scored_run, ""))])[0]["epochs"] == []


def test_a_sample_of_many_graphs(scored_run, subject_of, mutag_data):
    subject = subject_of(scored_run, most_graphs=50)
    assert len(subject.dataset) == len(subject.numbers) == len(set(subject.numbers.tolist())) == 50
    assert subject.dataset.classes.tolist() == mutag_data.classes[subject.numbers].tolist()
    assert len(page_data([subject])[0]["map"]["x"]) == 50


def test_methods_that_do_not_choose(new_run, subject_of, mutag_data):
    infomax = subject_of(new_run(mutag_data, "infomax", method="infomax"))
    assert (tell(infomax).method, infomax.run.info.pool) == ("Infomax", ("identity",))
    assert not re.search(r"\d", tell(infomax).pairs)  # nothing was chosen
    assert "joao evaluate infomax" in tell(infomax).hint
    assert page_data([infomax])[0]["examples"] == []
    uniform = subject_of(new_run(mutag_data, "uniform", method="uniform"))
    assert "uniform" in tell(uniform).pairs
    assert page_data([uniform])[0]["tables"]["losses"] is None


def test_learned_strengths(new_run, subject_of, mutag_data):
    subject = subject_of(new_run(mutag_data, method="joao_strengths"))
    (data,) = page_data([subject])
    assert (len(data["pool"]), len(data["groups"])) == (13, 5)
    assert [member["name"] for member in data["examples"][0]["members"]] == data["pool"]
    assert "attribute mask" in tell(subject).pairs or "node drop" in tell(subject).pairs
    assert tell(subject).method == NAMES["joao_strengths"]


def test_parts_of_their_owner(tmp_path, subject_of, mutag_data):
    folder = tmp_path / "own"
    JOAO(augmentations=[NodeDrop(), Identity()], epochs=1).fit(mutag_data).save(folder)
    path = folder / "recipe.toml"
    path.write_text(path.read_text().replace('data = ""', 'data = "MUTAG"'))
    subject = subject_of(folder)
    assert subject.method == ""
    (data,) = page_data([subject])
    assert data["why"]["changes"]
    assert data["map"] is not None
    JOAO(encoder=torch.nn.Module(), epochs=1)  # an encoder of one's own is refused by load_run, in its words
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "own": {"encoder": "Mine()"}}))
    assert "encoder" in subject_of(folder).why_not_trained


def test_graphs_without_classes(new_run, subject_of):
    dataset = random_graphs(12, num_classes=0)
    told = tell(subject_of(new_run(dataset), dataset))
    assert_mentions(told.hint, "classes", "map")
    assert told.bars == ()


def test_names():
    assert names_of([Path("a/x"), Path("b/y")]) == ["x", "y"]
    with refused(Path("a/x")):
        names_of([Path("a/x"), Path("a/x")])
