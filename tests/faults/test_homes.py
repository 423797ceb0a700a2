"""Containers without a home, and names of users that are not there."""

from __future__ import annotations

import os
import pwd
import sys

import pytest

import joao
from tests.faults.harness import assert_one_line, call, run

NO_HOME = {"HOME": None, "XDG_CACHE_HOME": None, "JOAO_CACHE": None}


def _nobody():
    """As in a container that is started with a number for its user: there is no such user."""

    def nobody(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    pwd.getpwuid = nobody


def test_this_stands_for_a_user_without_an_entry():
    """What Python does without both is what the tests below are about."""

    def home():
        from pathlib import Path

        _nobody()
        try:
            Path.home()
        except RuntimeError:
            sys.exit(3)

    assert call(home, environment=NO_HOME).code == 3


@pytest.mark.parametrize("name", ["data", "pretrain"])
def test_the_data_set_of_the_package_needs_no_home(name, tmp_path):
    more = {"data": (), "pretrain": ("--out", "run", "--epochs", 1)}[name]
    ended = run(name, "MUTAG", *more, environment=NO_HOME, before=_nobody, deadline=30)
    assert ended.code == 0, ended.err[-1500:]


def test_a_data_set_of_the_machine_needs_no_home(tmp_path):
    (tmp_path / "root" / "TINY").mkdir(parents=True)
    for part, text in {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n"}.items():
        (tmp_path / "root" / "TINY" / f"TINY_{part}.txt").write_text(text)
    ended = run("data", "TINY", "--data-root", "root", environment=NO_HOME, before=_nobody)
    assert ended.code == 0, ended.err[-1500:]


@pytest.mark.parametrize("source", ["NCI1", "no-such-name"])
def test_a_data_set_that_is_not_there_is_told_without_a_home(source, tmp_path):
    assert_one_line(run("data", source, environment=NO_HOME, before=_nobody))


def test_the_list_of_data_sets_needs_no_home(tmp_path):
    ended = run("data", environment=NO_HOME, before=_nobody)
    assert ended.code == 0, ended.err[-1500:]


USER = "~nosuchuser-of-this-machine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("data", f"{USER}/graphs.jsonl"),
        ("data", "NCI1", "--data-root", USER),
        ("pretrain", f"{USER}/graphs.jsonl", "--out", "run"),
        ("compare", f"{USER}/graphs.jsonl"),
        ("pack", f"{USER}/graphs.jsonl", "--out", "out.safetensors"),
    ],
)
def test_a_user_that_is_not_there_is_told(arguments, tmp_path):
    assert_one_line(run(*arguments))


@pytest.mark.parametrize("variable", ["JOAO_CACHE", "JOAO_DATA"])
def test_a_user_that_is_not_there_is_told_of_variables(variable, graphs, tmp_path):
    assert_one_line(run("data", "NCI1", environment={variable: f"{USER}/folder"}))


def test_a_cache_of_a_user_that_is_not_there_does_not_keep_the_package_s_data_away(tmp_path):
    ended = run("data", "MUTAG", environment={"JOAO_CACHE": f"{USER}/folder"})
    assert ended.code in (0, 2), ended.err[-1500:]
    assert len(ended.complaints) == (ended.code == 2)


def test_a_user_that_is_not_there_is_told_in_python(tmp_path):
    assert_one_line(call(lambda: joao.read(f"{USER}/graphs.jsonl")))
    assert_one_line(call(lambda: joao.JOAO(epochs=1).fit(f"{USER}/graphs.jsonl")))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_user_by_number_reads_the_data_set_of_the_package(tmp_path):
    def become():
        "".encode("cp437")  # of zip files; this user may not read the folder of Python, nor that of the test
        os.chdir("/")
        os.setgroups([])
        os.setgid(54321)
        os.setuid(54321)

    ended = run("data", "MUTAG", environment=NO_HOME, before=become)
    assert ended.code == 0, ended.err[-1500:]
