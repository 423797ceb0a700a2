"""How much memory do graphs in shards need, and how fast are they read, compared with graphs in memory?

    python -m repro.studies.shards --sizes 10000,100000,1000000,10000000

Synthetic graphs of the size of drug-like molecules, 25 nodes on average, are streamed into stores of several sizes. For
each, a new process takes some hundred steps of pre-training while a thread samples the memory of the process: anonymous
memory (RssAnon), which cannot be reclaimed, and mapped files (RssFile), which the system can drop at any time. The
structures of the graphs repeat after 2^19; labels are drawn anew for every shard.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from joao.config.builder import build_method
from joao.config.recipe import make_recipe
from joao.core.files import write_file
from joao.core.graphs import GraphStore, Store
from joao.core.randomness import numpy_generator, torch_generator
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.data.shards.shards import Shards
from joao.data.shards.store import BLOCK, ShardStore
from joao.data.shards.writer import SHARD_GRAPHS, ShardWriter
from joao.evaluation.tables import markdown
from joao.training.model import WINDOW, BatchSampler
from joao.training.pretrain import Pretraining
from repro.benchmarks.workloads import molecule_like_graphs
from repro.studies.common import PAGES, generated, make_page, origin, publish, read_record

BATCH = 256
STRUCTURES = 4  # number of shards with different structures
MOST_IN_MEMORY = 1_000_000
SPEED_GRAPHS = 100_000
TIMED_BATCHES, TIMED_STEPS = 40, 8
H200 = 106_339  # molecules per second, JOAO, GIN 5x300, fast path: docs/results/benchmarks/tables.md
ENCODER = {"name": "gin", "width": 32, "layers": 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="10000,100000,1000000,10000000")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--keep", action="store_true", help="measure pass and orders again and keep the rest of the record"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        task = json.loads(arguments.child)
        print(json.dumps(CHILDREN[task.pop("what")](**task)))
        return
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="shards-") as place:
        if arguments.keep:
            record = read_record("shards")
            record |= {**measure_orders(Path(place), sizes[-1]), "pass and orders": origin()}
        else:
            record = measure(Path(place), sizes, arguments.steps, arguments.rounds) | origin()
    publish("shards", record, page)
    draw(record, PAGES / "shards.png")


def measure(place: Path, sizes: list[int], steps: int, rounds: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for size in sizes:
        folder = str(place / f"{size}.joao")
        row: dict[str, Any] = {"graphs": size, "packing": child("pack", folder=folder, graphs=size)}
        row["shards"] = child("train", folder=folder, steps=steps, in_memory=False)
        if size <= MOST_IN_MEMORY:
            row["memory"] = child("train", folder=folder, steps=steps, in_memory=True)
        rows.append(row)
    speed = str(place / f"{min(SPEED_GRAPHS, sizes[-1])}.joao")
    return {
        "sizes": rows,
        **measure_orders(place, sizes[-1]),
        "speed": child("speed", folder=speed, rounds=rounds),
        "steps": steps,
        "batch": BATCH,
        "window": WINDOW,
        "shard graphs": SHARD_GRAPHS,
        "networks": {kind: network(kind) for kind in ("graphs", "molecules")},
    }


def measure_orders(place: Path, size: int) -> dict[str, Any]:
    """Measure a pass over the largest store, and a part of a pass in different orders."""
    folder = place / f"{size}.joao"
    if not folder.exists():
        child("pack", folder=str(folder), graphs=size)
    return {
        "pass": child("full_pass", folder=str(folder)),
        "orders": {order: child("cold", folder=str(folder), **task) for order, task in ORDERS.items()},
    }


def child(what: str, **task: Any) -> dict[str, Any]:
    """Run a function of this module in a new process."""
    argument = json.dumps({"what": what, **task})
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "repro.studies.shards", "--child", argument]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{what}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def synthetic_shards(graphs: int) -> Iterator[Dataset]:
    """Yield shards of synthetic molecules; structures repeat, labels are drawn anew for each shard."""
    made: dict[int, Dataset] = {}
    for number, first in enumerate(range(0, graphs, SHARD_GRAPHS)):
        size, of = min(SHARD_GRAPHS, graphs - first), number % STRUCTURES
        base = made.setdefault(of, molecule_like_graphs(min(SHARD_GRAPHS, graphs), mean_nodes=25, seed=of))
        part = base if size == len(base) else base[:size]
        weights = np.cumsum(3.0 ** -np.arange(9))
        drawn = numpy_generator(number, "labels").random(part.num_nodes) * weights[-1]
        yield replace(part, node_labels=np.searchsorted(weights, drawn, side="right")[:, None])


def pack(folder: str, graphs: int) -> dict[str, Any]:
    with watch_memory() as seen, stopwatch() as took:
        writer = ShardWriter(Path(folder), "molecules", f"synthetic {graphs}")
        for dataset in synthetic_shards(graphs):
            writer.add(dataset, 0, len(dataset))
        shards = writer.finish()
    sizes = {"bytes": shards.num_bytes, "index bytes": (Path(folder) / "index.json").stat().st_size}
    nodes = {"nodes": shards.facts.nodes, "edges": shards.facts.edges, "shards": len(shards.index.shards)}
    return {**seen, **took, **sizes, **nodes}


def train(folder: str, steps: int, in_memory: bool) -> dict[str, Any]:
    with watch_memory() as seen, stopwatch() as took:
        with stopwatch() as opening:
            shards = Shards(Path(folder))
        training = make_training(Path(folder), shards.whole() if in_memory else shards)
        for batch in islice(iterate_batches(training), steps):
            training.steps.train(batch, training.method.policy.sample(1, training.generators["pairs"]))
    return {**seen, **took, "opening seconds": opening["seconds"], "loss": float(training.steps.loss_sum)}


def full_pass(folder: str) -> dict[str, Any]:
    """Read every graph once, in the order of an epoch."""
    store = shard_store(Path(folder))
    order = BatchSampler(len(store), BATCH, store.block)
    seen_graphs = 0
    with watch_memory() as seen, stopwatch() as took:
        for numbers in chain.from_iterable(order.draw(torch_generator(0, "batches"))):
            seen_graphs += store.batch(numbers).num_graphs
    return {**seen, **took, "graphs": seen_graphs}


def cold(folder: str, block: int, ahead: bool) -> dict[str, Any]:
    """Read a window of graphs, or a tenth of the store, starting with an empty page cache."""
    store = shard_store(Path(folder))
    if not ahead:
        setattr(store, "_prefetch", lambda graphs: None)  # noqa: B010
    evict(Path(folder))
    order = BatchSampler(len(store), BATCH, block)
    count = min(WINDOW, len(store) // 10) // BATCH
    before = disk_bytes()
    with stopwatch() as took:
        for numbers in islice(chain.from_iterable(order.draw(torch_generator(0, "batches"))), count):
            store.batch(numbers)
    return {**took, "graphs": count * BATCH, "bytes read": disk_bytes() - before}


def speed(folder: str, rounds: int) -> dict[str, Any]:
    """Time batches and training steps of the same graphs in memory and in shards, in turn."""
    shards = Shards(Path(folder))
    trainings = {"memory": make_training(Path(folder), shards.whole()), "shards": make_training(Path(folder), shards)}
    # The first batches of an epoch, which depend on the seed only, again and again.
    batches = {way: cycle(list(islice(iterate_batches(training), 200))) for way, training in trainings.items()}

    def take_batches(way: str) -> None:
        for _ in range(TIMED_BATCHES):
            trainings[way].store.batch(next(batches[way]))

    def take_steps(way: str) -> None:
        for number in range(TIMED_STEPS):
            trainings[way].steps.train(next(batches[way]), torch.tensor([[number % 5, 4 - number % 5]]))

    ways = {"batches": take_batches, "steps": take_steps}
    times: dict[str, dict[str, list[float]]] = {what: {way: [] for way in trainings} for what in ways}
    for turn in range(rounds + 1):
        for what, work in ways.items():
            for way in trainings:
                with stopwatch() as took:
                    work(way)
                if turn:  # the first warms up
                    times[what][way].append(took["CPU seconds"])
    counts = {"batches": TIMED_BATCHES * BATCH, "steps": TIMED_STEPS * BATCH}
    return {
        "graphs": len(shards),
        "rounds": rounds,
        "graphs per CPU second": {
            what: {way: counts[what] / float(np.median(found)) for way, found in each.items()}
            for what, each in times.items()
        },
        "ratio": {
            what: [float(np.quantile(np.divide(each["shards"], each["memory"]), q)) for q in (0.5, 0.0, 1.0)]
            for what, each in times.items()
        },
    }


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "pack": pack,
    "train": train,
    "full_pass": full_pass,
    "cold": cold,
    "speed": speed,
}
ORDERS = {
    "windows of blocks": {"block": BLOCK, "ahead": True},
    "windows of blocks, without prefetching": {"block": BLOCK, "ahead": False},
    "uniform permutation": {"block": 0, "ahead": False},
}


def recipe_of(seed: int = 0) -> Any:
    table = {"data": "made", "encoder": ENCODER, "features": "labels", "training": {"batch_size": BATCH, "seed": seed}}
    return make_recipe(table, "study", "graphs")


def make_training(folder: Path, graphs: Dataset | Shards) -> Pretraining:
    recipe, features = recipe_of(), Features.from_dataset(graphs, "labels")
    store: Store = ShardStore(graphs, features) if isinstance(graphs, Shards) else make_store(graphs, features)
    return Pretraining(store, build_method(recipe, store), recipe.training)


def iterate_batches(training: Pretraining) -> Iterator[Any]:
    while True:
        for numbers in training.sampler.draw(training.generators["batches"]):
            yield from training.steps.load(numbers)


def shard_store(folder: Path) -> ShardStore:
    shards = Shards(folder)
    return ShardStore(shards, Features.from_dataset(shards, "labels"))


def network(kind: str) -> dict[str, int]:
    """Return the number of parameters and the width of the projections of the default network for a kind of data."""
    columns = {"graphs": 9, "molecules": 2}[kind]
    ends = torch.tensor([1, 0]), torch.tensor([0, 1])
    bonds = torch.zeros(2, 2) if kind == "molecules" else None
    store = GraphStore(torch.zeros(2, columns), *ends, torch.tensor([0, 2]), torch.tensor([0, 2]), bonds)
    method = build_method(make_recipe({"data": "made"}, "study", kind), store)
    parameters = sum(each.numel() for part in (method.encoder, method.heads) for each in part.parameters())
    projected = method.heads(torch.zeros(1, method.encoder.num_dimensions), 0)
    return {"parameters": parameters, "width": projected.shape[1]}


@contextmanager
def stopwatch() -> Iterator[dict[str, float]]:
    took: dict[str, float] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    yield took
    took |= {"seconds": time.perf_counter() - wall, "CPU seconds": time.process_time() - cpu}


@contextmanager
def watch_memory() -> Iterator[dict[str, int]]:
    """Sample the memory of the process 100 times per second; report start and maximum."""
    seen: dict[str, int] = {}
    stop = threading.Event()
    before = resident()
    peak = dict(before)

    def look() -> None:
        while not stop.wait(0.01):
            now = resident()
            peak.update({name: max(peak[name], now[name]) for name in now})

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        seen |= {f"{name} before": value for name, value in before.items()}
        seen |= {f"{name} at most": value for name, value in peak.items()}


def resident() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    found = {
        line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "RssFile"))
    }
    return {"anonymous": found["RssAnon"], "file": found["RssFile"]}


def disk_bytes() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def evict(folder: Path) -> None:
    """Ask the system to drop the pages of the files."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def memory_table(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of the table of memory."""
    rows = record["sizes"]
    lines = []
    for row in rows:
        packing, shards, memory = row["packing"], row["shards"], row.get("memory")
        lines.append(
            [
                f"{row['graphs']:,}",
                f"{packing['bytes'] / 1e6:,.1f}",
                f"{packing['bytes'] / row['graphs']:.1f}",
                _megabytes(packing["anonymous at most"]),
                f"{row['graphs'] / packing['CPU seconds']:,.0f}",
                _megabytes(shards["anonymous before"]),
                _megabytes(shards["anonymous at most"]),
                _megabytes(shards["file at most"]),
                _megabytes(memory["anonymous at most"]) if memory else "not run",
                f"{1000 * shards['opening seconds']:.0f}",
            ]
        )
    header = [
        "graphs",
        "store, MB",
        "bytes per graph",
        "packing: anonymous, MB",
        "packing: graphs/CPU s",
        "before training: anonymous, MB",
        "training from shards: anonymous, MB",
        "mapped files, MB",
        "training in memory: anonymous, MB",
        "opening, ms",
    ]
    return header, lines


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    header, lines = memory_table(record)
    rows = record["sizes"]
    whole, speeds = record["pass"], record["speed"]
    passed = [
        f"One pass over {whole['graphs']:,} graphs in the order of an epoch, in batches of {record['batch']}: "
        f"{whole['seconds']:.0f} s ({whole['CPU seconds']:.0f} CPU s, {whole['graphs'] / whole['CPU seconds']:,.0f} graphs per "
        f"CPU second), anonymous memory {_megabytes(whole['anonymous before'])} MB before and "
        f"{_megabytes(whole['anonymous at most'])} MB at most, mapped files {_megabytes(whole['file at most'])} MB at most."
    ]
    cold_lines = [
        [
            name,
            f"{each['graphs']:,}",
            f"{each['bytes read'] / 1e6:,.1f}",
            f"{each['bytes read'] / rows[-1]['packing']['bytes']:.0%}",
            f"{each['seconds']:.1f}",
            f"{each['graphs'] / each['seconds']:,.0f}",
        ]
        for name, each in record["orders"].items()
    ]
    speed_lines = [
        [
            what,
            *(f"{speeds['graphs per CPU second'][what][way]:,.0f}" for way in ("memory", "shards")),
            "{:.2f} ({:.2f} to {:.2f})".format(*speeds["ratio"][what]),
        ]
        for what in ("batches", "steps")
    ]
    return make_page(
        "Graphs in shards",
        f"{generated('shards')} {record['machine']['processor']}, one thread, a shared machine. "
        f"Synthetic graphs of 25 nodes; {record['steps']} steps of JOAO, gin 3x32, batch size {record['batch']}, each size in its own "
        "process. MB are millions of bytes.",
        "## Memory",
        markdown(header, lines),
        *passed,
        "## Order",
        f"The largest store ({rows[-1]['graphs']:,} graphs), starting with an empty page cache.",
        markdown(["order", "graphs taken", "MB read", "of the store", "seconds", "graphs/s"], cold_lines),
        "## Speed",
        f"The same {speeds['graphs']:,} graphs in memory and in shards, in turn, {speeds['rounds']} rounds: graphs per CPU second "
        "(medians), and CPU time of shards / memory (median, min to max).",
        markdown(["", "memory", "shards", "ratio"], speed_lines),
        "## A billion graphs on 64 GPUs",
        markdown(["quantity", "estimate", "source"], billion(record)),
    )


