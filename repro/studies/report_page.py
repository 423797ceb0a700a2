"""How large is the page of ``joao report``, and how long does it take?

    joao pretrain NCI1 --epochs 100 --out runs/nci1
    OMP_NUM_THREADS=1 python -m repro.studies.report_page runs/nci1

Writes the page of a run with each kind of map. Each page is written by a complete command in its own process, whose CPU
seconds are measure.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from joao.evaluation.tables import markdown
from joao.report.reported_run import MAP_KINDS as KINDS
from joao.runs.folder import Run
from repro.benchmarks.timing import child_seconds
from repro.studies.common import generated, make_page, origin, publish


def measure(run: Path, kind: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        written = Path(folder) / "page.html"
        before = child_seconds()
        words = ["report", str(run), "--map", kind, "--out", str(written), "--quiet"]
        subprocess.run([sys.executable, "-m", "joao", *words], check=True)
        return {"map": kind, "bytes": written.stat().st_size, "cpu_seconds": child_seconds() - before}


def page(record: dict[str, Any]) -> str:
    rows = [[KINDS[row["map"]], f"{row['bytes'] / 1000:,.0f}", f"{row['cpu_seconds']:.1f}"] for row in record["rows"]]
    return make_page(
        "Size and time of the report page",
        f"{generated('report_page')} "
        f"joao {record['versions']['joao']}, {record['machine']['processor']}, 1 thread. "
        f"One run on {record['data']}: {record['graphs']:,} graphs, {record['epochs']} epochs. "
        "CPU time of the whole command, including reading and embedding the graphs.",
        markdown(["map", "page, kB", "CPU s"], rows),
    )


def main() -> None:
    folder = Path(sys.argv[1])
    run = Run.open(folder)
    record = {
        **origin(),
        "data": run.info.data,
        "graphs": run.info.num_graphs,
        "epochs": len(run.metrics()),
        "rows": [measure(folder, kind) for kind in KINDS],
    }
    publish("report-page", record, page)


if __name__ == "__main__":
    main()
