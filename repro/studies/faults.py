"""What does the user see, and what is kept, when something goes wrong?

    python -m repro.studies.faults [--only NAME,NAME]

Every fault is caused on purpose in a real ``joao`` process: a signal, a full or read-only disk, too little memory, or
files that are truncated or changed. Each fault is one function, which gets an empty folder; to add one, write it and add
it to FAULTS. Faults of disks need ``unshare`` and a small tmpfs (Linux, root or user namespaces).
"""

import argparse
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch-geometric warns about torch.jit when it is loaded
    import torch_geometric.nn  # noqa: F401

from joao.cli import main
from joao.core.provenance import source_hash
from joao.evaluation.tables import markdown
from joao.runs.folder import Run
from joao.training.pretrain import Pretraining
from repro.studies.common import are_equal, generated, make_page, origin, publish, read_record

SMALL = ["--device", "cpu", "--epochs", "40", "--set", "training.batch_size=32", "--set", "encoder.width=16"]
PRETRAIN = ["pretrain", "MUTAG", "--out", "run", *SMALL]


@dataclass(frozen=True)
class Outcome:
    """The result of a fault.

    Attributes:
        fault: description, with how it was caused.
        said: standard error.
        code: exit code.
        kept: what was left, and the result of resuming.
    """

    fault: str
    said: str
    code: int
    kept: str


class Process:
    """A ``joao`` command in a fork of this process, in which everything is already imported.

    Args:
        folder: working folder.
        words: arguments of ``joao``.
        first: called before the command.
    """

    def __init__(self, folder: Path, words: Sequence[str], first: Callable[[], None] = lambda: None) -> None:
        self.words, self.first = words, first
        self.code: int | None = None
        with tempfile.TemporaryFile() as said:
            self.said = os.dup(said.fileno())
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self.said, 2)
            self._work()

    def _work(self) -> NoReturn:
        code = 1
        try:
            sys.argv = ["joao", *self.words]
            self.first()
            main.run()
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def is_over(self, wait: bool = False) -> bool:
        """Return whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def wait(self) -> tuple[int, str]:
        """Wait, and return exit code and standard error, without the notice that ``gin`` ignores MUTAG's edge labels."""
        self.is_over(wait=True)
        assert self.code is not None
        with os.fdopen(self.said, "rb") as file:
            file.seek(0)
            lines = file.read().decode().strip().splitlines()
        return self.code, "\n".join(line for line in lines if "the encoder gin ignores" not in line)


def joao(folder: Path, *words: str, first: Callable[[], None] = lambda: None) -> tuple[int, str]:
    """Run ``joao`` and return its exit code and standard error."""
    return Process(folder, words, first).wait()


def limit_memory(megabytes: int) -> Callable[[], None]:
    """Limit the additional memory of a process."""

    def limit() -> None:
        lines = Path("/proc/self/status").read_text().splitlines()
        size = next(int(line.split()[1]) for line in lines if line.startswith("VmSize"))
        most = size * 1024 + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return limit


def nan_after(step: int) -> Callable[[], None]:
    """Set a weight to nan after a step."""

    def arrange() -> None:
        update = Pretraining._update_copy

        def spoil(training: Pretraining, fraction: float) -> None:
            update(training, fraction)
            if training.step == step - 1:
                next(training.model.parameters()).data.fill_(torch.nan)

        Pretraining._update_copy = spoil  # type: ignore[assignment, method-assign]

    return arrange


def wait_for_epochs(folder: Path, count: int, process: Process) -> None:
    path = folder / "run" / "metrics.jsonl"
    while not process.is_over() and (not path.exists() or path.read_text().count("\n") < count):
        time.sleep(0.002)


