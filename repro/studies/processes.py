"""Do two processes train as one does, how fast, and what remains of a training if one of them is killed?

    OMP_NUM_THREADS=1 python -m repro.studies.processes

Needs NCI1 and PROTEINS in $JOAO_DATA. Uses CPUs and gloo, one thread per process. Trainings with one process and with
two are measured in turn, epoch by epoch.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from joao.config.builder import build_method
from joao.config.recipe import make_recipe
from joao.data import read_whole
from joao.data.features import Features, make_store
from joao.evaluation.tables import markdown
from joao.runs.folder import Run
from joao.training.device import make_fabric
from joao.training.distributed.group import ProcessGroup
from joao.training.distributed.launch import Send, find_process_layout, run_in_processes
from joao.training.pretrain import Pretraining
from repro.studies.common import are_equal, generated, make_page, origin, parse_options, publish, with_range
from repro.studies.other_kills import workers_of

METHODS = ("joao", "joaov2")
EPOCHS = 2
SHOWN = (1, 2, 5, 10, 33, 66)
SPEEDS = (("NCI1", 3, 32, 128), ("NCI1", 3, 32, 1024), ("PROTEINS", 5, 128, 256))
ROUNDS = 5
KILL = {"epochs": 6, "kill after epoch": 3, "checkpoint every": 2}


@dataclass(frozen=True)
class Work:
    """A training whose steps are recorded, in one process or in two."""

    method: str = "joao"
    data: str = "NCI1"
    layers: int = 3
    width: int = 32
    batch_size: int = 128
    epochs: int = EPOCHS
    dtype: str = "float32"
    nudged: bool = False  # whether all initial weights are moved to the next floating-point number

    def training(self, several: bool) -> Pretraining:
        dataset = read_whole(self.data)
        store = make_store(dataset, Features.from_dataset(dataset))
        encoder = {"name": "gin", "width": self.width, "layers": self.layers}
        schedule = {"epochs": self.epochs, "batch_size": self.batch_size}
        recipe = make_recipe({"method": self.method, "encoder": encoder, "training": schedule})
        dtype = getattr(torch, self.dtype)
        store = replace(store, x=store.x.to(dtype))
        method = build_method(recipe, store)
        method.encoder.to(dtype)
        method.heads.to(dtype)
        with torch.no_grad():
            for weight in [*method.encoder.parameters(), *method.heads.parameters()] if self.nudged else []:
                weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))
        return Pretraining(
            store, method, recipe.training, make_fabric("cpu", "32-true", find_process_layout(2) if several else None)
        )


Step = dict[str, Any]


def record_steps(work: Work, several: bool) -> list[Step]:
    """Train, and return loss, table of pairs and weights after every step."""
    training, steps = work.training(several), list[Step]()
    train = training.steps.train

    def train_and_record(batch: Any, pairs: Any) -> None:
        before = float(training.steps.loss_sum)
        train(batch, pairs)
        weights = torch.cat([value.detach().flatten().double() for value in training.model.parameters()])
        loss = (float(training.steps.loss_sum) - before) / batch.numel()
        steps.append({"loss": loss, "table": training.method.policy.probabilities.numpy(), "weights": weights.numpy()})

    training.steps.loss_sum = training.steps.loss_sum.double()
    training.steps.train = train_and_record  # type: ignore[method-assign]
    for _ in training.run():
        pass
    return steps


def differences(one: list[Step], other: list[Step]) -> list[dict[str, float]]:
    """Return for each step the relative difference of losses and the largest differences of probabilities and weights."""
    return [
        {
            "step": number,
            "loss": abs(a["loss"] - b["loss"]) / abs(a["loss"]),
            "table": float(np.abs(a["table"] - b["table"]).max()),
            "weights": float(np.abs(a["weights"] - b["weights"]).max()),
            "mean weight": float(np.abs(a["weights"] - b["weights"]).mean()),
        }
        for number, (a, b) in enumerate(zip(one, other, strict=True), start=1)
    ]


def follow_in_two(send: Send) -> None:
    """Run all trainings in one of two processes. The first process sends the results."""
    for method in METHODS:
        for dtype in ("float64", "float32"):
            steps = record_steps(Work(method, dtype=dtype), several=True)
            if os.environ["LOCAL_RANK"] == "0":
                send((method, dtype, steps))


def compare() -> list[dict[str, Any]]:
    """Compare one process with two, and, to see the effect of rounding, one process with itself after nudging the weights."""
    in_two = {
        (method, dtype): steps for method, dtype, steps in run_in_processes(follow_in_two, [], find_process_layout(2))
    }
    rows = []
    for method in METHODS:
        in_one = {dtype: record_steps(Work(method, dtype=dtype), several=False) for dtype in ("float64", "float32")}
        for dtype, steps in in_one.items():
            found = differences(steps, in_two[method, dtype])
            rows.append({"method": method, "compared": f"one process and two, {dtype}", "steps": found})
        found = differences(in_one["float32"], record_steps(Work(method, nudged=True), several=False))
        rows.append({"method": method, "compared": "one process and itself nudged, float32", "steps": found})
    return rows


def measure_speed(send: Send) -> None:
    """Measure, in one of two processes, epochs of the first process alone and epochs of both, in turn."""
    for data, layers, width, batch_size in SPEEDS:
        work = Work("joao", data, layers, width, batch_size, epochs=1 + ROUNDS)
        both = work.training(several=True)
        ranks = both.group
        assert ranks is not None
        alone = work.training(several=False)
        found: dict[str, list[dict[str, float]]] = {"one process": [], "two processes": []}
        for epochs, name in ((alone.run(), "one process"), (both.run(), "two processes")):
            if ranks.rank == 0 or name == "two processes":
                next(epochs)  # warm-up
            ranks.barrier()
            del epochs
        for _ in range(ROUNDS):
            for training, name in ((alone, "one process"), (both, "two processes")):
                ranks.barrier()
                found[name].append(_timed(training, ranks) if ranks.rank == 0 or name == "two processes" else {})
        if ranks.rank == 0:
            print(data, width, batch_size, flush=True)
            send({"data": data, "encoder": f"gin {layers} x {width}", "batch size": batch_size, "epochs": found})


def _timed(training: Pretraining, ranks: ProcessGroup) -> dict[str, float]:
    before = time.process_time()
    metrics = next(iter(training.run()))
    return {
        "graphs per second": metrics.graphs_per_second,
        "seconds": metrics.seconds,
        "CPU seconds of the first process": time.process_time() - before,
    }


def kill_and_resume() -> list[dict[str, Any]]:
    """Train with ``joao pretrain NCI1 --devices 2``: undisturbed, and with either process killed and then resumed."""
    found = []
    with TemporaryDirectory() as folder:
        undisturbed = Path(folder) / "undisturbed"
        _finish(_start(undisturbed))
        for number in (1, 0):
            run = Path(folder) / f"killed{number}"
            told = _kill_process(run, number)
            left = Run.open(run)
            told["epochs in the checkpoint"] = int(left.read_checkpoint()["position"][0])
            subprocess.run([sys.executable, "-m", "joao", "pretrain", "--resume", str(run), "-q"], check=True)
            told["resumed weights equal bit for bit"] = are_equal(
                Run.open(run).weights(), Run.open(undisturbed).weights()
            )
            found.append(told)
    return found


def _start(run: Path) -> subprocess.Popen[str]:
    options = ["--devices", "2", "--device", "cpu", "--epochs", str(KILL["epochs"])]
    options += ["--checkpoint-every", str(KILL["checkpoint every"]), "--out", str(run)]
    words = [sys.executable, "-m", "joao", "pretrain", "NCI1", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    errors = process.communicate()[1]
    return process.returncode, errors


def _kill_process(run: Path, number: int) -> dict[str, Any]:
    process = _start(run)
    lines: list[str] = []
    while len(lines) < KILL["kill after epoch"]:
        time.sleep(0.02)
        path = run / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    time.sleep(0.3)  # into the next epoch
    started = sorted(workers_of(process.pid))
    at = time.monotonic()
    os.kill(started[number], signal.SIGKILL)
    gone: list[float] = []
    while process.poll() is None:
        if not gone and not any(_is_running(pid) for pid in started):
            gone.append(time.monotonic() - at)
        time.sleep(0.01)
    seconds = time.monotonic() - at
    code, errors = _finish(process)
    return {
        "process killed": number,
        "seconds until the other was gone": gone[0] if gone else seconds,
        "seconds until the command ended": seconds,
        "exit code": code,
        "standard error": errors.replace(str(run), "RUN").strip(),
    }


def _is_running(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def speeds(row: dict[str, Any]) -> tuple[list[float], list[float], list[float]]:
    """Return graphs per second of one process and of two, and their ratios, epoch by epoch."""
    one, two = ([each["graphs per second"] for each in row["epochs"][name]] for name in row["epochs"])
    return one, two, [b / a for a, b in zip(one, two, strict=True)]


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    steps = [
        [row["method"], row["compared"], str(each["step"])]
        + [f"{each[key]:.1e}" for key in ("loss", "table", "weights", "mean weight")]
        for row in record["step by step"]
        for each in row["steps"]
        if each["step"] in SHOWN
    ]
    speed_lines = []
    for row in record["speed"]:
        one, two, ratios = speeds(row)
        cells = [with_range(values, ",.0f", np.median) for values in (one, two)]
        ratio = with_range(ratios, middle=np.median)
        works = [
            np.median([each["CPU seconds of the first process"] for each in row["epochs"][name]])
            for name in row["epochs"]
        ]
        speed_lines.append(
            [row["data"], row["encoder"], str(row["batch size"]), *cells, ratio, *(f"{each:.2f}" for each in works)]
        )
    kills = [
        [
            str(row["process killed"]),
            f"{row['seconds until the other was gone']:.2f}",
            f"{row['seconds until the command ended']:.2f}",
            str(row["exit code"]),
            f"`{row['standard error']}`",
            str(row["epochs in the checkpoint"]),
            "yes" if row["resumed weights equal bit for bit"] else "no",
        ]
        for row in record["killed"]
    ]
    found, where = record["versions"], record["machine"]
    return make_page(
        "Two processes compared with one",
        f"{generated('processes')} Two processes on one machine, CPU, gloo, {where['threads']} thread "
        f"each; joao {found['joao']} (source {found['source']}), torch {found['torch']}, {where['processor']}, "
        f"{where['cores']} cores; load at the start {record['load'][0]:.1f}.",
        "## Step by step",
        f"NCI1, GIN 3 x 32, batch size 128 (the last batch of an epoch has 14 graphs), seed 0, {EPOCHS} epochs. Loss: relative difference. "
        "Table and weights: largest absolute difference of an entry; the initial weights are equal. In float64 the differences are rounding "
        "errors. In float32 they start as rounding errors and grow, because Adam divides by the size of the gradient: a weight with almost no "
        "gradient moves by the full learning rate in a direction that rounding decides. The third group of each method shows the same effect "
        "in one process whose initial weights were changed by one rounding step.",
        markdown(["method", "compared", "step", "loss", "table", "largest weight", "mean weight"], steps),
        "## Speed",
        f"JOAO, graphs per second, median (min to max) of {ROUNDS} epochs, measured in turn. CPU s: median CPU seconds of the first process per epoch.",
        markdown(
            [
                "data",
                "encoder",
                "batch",
                "one process",
                "two processes",
                "two / one, by epoch",
                "CPU s, one",
                "CPU s, first of two",
            ],
            speed_lines,
        ),
        "## A process is killed",
        f"`joao pretrain NCI1 --devices 2 --epochs {KILL['epochs']} --checkpoint-every {KILL['checkpoint every']}`; SIGKILL 0.3 s into "
        f"epoch {KILL['kill after epoch'] + 1} or later; then `joao pretrain --resume RUN`, compared with an undisturbed run.",
        markdown(
            [
                "killed",
                "other process ended after, s",
                "command ended after, s",
                "exit code",
                "standard error",
                "epochs kept",
                "weights equal bit for bit",
            ],
            kills,
        ),
    )


def main() -> None:
    parse_options(__doc__)
    torch.set_num_threads(1)
    load = os.getloadavg()
    record = {
        **origin(),
        "load": load,
        "killed": kill_and_resume(),
        "speed": list(run_in_processes(measure_speed, [], find_process_layout(2))),
        "step by step": compare(),
    }
    publish("processes", record, page)


if __name__ == "__main__":
    main()
