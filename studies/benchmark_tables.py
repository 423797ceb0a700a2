"""All records of `joao bench` in results/benchmarks as one page.

python studies/benchmark_tables.py results/benchmarks/tables.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from joao.files import write_file
from joao.reporting.benchmarks import exponent_table, page_table, reading_lines, svm_lines

RECORDS = Path(__file__).parent.parent / "results" / "benchmarks"


def main() -> None:
    parts = [
        "# Benchmarks",
        "Made by `python studies/benchmark_tables.py`; not to be edited. [What it means](../../docs/performance.md).",
    ]
    for path in sorted(RECORDS.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        parts += [f"## {path.name}", page_table(record)]
        for setting in record["settings"]:
            if "scaling" in setting:
                parts.append(exponent_table(setting["scaling"]))
            if "svm" in setting:
                parts.append("\n".join(f"- {line}" for line in svm_lines(setting["svm"])))
            if "reading" in setting:
                parts.append("\n".join(f"- {line}" for line in reading_lines(setting["reading"])))
    write_file(Path(sys.argv[1]), "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
