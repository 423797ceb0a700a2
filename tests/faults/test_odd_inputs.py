"""Pipes and devices in the place of files, and names that a page of Markdown would obey."""

from __future__ import annotations

import json
import os
import shutil

import pytest

import joao
from tests.faults.conftest import graph_lines
from tests.faults.harness import assert_one_line, call, run

SUFFIXES = ["jsonl", "jsonl.gz", "csv", "csv.gz", "csv.xz", "smi", "zip", "graphml", "safetensors", "safetensors.xz"]
SOON = 5.0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pipe_is_no_data(suffix, tmp_path):
    """Nobody writes into it, so that reading it would wait for ever."""
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    assert_one_line(run("data", f"pipe.{suffix}", deadline=SOON))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_device_is_no_data(suffix, tmp_path):
    """Reading it never ends."""
    (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")
    ended = run("data", f"zero.{suffix}", deadline=SOON)
    assert_one_line(ended)
    assert ended.peak < 1 << 26


@pytest.mark.parametrize("command", ["pretrain", "compare", "pack", "embed"])
def test_every_command_refuses_a_pipe(command, trained, tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    arguments = {
        "pretrain": ("pretrain", "pipe.jsonl", "--out", "run"),
        "compare": ("compare", "pipe.jsonl"),
        "pack": ("pack", "pipe.jsonl", "--out", "out.safetensors"),
        "embed": ("embed", trained, "pipe.jsonl", "--out", "out.csv"),
    }
    assert_one_line(run(*arguments[command], deadline=SOON))


@pytest.mark.parametrize("name", ["index.json", "offsets.safetensors", "shard-00001.safetensors"])
def test_a_pipe_in_a_store_is_refused(name, store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    (tmp_path / "store" / name).unlink()
    os.mkfifo(tmp_path / "store" / name)
    assert_one_line(run("data", "store", deadline=SOON))


@pytest.mark.parametrize("name", ["run.json", "recipe.toml", "metrics.jsonl", "weights.safetensors", "evaluation.json"])
def test_a_pipe_in_a_run_is_refused(name, trained, graphs, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run" / name)
    if name != "evaluation.json":
        assert_one_line(run("embed", "run", graphs, "--out", "out.csv", deadline=SOON))
    ended = run("report", "run", "--out", "out.html", deadline=SOON)
    assert ended.code in (0, 2), (ended.code, ended.err)


def test_a_pipe_is_no_model(graphs, tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    assert_one_line(run("embed", "model.safetensors", graphs, "--out", "out.csv", deadline=SOON))
    assert_one_line(call(lambda: joao.load("model.safetensors"), deadline=SOON))


def test_pipes_among_the_files_of_a_folder_are_refused(tmp_path):
    folder = tmp_path / "TINY"
    folder.mkdir()
    for part, text in {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n"}.items():
        (folder / f"TINY_{part}.txt").write_text(text)
    os.mkfifo(folder / "TINY_node_labels.txt")
    ended = run("data", folder, deadline=SOON)
    assert ended.code in (0, 2), ended.err
    (tmp_path / "graphml").mkdir()
    os.mkfifo(tmp_path / "graphml" / "one.graphml")
    assert_one_line(run("data", "graphml", deadline=SOON))
    (tmp_path / "ogb" / "raw").mkdir(parents=True)
    for name in ("num-node-list", "num-edge-list", "edge"):
        os.mkfifo(tmp_path / "ogb" / "raw" / f"{name}.csv.gz")
    assert_one_line(run("data", "ogb", deadline=SOON))


def test_a_pipe_is_no_recipe_and_no_record(graphs, tmp_path):
    os.mkfifo(tmp_path / "recipe.toml")
    assert_one_line(run("pretrain", graphs, "--recipe", "recipe.toml", "--out", "run", deadline=SOON))
    os.mkfifo(tmp_path / "record.json")
    assert_one_line(run("compare", graphs, "--out", "record.json", deadline=SOON))


# What Markdown makes pictures, links, headings, rows and code of; none has a slash, to be names of files.
PICTURE = "![seen](http:evil.example)"
NAMES = {
    "picture": PICTURE,
    "link": "[click](javascript:alert)",
    "address": "x http:evil.example",
    "row": "a|b|c",
    "code": "a`b`c",
    "emphasis": "**b** _i_",
    "heading": "# h",
}
MARKS = {"picture": "](", "link": "](", "row": "a|b", "code": "`b`", "emphasis": "**b**", "heading": "\n# h"}


@pytest.mark.parametrize("what", MARKS)
def test_names_in_a_model_card_are_text(what, tmp_path):
    """Whatever the data are called, and their classes; the card of the file and the one beside it."""
    name = NAMES[what]
    (tmp_path / f"{name}.jsonl").write_text(graph_lines(12).replace('"label": 1', f'"label": {json.dumps(name)}'))
    assert run("pretrain", f"{name}.jsonl", "--out", "run", "--epochs", 1, deadline=30).code == 0
    tuned = run("finetune", "run", f"{name}.jsonl", "--out", "tuned", "--epochs", 1, deadline=30)
    assert tuned.code == 0, tuned.err
    for folder in ("run", "tuned"):
        assert run("export", folder, "--out", f"{folder}.safetensors").code == 0
        assert MARKS[what] not in (tmp_path / f"{folder}.md").read_text()


def test_a_stranger_s_run_cannot_write_markup_into_a_card(trained, tmp_path):
    """Texts of run.json that no command would have written: lines, HTML and links."""
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    info = json.loads(path.read_text())
    evil = "x\n\n# heading\n\n<script>alert(1)</script> [click](javascript:alert) ![p](http://evil.example/p.png)"
    info |= {"data": evil, "command": f"`{evil}`", "versions": {evil: evil}, "machine": {evil: evil}}
    path.write_text(json.dumps(info))
    ended = run("export", "run", "--out", "model.safetensors")
    if ended.code == 2:
        assert_one_line(ended)
        return
    card = (tmp_path / "model.md").read_text()
    assert "\n# heading" not in card
    assert "](" not in card
    assert "<script" not in card