def in_namespace(folder: Path, script: str) -> tuple[int, str, str]:
    """Run a shell script that may mount a small disk at ``disk``.

    It prints the exit code of a command, whose standard error it writes to ``said``, and then what is left on the disk;
    return these three.
    """
    (folder / "disk").mkdir()
    pretrain = shlex.join([sys.executable, "-m", "joao", "pretrain"])
    lines = ["set -u", f"pretrain='{pretrain}'", script]
    made = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", "\n".join(lines)],
        cwd=folder,
        env={**os.environ, "JOAO_CACHE": "off"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    code, *left = made.stdout.splitlines()
    return int(code), (folder / "said").read_text().strip(), "".join(left).strip()


def resume_and_compare(folder: Path) -> str:
    """Resume a run and compare its weights with those of an undisturbed run."""
    left = Run.open(folder / "run")
    steps = [int(path.stem.split("-")[1]) for path in left.checkpoints()]
    code, said = joao(folder, "pretrain", "--resume", "run", "--device", "cpu", "--quiet")
    if code:
        return f"--resume: {said}"
    return f"checkpoints of steps {', '.join(map(str, steps))}; resumed: {compare_weights(Run.open(folder / 'run'))}"


def compare_weights(run: Run) -> str:
    same = are_equal(run.weights(), undisturbed_weights())
    return "weights equal to an undisturbed run's bit for bit" if same else "WEIGHTS DIFFER"


@cache
def undisturbed_weights() -> dict[str, torch.Tensor]:
    with TemporaryDirectory() as place:
        code, said = joao(Path(place), *PRETRAIN)
        assert code == 0, said
        return Run.open(Path(place) / "run").weights()


def run_and_signal(
    folder: Path, *signals: signal.Signals, words: Sequence[str] = PRETRAIN, epochs: int = 3
) -> tuple[int, str]:
    process = Process(folder, words)
    wait_for_epochs(folder, epochs, process)
    for number in signals:
        os.kill(process.pid, number)
        time.sleep(0.1)
    return process.wait()


def ctrl_c(folder: Path) -> Outcome:
    code, said = run_and_signal(folder, signal.SIGINT)
    return Outcome("Ctrl-C during training", said, code, resume_and_compare(folder))


def sigterm(folder: Path) -> Outcome:
    code, said = run_and_signal(folder, signal.SIGTERM)
    return Outcome("SIGTERM during training", said, code, resume_and_compare(folder))


def ctrl_c_before_the_first_epoch(folder: Path) -> Outcome:
    process = Process(folder, PRETRAIN)
    while not process.is_over() and not (folder / "run" / "run.json").exists():
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGINT)
    code, said = process.wait()
    return Outcome("Ctrl-C in the first epoch", said, code, resume_and_compare(folder))


def second_ctrl_c(folder: Path) -> Outcome:
    wide = [*PRETRAIN, "--set", "encoder.width=1500", "--set", "training.batch_size=188", "--checkpoint-every", "1"]
    code, said = run_and_signal(folder, signal.SIGINT, signal.SIGINT, words=wide, epochs=1)
    steps = int(Run.open(folder / "run").checkpoints()[0].stem.split("-")[1])
    return Outcome(
        "a second Ctrl-C 0.1 s after the first, in a training with slow steps",
        said,
        code,
        f"checkpoint of step {steps}",
    )


def sigkill(folder: Path) -> Outcome:
    code, said = run_and_signal(folder, signal.SIGKILL, words=[*PRETRAIN, "--checkpoint-every", "2"], epochs=5)
    return Outcome("SIGKILL during training", said, code, resume_and_compare(folder))


def disk_full(folder: Path) -> Outcome:
    words = shlex.join(["MUTAG", "--out", "disk/run", *SMALL, "--checkpoint-every", "1"])
    script = f"""
        mount -t tmpfs -o size=240k tmpfs disk
        $pretrain {words} --quiet 2> said; echo $?
        ls -A disk/run | tr '\\n' ' '; echo
        mount -o remount,size=64m disk
        $pretrain --resume disk/run --device cpu --quiet || exit 1
        cp -r disk/run run
    """
    code, said, left = in_namespace(folder, script)
    kept = f"{left}; after making room, resumed: {compare_weights(Run.open(folder / 'run'))}"
    return Outcome("disk full at a checkpoint (tmpfs of 240 kB)", said, code, kept)


def disk_full_at_the_start(folder: Path) -> Outcome:
    words = shlex.join(["MUTAG", "--out", "disk/run", *SMALL])
    script = f"""
        mount -t tmpfs -o size=12k tmpfs disk
        $pretrain {words} --quiet 2> said; echo $?
        ls -A disk | tr '\\n' ' '; echo
    """
    code, said, left = in_namespace(folder, script)
    return Outcome("disk full from the start (tmpfs of 12 kB)", said, code, left or "nothing is left behind")


