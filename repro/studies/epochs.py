"""Which epoch of a fine-tuning should be kept, and how much does the published rule add?

    python -m repro.studies.epochs trace TRACES --data Mutagenicity,DHFR,MSRC_21 --methods none --shares 0.1,0.2,0.3
    python -m repro.studies.epochs choice TRACES

    python -m repro.studies.epochs trace TRACES --data NCI1,PROTEINS --methods none,graphcl,joao --shares 0 --device cuda
    python -m repro.studies.epochs rule TRACES

`trace` fine-tunes with 10 % of the labels and records the test accuracy after every epoch, which no other command does.
Share 0 trains on all labelled graphs, as published; any other share of them is used for validation. `choice` compares
rules for choosing the epoch on development data sets. `rule` measures how much the published rule, the epoch with the
best mean test accuracy, adds on two data sets of the table.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.core.files import make_folder, write_json
from joao.core.randomness import derive_seed
from joao.data import read_whole
from joao.data.features import make_store
from joao.evaluation.tables import markdown, with_deviation, with_interval
from joao.evaluation.targets import ClassTargets
from joao.runs.scoring import provenance, require_classes
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning
from joao.training.metrics import FitEpoch
from repro.intervals import estimate_gain
from repro.protocols.semi_supervised.run import Cell, Work, grid, record_file, start_of
from repro.record_files import RECORDS
from repro.splits import few_label_splits
from repro.studies.common import generated, make_page, publish
from repro.tables.names import NAMES
from repro.tasks import run_tasks

LABEL_RATE = 10

# Rules: validation accuracies and losses by epoch -> selected epoch.
RULES: dict[str, Callable[[NDArray[Any], NDArray[Any]], int]] = {
    "accuracy, of equals the last": lambda accuracy, loss: int(np.flatnonzero(accuracy == accuracy.max())[-1]),
    "accuracy, of equals the least loss": lambda accuracy, loss: int(np.lexsort((loss, -accuracy))[0]),
    "least loss": lambda accuracy, loss: int(loss.argmin()),
    "last epoch": lambda accuracy, loss: len(loss) - 1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = parser.add_subparsers(required=True)
    trace_parser = parts.add_parser("trace")
    trace_parser.add_argument("traces", type=Path)
    trace_parser.add_argument("--data", required=True)
    trace_parser.add_argument("--methods", required=True)
    trace_parser.add_argument("--shares", required=True)
    trace_parser.add_argument("--seeds", type=int, default=5)
    trace_parser.add_argument("--device", default="auto")
    trace_parser.add_argument("--precision", default="32-true")
    trace_parser.add_argument("--jobs", type=int, default=1)
    trace_parser.set_defaults(do=trace)
    for name, do in (("choice", choice), ("rule", rule)):
        page_parser = parts.add_parser(name)
        page_parser.add_argument("traces", type=Path)
        page_parser.set_defaults(do=do)
    arguments = parser.parse_args()
    arguments.do(arguments)


def trace(arguments: argparse.Namespace) -> None:
    make_folder(arguments.traces)
    shares = [float(share) for share in arguments.shares.split(",")]
    works = [
        Work(name, method, seed, (LABEL_RATE,))
        for seed in range(arguments.seeds)
        for name in arguments.data.split(",")
        for method in arguments.methods.split(",")
    ]
    compute = partial(
        trace_one, shares=shares, traces=arguments.traces, device=arguments.device, precision=arguments.precision
    )
    for work in run_tasks(compute, works, arguments.jobs):
        print(work, flush=True)


def trace_one(work: Work, shares: list[float], traces: Path, device: str, precision: str) -> None:
    """Fine-tune and write the validation scores and the test accuracy of every fold after every epoch."""
    dataset = read_whole(work.dataset)
    classes = require_classes(dataset)
    encoder, features, _ = start_of(work, dataset, device=device, precision=precision)
    finetuning = Finetuning(
        make_store(dataset, features),
        ClassTargets(torch.from_numpy(classes), len(dataset.class_names)),
        encoder,
        Finetune(**grid()["finetuning"]),
        make_fabric(device, precision),
        seed=work.seed,
    )
    found: dict[str, Any] = {}
    for share in shares:
        folds = []
        splits = few_label_splits(classes, work.seed, LABEL_RATE / 100, validation_share=share or 0.1)
        for number, split in enumerate(splits):
            train, validation = torch.from_numpy(split.train), torch.from_numpy(split.validation)
            if not share:
                train, validation = torch.cat([train, validation]).sort().values, validation[:0]
            test, accuracies = torch.from_numpy(split.test), list[float]()

            def look(_: FitEpoch, test: torch.Tensor = test, accuracies: list[float] = accuracies) -> None:
                predicted = finetuning.logits(test).argmax(1).cpu().numpy()
                accuracies.append(float((predicted == classes[test.numpy()]).mean()))

            fit = finetuning.fit(train, validation, derive_seed(work.seed, f"fold {number}"), look)
            shown = {
                "validation accuracy": [each.validation_score for each in fit.epochs],
                "validation loss": [each.validation_loss for each in fit.epochs],
            }
            folds.append({"test accuracy": accuracies} | (shown if share else {}))
        found[str(share)] = folds
    record = {
        "dataset": work.dataset,
        "method": work.method,
        "seed": work.seed,
        "shares": found,
        "precision": precision,
    }
    write_json(traces / f"{work.dataset}-{work.method}-{work.seed}.json", record | provenance(device))


def read_traces(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def made_by(traces: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the distinct commands, versions and machines of all traces."""
    kinds = ("command", "versions", "machine")
    return {kind: [json.loads(each) for each in {json.dumps(trace[kind]): 0 for trace in traces}] for kind in kinds}


