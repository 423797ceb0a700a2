"""Is anything lost or damaged if a training is killed at any moment?

    python -m repro.studies.kills

Runs of ``joao pretrain`` are killed by SIGKILL at random moments, resumed, killed again, and so on until they finish.
Their weights are compared bit for bit with those of an undisturbed run. Most runs are forks of one process in which
everything is imported, so that a kill costs a fraction of a second; some are complete commands. Checkpoints are written
after every step, so that many kills happen while one is being written.
"""

import os
import random
import shutil
import signal
import statistics
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
from joao.data import read_whole
from joao.data.dataset import Dataset
from joao.evaluation.tables import markdown
from joao.runs.finetuning import finetune
from joao.runs.folder import Run, claim_folder
from joao.runs.pretraining import pretrain
from joao.training.device import make_fabric
from joao.training.finetune import Finetune
from repro.studies.common import are_equal, describe_origin, generated, make_page, origin, parse_options, publish
from repro.studies.other_kills import FolderKills, WorkerKills, fork, kill_creation, kill_finetunings, kill_workers

METHODS = ("joao", "joaov2", "graphcl", "infograph")
KILLS, WHOLE_KILLS = 104, 6  # in forks, in complete commands
WORKER_KILLS, FINETUNE_KILLS = 25, 50  # of each command with workers, of fine-tunings
OPTIONS = {"epochs": 5, "batch_size": 32, "width": 16, "layers": 3}
SEED = 0
AIMED = 0.5  # share of kills that wait, after a random time, until a file is being written


@dataclass
class Tally:
    """Counts for the kills of one method.

    Attributes:
        runs: finished runs.
        kills: killed processes.
        while_writing: kills that left an incomplete temporary file, which is never read.
        inside_an_epoch: kills after which the newest checkpoint was inside an epoch.
        before_the_run: kills before the run folder existed.
        torn: damaged files that were read.
        unlike: runs whose weights differ from those of the undisturbed run.
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


Start = Callable[[Path, bool], int]  # starts or resumes a run in a folder and returns the process id


def recipe_of(method: str) -> Recipe:
    return make_recipe(
        {
            "data": "MUTAG",
            "method": method,
            "encoder": {"name": "gin", "width": OPTIONS["width"], "layers": OPTIONS["layers"]},
            "training": {"epochs": OPTIONS["epochs"], "batch_size": OPTIONS["batch_size"]},
        }
    )


def start_forks(recipe: Recipe, dataset: Dataset) -> Start:
    """Start trainings as forks of this process. A damaged file ends them with an error."""

    def start(folder: Path, resume: bool) -> int:
        def train() -> None:
            warnings.simplefilter("error", JoaoNotice)
            pretrain(recipe, dataset, folder=folder, resume=resume, device="cpu", checkpoint_minutes=0)

        return fork(train)

    return start


def start_commands(method: str) -> Start:
    """Start trainings as commands."""

    def start(folder: Path, resume: bool) -> int:
        new = ["MUTAG", "--method", method, "--out", str(folder), "--epochs", str(OPTIONS["epochs"])]
        new += ["--set", f"training.batch_size={OPTIONS['batch_size']}", "--set", f"encoder.width={OPTIONS['width']}"]
        words = ["--resume", str(folder)] if resume else new
        words = [sys.executable, "-m", "joao", "pretrain", *words, "--device", "cpu", "--quiet"]
        return subprocess.Popen([*words, "--checkpoint-minutes", "0"]).pid

    return start


def disturb(tally: Tally, start: Start, folder: Path, longest: float, kills: int, draw: random.Random) -> None:
    """Start a run and kill it repeatedly, until it finishes or the number of kills is reached."""
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
            tally.before_the_run += 1  # the next process uses the folder as it is


def wait_for_writing(folder: Path, seconds: float = 0.2) -> None:
    """Wait until a file of the run is being written, at most ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            names = os.listdir(folder)
            if "run.json" in names and any(name.startswith(".") for name in names):
                return
        except OSError:  # it is not there yet
            time.sleep(0.001)


def look(tally: Tally, folder: Path) -> None:
    """Read everything that a killed process left, as the next process will."""
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
    ours = Run.open(folder)
    losses = [[epoch.loss for epoch in run.metrics()] for run in (ours, expected)]
    tally.unlike += not (are_equal(ours.weights(), expected.weights()) and losses[0] == losses[1])


