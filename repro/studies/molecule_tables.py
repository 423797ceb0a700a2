"""Forests, kernels, encoder and their ensembles on the development sets of molecules, each on its published split.

    python -m repro.studies.molecule_tables --part forests
    python -m repro.studies.molecule_tables --part members --encoder molecules --cache FOLDER
    python -m repro.studies.molecule_tables --part finetuned --encoder molecules --cache FOLDER
    python -m repro.studies.molecule_tables --part moleculenet --encoder molecules --cache FOLDER

Columns and predictions are kept in FOLDER, so that another encoder needs no second forest. The rules are in
``repro/decision-rules.md``.
"""

import argparse
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold

from joao.baselines.forests import FOREST, Forests, molecule_columns
from joao.baselines.kernel_ridge import KernelRidge
from joao.comparison.molecules import Labelled, TablePlan, Work, predict_split
from joao.core.files import make_folder
from joao.core.provenance import versions
from joao.data import Dataset, read_whole
from joao.data.formats.smiles import read_text_column
from joao.data.names import resolve_path
from joao.evaluation.splits import SHARES, Split, given_split, split_graphs
from joao.evaluation.tables import markdown, with_interval
from joao.evaluation.targets import infer_label_kind, select_tasks, task_figures
from joao.runs.trained import load_run, model_path
from repro.protocols.cells import load_grid
from repro.record_files import RECORDS
from repro.studies.common import generated, make_page
from repro.studies.sweep import interval, record_file

# By size, the smallest first.
SETS = (
    *("ace_CHEMBL2835_Ki", "ace_CHEMBL4616_EC50", "ace_CHEMBL2034_Ki", "ace_CHEMBL1862_Ki", "ace_CHEMBL262_Ki"),
    *("ace_CHEMBL4005_Ki", "ace_CHEMBL231_Ki", "ace_CHEMBL2971_Ki", "pharma_ppb", "ace_CHEMBL239_EC50"),
    *("ace_CHEMBL219_Ki", "pharma_cyp_3a4", "pharma_hum_mic_cl", "ace_CHEMBL236_Ki", "ace_CHEMBL237_Ki"),
    *("ace_CHEMBL204_Ki", "ace_CHEMBL214_Ki", "ace_CHEMBL234_Ki", "pharma_ames", "pharma_water_sol", "pharma_logd"),
)
SETS_FOR_FORESTS, SETS_FOR_FINETUNING = SETS[:6], SETS[:13]
MOLECULENET = ("bbbp", "clintox", "sider", "bace", "tox21", "hiv")
FOREST_SHARES: tuple[str | float, ...] = ("sqrt", 0.1, 0.33, 1.0)
FORESTS = ("ecfp", "descriptors")
# Candidates for the third member of the ensemble, in the order of the rule: the columns of a kernel, or a method.
KERNELS = {"frozen_kernel": ("encoder",), "both_kernels": ("encoder", "ecfp")}
CANDIDATES = (*KERNELS, "frozen_forest", "finetuned")
WITHOUT_ENCODER = "tanimoto"  # the same kernel without the encoder


@dataclass(frozen=True)
class Cell:
    """``part`` is that of the command line; ``encoder`` a hash of its weights, or empty."""

    dataset: str
    part: str
    seed: int = 0
    encoder: str = ""


class Table(NamedTuple):
    dataset: Dataset
    split: Split
    kind: str
    learn: NDArray[np.int64]
    settings: Mapping[str, Any]


def load(name: str, root: Path | None) -> Table:
    """A development set, whose models learn from training and validation molecules, or a set of the transfer table."""
    path = resolve_path(name, root)
    if name in MOLECULENET:
        dataset = select_tasks(read_whole(name, root))
        split = split_graphs(dataset, "scaffold", *SHARES["scaffold"], seed=0)
        fewer = {key: value for key, value in load_grid("transfer")["forests"].get(name, {}).items() if key != "seeds"}
        return Table(dataset, split, "binary", split.train, {**FOREST["binary"], **fewer})
    dataset = read_whole(path, tasks=["activity" if name.startswith("ace") else "value"])
    split = given_split(dataset, np.array(read_text_column(path, "split"))[dataset.rows].tolist())
    kind = infer_label_kind(dataset)
    return Table(dataset, split, kind, np.concatenate(split[:2]), FOREST[kind])


