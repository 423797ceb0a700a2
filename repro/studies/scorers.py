"""Do the solvers of SVMs on a GPU and in the compiled core give the scores of libsvm, and how long do they take?

    OMP_NUM_THREADS=1 python -m repro.studies.scorers --device cuda
    OMP_NUM_THREADS=1 python -m repro.studies.scorers --device cpu
    OMP_NUM_THREADS=1 python -m repro.studies.scorers --device compiled --data PROTEINS,NCI1

The first two score the embeddings of an untrained encoder on each data set, ten folds of partition 0. On a GPU this is
done twice, because the first time includes compilation. The third scores the rows of ``joao compare`` with libsvm and
the compiled core, fold by fold in turn, by the rule in ``repro/decision-rules.md`` (2026-11-18). Cells that have a
record are skipped.
"""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from joao.comparison.methods import make_rows
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.svm import score_folds
from joao.evaluation.tables import markdown
from joao.runs.scoring import provenance, require_classes
from joao.runs.trained import make_untrained
from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised.run import Cell, cell_recipe, grid
from repro.record_files import RECORDS, Record, RecordFile
from repro.studies.common import generated, make_page, write_page

ROWS = ("joao", "untrained", "wl", "ldp", "histogram", "joao+wl")
SOLVERS = ("libsvm", "compiled core")
MOST_POINTS, MOST_CHOICES = 0.1, 1  # of the decision rule


def record_file(folder: Path) -> RecordFile:
    """Return the records of this study."""
    return RecordFile(folder / "scorers.jsonl", _key)


def _key(record: Record) -> str:
    return f"{record['device']}-{record['set']}" + (f"-{record['rows']}" if "rows" in record else "")


def compute(name: str, device: str) -> Record:
    dataset = dataset_of(name, None)
    recipe = cell_recipe(Cell(name, "joao", 0))
    assert recipe is not None
    rows = make_untrained(recipe, dataset, device="cpu").embed(dataset).numpy()
    runs = []
    for _ in range(2 if device == "cuda" else 1):
        started = time.perf_counter()
        scores = evaluate_embeddings(rows, require_classes(dataset), partitions=[0], device=device)
        runs.append({"seconds": time.perf_counter() - started, **scores.to_json()})
    return {"set": name, "graphs": len(dataset), "device": device, "runs": runs, **provenance(device)}


def compute_compiled(name: str, method: str) -> Record:
    """Score the rows of a method with libsvm and the compiled core, fold by fold in turn."""
    dataset = dataset_of(name, None)
    classes, shared = require_classes(dataset), folds(require_classes(dataset), 0)
    parts: list[Any] = []
    os.environ["JOAO_NATIVE"] = "avx512"
    for part in method.split("+"):
        kernel = "linear" if part == "wl" else "rbf"
        parts.append((make_rows(part, dataset, seed=0, device="cpu"), kernel))
    found: dict[str, Any] = {solver: {"CPU seconds": [], "accuracies": [], "chosen_c": []} for solver in SOLVERS}
    for number, fold in enumerate(shared):
        for solver in sorted(SOLVERS, reverse=bool(number % 2)):
            started = time.process_time()
            scores = score_folds(parts, classes, [fold], kernel="mean", compiled=solver != "libsvm")
            found[solver]["CPU seconds"].append(time.process_time() - started)
            found[solver]["accuracies"] += scores.accuracies
            found[solver]["chosen_c"] += scores.chosen_c
    keys = {"set": name, "graphs": len(dataset), "device": "compiled", "rows": method, "fold_hash": fold_hash(shared)}
    return {**keys, **found, **provenance("cpu")}


