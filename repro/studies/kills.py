"""Is anything lost, or anything torn read, when a training is killed at any moment?

    python studies/kills.py results/kills.json results/kills.md

Runs of ``joao pretrain`` are killed by SIGKILL at moments drawn at random, resumed, killed again, and so on until they
end by themselves. Then their weights are compared, bit for bit, with those of a run that nobody disturbed. Most are
started as forks of one process that has loaded everything, so that a kill costs a fraction of a second; some as whole
commands. Checkpoints are written after every step, so that many kills come while one is written.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from joao.config.recipe import Recipe, make_recipe
from joao.core.errors import JoaoNotice, UserError
from joao.core.provenance import command, machine, versions
from joao.data import read_whole
from joao.data.dataset import Dataset
from joao.evaluation.tables import markdown
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from repro.studies.common import write_page, write_record

METHODS = ("joao", "joaov2", "graphcl", "infograph")
KILLS, WHOLE_KILLS = 104, 6  # in forks, in whole commands
OPTIONS = {"epochs": 5, "batch_size": 32, "width": 16, "layers": 3}
SEED = 0
AIMED = 0.5  # share of kills that wait, after their random moment, until a file is being written


@dataclass
class Tally:
    """What came of the kills of one method.

    Attributes:
        runs: that were brought to their end.
        kills: of processes that were still at work.
        while_writing: kills that left a file half written, which nobody reads.
        inside_an_epoch: kills after which the newest checkpoint was of the midst of an epoch.
        before_the_run: kills before there was a run to go on with.
        torn: files that were read and were not whole.
        unlike: runs whose weights differ from the undisturbed run's.
    """

    method: str
    how: str
    runs: int = 0
    kills: int = 0
    while_writing: int = 0
    inside_an_epoch: int = 0
    before_the_run: int = 0
    torn: list[str] = field(default_factory=list)
    unlike: int = 0


Start = Callable[[Path, bool], int]  # starts or resumes a run in a folder; the number of the process


def recipe_of(method: str) -> Recipe:
    return make_recipe(
        {
            "data": "MUTAG",
            "method": method,
            "encoder": {"name": "gin", "width": OPTIONS["width"], "layers": OPTIONS["layers"]},
            "training": {"epochs": OPTIONS["epochs"], "batch_size": OPTIONS["batch_size"]},
        }
    )


def forked(recipe: Recipe, dataset: Dataset) -> Start:
    """Starts trainings as forks of this process; what they find torn ends them with an error."""

    def start(folder: Path, resume: bool) -> int:
        process = os.fork()
        if process:
            return process
        code = 1
        try:
            warnings.simplefilter("error", JoaoNotice)
            pretrain(recipe, dataset, folder=folder, resume=resume, device="cpu", checkpoint_minutes=0)
            code = 0
        except BaseException as error:
            print(f"{folder}: {error!r}", file=sys.stderr)
        finally:
            os._exit(code)

    return start


def commanded(method: str) -> Start:
    """Starts trainings as commands."""

    def start(folder: Path, resume: bool) -> int:
        new = ["MUTAG", "--method", method, "--out", str(folder), "--epochs", str(OPTIONS["epochs"])]
        new += ["--set", f"training.batch_size={OPTIONS['batch_size']}", "--set", f"encoder.width={OPTIONS['width']}"]
        words = ["--resume", str(folder)] if resume else new
        words = [sys.executable, "-m", "joao", "pretrain", *words, "--device", "cpu", "--quiet"]
        return subprocess.Popen([*words, "--checkpoint-minutes", "0"]).pid

    return start


def disturb(tally: Tally, start: Start, folder: Path, longest: float, kills: int, draw: random.Random) -> None:
    """Starts a run and kills it until it ends by itself, or has been killed so often that it is let go."""
    resume = False
    while True:
        process = start(folder, resume)
        if tally.kills < kills:
            if tally.how == "command":
                wait_for_writing(folder, seconds=60)  # most of its time is loading
            time.sleep(draw.uniform(0, longest))
            if draw.random() < AIMED:
                wait_for_writing(folder)
            os.kill(process, signal.SIGKILL)
        status = os.waitpid(process, 0)[1]
        if not os.WIFSIGNALED(status):
            if os.WEXITSTATUS(status):
                tally.torn.append(f"exit code {os.WEXITSTATUS(status)}")
                shutil.rmtree(folder)
                resume = False
                continue
            tally.runs += 1
            return
        tally.kills += 1
        resume = (folder / "run.json").exists()
        if resume:
            look(tally, folder)
            if Run.open(folder).info.finished:  # killed on its way out
                tally.runs += 1
                return
        else:
            tally.before_the_run += 1
            shutil.rmtree(folder, ignore_errors=True)


def wait_for_writing(folder: Path, seconds: float = 0.2) -> None:
    """Until a file of the run is being written, or for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if any(name.startswith(".") for name in os.listdir(folder)):
                return
        except OSError:  # it is not there yet
            time.sleep(0.001)


