"""Every command says what it takes, at once, and what to type next."""

import re
import shlex
import subprocess
import sys

import pytest
import typer

import joao as package
from joao.cli.main import app
from joao.config.methods import method_names, pair_objective_names
from joao.config.recipe import METHODS
from joao.objectives import OBJECTIVES, PairObjective
from joao.runs.trained import bundled_models


def commands(group, before=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_help_names_every_argument_and_says_what_it_is(joao, name):
    outcome = joao(*name, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    command = COMMANDS[name]
    assert command.help
    for parameter in command.params:
        shown = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.metavar
        assert shown in outcome.out
        assert getattr(parameter, "help", None), f"{shown} has no help"


def test_help_lists_every_method_and_pair_objective():
    options = {option: each.help for each in COMMANDS["pretrain",].params for option in each.opts}
    pairs = {name for name, kind in OBJECTIVES.items() if issubclass(kind, PairObjective)}
    assert set(re.findall(r"\w+", options["--method"])) >= set(METHODS)
    assert set(method_names()) == set(METHODS)
    assert set(re.findall(r"\w+", options["--objective"])) >= pairs == set(pair_objective_names())


def test_export_says_whether_models_come_along(joao):
    text = " ".join(joao("export", "--help").out.split())
    assert all(f"--pretrained {name}" in text for name in bundled_models())


def test_no_arguments_are_a_cry_for_help(joao):
    shown = joao()
    for name in {name[0] for name in COMMANDS}:
        assert re.search(rf"\b{name}\b", shown.out + shown.err)


@pytest.mark.parametrize("command", ["pretrain", "finetune", "predict"])
def test_help_does_not_wait_for_torch(command):
    program = (
        f"import sys, joao.cli.main as main; sys.argv = ['joao', '{command}', '--help']\n"
        "try: main.run()\n"
        "except SystemExit as exit: assert not exit.code\n"
        "slow = {'torch', 'sklearn', 'scipy', 'numpy', 'matplotlib', 'networkx'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--data-root" in done.stdout


def test_listing_data_does_not_wait_for_torch():
    program = (
        "import sys, joao.cli.main as main; sys.argv = ['joao', 'data']\n"
        "try: main.run()\n"
        "except SystemExit as exit: assert not exit.code\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "MUTAG" in done.stdout


def test_the_version(joao):
    assert joao("--version").out == f"joao {package.__version__}\n"


def next_commands(outcome):
    """The commands that the last line names."""
    line = outcome.out.splitlines()[-1]
    named = line.partition(": ")[2].split(", or ")
    return [shlex.split(command)[1:] for command in named if command.startswith("joao ")]


def test_every_next_command_runs(joao, labelled, tmp_path):
    (tmp_path / "my graphs.jsonl").write_text((tmp_path / labelled).read_text())
    done = []

    def follow(arguments):
        outcome = joao(*arguments)
        assert outcome.code == 0, outcome.err
        done.append(arguments[0])
        for each in next_commands(outcome):
            if each[0] not in done:
                follow(each)

    follow(["data", "my graphs.jsonl"])
    assert done == ["data", "pretrain", "evaluate", "embed"]
    assert next_commands(joao("data")) == [["data", "MUTAG"]]
