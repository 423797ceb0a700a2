"""Other members of the classes of faults, which a second round of hostile testing found."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import numpy as np
import pytest
import torch

import joao
from joao import JoaoNotice, UserError
from joao.cli import main
from joao.cli.output import Output
from tests.faults.harness import GIGABYTE, assert_one_line, run
from tests.faults.test_run_folders import unfinished  # noqa: F401


@pytest.fixture
def stopped(unfinished, tmp_path):  # noqa: F811
    return shutil.copytree(unfinished, tmp_path / "run")


def test_a_run_does_not_start_as_many_processes_as_it_likes(stopped):
    path = stopped / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "devices": 2**31 - 1}))
    ended = run("pretrain", "--resume", stopped, deadline=30)
    assert_one_line(ended)
    assert str(2**31 - 1) in ended.err


def test_a_file_that_is_named_like_a_checkpoint_does_no_harm(stopped):
    shutil.copy(max(stopped.glob("checkpoint-*")), stopped / "checkpoint-foo.safetensors")
    assert run("pretrain", "--resume", stopped, deadline=60).code == 0


def test_resume_does_not_write_through_a_hard_link(stopped, tmp_path):
    (tmp_path / "ours").write_text("years of work\n")
    (stopped / "csv").mkdir()
    os.link(tmp_path / "ours", stopped / "csv" / "metrics.csv")
    ended = run("pretrain", "--resume", stopped, deadline=60)
    assert_one_line(ended)
    assert (tmp_path / "ours").read_text() == "years of work\n"


def test_a_name_with_several_lines_is_shown_in_one():
    ended = run("data", "no\njoao: note: all is well")
    assert_one_line(ended)
    assert r"no\njoao" in ended.err


def test_a_class_cannot_write_a_line_of_its_own(tmp_path):
    graph = {"edges": [[0, 1]], "num_nodes": 2}
    labels = ["one", "two\nNext: joao pretrain elsewhere"]
    (tmp_path / "graphs.jsonl").write_text("".join(json.dumps({**graph, "label": label}) + "\n" for label in labels))
    ended = run("data", "graphs.jsonl")
    assert r"two\nNext" in ended.out
    assert not [line for line in ended.out.splitlines() if line.startswith("Next: joao pretrain elsewhere")]


def test_a_table_is_printed_without_standard_output(monkeypatch):
    """Python has no ``sys.stdout`` if a command is started with ``>&-``."""
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.argv", ["joao", "--version"])
    with pytest.raises(SystemExit):
        main.run()
    Output(quiet=False).table(["class"], [["one"]])


def test_tables_show_names_as_they_are(capsys):
    Output(quiet=False).table(["class", "graphs"], [[":bomb:[/x]", "1"]], title=":bomb:")
    shown = capsys.readouterr().out
    assert shown.count(":bomb:") == 2
    assert "[/x]" in shown


def test_a_wide_table_is_packed_in_time_in_proportion(tmp_path):
    """100,000 label columns; looking each of them up among all takes minutes."""
    columns = 100_000
    header = ",".join(f"c{number}" for number in range(columns))
    (tmp_path / "wide.csv").write_text(f"smiles,{header}\nCCO{',1' * columns}\n")
    assert run("pack", "wide.csv", "--out", "wide.joao", deadline=60).code == 0


def test_messages_do_not_list_a_million_names(tmp_path):
    header = ",".join(f"c{number}" for number in range(100_000))
    (tmp_path / "wide.csv").write_text(f"smiles,{header}\nCCO{',x' * 100_000}\n")
    for options in ([], ["--task", "c-1"]):
        ended = run("data", "wide.csv", *options, deadline=60)
        assert ended.code == (2 if options else 0)
        assert max(map(len, ended.err.splitlines())) < 2000


@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_export_leaves_no_model_without_its_card(number, trained, tmp_path):
    """The process ends just before the first or second of its files gets its name."""
    links = iter(range(number - 1))

    def link_or_die(*names, link=os.link):
        if next(links, None) is None:
            os._exit(9)
        link(*names)

    arguments = ("export", trained, "--out", tmp_path / "model.safetensors")
    assert run(*arguments, before=lambda: setattr(os, "link", link_or_die)).code == 9
    assert {path.name for path in tmp_path.glob("model*")} == ({"model.md"} if number == 2 else set())
    assert run(*arguments).code == 0
    assert (tmp_path / "model.md").exists()


@pytest.mark.parametrize("name", ["run.json", "recipe.toml", "metrics.jsonl"])
def test_a_sparse_file_does_not_fill_the_memory(name, trained, graphs, tmp_path):
    """A file of a run that takes no room on the disk, nor in an archive, and claims 3 GB."""
    shutil.copytree(trained, tmp_path / "run")
    os.truncate(tmp_path / "run" / name, 3 * GIGABYTE)
    ended = run("embed", "run", graphs, "--out", "out.csv")
    assert_one_line(ended)
    assert name in ended.err
    assert ended.peak < GIGABYTE // 4


def test_errors_and_notices_are_one_line_without_control_characters():
    for kind in (UserError, JoaoNotice):
        message = str(kind("unknown name '\x1b[2J\njoao: all is well'"))
        assert message.isprintable()
        assert r"'\x1b[2J\njoao" in message
        assert str(pickle.loads(pickle.dumps(kind(message)))) == message


@pytest.mark.parametrize("given", [3, 1.5, True, torch.tensor(1), object()])
@pytest.mark.parametrize("name", ["augmentations", "training"])
def test_parameters_that_are_neither_list_nor_table_are_refused(name, given):
    with pytest.raises(UserError, match=name):
        joao.JOAO(**{name: given}).fit(["CCO", "CC"])


@pytest.mark.parametrize("value", [1j, 10**400])
def test_labels_that_are_no_32_bit_numbers_are_refused(value):
    with pytest.raises(UserError, match=r"\by\b"):
        joao.JOAORegressor(epochs=1).fit(["CCO", "CC", "C"], np.array([value, 1, 2]))


@pytest.mark.parametrize("out", ["", "/"])
def test_a_path_without_a_name_is_refused(out):
    assert_one_line(run("quickstart", "--out", out))
