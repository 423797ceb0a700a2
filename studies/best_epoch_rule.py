"""How much does the published rule add, which reports the epoch with the best mean test accuracy?

    python studies/best_epoch_rule.py run RECORDS --device cuda --precision tf32 --jobs 8
    python studies/best_epoch_rule.py page RECORDS results/best-epoch-rule.json results/best-epoch-rule.md

`run` fine-tunes NCI1 and PROTEINS with 10 % of the labels as published: all labelled graphs are learned from, none is kept
for validation, and after every epoch the test graphs are looked at. `page` puts three figures beside each other: the best
epoch by mean test accuracy (the published rule, which leaks), the last epoch (the same training without choosing), and the
record of `joao reproduce semi-supervised`, where validation graphs out of the labelled ones choose.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from joao.data import read
from joao.data.features import make_store
from joao.evaluation.labels import few_labels
from joao.evaluation.statistics import gain_over_seeds
from joao.files import make_folder, write_file, write_json
from joao.randomness import derived_seed
from joao.reporting.tables import NAMES, markdown, with_deviation
from joao.reproduce.processes import done_one_by_one
from joao.reproduce.semi_supervised import Cell, Work, grid, read_record, start_of
from joao.scoring import classes_of, origin
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning

RECORDS = Path(__file__).parent.parent / "results" / "semi-supervised"
DATA, METHODS, LABEL_RATE = ("NCI1", "PROTEINS"), ("none", "graphcl", "joao"), 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = parser.add_subparsers(required=True)
    run_parser = parts.add_parser("run")
    run_parser.add_argument("records", type=Path)
    run_parser.add_argument("--device", default="auto")
    run_parser.add_argument("--precision", default="32-true")
    run_parser.add_argument("--jobs", type=int, default=1)
    run_parser.set_defaults(do=run)
    page_parser = parts.add_parser("page")
    page_parser.add_argument("records", type=Path)
    page_parser.add_argument("json", type=Path)
    page_parser.add_argument("markdown", type=Path)
    page_parser.set_defaults(do=page)
    arguments = parser.parse_args()
    arguments.do(arguments)


def run(arguments: argparse.Namespace) -> None:
    make_folder(arguments.records)
    works = [Work(name, method, seed, (LABEL_RATE,)) for seed in grid()["seeds"] for name in DATA for method in METHODS]
    compute = partial(traced, records=arguments.records, device=arguments.device, precision=arguments.precision)
    for work in done_one_by_one(compute, works, arguments.jobs):
        print(work, flush=True)


def traced(work: Work, records: Path, device: str, precision: str) -> None:
    """Writes the test accuracy of every fold after every epoch."""
    dataset = read(work.dataset)
    classes = classes_of(dataset)
    encoder, features, _ = start_of(work, dataset, device=device, precision=precision)
    finetuning = Finetuning(
        make_store(dataset, features),
        torch.from_numpy(classes),
        len(dataset.class_names),
        encoder,
        Finetune(**grid()["finetuning"]),
        make_fabric(device, precision),
        seed=work.seed,
    )
    accuracies: list[list[float]] = []
    for number, split in enumerate(few_labels(classes, work.seed, LABEL_RATE / 100)):
        labelled = torch.from_numpy(np.sort(np.concatenate([split.train, split.validation])))
        test, of_fold = torch.from_numpy(split.test), list[float]()

        def look(_: object, test: torch.Tensor = test, of_fold: list[float] = of_fold) -> None:
            predicted = finetuning.logits(test).argmax(1).cpu().numpy()
            of_fold.append(float((predicted == classes[test.numpy()]).mean()))

        finetuning.fit(labelled, labelled[:0], derived_seed(work.seed, f"fold {number}"), look)
        accuracies.append(of_fold)
    record = {"dataset": work.dataset, "method": work.method, "seed": work.seed, "accuracies": accuracies}
    write_json(records / f"{work.dataset}-{work.method}-{work.seed}.json", record | origin(device))


def page(arguments: argparse.Namespace) -> None:
    found: dict[tuple[str, str], dict[int, Any]] = {}
    for path in sorted(arguments.records.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault((record["dataset"], record["method"]), {})[record["seed"]] = record
    rows = {}
    for (name, method), seeds in found.items():
        by_epoch = np.array([np.mean(seeds[seed]["accuracies"], axis=0) for seed in sorted(seeds)])
        ours = [
            read_record(Cell(name, method, seed, LABEL_RATE).path(RECORDS))["scores"]["mean"] for seed in sorted(seeds)
        ]
        rows[f"{name}|{method}"] = {
            "seeds": sorted(seeds),
            "best epoch by test": by_epoch.max(1).tolist(),
            "last epoch": by_epoch[:, -1].tolist(),
            "chosen by validation": ours,
        }
    some = next(iter(next(iter(found.values())).values()))
    record = {"rows": rows, "origin": {key: some[key] for key in ("command", "versions", "machine")}}
    write_json(arguments.json, record)
    write_file(arguments.markdown, text(record))


def text(record: dict[str, Any]) -> str:
    """The table of a record."""
    lines = []
    for key, row in record["rows"].items():
        name, method = key.split("|")
        kinds = ("best epoch by test", "last epoch", "chosen by validation")
        best, last, chosen = (100 * np.array(row[kind]) for kind in kinds)
        figures = [with_deviation(each.mean(), float(each.std(ddof=1))) for each in (best, last, chosen)]
        gains = [gain_over_seeds(best, other) for other in (last, chosen)]
        lines.append(
            [
                name,
                NAMES[method],
                *figures,
                *(f"{gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})" for gain in gains),
            ]
        )
    header = [
        *("data", "method", "best epoch by mean test accuracy (published rule)", "last epoch, same training"),
        *("chosen by validation (here)", "rule adds to the last epoch (95 %)", "rule adds to ours (95 %)"),
    ]
    made = (
        f"Made by `studies/best_epoch_rule.py` from runs of `{record['origin']['command']}` on "
        f"{record['origin']['machine'].get('gpu', record['origin']['machine']['processor'])}; not to be edited. 10 % of the "
        "labels, five seeds. The first two train on all labelled graphs, the third keeps a tenth of them to choose the epoch.\n\n"
    )
    return "# What the published rule for the epoch adds\n\n" + made + markdown(header, lines) + "\n"


if __name__ == "__main__":
    main()
