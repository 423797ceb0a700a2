"""Fuzz all readers one after the other and add a record: ``python -m fuzz.run --seconds 600``.

Each target runs in its own process for the same time. Inputs that cause faults, and the corpus, are stored in
``--work``. The exit code is 1 if there were faults.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joao.core.files import write_json
from joao.core.provenance import machine, versions

# fmt: off
NAMES = (
    "tu", "tu_zip", "jsonl", "edge_list", "graphml", "smiles_csv", "smi", "sdf", "compressed", "packed",
    "packed_values", "packed_as_it_is", "packed_xz", "shards", "shards_values", "ogb", "ogb_zip", "ppi", "ppi_as_it_is",
    "recipe", "run", "finetuned_run", "exported", "exported_as_it_is", "report", "finetuned_report", "compare_record",
    "paper_record",
)
# fmt: on
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s+([0-9]+)")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=int, default=600, help="total time of all targets")
    parser.add_argument("--only", default=",".join(NAMES), help="targets, separated by commas")
    parser.add_argument("--work", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--out", type=Path, default=Path("repro/records/fuzzing.json"))
    given = parser.parse_args(words)
    names = given.only.split(",")
    share = max(1, given.seconds // len(names))
    targets = {}
    for name in names:
        targets[name] = fuzz_target(name, share, given.work.absolute() / name)
        print(f"{name}: {targets[name]}", flush=True)
    record = {
        "what": "Every reader of a file from outside, fuzzed under coverage; python -m fuzz.run",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions(), "atheris": version("atheris")},
        "machine": machine("cpu"),
        "executions": sum(each["executions"] for each in targets.values()),
        "seconds": round(sum(each["seconds"] for each in targets.values())),
        "faults": sum(len(each["faults"]) for each in targets.values()),
        "targets": targets,
    }
    add_record(given.out, record)
    print(f"{record['executions']} executions in {record['seconds']} s, {record['faults']} faults: {given.out}")
    return 1 if record["faults"] else 0


def add_record(path: Path, record: dict[str, Any]) -> None:
    """Append ``record`` to the file."""
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    write_json(path, [*earlier, record])


def fuzz_target(name: str, seconds: int, work: Path) -> dict[str, Any]:
    """Fuzz one target; removes faults of earlier runs but keeps the corpus."""
    work.mkdir(parents=True, exist_ok=True)
    for old in [*work.glob("fault*"), *work.glob("crash-*"), *work.glob("oom-*"), *work.glob("timeout-*")]:
        old.unlink()
    command = [sys.executable, "-m", "fuzz.one", name, str(seconds), str(work)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    taken = time.monotonic() - started
    executed = _EXECUTED.search(done.stderr + done.stdout)
    file = work / "faults.jsonl"
    faults = [json.loads(line)["fault"] for line in file.read_text().splitlines()] if file.exists() else []
    faults += [path.name for kind in ("crash", "oom", "timeout") for path in sorted(work.glob(f"{kind}-*"))]
    if done.returncode and not faults:
        faults.append(f"ended with {done.returncode}: {' '.join(done.stderr.split())[-200:]}")
    return {"executions": int(executed[1]) if executed else 0, "seconds": round(taken, 1), "faults": faults}


if __name__ == "__main__":
    sys.exit(main())