def study(method: str, how: str, kills: int, draw: random.Random) -> Tally:
    """Kill runs of a method ``kills`` times, and let every run finish."""
    tally, recipe = Tally(method, how), recipe_of(method)
    dataset = read_whole("MUTAG")
    make_fabric("cpu", "32-true")  # imports Lightning before the forks, most of whose time that would be
    with TemporaryDirectory() as place:
        started = time.monotonic()
        undisturbed = Path(place) / "undisturbed"
        start = start_forks(recipe, dataset) if how == "fork" else start_commands(method)
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
    """Return the page of a record."""
    lines = [
        [
            *(row["method"], row["how"]),
            *(str(row[key]) for key in ("kills", "while_writing", "inside_an_epoch", "before_the_run")),
            *(str(len(row["torn"])), str(row["runs"]), str(row["runs"] - row["unlike"])),
        ]
        for row in record["rows"]
    ]
    header = ["method", "started as", "kills", "while a file was written", "newest checkpoint inside an epoch"]
    header += ["before the run folder existed", "damaged files read", "finished runs", "equal bit for bit"]
    settings = ", ".join(f"{key} {value}" for key, value in record["settings"].items())
    return make_page(
        "Runs killed at random moments",
        f"{generated('kills')} {describe_origin(record)}.",
        f"`joao pretrain MUTAG` ({settings}) with a checkpoint after every step was killed by SIGKILL after a random time between "
        "0 and 0.6 of the duration of a run (for commands, counted from their first write; half of the kills then wait until a file is "
        "being written), resumed and killed again, until it finished. After every kill all files of the run were read. Final weights and "
        "losses are compared with those of an undisturbed run. If the run folder did not exist yet, nothing had been trained and nothing was lost.",
        markdown(header, lines),
        "## Workers killed while they start",
        "A random worker was killed within two seconds after it was started, on data that does not fit into a pipe. `joao compare` reports the method "
        "that failed in one line and continues with the others; `joao pretrain` ends with one line.",
        markdown(
            ["command", "kills", "reported in one line", "seconds until then: median", "largest"],
            [
                [
                    f"`{row['command']}`",
                    *(str(len(row["reactions"]) + len(row["wrong"])), str(len(row["reactions"]))),
                    *(f"{each(row['reactions']):.2f}" for each in (statistics.median, max)),
                ]
                for row in record["workers"]
            ],
        ),
        "## Run folders that are written at once",
        "After every kill a run that is there was loaded, and otherwise the same work was done again in the same folder.",
        markdown(
            ["killed", "kills", "no folder or empty", "incomplete", "complete run", "wrong or cannot be used again"],
            [
                [
                    row["what"],
                    *(str(row[key]) for key in ("kills", "nothing", "incomplete", "complete")),
                    str(len(row["wrong"])),
                ]
                for row in record["folders"]
            ],
        ),
    )


def other_kills(draw: random.Random) -> tuple[list[WorkerKills], list[FolderKills]]:
    """Kill workers that start, fine-tunings, and processes that create a run folder."""
    dataset, recipe = read_whole("MUTAG"), recipe_of("joao")
    with TemporaryDirectory() as name:
        place = Path(name)
        trained = pretrain(recipe, dataset, device="cpu")
        folders = [kill_finetunings(trained, dataset, place, FINETUNE_KILLS, draw)]

        def tune(folder: Path) -> None:
            with claim_folder(folder):
                finetune(trained, dataset, Finetune(epochs=1), device="cpu").save(folder, claimed=True)

        folders.append(kill_creation("joao finetune", tune, place))
        folders.append(kill_creation("JOAO.save", lambda folder: trained.save(folder), place))

        def train(folder: Path) -> None:
            pretrain(recipe, dataset, folder=folder, resume=(folder / "run.json").exists(), device="cpu")

        folders.append(kill_creation("joao pretrain", train, place))
        return kill_workers(place, WORKER_KILLS, draw), folders


def main() -> None:
    parse_options(__doc__)
    torch.set_num_threads(1)
    draw = random.Random(SEED)
    rows = []
    for method, how, kills in [
        *((method, "fork", KILLS // len(METHODS)) for method in METHODS),
        ("joao", "command", WHOLE_KILLS),
    ]:
        rows.append(study(method, how, kills, draw))
        print(rows[-1], flush=True)
    workers, folders = other_kills(draw)
    record = {
        **origin(),
        "settings": OPTIONS,
        "rows": [asdict(row) for row in rows],
        "workers": [asdict(row) for row in workers],
        "folders": [asdict(row) for row in folders],
    }
    publish("kills", record, page)
    is_wrong = [bool(row.wrong) for row in workers] + [bool(row.wrong) for row in folders]
    if any(row.torn or row.unlike for row in rows) or any(is_wrong):
        sys.exit("A file was damaged, a run differs from the undisturbed one, or a command did not react.")


if __name__ == "__main__":
    main()
