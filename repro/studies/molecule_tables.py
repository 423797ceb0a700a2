"""Forests, encoder and their ensemble on the development sets of molecules, each on its published split.

    python -m repro.studies.molecule_tables --part forests
    python -m repro.studies.molecule_tables --part methods --minutes 60

The rules are in ``repro/decision-rules.md``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold

from joao.baselines.forests import molecule_columns
from joao.comparison.molecule_table import MEMBERS, METHODS
from joao.comparison.molecules import Labelled, TablePlan, Work, predict_split
from joao.core.provenance import versions
from joao.data import read_whole
from joao.data.formats.smiles import read_text_column
from joao.data.names import resolve_path
from joao.evaluation.splits import given_split
from joao.evaluation.tables import markdown
from joao.evaluation.targets import infer_label_kind, task_figures
from joao.runs.trained import load_run, model_path
from repro.record_files import RECORDS
from repro.studies.common import generated
from repro.studies.sweep import interval, record_file

# By size, the smallest first.
SETS = (
    *("ace_CHEMBL2835_Ki", "ace_CHEMBL4616_EC50", "ace_CHEMBL2034_Ki", "ace_CHEMBL1862_Ki", "ace_CHEMBL262_Ki"),
    *("ace_CHEMBL4005_Ki", "ace_CHEMBL231_Ki", "ace_CHEMBL2971_Ki", "pharma_ppb", "ace_CHEMBL239_EC50"),
    *("ace_CHEMBL219_Ki", "pharma_cyp_3a4", "pharma_hum_mic_cl", "ace_CHEMBL236_Ki", "ace_CHEMBL237_Ki"),
    *("ace_CHEMBL204_Ki", "ace_CHEMBL214_Ki", "ace_CHEMBL234_Ki", "pharma_ames", "pharma_water_sol", "pharma_logd"),
)
SHARES: tuple[str | float, ...] = ("sqrt", 0.1, 0.33, 1.0)
SETS_FOR_FORESTS = SETS[:6]


@dataclass(frozen=True)
class Cell:
    """``part`` is ``forests`` or ``methods``."""

    dataset: str
    part: str
    seed: int = 0


def compute(cell: Cell, root: Path | None) -> dict[str, Any]:
    path = resolve_path(cell.dataset, root)
    dataset = read_whole(path, tasks=["activity" if cell.dataset.startswith("ace") else "value"])
    split = given_split(dataset, np.array(read_text_column(path, "split"))[dataset.rows].tolist())
    assert dataset.targets is not None
    learn = np.concatenate([split.train, split.validation])
    labels, made = dataset.targets, {"versions": versions()}
    if cell.part == "forests":
        columns, y = molecule_columns(dataset.smiles, ["ecfp"])["ecfp"][learn], labels[learn, 0]
        errors: dict[str, list[float]] = {str(share): [] for share in SHARES}
        for train, test in KFold(3, shuffle=True, random_state=0).split(columns):
            for share in SHARES:
                forest = RandomForestRegressor(200, max_features=share, random_state=0).fit(columns[train], y[train])
                squares = (forest.predict(columns[test]) - y[test]) ** 2
                errors[str(share)].append(float(np.sqrt(squares.mean()) / y[train].std()))
        return {"errors": errors, **made}
    kind = infer_label_kind(dataset)
    columns_of = molecule_columns(dataset.smiles, ("ecfp", "descriptors"))
    columns_of["encoder"] = load_run(model_path("molecules"), device="cpu").embed(dataset).numpy()
    names = [name for name in METHODS if name != "ensemble"]
    plan = TablePlan(device="cpu", precision="bf16-mixed")
    predicted, seconds = predict_split(Work(split, cell.seed, names), Labelled(dataset, kind, columns_of), plan)
    predicted["ensemble"] = np.mean([predicted[name] for name in MEMBERS], axis=0)
    spread = np.ones(1) if kind == "binary" else labels[learn].std(axis=0)
    figures = {
        name: task_figures(kind, (each / spread).astype(np.float32), labels[split.test] / spread, ["task"])
        for name, each in predicted.items()
    }
    errors_of = {name: 1 - each["roc_auc"] if kind == "binary" else each["rmse"] for name, each in figures.items()}
    return {"errors": errors_of, "figures": figures, "seconds": seconds, "sizes": list(map(len, split)), **made}


def page(records: Sequence[Mapping[str, Any]]) -> str:
    found: dict[str, dict[str, Any]] = {"forests": {}, "methods": {}}
    for record in records:
        found[record["cell"]["part"]][record["cell"]["dataset"]] = record["errors"]
    forests, methods = found["forests"], found["methods"]
    rows = [[name, *(f"{np.mean(each[str(share)]):.3f}" for share in SHARES)] for name, each in forests.items()]
    means = [f"{np.mean([np.mean(each[str(share)]) for each in forests.values()]):.3f}" for share in SHARES]
    sets = [name for name in SETS if name in methods]
    lines = []
    for method in METHODS:
        errors = np.array([methods[name][method] for name in sets])
        differences = errors - np.array([methods[name]["ecfp"] for name in sets])
        gain = ""
        if method != "ecfp" and len(sets) > 1:
            found_gain = interval(differences.tolist())
            gain = f"{found_gain.mean:+.3f} ({found_gain.low:+.3f} to {found_gain.high:+.3f})"
        lines.append([method, f"{errors.mean():.3f}" if sets else "", gain, *(f"{each:.3f}" for each in errors)])
    missing = [name for name in SETS if name not in methods]
    return "\n\n".join(
        [
            "# Forests, encoder and ensemble on molecules",
            f"{generated('molecule_tables')} The rules are in `repro/decision-rules.md`. Development sets (PharmaBench, MoleculeACE), published splits, "
            "one seed; the encoder is fine-tuned in bf16-mixed. The error is the RMSE in standard deviations of the training labels or, for `pharma_ames`, 1 - ROC-AUC; smaller is better.",
            "## Methods",
            markdown(["method", "mean error", "difference to ecfp (95 % interval over sets)", *sets], lines),
            f"Missing: {', '.join(missing)}." if missing else "All sets are finished.",
            "## Forest for regression",
            markdown(["data set", *(f"`max_features` {share}" for share in SHARES)], [*rows, ["mean", *means]]),
            "200 trees on ECFP counts, three random folds of the training molecules.\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("forests", "methods"), required=True)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--minutes", type=float, default=600.0)
    given = parser.parse_args()
    records, end = record_file(RECORDS / "molecule-tables.jsonl"), time.time() + 60 * given.minutes
    done = {(each["cell"]["dataset"], each["cell"]["part"]) for each in records.read()}
    for name in SETS_FOR_FORESTS if given.part == "forests" else SETS:
        if (name, given.part) not in done and time.time() < end:
            cell = Cell(name, given.part)
            records.write({"cell": asdict(cell), **compute(cell, given.data_root)})
            print(name, flush=True)


if __name__ == "__main__":
    main()