def look(tally: Tally, folder: Path) -> None:
    """Reads everything that a killed process left, as the next one will."""
    tally.while_writing += any(folder.glob(".*"))
    try:
        run = Run.open(folder)
        if run.info.finished:
            run.weights()
        else:
            copy = folder.with_name("copy")
            shutil.copytree(folder, copy)
            with warnings.catch_warnings():
                warnings.simplefilter("error", JoaoNotice)
                tally.inside_an_epoch += "epoch/steps" in Run.open(copy).read_checkpoint()
            shutil.rmtree(copy)
    except (UserError, JoaoNotice) as error:
        tally.torn.append(str(error))


def compare(tally: Tally, folder: Path, expected: Run) -> None:
    ours, theirs = Run.open(folder), expected.weights()
    weights = ours.weights()
    same = weights.keys() == theirs.keys() and all(torch.equal(weights[name], theirs[name]) for name in theirs)
    losses = [[epoch.loss for epoch in run.metrics()] for run in (ours, expected)]
    tally.unlike += not (same and losses[0] == losses[1])


def study(method: str, how: str, kills: int, draw: random.Random) -> Tally:
    """Kills runs of a method until ``kills`` are done, and brings every run to its end."""
    tally, recipe = Tally(method, how), recipe_of(method)
    dataset = read_whole("MUTAG")
    with TemporaryDirectory() as place:
        started = time.monotonic()
        undisturbed = Path(place) / "undisturbed"
        start = forked(recipe, dataset) if how == "fork" else commanded(method)
        assert os.waitpid(start(undisturbed, False), 0)[1] == 0
        trained = sum(epoch.seconds for epoch in Run.open(undisturbed).metrics())
        longest = 0.6 * (trained if how == "command" else time.monotonic() - started)
        while tally.kills < kills:
            folder = Path(place) / f"run{tally.runs}"
            disturb(tally, start, folder, longest, kills, draw)
            compare(tally, folder, Run.open(undisturbed))
            shutil.rmtree(folder)
    return tally


def page(record: dict[str, Any]) -> str:
    """The table of a record."""
    lines = [
        [
            *(row["method"], row["how"]),
            *(str(row[key]) for key in ("kills", "while_writing", "inside_an_epoch", "before_the_run")),
            *(str(len(row["torn"])), str(row["runs"]), str(row["runs"] - row["unlike"])),
        ]
        for row in record["rows"]
    ]
    header = ["method", "started as", "kills", "left a file half written", "newest checkpoint inside an epoch"]
    header += ["before the run was made", "torn files read", "runs brought to their end", "equal bit for bit"]
    found, where = record["versions"], record["machine"]
    settings = ", ".join(f"{key} {value}" for key, value in record["settings"].items())
    return "\n\n".join(
        [
            "# Killed at any moment",
            f"Made by `python studies/{record['command']}`; not to be edited. joao {found['joao']} (source {found['source']}), torch "
            f"{found['torch']}, {where['processor']}, {where['threads']} thread.",
            f"`joao pretrain MUTAG` ({settings}), a checkpoint after every step, killed by SIGKILL after a time drawn uniformly "
            "from 0 to 0.6 of what a whole run takes, of a command from when it first writes (every other time, as soon after that as a file was being written), resumed, and "
            "killed again, until it ended by itself. "
            "After every kill all files of the run were read. Weights and losses at the end are compared with those of a run that "
            "nobody disturbed. Before the run was made: nothing was lost, as nothing had been trained.",
            markdown(header, lines) + "\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(SEED)
    rows = []
    for method, how, kills in [
        *((method, "fork", KILLS // len(METHODS)) for method in METHODS),
        ("joao", "command", WHOLE_KILLS),
    ]:
        rows.append(study(method, how, kills, draw))
        print(rows[-1], flush=True)
    record = {
        "command": command(),
        "versions": versions(),
        "machine": machine("cpu"),
        "settings": OPTIONS,
        "rows": [asdict(row) for row in rows],
    }
    write_record("kills", record)
    write_page("kills", page(record))
    if any(row.torn or row.unlike for row in rows):
        sys.exit("Something was torn, or not what it would have been.")


if __name__ == "__main__":
    main()
