"""How large is the page of ``joao report``, and how long does it take?

    joao pretrain NCI1 --epochs 100 --out runs/nci1
    OMP_NUM_THREADS=1 python studies/report_page.py runs/nci1 results/report-page.json results/report-page.md

Writes the page of one run with each kind of map, each in a process of its own that runs the whole command, and takes the
seconds of the processor, as the machine may have other work.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from joao.core.provenance import command, machine, versions
from joao.evaluation.tables import markdown
from joao.report.reported_run import MAP_KINDS as KINDS
from joao.runs.folder import Run
from repro.studies.common import write_page, write_record


def measured(run: Path, kind: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        written = Path(folder) / "page.html"
        before = os.times()
        words = ["report", str(run), "--map", kind, "--out", str(written), "--quiet"]
        subprocess.run([sys.executable, "-m", "joao", *words], check=True)
        after = os.times()
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        return {"map": kind, "bytes": written.stat().st_size, "cpu_seconds": seconds}


def page(record: dict[str, Any]) -> str:
    rows = [[KINDS[row["map"]], f"{row['bytes'] / 1000:,.0f}", f"{row['cpu_seconds']:.1f}"] for row in record["rows"]]
    return (
        "# Size and time of the report page\n\n"
        "Made by `python studies/report_page.py RUN results/report-page.json results/report-page.md`; not to be edited. "
        f"joao {record['versions']['joao']}, {record['machine']['processor']}, 1 thread. "
        f"One run on {record['data']}: {record['graphs']:,} graphs, {record['epochs']} epochs. "
        "Time is that of the processor for the whole command, reading and embedding the graphs included.\n\n"
        + markdown(["map", "page, kB", "CPU s"], rows)
        + "\n"
    )


def main() -> None:
    folder = Path(sys.argv[1])
    run = Run.open(folder)
    record = {
        "command": command(),
        "versions": versions(),
        "machine": machine("cpu"),
        "data": run.info.data,
        "graphs": run.info.num_graphs,
        "epochs": len(run.metrics()),
        "rows": [measured(folder, kind) for kind in KINDS],
    }
    write_record("report-page", record)
    write_page("report-page", page(record))


if __name__ == "__main__":
    main()
