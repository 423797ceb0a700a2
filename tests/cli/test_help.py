"""Help texts: complete, quick, and in agreement with the registries; and the commands that output suggests."""

import re
import shlex
import subprocess
import sys

import pytest
import typer

import joao as package
from joao.cli import inputs
from joao.cli.main import MOVED, app
from joao.config.methods import method_names, pair_objective_names
from joao.config.recipe import METHODS
from joao.data.formats import FORMATS
from joao.kernels import native
from joao.objectives import OBJECTIVES, PairObjective
from joao.report.reported_run import MAP_KINDS
from joao.runs.folder import LOG_FOLDERS
from joao.runs.trained import bundled_models
from joao.training.device import PRECISIONS
from repro.cli.main import app as repro_app
from tests.cli.conftest import assert_refused, run_command
from tests.messages import assert_mentions

COMMANDS = {name: each for name, each in typer.main.get_command(app).commands.items() if not each.hidden}


def option(command, flag):
    (found,) = (each for each in COMMANDS[command].params if flag in each.opts)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_help_describes_every_argument(joao, name):
    outcome = joao(name, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert COMMANDS[name].help
    for parameter in COMMANDS[name].params:
        shown = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.metavar
        assert shown in outcome.out
        assert getattr(parameter, "help", None), f"{shown} has no help"


def test_lists_in_help_agree_with_the_registries():
    """The help must not import torch, so its lists are constants."""
    pair_objectives = {name for name, each in OBJECTIVES.items() if issubclass(each, PairObjective)}
    assert set(method_names()) == set(METHODS)
    assert set(pair_objective_names()) == pair_objectives
    assert_mentions(option("pretrain", "--method").help, *METHODS)
    assert_mentions(option("pretrain", "--objective").help, *pair_objectives)
    assert inputs.PRECISIONS == PRECISIONS
    assert_mentions(option("report", "--map").help, *MAP_KINDS)
    assert_mentions(option("pretrain", "--log").help, *LOG_FOLDERS)
    assert_mentions(COMMANDS["export"].help, *(f"joao embed {name}" for name in bundled_models()))
    for command in ("data", "pretrain"):
        assert_mentions(COMMANDS[command].help, *FORMATS)


def test_without_arguments_all_commands_are_listed(joao):
    shown = joao()
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", shown.out + shown.err)
    for name in MOVED:
        assert not re.search(rf"^\W*{name}\b", shown.out + shown.err, re.MULTILINE)


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("arguments", [(), ("unsupervised", "--only", "MUTAG")])
def test_moved_commands_print_where_they_went(name, arguments):
    assert_refused(run_command(app, "joao", [name, *arguments]), f"joao {name}", f"'{MOVED[name]}'")


@pytest.mark.parametrize("name", MOVED)
def test_moved_commands_exist_in_repro(name):
    _, _, module, *words = MOVED[name].split()
    assert module == "repro"
    assert run_command(repro_app, module, [*words, "--help"]).code == 0


@pytest.mark.parametrize(
    ("arguments", "slow"),
    [
        (["pretrain", "--help"], {"torch", "sklearn", "scipy", "numpy", "matplotlib", "networkx"}),
        (["finetune", "--help"], {"torch", "sklearn", "scipy", "numpy", "matplotlib", "networkx"}),
        (["data"], {"torch", "sklearn", "matplotlib"}),
    ],
)
def test_quick_commands_do_not_import_torch(arguments, slow):
    program = (
        f"import sys, joao.cli.main as main; sys.argv = ['joao', *{arguments}]\n"
        "try: main.run()\n"
        "except SystemExit as exit: assert not exit.code\n"
        f"imported = {slow} & set(sys.modules)\n"
        "assert not imported, imported"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert ("MUTAG" if arguments == ["data"] else "--data-root") in done.stdout


def test_the_version(joao):
    assert joao("--version").out.splitlines() == [f"joao {package.__version__}", native.describe()]


def next_commands(outcome):
    """The commands on lines that start with "Next:" or "Or:"."""
    lines = (line.partition(": ") for line in outcome.out.splitlines())
    return [shlex.split(command)[1:] for word, _, command in lines if word in ("Next", "Or")]


def test_graphs_with_too_few_labels_are_not_suggested_for_evaluation(joao, tmp_path, labelled):
    lines = (tmp_path / labelled).read_text().splitlines()
    (tmp_path / "few.jsonl").write_text("\n".join(lines[:6]))
    assert [each[0] for each in next_commands(joao("pretrain", "few.jsonl", "--out", "run", "--epochs", 1))] == [
        "embed"
    ]