def compiled_lines(records: Sequence[Record]) -> tuple[list[list[str]], str]:
    """One line per set and method for the compiled core, and what the rule says."""
    lines, agrees, identical, total = [], True, 0, 0
    own = [record for record in records if record["device"] == "compiled"]
    for record in sorted(own, key=lambda each: (each["set"], ROWS.index(each["rows"]))):
        one, other = (record[solver] for solver in SOLVERS)
        points = 100 * (np.mean(other["accuracies"]) - np.mean(one["accuracies"]))
        different = [np.not_equal(one[key], other[key]) for key in ("accuracies", "chosen_c")]
        agrees &= bool(abs(points) <= MOST_POINTS and different[1].sum() <= MOST_CHOICES)
        if record["rows"] == "joao":
            identical, total = identical + int((~different[0] & ~different[1]).sum()), total + len(different[0])
        seconds = [median(each["CPU seconds"]) for each in (one, other)]
        ratio = median(a / b for a, b in zip(one["CPU seconds"], other["CPU seconds"], strict=True))
        figures = [f"{each:.2f}" for each in (*seconds, ratio, 100 * np.mean(one["accuracies"]))]
        lines.append(
            [record["set"], record["rows"], *figures, f"{points:+.2f}", *(f"{each.sum()}" for each in different)]
        )
    missing = [
        f"{name} {row}"
        for name in ("NCI1", "PROTEINS")
        for row in ROWS
        if [name, row] not in [each[:2] for each in lines]
    ]
    result = "agree" if agrees else "do not agree"
    return lines, (
        f"By the rule the scores {result} (means differ by at most {MOST_POINTS:g} points, C in at most {MOST_CHOICES} of "
        f"ten folds). In {identical} of {total} folds of JOAO both C and accuracy are identical."
        + (f" Not finished: {', '.join(missing)}." if missing else "")
    )


def page(records: Sequence[Record]) -> str:
    """Return the page: for data sets with both scores, seconds and the number of folds that differ."""
    compiled, verdict = compiled_lines(records)
    by_place = {(record["set"], record["device"]): record for record in records}
    lines = []
    for name in grid()["datasets"]:
        if (name, "cpu") not in by_place or (name, "cuda") not in by_place:
            continue
        ours, theirs = by_place[name, "cuda"], by_place[name, "cpu"]
        quick, slow = ours["runs"][-1], theirs["runs"][-1]
        (mine,), (their,) = quick["partitions"], slow["partitions"]
        folds, chosen = (
            sum(a != b for a, b in zip(mine[key], their[key], strict=True)) for key in ("accuracies", "chosen_c")
        )
        seconds = [f"{each:.1f}" for each in (slow["seconds"], ours["runs"][0]["seconds"], quick["seconds"])]
        ratio = f"{slow['seconds'] / quick['seconds']:.0f}"
        gap = f"{100 * (quick['mean'] - slow['mean']):+.2f}"
        lines.append([name, *seconds, ratio, f"{100 * slow['mean']:.2f}", gap, f"{folds}", f"{chosen}"])
    gpu, processor = (
        " or ".join(sorted({record["machine"][key] for record in records if record["device"] == device}))
        for device, key in (("cuda", "gpu"), ("cpu", "processor"))
    )
    return make_page(
        "SVMs on a GPU and in the compiled core compared with libsvm",
        f"{generated('scorers')} {gpu}, and libsvm on one thread of {processor}. Ten folds of the embeddings of an "
        "untrained encoder.",
        markdown(
            [
                "data",
                "libsvm, s",
                "GPU, first call, s",
                "GPU, s",
                "libsvm / GPU",
                "accuracy %, libsvm",
                "difference (GPU - libsvm)",
                "folds that differ",
                "C that differ",
            ],
            lines,
        ),
        "## Compiled core",
        "Rows of `joao compare`, seed 0, one thread of "
        + " or ".join(sorted({each["machine"]["processor"] for each in records if each["device"] == "compiled"}))
        + ". Seconds of the processor are medians of ten folds, which both scored in turn; a fold is the choice "
        "of C among seven in five inner folds, and the final fit.",
        markdown(
            [
                "data",
                "rows",
                "libsvm, CPU s a fold",
                "compiled, CPU s a fold",
                "libsvm / compiled",
                "accuracy %, libsvm",
                "difference (compiled - libsvm)",
                "folds that differ",
                "C that differ",
            ],
            compiled,
        ),
        verdict,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="SVM on a GPU or in the compiled core, and libsvm.")
    parser.add_argument("--data", default=",".join(grid()["datasets"]))
    parser.add_argument("--device", choices=["cpu", "cuda", "compiled"], default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)
    records = record_file(RECORDS)
    for name in filter(None, given.data.split(",")):
        for method in ROWS if given.device == "compiled" else ():
            if records.get(f"compiled-{name}-{method}") is None:
                records.write(compute_compiled(name, method))
        if given.device != "compiled" and records.get(f"{given.device}-{name}") is None:
            records.write(compute(name, given.device))
    write_page("scorers", page(records.read()))


if __name__ == "__main__":
    main()