def read_only_folder(folder: Path) -> Outcome:
    words = shlex.join(["MUTAG", "--out", "disk/run", *SMALL])
    script = f"""
        mount -t tmpfs tmpfs disk && mount -o remount,ro disk
        $pretrain {words} --quiet 2> said; echo $?
        ls -A disk | tr '\\n' ' '; echo
    """
    code, said, left = in_namespace(folder, script)
    fault = "a folder that cannot be written to (read-only file system)"
    return Outcome(fault, said, code, left or "nothing was started")


def read_only_later(folder: Path) -> Outcome:
    words = shlex.join(["MUTAG", "--out", "disk/run", *SMALL, "--checkpoint-every", "1"])
    script = f"""
        mount -t tmpfs tmpfs disk
        $pretrain {words} --quiet 2> said & process=$!
        while [ "$(cat disk/run/metrics.jsonl 2> /dev/null | wc -l)" -lt 3 ]; do sleep 0.01; done
        until mount -o remount,ro disk 2> /dev/null; do :; done
        wait $process; echo $?
        mount -o remount,rw disk
        cp -r disk/run run
    """
    code, said, _ = in_namespace(folder, script)
    return Outcome("the file system becomes read-only during training", said, code, resume_and_compare(folder))


def file_in_the_way(folder: Path) -> Outcome:
    (folder / "run").write_text("precious")
    code, said = joao(folder, *PRETRAIN)
    return Outcome("a file where the run's folder should be", said, code, f"the file, {(folder / 'run').read_text()!r}")


def describe_leftovers(folder: Path) -> str:
    return "its folder, WRITTEN ANYWAY" if (folder / "run").exists() else "nothing is left behind"


def out_of_memory(folder: Path) -> Outcome:
    path = json.dumps({"edges": [[node, node + 1] for node in range(39)], "num_nodes": 40})
    (folder / "graphs.jsonl").write_text(f"{path}\n" * 3000)
    huge = ["pretrain", "./graphs.jsonl", "--out", "run", "--device", "cpu", "--set", "training.batch_size=3000"]
    code, said = joao(folder, *huge, first=limit_memory(600))
    return Outcome("out of memory in the first step (RLIMIT_AS)", said, code, describe_leftovers(folder))


def out_of_memory_at_once(folder: Path) -> Outcome:
    code, said = joao(folder, *PRETRAIN, "--set", "encoder.width=20000", first=limit_memory(300))
    return Outcome("out of memory while the encoder is made (RLIMIT_AS)", said, code, describe_leftovers(folder))


def loss_not_finite(folder: Path) -> Outcome:
    code, said = joao(folder, *PRETRAIN, "--set", "training.learning_rate=1e30")
    fault = "the loss becomes nan in the first epoch (learning rate 1e30)"
    return Outcome(fault, said, code, describe_leftovers(folder))


def loss_not_finite_later(folder: Path) -> Outcome:
    code, said = joao(folder, *PRETRAIN, "--checkpoint-every", "2", first=nan_after(40))
    return Outcome("a weight becomes nan in step 40", said, code, resume_and_compare(folder))


def interrupted_run(folder: Path) -> Run:
    run_and_signal(folder, signal.SIGINT, words=[*PRETRAIN, "--checkpoint-every", "1"])
    return Run.open(folder / "run")


def changed_data(folder: Path) -> Outcome:
    lines = [f'{{"edges": [[0, 1], [1, 2]], "num_nodes": {3 + number % 5}}}\n' for number in range(60)]
    (folder / "graphs.jsonl").write_text("".join(lines))
    run_and_signal(
        folder, signal.SIGINT, words=["pretrain", "./graphs.jsonl", "--out", "run", *SMALL[:2], "--epochs", "4000"]
    )
    (folder / "graphs.jsonl").write_text("".join(lines[1:]))
    code, said = joao(folder, "pretrain", "--resume", "run")
    return Outcome(
        "the data changed before --resume", said, code, f"{len(Run.open(folder / 'run').checkpoints())} checkpoints"
    )


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def damaged_checkpoint(folder: Path, damage: Callable[[Path], None], fault: str) -> Outcome:
    damage(interrupted_run(folder).checkpoints()[0])
    code, said = joao(folder, "pretrain", "--resume", "run", "--device", "cpu")
    return Outcome(fault, said, code, f"resumed: {compare_weights(Run.open(folder / 'run'))}")


def torn_checkpoint(folder: Path) -> Outcome:
    return damaged_checkpoint(folder, cut_in_half, "the newest checkpoint is cut in half")