class Cache:
    """Arrays on disk with the CPU seconds that they took."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.folder = folder

    def get(self, name: str, compute: Callable[[], Any]) -> tuple[NDArray[Any], float]:
        path = self.folder / f"{name}.npz"
        if not path.exists():
            started = time.process_time()
            found = compute()
            np.savez(path, found=found, seconds=time.process_time() - started)
        with np.load(path) as file:
            return file["found"], float(file["seconds"])


def predict_members(
    cell: Cell, table: Table, encoder: Path, cache: Cache
) -> tuple[dict[str, NDArray[np.float64]], dict[str, float]]:
    """Predictions of the test molecules and CPU seconds by method; those of columns are counted apart."""
    dataset, split, kind, learn, settings = table
    assert dataset.targets is not None
    labels, place = dataset.targets[learn], f"{cell.dataset}-{cell.seed}"
    columns: dict[str, NDArray[Any]] = {}
    seconds: dict[str, float] = {}
    both, seconds["columns"] = cache.get(
        f"{cell.dataset}-columns", lambda: _join(molecule_columns(dataset.smiles, FORESTS))
    )
    columns |= {"ecfp": both[:, :2048], "descriptors": both[:, 2048:]}
    embed = lambda: load_run(encoder, device="cpu").embed(dataset).numpy()  # noqa: E731
    columns["encoder"], seconds["embedding"] = cache.get(f"{cell.dataset}-{cell.encoder}-encoder", embed)
    predicted = {}

    def forest(name: str) -> NDArray[np.float64]:
        grown = Forests.fit(columns[name][learn], labels, kind, cell.seed, settings)
        return grown.predict(columns[name][split.test])

    def kernel(names: Sequence[str]) -> NDArray[np.float64]:
        model = KernelRidge.fit({name: columns[name][learn] for name in names}, labels, kind, cell.seed)
        return model.predict({name: columns[name][split.test] for name in names})

    for name in FORESTS:
        predicted[name], seconds[name] = cache.get(f"{place}-{name}", partial(forest, name))
    predicted[WITHOUT_ENCODER], seconds[WITHOUT_ENCODER] = cache.get(f"{place}-tanimoto", lambda: kernel(["ecfp"]))
    own = f"{place}-{cell.encoder}"
    for name, names in KERNELS.items():
        predicted[name], seconds[name] = cache.get(f"{own}-{name}", partial(kernel, names))
    if cell.part == "members":
        predicted["frozen_forest"], seconds["frozen_forest"] = cache.get(f"{own}-forest", lambda: forest("encoder"))
    if cell.part == "finetuned":
        plan = TablePlan(model=encoder, device="cpu")
        work, data = Work(split, cell.seed, ("finetuned",), 0), Labelled(dataset, kind, {})
        predicted["finetuned"], seconds["finetuned"] = cache.get(
            f"{own}-finetuned", lambda: predict_split(work, data=data, plan=plan)[0]["finetuned"]
        )
    return predicted, seconds


def _join(columns: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate([columns[name] for name in FORESTS], axis=1)


def compute(cell: Cell, root: Path | None, encoder: Path, cache: Cache) -> dict[str, Any]:
    """Errors of all methods and ensembles on a set: RMSE in deviations of the training labels, or 1 - ROC-AUC."""
    if cell.part == "forests":
        return {"errors": _forest_errors(load(cell.dataset, root)), "versions": versions()}
    table = load(cell.dataset, root)
    dataset, split, kind, *_ = table
    assert dataset.targets is not None
    predicted, seconds = predict_members(cell, table, encoder, cache)
    forests = [predicted[name] for name in FORESTS]
    predicted["two_forests"] = np.mean(forests, axis=0)
    uncertain = {}
    for third in (*CANDIDATES, WITHOUT_ENCODER):
        if third in predicted:
            members = np.stack([*forests, predicted[third]])
            predicted[f"ensemble_{third}"] = members.mean(axis=0)
            uncertain[third] = _calibration(members, dataset.targets[split.test], kind)
    made = {
        "seconds": {name: each for name, each in seconds.items() if each == each},
        "sizes": list(map(len, split)),
        "model": encoder.name,
        "versions": versions(),
    }
    errors = {name: test_error(each, table) for name, each in predicted.items()}
    return {"errors": errors, "uncertainty": uncertain, **made}


def test_error(predicted: NDArray[np.float64], table: Table) -> float:
    """1 - ROC-AUC, or RMSE in standard deviations of the training labels, of predictions for the test molecules."""
    dataset, split, kind, learn, _ = table
    assert dataset.targets is not None
    spread = np.ones(1) if kind == "binary" else dataset.targets[learn].std(axis=0)
    scaled = (predicted / spread).astype(np.float32), (dataset.targets[split.test] / spread).astype(np.float32)
    figures = task_figures(kind, *scaled, dataset.target_names)
    return float(1 - figures["roc_auc"] if kind == "binary" else figures["rmse"])


def _calibration(members: NDArray[np.float64], labels: NDArray[np.float32], kind: str) -> dict[str, float]:
    """Whether the error grows with the standard deviation over members: rank correlation, and RMSE of four quarters."""
    if labels.shape[1] > 1:
        return {}
    std, errors = members.std(axis=0)[:, 0], np.abs(members.mean(axis=0) - labels)[:, 0]
    quarters = np.array_split(errors[np.argsort(std, kind="stable")] ** 2, 4)
    low, high = (float(np.sqrt(quarters[place].mean())) for place in (0, -1))
    return {"spearman": float(spearmanr(std, errors).statistic), "lowest_quarter": low, "highest_quarter": high}


def _forest_errors(table: Table) -> dict[str, list[float]]:
    assert table.dataset.targets is not None
    columns = molecule_columns(table.dataset.smiles, ["ecfp"])["ecfp"][table.learn]
    y = table.dataset.targets[table.learn, 0]
    errors: dict[str, list[float]] = {str(share): [] for share in FOREST_SHARES}
    for train, test in KFold(3, shuffle=True, random_state=0).split(columns):
        for share in FOREST_SHARES:
            forest = RandomForestRegressor(200, max_features=share, random_state=0).fit(columns[train], y[train])
            squares = (forest.predict(columns[test]) - y[test]) ** 2
            errors[str(share)].append(float(np.sqrt(squares.mean()) / y[train].std()))
    return errors


def page(records: Sequence[Mapping[str, Any]]) -> str:
    of = {(each["cell"]["part"], each["cell"].get("encoder", ""), each["cell"]["dataset"]): each for each in records}
    forests = {name: each["errors"] for (part, _, name), each in of.items() if part == "forests"}
    rows = [[name, *(f"{np.mean(each[str(share)]):.3f}" for share in FOREST_SHARES)] for name, each in forests.items()]
    means = [f"{np.mean([np.mean(each[str(share)]) for each in forests.values()]):.3f}" for share in FOREST_SHARES]
    parts = [
        f"{generated('molecule_tables')} The rules are in `repro/decision-rules.md`. Development sets (PharmaBench, MoleculeACE), published splits, "
        "one seed. The error is the RMSE in standard deviations of the training labels or, for `pharma_ames`, 1 - ROC-AUC; smaller is better. "
        "Intervals are over sets (Student, 95 %).",
    ]
    places = {encoder: place for place, encoder in enumerate([*ENCODERS, ""])}  # the bundled encoder first
    shown = {(part, encoder) for part, encoder, _ in of if part != "forests"}
    for part, encoder in sorted(shown, key=lambda each: (places.get(each[1], -1), each[0])):
        found = {name: of[part, encoder, name] for name in (*SETS, *MOLECULENET) if (part, encoder, name) in of}
        parts += _section(part, encoder, found)
    parts += [
        "## Forest for regression",
        markdown(["data set", *(f"`max_features` {share}" for share in FOREST_SHARES)], [*rows, ["mean", *means]]),
        "200 trees on ECFP counts, three random folds of the training molecules.",
    ]
    return make_page("Forests, kernels, encoder and ensemble on molecules", *parts)


ENCODERS = {"9eed50b9": "bundled encoder", "3109a4cf": "encoder bundled until 2026-11-18"}  # by hash of the file
TITLES = {
    "methods": "First round",
    "members": "Members of the ensemble",
    "finetuned": "Fine-tuned encoder on the smaller sets",
    "moleculenet": "MoleculeNet, scaffold split of the transfer table, once",
}
_FIRST_ROUND = "The encoder bundled until 2026-11-18, fine-tuned in bf16-mixed; `ensemble` is the mean of ecfp, descriptors and finetuned."
_SECOND_ROUND = (
    "`ecfp` and `descriptors` are forests of 500 trees, `two_forests` is their mean, and `frozen_forest` is a forest on embeddings. `ensemble_X` is the mean of ecfp, descriptors and X. `tanimoto` is kernel ridge regression on ECFP alone, `frozen_kernel` on embeddings alone, `both_kernels` on both; "
    "`ensemble_tanimoto` has no encoder and shows what the encoder adds to `ensemble_both_kernels`."
)


def _section(part: str, encoder: str, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    methods = list(dict.fromkeys(name for each in found.values() for name in each["errors"]))
    lines = []
    for method in methods:
        errors = np.array([each["errors"][method] for each in found.values()])
        differences = errors - np.array([each["errors"]["ecfp"] for each in found.values()])
        gain = "" if method == "ecfp" or len(found) < 2 else _interval(differences)
        shown = 100 * (1 - errors) if part == "moleculenet" else errors
        digits = 1 if part == "moleculenet" else 3
        lines.append([method, f"{shown.mean():.{digits}f}", gain, *(f"{each:.{digits}f}" for each in shown)])
    mean = "mean ROC-AUC %" if part == "moleculenet" else "mean error"
    header = ["method", mean, "difference of errors to ecfp (95 % CI)", *found]
    which = f", {ENCODERS.get(encoder, 'encoder')} ({encoder})" if encoder else ""
    result = [f"## {TITLES[part]}{which}", markdown(header, lines), _SECOND_ROUND if encoder else _FIRST_ROUND]
    if part == "moleculenet" and "clintox" in found:
        others = {
            name: 100 * (1 - np.mean([each["errors"][name] for key, each in found.items() if key != "clintox"]))
            for name in methods
        }
        result.append(
            "The difference is one of errors, 1 - ROC-AUC: below 0 is better than `ecfp`, and an interval that contains 0 is inconclusive. One seed."
        )
        result.append(
            "Mean without ClinTox: " + ", ".join(f"{name} {value:.1f}" for name, value in others.items()) + "."
        )
    if part == "members":
        missing = [name for name in SETS if name not in found]
        result.append(f"Missing: {', '.join(missing)}." if missing else "All 21 sets.")
        result.append(_uncertainty(found))
    return result


def _uncertainty(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether errors grow with the standard deviation over members, for the ensemble of both kernels."""
    of = [each["uncertainty"]["both_kernels"] for each in found.values() if each["uncertainty"]["both_kernels"]]
    ratios = np.array([each["highest_quarter"] / each["lowest_quarter"] for each in of])
    ranks = np.array([each["spearman"] for each in of])
    return (
        f"Standard deviation over the members of `ensemble_both_kernels`: rank correlation with the absolute error {_interval(ranks)} over {len(of)} sets, positive on {int((ranks > 0).sum())}; "
        f"the RMSE of the quarter of the molecules with the largest standard deviation is {np.median(ratios):.2f} times that of the quarter with the smallest (median; {ratios.min():.2f} to {ratios.max():.2f})."
    )


