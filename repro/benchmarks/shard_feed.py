"""Speed of the fast path with graphs from shards, over graphs on the device: one run, in turn.

python -m repro.benchmarks.shard_feed --device cuda --precision tf32
"""

import json
import tempfile
import time
from pathlib import Path

import torch

from joao.config.builder import build_method
from joao.config.recipe import make_recipe
from joao.core.graphs import Store
from joao.data import Dataset
from joao.data.features import Features, make_store
from joao.data.shards.shards import Shards
from joao.data.shards.store import ShardStore
from joao.data.shards.writer import ShardWriter, slice_rows
from joao.training.device import make_fabric
from joao.training.pretrain import Pretraining
from repro.benchmarks.steps import epoch_task
from repro.benchmarks.timing import paired_ratio, time_in_turns
from repro.benchmarks.workloads import molecule_like_graphs
from repro.studies.common import parse_options

SHARD_GRAPHS = 8192


def write_shards(dataset: Dataset, folder: Path) -> Shards:
    writer = ShardWriter(folder, dataset.name, "made")
    for first in range(0, len(dataset), SHARD_GRAPHS):
        last = min(first + SHARD_GRAPHS, len(dataset))
        writer.add(slice_rows(dataset, first, last), 0, last - first)
    return writer.finish()


def graphs_read_per_second(store: ShardStore, times: int = 5) -> list[int]:
    """Graphs per CPU second that the thread beside the training reads, in random order."""
    rates = []
    for _ in range(times):
        order, started = torch.randperm(len(store)), time.thread_time()
        store.graphs(order)
        rates.append(round(len(store) / (time.thread_time() - started)))
    return rates


def measure(
    num_graphs: int, width: int, layers: int, batch_size: int, turns: int, device: str, precision: str
) -> dict[str, object]:
    """Graphs per second of JOAO from memory and from shards, and the paired ratio."""
    dataset = molecule_like_graphs(num_graphs)
    features = Features.from_dataset(dataset, "labels")
    with tempfile.TemporaryDirectory() as folder:
        mapped = ShardStore(write_shards(dataset, Path(folder) / "shards"), features)
        read = graphs_read_per_second(mapped)
        stores: dict[str, Store] = {"memory": make_store(dataset, features), "shards": mapped}
        training = {"epochs": turns + 2, "batch_size": batch_size}
        table = {"method": "joao", "encoder": {"name": "gin", "width": width, "layers": layers}, "training": training}
        tasks = {}
        for name, store in stores.items():
            recipe = make_recipe(table)
            method, fabric = build_method(recipe, store), make_fabric(device, precision)
            tasks[name] = epoch_task(Pretraining(store, method, recipe.training, fabric, fast=True, compiled=False))
        seconds = time_in_turns(tasks, turns, torch.device(device))
    ratio = paired_ratio(seconds["memory"].wall, seconds["shards"].wall)
    return {
        "graphs": num_graphs,
        "encoder": f"gin {layers}x{width}",
        "batch size": batch_size,
        "precision": precision,
        "graphs per second": {
            name: [round(num_graphs / each) for each in found.wall] for name, found in seconds.items()
        },
        "graphs read per CPU second": read,
        "shards over memory": {"median": ratio.median, "least": ratio.least, "most": ratio.most},
    }


def main() -> None:
    sizes = {"graphs": 51_200, "width": 300, "layers": 5, "batch_size": 256, "turns": 5}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = parse_options(__doc__, **sizes, device=device, precision="32-true")
    print(json.dumps(measure(*vars(given).values())), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
