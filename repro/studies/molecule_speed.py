"""How fast are molecules read and stored compared with RDKit alone, and how much space do they take?

    python -m repro.studies.molecule_speed zinc250k,zinc_moses

A sample of each data set is parse by RDKit alone and converted to graphs, in turn, in the same chunks and processes.
Then the whole data set is written and loaded as a packed file. CPU seconds include all processes.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.processes import map_chunks
from joao.data import read_whole
from joao.data.formats.packed import drop_texts, read_packed, write_packed
from joao.data.molecules import featurise
from joao.evaluation.tables import markdown
from repro.studies.common import generated, make_page, origin, publish


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--molecules", type=int, default=60_000, help="to be timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    rows = [measure(name, arguments.molecules, arguments.repeats, arguments.jobs) for name in arguments.data.split(",")]
    publish("molecule-speed", {"rows": rows, **origin(), "jobs": arguments.jobs}, page)


def measure(name: str, count: int, repeats: int, jobs: int) -> dict[str, Any]:
    dataset = read_whole(name, jobs=jobs)
    places = np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int)
    smiles = [dataset.smiles[place] for place in places]
    ways: dict[str, Callable[[], object]] = {
        "RDKit alone": lambda: list(map_chunks(parse, smiles, jobs=jobs)),
        "graphs": lambda: featurise(smiles, jobs=jobs),
    }
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, work in ways.items():
            times[way].append(measure_time(work))
    row: dict[str, Any] = {"data": name, "molecules": len(dataset), "timed": len(smiles), "repeats": repeats}
    for way, found in times.items():
        wall, cpu = np.median(found, axis=0)
        row[f"{way}, molecules per second"] = len(smiles) / wall
        row[f"{way}, molecules per CPU second"] = len(smiles) / cpu
    with tempfile.TemporaryDirectory() as folder:
        for what, each in (("with SMILES", dataset), ("graphs and labels alone", drop_texts(dataset))):
            path = Path(folder) / "packed.safetensors"
            write_packed(path, each)
            row[f"bytes per molecule, {what}"] = path.stat().st_size / len(dataset)
            row[f"seconds to load, {what}"] = measure_time(partial(read_packed, path))[0]
    return row


def parse(smiles: Sequence[str]) -> int:
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        return sum(Chem.MolFromSmiles(text) is not None for text in smiles)


def measure_time(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall seconds, and CPU seconds of this process and of finished child processes."""
    wall, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    return time.perf_counter() - wall, sum(after[:4]) - sum(before[:4])


def page(record: dict[str, Any]) -> str:
    """Return the page: one column per data set."""
    rows = record["rows"]
    names = [name for name in rows[0] if name != "data"]
    lines = [[name, *(_shown(row[name]) for row in rows)] for name in names]
    cost = ["RDKit's share of the CPU time", *(f"{rdkit_share(row):.0%}" for row in rows)]
    return make_page(
        "Speed of reading molecules",
        f"{generated('molecule_speed')} {record['machine']['processor']}, {record['jobs']} processes. Medians over repeats.",
        markdown(["", *(row["data"] for row in rows)], [*lines, cost]),
    )


def rdkit_share(row: dict[str, Any]) -> float:
    return float(row["graphs, molecules per CPU second"] / row["RDKit alone, molecules per CPU second"])


def _shown(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, int) or value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    main()
