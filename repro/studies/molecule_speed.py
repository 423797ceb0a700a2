"""How quickly are molecules read and kept, beside RDKit alone, and how much room do they take?

    python studies/molecule_speed.py zinc250k,zinc_moses results/molecule-speed.json results/molecule-speed.md

Of every named set, so many molecules are parsed by RDKit alone and made into graphs, in turn, in the same chunks and
processes; then all that were read are written and loaded as a packed file. CPU seconds are those of all processes: on a
shared machine they say more than the clock.
"""

from __future__ import annotations

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
from joao.core.provenance import command, machine, versions
from joao.data import read_whole
from joao.data.formats.packed import drop_texts, read_packed, write_packed
from joao.data.molecules import featurise
from joao.evaluation.tables import markdown
from repro.studies.common import write_page, write_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--molecules", type=int, default=60_000, help="to be timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    rows = [
        measured(name, arguments.molecules, arguments.repeats, arguments.jobs) for name in arguments.data.split(",")
    ]
    origin = {"command": command(), "versions": versions(), "machine": machine("cpu"), "jobs": arguments.jobs}
    record = {"rows": rows, **origin}
    write_record("molecule-speed", record)
    write_page("molecule-speed", page(record))


def measured(name: str, count: int, repeats: int, jobs: int) -> dict[str, Any]:
    dataset = read_whole(name, jobs=jobs)
    places = np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int)
    smiles = [dataset.smiles[place] for place in places]
    ways: dict[str, Callable[[], object]] = {
        "RDKit alone": lambda: list(map_chunks(parsed, smiles, jobs=jobs)),
        "graphs": lambda: featurise(smiles, jobs=jobs),
    }
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, work in ways.items():
            times[way].append(timed(work))
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
            row[f"seconds to load, {what}"] = timed(partial(read_packed, path))[0]
    return row


def parsed(smiles: Sequence[str]) -> int:
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        return sum(Chem.MolFromSmiles(text) is not None for text in smiles)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of this process and those it has ended."""
    wall, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    return time.perf_counter() - wall, sum(after[:4]) - sum(before[:4])


def page(record: dict[str, Any]) -> str:
    """A column for each data set."""
    rows = record["rows"]
    names = [name for name in rows[0] if name != "data"]
    lines = [[name, *(_shown(row[name]) for row in rows)] for name in names]
    cost = ["RDKit's share of the CPU time", *(f"{rdkit_share(row):.0%}" for row in rows)]
    text = (
        f"Made by `{record['command']}` on {record['machine']['processor']} with {record['jobs']} processes; not to be "
        "edited. Medians of repeats in turn.\n\n"
    )
    return (
        "# Molecules: reading and keeping\n\n"
        + text
        + markdown(["", *(row["data"] for row in rows)], [*lines, cost])
        + "\n"
    )


def rdkit_share(row: dict[str, Any]) -> float:
    return float(row["graphs, molecules per CPU second"] / row["RDKit alone, molecules per CPU second"])


def _shown(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, int) or value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    main()