def choice(arguments: argparse.Namespace) -> None:
    traces = read_traces(arguments.traces)
    rows: dict[str, dict[str, list[float]]] = {}
    for trace in traces:
        for share, folds in trace["shares"].items():
            for name, chosen in RULES.items():
                if "validation loss" not in folds[0]:
                    continue
                kept = [
                    fold["test accuracy"][
                        chosen(np.array(fold["validation accuracy"]), np.array(fold["validation loss"]))
                    ]
                    for fold in folds
                ]
                key = f"{trace['dataset']}, {NAMES[trace['method']]}"
                rows.setdefault(f"{share}|{name}", {}).setdefault(key, []).append(float(np.mean(kept)))
    record = {"rows": rows, **made_by(traces)}
    publish("epoch-choice", record, choice_page)


def choice_page(record: dict[str, Any]) -> str:
    """Return the page that compares rules."""
    columns = list(next(iter(record["rows"].values())))
    lines = []
    for key, by_data in record["rows"].items():
        share, name = key.split("|")
        means = [100 * np.mean(by_data[column]) for column in columns]
        lines.append([f"{float(share):.0%}", name, *(f"{each:.2f}" for each in means), f"{np.mean(means):.2f}"])
    some = next(iter(record["rows"].values()))
    shown = [f"{column} ({len(some[column])} seed{'s' if len(some[column]) > 1 else ''})" for column in columns]
    header = ["share for validation", "selected epoch", *shown, "mean"]
    return make_page(
        "Choosing the epoch of a fine-tuning",
        f"{generated('epochs')} Test accuracy in percent on development data sets with 10 % of the labels, mean over folds "
        "and seeds.",
        markdown(header, lines),
    )


def rule(arguments: argparse.Namespace) -> None:
    order = list(NAMES)
    traces = sorted(read_traces(arguments.traces), key=lambda each: (each["dataset"], order.index(each["method"])))
    rows: dict[str, dict[str, list[float]]] = {}
    for trace in traces:
        by_epoch = np.mean([fold["test accuracy"] for fold in trace["shares"]["0.0"]], axis=0)
        cell = Cell(trace["dataset"], trace["method"], trace["seed"], LABEL_RATE)
        row = rows.setdefault(f"{trace['dataset']}|{trace['method']}", {})
        row.setdefault("best epoch by test", []).append(float(by_epoch.max()))
        row.setdefault("last epoch", []).append(float(by_epoch[-1]))
        row.setdefault("chosen by validation", []).append(record_file(RECORDS)[cell.key]["scores"]["mean"])
    record = {"rows": rows, **made_by(traces)}
    publish("published-epoch", record, rule_page)


def rule_page(record: dict[str, Any]) -> str:
    """Return the page about the published rule."""
    lines = []
    for key, row in record["rows"].items():
        name, method = key.split("|")
        best, last, chosen = (100 * np.array(values) for values in row.values())
        figures = [with_deviation(each.mean(), float(each.std(ddof=1))) for each in (best, last, chosen)]
        gains = [estimate_gain(best, other).interval() for other in (last, chosen)]
        lines.append([name, NAMES[method], str(len(best)), *figures, *map(with_interval, gains)])
    header = [
        *("data", "method", "seeds", "published rule: best epoch by mean test accuracy", "same training, last epoch"),
        *("here: selected by validation", "published rule - last epoch (95 % CI)", "published rule - ours (95 % CI)"),
    ]
    return make_page(
        "How much the published rule for the epoch adds",
        f"{generated('epochs', intervals=True)} Accuracy in percent with 10 % of the labels. The first two figures train on all labelled "
        "graphs; the third uses a tenth of them to select the epoch. The interval has one score per "
        "seed and covers other seeds, not other graphs.",
        markdown(header, lines),
    )


if __name__ == "__main__":
    main()
