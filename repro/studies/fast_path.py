"""Does training on padded batches, or in TensorFloat-32, change the scores?

    python -m repro.studies.fast_path train RUNS NCI1,PROTEINS joao,joaov2 --device cuda --precision tf32
    python -m repro.studies.fast_path score RUNS

`train` pre-trains cells of the unsupervised table into run folders. `score` embeds and scores them by the protocol of
that table, seed s on partition s, and compares them with its records.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.provenance import command, machine, versions
from joao.data import read_whole
from joao.evaluation.tables import markdown
from joao.runs.pretraining import pretrain
from joao.runs.trained import load_run
from repro.protocols.unsupervised.run import Cell, cell_recipe, grid, record_file
from repro.record_files import RECORDS
from repro.studies.common import generated, make_page, publish, score_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = parser.add_subparsers(required=True)
    train_parser = parts.add_parser("train")
    train_parser.add_argument("runs", type=Path)
    train_parser.add_argument("data")
    train_parser.add_argument("methods")
    train_parser.add_argument("--device", default="auto")
    train_parser.add_argument("--precision", default="32-true")
    train_parser.set_defaults(do=train)
    score_parser = parts.add_parser("score")
    score_parser.add_argument("runs", type=Path)
    score_parser.set_defaults(do=score)
    arguments = parser.parse_args()
    arguments.do(arguments)


def train(arguments: argparse.Namespace) -> None:
    for name in arguments.data.split(","):
        dataset = read_whole(name)
        for method in arguments.methods.split(","):
            for seed in grid()["seeds"]:
                cell = Cell(name, method, seed)
                folder = arguments.runs / f"{name}-{method}-{seed}-{arguments.device}-{arguments.precision}"
                recipe = cell_recipe(cell)
                assert recipe is not None, f"{method} has no encoder"
                trained = pretrain(
                    recipe, dataset, folder=folder, device=arguments.device, precision=arguments.precision
                )
                print(folder.name, f"{trained.metrics[-1].loss:.4f}", flush=True)


def score(arguments: argparse.Namespace) -> None:
    rows: dict[str, dict[int, Any]] = {}
    for folder in sorted(path for path in arguments.runs.iterdir() if path.is_dir()):
        trained = load_run(folder, device="cpu")
        name, method = trained.info.data, folder.name.removeprefix(f"{trained.info.data}-").split("-")[0]
        seed, dataset = trained.recipe.training.seed, read_whole(trained.recipe.data)
        scores = score_rows(trained.embed(dataset).numpy(), dataset, seed, jobs=2)
        path = "padded" if trained.info.fast else "plain"
        device = trained.info.machine.get("gpu", trained.info.machine["processor"])
        key = f"{name}|{method}|{path}, {trained.info.precision}, {device}"
        rows.setdefault(key, {})[seed] = {
            "accuracy": scores.mean,
            "loss": trained.metrics[-1].loss,
            "versions": dict(trained.info.versions),
            "machine": dict(trained.info.machine),
            "command": trained.info.command,
        }
        print(key, seed, f"{100 * scores.mean:.2f}", flush=True)
    cells = {tuple(key.split("|")[:2]) for key in rows}
    plain = {
        f"{name}|{method}": [
            record_file(RECORDS)[Cell(name, method, seed).key]["scores"]["mean"] for seed in grid()["seeds"]
        ]
        for name, method in sorted(cells)
    }
    facts = {"command": command(), "versions": versions(), "machine of scoring": machine("cpu")}
    record = json.loads(json.dumps({**facts, "rows": rows, "accuracy on the plain path": plain}))
    publish("fast-path", record, page)


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    lines = []
    for key, seeds in record["rows"].items():
        name, method, how = key.split("|")
        numbers = sorted(int(seed) for seed in seeds)
        ours = np.array([100 * seeds[str(seed)]["accuracy"] for seed in numbers])
        before = 100 * np.array(record["accuracy on the plain path"][f"{name}|{method}"])
        lines.append(
            [
                name,
                method,
                how,
                str(len(numbers)),
                f"{ours.mean():.2f} ± {ours.std(ddof=1):.2f}",
                f"{before.mean():.2f} ± {before.std(ddof=1):.2f}",
                f"{(ours - before).mean():+.2f}",
            ]
        )
    header = ["data", "method", "trained", "seeds", "accuracy %", "plain path %", "difference"]
    return make_page(
        "Accuracy on the fast path",
        f"{generated('fast_path')} Mean and standard deviation over seeds. *Plain path*: the records that the unsupervised "
        "table had at that time, from before the fast path existed.",
        markdown(header, lines),
    )


if __name__ == "__main__":
    main()
