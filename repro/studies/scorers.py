"""Are the scores of machines side by side on a GPU libsvm's, and how long do both take?

    OMP_NUM_THREADS=1 python studies/scorers.py results/scorers results/scorers.md --device cuda
    OMP_NUM_THREADS=1 python studies/scorers.py results/scorers results/scorers.md --device cpu

Scores an untrained encoder's embeddings of each set, ten folds of partition 0. A GPU does it twice, as the first time
compiles. What has a record is not computed again; the page is made of all there are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.tables import markdown
from joao.runs.scoring import provenance, require_classes
from joao.runs.trained import make_untrained
from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised.run import Cell, cell_recipe, grid
from repro.record_files import RECORDS, Record, RecordFile
from repro.studies.common import write_page


def record_file(folder: Path) -> RecordFile:
    """Return the records of this study."""
    return RecordFile(folder / "scorers.jsonl", _key)


def _key(record: Record) -> str:
    return f"{record['device']}-{record['set']}"


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


def page(records: Sequence[Record]) -> str:
    """Of each set that both have scored: seconds, and in how many folds they disagree."""
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
    return (
        "\n\n".join(
            [
                "# Machines side by side on a GPU, beside libsvm's",
                "Made from the records in `scorers` by `python studies/scorers.py`; not to be edited. "
                f"{gpu}, and libsvm on one thread of {processor}. Ten folds of an untrained encoder's embeddings.",
                markdown(
                    [
                        "data",
                        "libsvm, s",
                        "GPU, first time, s",
                        "GPU, s",
                        "libsvm / GPU",
                        "accuracy %, libsvm",
                        "GPU less it",
                        "folds that differ",
                        "C that differ",
                    ],
                    lines,
                ),
            ]
        )
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Two scorers.")
    parser.add_argument("--data", default=",".join(grid()["datasets"]))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)
    records = record_file(RECORDS)
    for name in filter(None, given.data.split(",")):
        if records.get(f"{given.device}-{name}") is None:
            records.write(compute(name, given.device))
    write_page("scorers", page(records.read()))


if __name__ == "__main__":
    main()
