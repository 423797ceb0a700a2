"""Kills that :mod:`repro.studies.kills` adds to those of trainings: of workers that start, of fine-tunings, and of
processes that create a run folder."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from joao.core.errors import UserError
from joao.core.files import write_file
from joao.data.dataset import Dataset
from joao.runs.finetuning import finetune, load_finetuned
from joao.runs.folder import Run, claim_folder
from joao.runs.trained import TrainedEncoder
from joao.training.finetune import Finetune

PATIENCE = 60.0  # seconds after which a command that does not react counts as hanging
GRAPHS = 2000  # so many that the data set does not fit into a pipe, which holds 64 KiB
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate")


@dataclass
class WorkerKills:
    """Kills of workers of one command within two seconds after they were started.

    Attributes:
        reactions: seconds from each kill until the command said in one line that the process is lost.
        wrong: what happened otherwise.
    """

    command: str
    reactions: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


COMMANDS = {
    "joao compare --jobs 2": (
        ["compare", "graphs.jsonl", "--methods", "wl,histogram", "--partitions", "1", "--folds", "2", "--jobs", "2"],
        "failed: ",
    ),
    "joao pretrain --devices 2": (
        ["pretrain", "graphs.jsonl", "--out", "run", "--devices", "2", "--device", "cpu"],
        "SIGKILL",
    ),
}


def write_graphs(folder: Path) -> None:
    """Write small labelled graphs as JSON lines."""
    edges = ["[0,1],[1,2]", "[0,1],[1,2],[0,2]"]
    lines = (f'{{"edges": [{edges[n % 2]}], "num_nodes": {3 + n % 5}, "label": {n % 2}}}\n' for n in range(GRAPHS))
    write_file(folder / "graphs.jsonl", "".join(lines))


def kill_a_worker(words: list[str], sign: str, folder: Path, draw: random.Random) -> float | str:
    """Kill a random worker of a command while it starts; return the seconds until a line with ``sign``, or a fault."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "joao", *words], cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    lines: list[tuple[float, str]] = []
    assert process.stderr is not None
    stream = process.stderr
    reader = threading.Thread(target=lambda: lines.extend((time.monotonic(), line) for line in stream), daemon=True)
    reader.start()
    try:
        which, limit = draw.randrange(2), time.monotonic() + PATIENCE
        while len(workers := workers_of(process.pid)) <= which:
            if process.poll() is not None or time.monotonic() > limit:
                return "no worker was started"
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 2))
        with suppress(ProcessLookupError):
            os.kill(workers[which], signal.SIGKILL)
        killed = time.monotonic()
        while time.monotonic() < killed + PATIENCE:
            told = [(at, line) for at, line in list(lines) if sign in line]
            if told:
                text = "".join(line for _, line in lines)
                return told[0][0] - killed if len(told) == 1 and "Traceback" not in text else text[-500:]
            time.sleep(0.01)
        return "hangs"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()


def workers_of(process: int) -> list[int]:
    """Return the processes that a process has spawned to work."""
    with suppress(OSError):
        children = [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
        return [child for child in children if b"spawn_main" in _command_line(child)]
    return []


def _command_line(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def kill_workers(folder: Path, kills: int, draw: random.Random) -> list[WorkerKills]:
    write_graphs(folder)
    found = []
    for name, (words, sign) in COMMANDS.items():
        row = WorkerKills(name)
        for _ in range(kills):
            result = kill_a_worker(words, sign, folder, draw)
            if isinstance(result, float):
                row.reactions.append(result)
            else:
                row.wrong.append(result)
        print(row, flush=True)
        found.append(row)
    return found


@dataclass
class FolderKills:
    """Kills of processes that write the folder of a run at once.

    Attributes:
        incomplete: kills that left a folder that is not a run; the next process uses it.
        complete: kills after which the run was complete.
        nothing: kills that left no folder or an empty one.
        wrong: folders that lie: that say they are finished and cannot be loaded, or that cannot be used again.
    """

    what: str
    kills: int = 0
    incomplete: int = 0
    complete: int = 0
    nothing: int = 0
    wrong: list[str] = field(default_factory=list)


def fork(work: Callable[[], object]) -> int:
    """Do some work in a fork of this process, which prints what goes wrong."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    finally:
        os._exit(code)


def look(row: FolderKills, folder: Path, work: Callable[[], object], is_complete: Callable[[Path], bool]) -> None:
    """Look at what a killed process left, and do its work again unless it is complete."""
    row.kills += 1
    if not folder.exists() or not os.listdir(folder):
        row.nothing += 1
    elif (folder / "run.json").exists():
        row.complete += 1
    else:
        row.incomplete += 1
    try:
        if (folder / "run.json").exists() and is_complete(folder):
            return
    except (UserError, OSError, LookupError, ValueError) as error:
        row.wrong.append(str(error))
        return
    if os.waitpid(fork(work), 0)[1] != 0 or not is_complete(folder) or any(folder.glob(".*")):
        row.wrong.append(f"cannot be used again: {sorted(os.listdir(folder)) if folder.exists() else None}")


def kill_finetunings(
    trained: TrainedEncoder, dataset: Dataset, place: Path, kills: int, draw: random.Random
) -> FolderKills:
    """Kill fine-tunings after a random part of their time; half of them when a file is written next."""
    row, settings = FolderKills("joao finetune, at random moments"), Finetune(epochs=3)

    def work_in(folder: Path) -> Callable[[], object]:
        def work() -> None:
            with claim_folder(folder):
                finetune(trained, dataset, settings, device="cpu").save(folder, claimed=True)

        return work

    started = time.monotonic()
    assert os.waitpid(fork(work_in(place / "first")), 0)[1] == 0
    seconds = time.monotonic() - started
    while row.kills < kills:
        folder = place / f"tuned-{row.kills}"
        process = fork(work_in(folder))
        if draw.random() < 0.5:
            limit = time.monotonic() + 10 * seconds
            while not _is_being_written(folder) and time.monotonic() < limit:
                time.sleep(0.0002)
            time.sleep(draw.uniform(0, 0.01))
        else:
            time.sleep(draw.uniform(0, 1.1 * seconds))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        look(row, folder, work_in(folder), _is_finetuned)
    print(row, flush=True)
    return row


def _is_being_written(folder: Path) -> bool:
    """Whether more than the mark of an incomplete folder is there."""
    with suppress(OSError):
        return len(os.listdir(folder)) > 1
    return False


def _is_finetuned(folder: Path) -> bool:
    load_finetuned(folder, device="cpu")
    return Run.open(folder).info.finished


def kill_creation(what: str, work_in: Callable[[Path], object], place: Path) -> FolderKills:
    """Kill a process before its first change of a run folder, before its second, and so on until there are no more."""
    row = FolderKills(f"{what}, before every change of its folder")
    for moment in range(1, 1000):
        folder = place / f"{what.replace(' ', '-')}-{moment}"

        def work(folder: Path = folder) -> None:
            work_in(folder)

        def killed(folder: Path = folder, moment: int = moment) -> None:
            _kill_at(moment, folder)
            work_in(folder)

        status = os.waitpid(fork(killed), 0)[1]
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        look(row, folder, work, lambda folder: Run.open(folder).info.finished and bool(Run.open(folder).weights()))
    print(row, flush=True)
    return row


def _kill_at(moment: int, folder: Path) -> None:
    """Have this process killed before it changes ``folder`` or something in it for the ``moment``-th time."""
    place, left = str(folder), moment

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        is_change = event in CHANGES
        if event == "open":
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            is_change = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if is_change and any(str(each).startswith(place) for each in arguments if isinstance(each, str | os.PathLike)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