def flipped_bit(folder: Path) -> Outcome:
    return damaged_checkpoint(folder, flip_bit, "a bit of the newest checkpoint is flipped")


def all_torn(folder: Path) -> Outcome:
    for path in interrupted_run(folder).checkpoints():
        path.write_bytes(path.read_bytes()[:-1])
    return not_resumed(folder, "every checkpoint lacks its last byte")


def torn_weights(folder: Path) -> Outcome:
    assert joao(folder, "pretrain", "MUTAG", "--out", "run", *SMALL[:2], "--epochs", "1")[0] == 0
    flip_bit(folder / "run" / "weights.safetensors")
    code, said = joao(folder, "embed", "run", "MUTAG", "--out", "embeddings.npz")
    left = "embeddings, WRITTEN ANYWAY" if (folder / "embeddings.npz").exists() else "no embeddings were written"
    return Outcome("a bit of the finished weights is flipped", said, code, left)


def torn_run(folder: Path) -> Outcome:
    path = interrupted_run(folder).folder / "run.json"
    path.write_bytes(path.read_bytes()[:100])
    return not_resumed(folder, "run.json is cut short")


def not_resumed(folder: Path, fault: str) -> Outcome:
    """Try to resume, and check that no file changes."""

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / "run").iterdir()}

    before = contents()
    code, said = joao(folder, "pretrain", "--resume", "run")
    return Outcome(fault, said, code, "all files, as they were" if contents() == before else "FILES HAVE CHANGED")


def two_at_once(folder: Path) -> Outcome:
    one = Process(folder, PRETRAIN)
    wait_for_epochs(folder, 1, one)
    code, said = joao(folder, "pretrain", "--resume", "run", "--device", "cpu")
    assert one.wait()[0] == 0
    return Outcome(
        "a run is resumed that is still being trained",
        said,
        code,
        f"the first: {compare_weights(Run.open(folder / 'run'))}",
    )


def finished(folder: Path) -> Outcome:
    assert joao(folder, "pretrain", "MUTAG", "--out", "run", *SMALL[:2], "--epochs", "1")[0] == 0
    code, said = joao(folder, "pretrain", "--resume", "run")
    return Outcome("a finished run is resumed", said, code, "the run" if Run.open(folder / "run").weights() else "GONE")


FAULTS: tuple[Callable[[Path], Outcome], ...] = (
    ctrl_c,
    ctrl_c_before_the_first_epoch,
    second_ctrl_c,
    sigterm,
    sigkill,
    disk_full,
    disk_full_at_the_start,
    read_only_folder,
    read_only_later,
    file_in_the_way,
    out_of_memory,
    out_of_memory_at_once,
    loss_not_finite,
    loss_not_finite_later,
    changed_data,
    torn_checkpoint,
    flipped_bit,
    all_torn,
    torn_weights,
    torn_run,
    two_at_once,
    finished,
)


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    lines = [
        [row["fault"], "<br>".join(f"`{line}`" for line in row["said"].splitlines()), str(row["code"]), row["kept"]]
        for row in record["rows"]
    ]
    found, where = record["versions"], record["machine"]
    sources = dict.fromkeys(row["source"] for row in record["rows"])
    return make_page(
        "Fault injection",
        f"{generated('faults')} joao {found['joao']} (source {', '.join(sources)}), torch "
        f"{found['torch']}, {where['processor']}, {where['threads']} thread. Every fault was caused in a real process, `joao pretrain "
        f"MUTAG --out run {shlex.join(SMALL)}` with further options that the fault needs.",
        markdown(["fault", "what the user sees", "exit code", "what is kept"], lines),
    )


def run_study() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="names of functions, separated by commas; other rows are kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["JOAO_CACHE"] = "off"
    only = arguments.only.split(",") if arguments.only else []
    rows = {}
    if only:
        rows = {row["name"]: row for row in read_record("faults")["rows"]}
    for fault in FAULTS:
        if not only or fault.__name__ in only:
            with TemporaryDirectory() as place:
                found = asdict(fault(Path(place)))
            said = found["said"].replace(f"{place}/", "")
            rows[fault.__name__] = {"name": fault.__name__, **found, "said": said, "source": source_hash()}
            print(rows[fault.__name__], flush=True)
    ordered = [rows[fault.__name__] for fault in FAULTS if fault.__name__ in rows]
    record = {**origin(), "rows": ordered}
    publish("faults", record, page)


if __name__ == "__main__":
    run_study()