def _interval(values: NDArray[np.float64]) -> str:
    if len(values) < 2:
        return f"{values.mean():+.3f}"
    return with_interval(interval(values.tolist()), digits=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("forests", "members", "finetuned", "moleculenet"), required=True)
    parser.add_argument("--encoder", default="molecules", help="a run, an export, or the name of a bundled model")
    parser.add_argument("--cache", type=Path, default=Path("molecule-tables-cache"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--minutes", type=float, default=600.0)
    given = parser.parse_args()
    encoder = model_path(given.encoder)
    content = encoder if encoder.is_file() else encoder / "weights.safetensors"
    digest = "" if given.part == "forests" else hashlib.sha256(content.read_bytes()).hexdigest()[:8]
    sets = {"forests": SETS_FOR_FORESTS, "finetuned": SETS_FOR_FINETUNING, "moleculenet": MOLECULENET, "members": SETS}
    records, end = record_file(RECORDS / "molecule-tables.jsonl"), time.time() + 60 * given.minutes
    done = [{"encoder": "", **each["cell"]} for each in records.read()]
    for name in sets[given.part]:
        cell = Cell(name, given.part, encoder=digest)
        if asdict(cell) not in done and time.time() < end:
            records.write({"cell": asdict(cell), **compute(cell, given.data_root, encoder, Cache(given.cache))})
            print(name, flush=True)


if __name__ == "__main__":
    main()