def billion(record: dict[str, Any], graphs: int = 10**9, ranks: int = 64) -> list[list[str]]:
    """Extrapolate the measured figures, and compute what follows from the design."""
    largest = record["sizes"][-1]
    packing, per_rank = largest["packing"], record["batch"]
    each = packing["bytes"] / largest["graphs"]
    together = per_rank * ranks
    num_shards = -(-graphs // record["shard graphs"])
    rate = record["speed"]["graphs per CPU second"]["batches"]["shards"]
    small, large = (record["networks"][kind] for kind in ("graphs", "molecules"))
    share = 2 * (ranks - 1) / ranks

    def gathered(network: dict[str, int]) -> str:
        return f"{together * network['width'] * 4 * 2 / 1e6:.1f} MB"

    def reduced(network: dict[str, int]) -> str:
        return f"{share * network['parameters'] * 4 / 1e6:.2f} MB"

    return [
        ["stored", f"{graphs * each / 1e9:,.0f} GB", f"{each:.1f} bytes per graph, measured at {largest['graphs']:,}"],
        ["of it offsets", f"{graphs * 8 / 1e9:.0f} GB", "8 bytes per graph, by the format"],
        ["shards", f"{num_shards:,} files", f"{record['shard graphs']:,} graphs each, the default"],
        [
            "index.json",
            f"{num_shards * packing['index bytes'] / packing['shards'] / 1e6:.1f} MB",
            "measured per shard, without text labels",
        ],
        [
            "packing",
            f"{graphs * packing['CPU seconds'] / largest['graphs'] / 3600:.1f} CPU hours",
            "measured with synthetic graphs; RDKit, if needed, is much slower ([molecule speed](molecule-speed.md))",
        ],
        [
            "opening",
            f"{num_shards * largest['shards']['opening seconds'] / packing['shards']:.1f} s",
            "measured per shard, headers in the page cache",
        ],
        [
            "order, in each process",
            f"{(8 * graphs / 4096 + 3 * 8 * record['window']) / 1e6:.0f} MB",
            "8 bytes per block, and three times 8 bytes per graph of the window, by design",
        ],
        [
            "read per step, all ranks",
            f"{together * each / 1e6:.1f} MB",
            f"{ranks} x {per_rank} graphs; {per_rank * each / 1e3:.0f} kB per rank",
        ],
        [
            "read per second, all ranks",
            f"{ranks * rate * each / 1e9:.1f} GB at most",
            f"{rate:,.0f} graphs per CPU second in one thread, measured; the maximum of a rank",
        ],
        [
            "an epoch",
            f"{graphs / ranks / H200 / 60:.1f} minutes at best",
            f"{H200:,} graphs per second and GPU: JOAO on one H200, fast path, graphs in GPU memory ([benchmarks](benchmarks/tables.md))",
        ],
        [
            "read per second at that speed, all ranks",
            f"{ranks * H200 * each / 1e9:.2f} GB",
            "from this speed and the bytes per graph",
        ],
        [
            "projections gathered per step, each rank",
            f"{gathered(small)} (gin), {gathered(large)} (molecule_gin)",
            f"two views x all graphs x {small['width']} or {large['width']} x 4 bytes; as much again for their gradients",
        ],
        [
            "gradients all-reduced per step, each rank",
            f"{reduced(small)} (gin), {reduced(large)} (molecule_gin)",
            f"ring: 2 x {ranks - 1}/{ranks} x 4 bytes x {small['parameters']:,} or {large['parameters']:,} parameters, counted",
        ],
        [
            "similarities of all pairs",
            f"{together**2 * 4 / 1e9:.2f} GB, or {per_rank * together * 4 / 1e6:.1f} MB for the rows of one rank",
            "number of graphs squared x 4 bytes, by the objective",
        ],
    ]


def _megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f}"


def draw(record: dict[str, Any], path: Path) -> None:
    import io
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    rows = record["sizes"]
    curves = {
        "in memory": [(row["graphs"], row["memory"]["anonymous at most"]) for row in rows if "memory" in row],
        "from shards": [(row["graphs"], row["shards"]["anonymous at most"]) for row in rows],
        "packing": [(row["graphs"], row["packing"]["anonymous at most"]) for row in rows],
        "store on disk": [(row["graphs"], row["packing"]["bytes"]) for row in rows],
    }
    for (name, points), style in zip(curves.items(), ("o-", "s-", "^:", "--"), strict=True):
        numbers, values = zip(*points, strict=True)
        axes.loglog(numbers, [value / 1e6 for value in values], style, label=name)
    axes.set_xlabel("graphs")
    axes.set_ylabel("maximum anonymous memory, MB")
    axes.set_title(f"{record['steps']} steps of pre-training on synthetic molecules", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_file(path, buffer.getvalue())


if __name__ == "__main__":
    main()
