"""How far are the scores of the linear scorer from those of the exact SVM?

    OMP_NUM_THREADS=1 python -m repro.studies.linear_scorer

Scores the same rows with both, on the ten folds of partition 0. Rows that have a record are skipped. The rule that it
decides is in ``repro/decision-rules.md`` (2026-11-18).
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from joao.comparison.methods import make_rows
from joao.evaluation.embeddings import Scorer, describe_scorer, evaluate_embeddings
from joao.evaluation.statistics import paired_gain
from joao.evaluation.tables import markdown, with_interval
from joao.runs.scoring import describe_data, provenance, require_classes
from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised import run as unsupervised
from repro.protocols.unsupervised.run import Cell, cell_kernel, cell_recipe, cell_rows
from repro.record_files import RECORDS, Record, RecordFile
from repro.studies.common import generated, make_page, parse_options, write_page

SETS = ("NCI1", "COLLAB")
METHODS = ("wl", "ldp", "histogram", "untrained", "joao")
MOST_MEAN, MOST_EACH = 1.0, 2.5  # points, of the decision rule


def record_file(folder: Path) -> RecordFile:
    """Return the records of this study."""
    return RecordFile(folder / "linear-scorer.jsonl", lambda record: f"{record['data']['name']}/{record['method']}")


def compute(name: str, method: str) -> Record:
    """Score rows with the linear scorer, and JOAO with both; the table of the paper has the other exact scores."""
    dataset, cell = dataset_of(name, None), Cell(name, method, 0)
    if method == "joao":
        rows: Any = make_rows(method, dataset, seed=0, device="cpu")
    else:
        rows, _ = cell_rows(cell, cell_recipe(cell), dataset, "cpu")
    record: Record = {"data": describe_data(dataset), "method": method, "landmarks": describe_scorer("linear")}
    scorers: tuple[Scorer, ...] = ("linear", "exact") if method == "joao" else ("linear",)
    for scorer in scorers:
        started = time.process_time()
        options: dict[str, Any] = {"kernel": cell_kernel(method), "scorer": scorer, "device": "cpu"}
        scores = evaluate_embeddings(rows, require_classes(dataset), partitions=[0], **options)
        record[scorer] = {"CPU seconds": time.process_time() - started, **scores.to_json()}
    if method != "joao":
        record["exact"] = {"CPU seconds": None, **unsupervised.record_file(RECORDS)[cell.key]["scores"]}
    first, second = (record[scorer]["partitions"][0]["fold_hash"] for scorer in ("linear", "exact"))
    assert first == second
    return {**record, **provenance("cpu")}


def lines(records: Sequence[Record]) -> list[list[str]]:
    """One line per set and method."""
    found = []
    for record in sorted(records, key=lambda each: (SETS.index(each["data"]["name"]), METHODS.index(each["method"]))):
        exact, linear = record["exact"], record["linear"]
        gain = paired_gain(*([each["partitions"][0]["accuracies"]] for each in (linear, exact)))
        found.append(
            [
                record["data"]["name"],
                record["method"],
                f"{100 * exact['mean']:.2f}",
                f"{100 * linear['mean']:.2f}",
                with_interval(gain, times=100),
                "" if exact["CPU seconds"] is None else f"{exact['CPU seconds']:.0f}",
                f"{linear['CPU seconds']:.0f}",
            ]
        )
    return found


def verdict(records: Sequence[Record]) -> str:
    """Return the largest and the mean difference on each set, and what the rule says."""
    parts, is_close = [], True
    for name in SETS:
        own = [record for record in records if record["data"]["name"] == name]
        gaps = [100 * abs(record["linear"]["mean"] - record["exact"]["mean"]) for record in own]
        missing = [method for method in METHODS if method not in [record["method"] for record in own]]
        if len(own) < 3:
            return f"Not decided: {name} has {len(own)} finished rows."
        is_close &= float(np.mean(gaps)) <= MOST_MEAN and max(gaps) <= MOST_EACH
        note = f" (not finished: {', '.join(missing)})" if missing else ""
        parts.append(f"{np.mean(gaps):.2f} points on average and at most {max(gaps):.2f} on {name}{note}")
    result = "close enough by the rule" if is_close else "not close enough by the rule"
    return f"The scores differ by {' and '.join(parts)}: {result} (at most {MOST_MEAN:g} on average and {MOST_EACH:g})."


def page(records: Sequence[Record]) -> str:
    processors = " or ".join(sorted({record["machine"]["processor"] for record in records}))
    text = f"{generated('linear_scorer')} Ten folds of partition 0, one thread of {processors}."
    header = ["data", "rows", "exact, %", "linear, %", "difference (95 % CI)", "exact, CPU s", "linear, CPU s"]
    return make_page(
        "The linear scorer compared with the exact one", text, markdown(header, lines(records)), verdict(records)
    )


def main() -> None:
    given = parse_options(__doc__, data=",".join(SETS), methods=",".join(METHODS))
    torch.set_num_threads(1)
    records = record_file(RECORDS)
    for name in given.data.split(","):
        for method in given.methods.split(","):
            if records.get(f"{name}/{method}") is None:
                records.write(compute(name, method))
                print(name, method, flush=True)
    write_page("linear-scorer", page(records.read()))


if __name__ == "__main__":
    main()
