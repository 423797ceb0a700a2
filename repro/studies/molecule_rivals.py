"""chemprop and scikit-fingerprints beside the forest, the ensemble and the fingerprints of joao, in one run.

    python -m repro.studies.molecule_rivals --chemprop ENVIRONMENT/bin/chemprop --minutes 60
    python -m repro.studies.molecule_rivals --chemprop ENVIRONMENT/bin/chemprop --sets moleculenet --minutes 40
    python -m repro.studies.molecule_rivals --chemprop ENVIRONMENT/bin/chemprop --skfp ENVIRONMENT/bin/python

The first line trains chemprop on the development sets, the second on MoleculeNet, and the third measures speed. Both
programs need an environment of their own (``pip install chemprop``, ``pip install scikit-fingerprints``). The rules are in ``repro/decision-rules.md``.
"""

import argparse
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.core.provenance import command, machine, versions
from joao.data.formats.smiles import read_text_column
from joao.data.names import resolve_path
from joao.evaluation.tables import markdown, with_interval
from joao.runs.trained import model_path
from repro.benchmarks.timing import child_seconds
from repro.record_files import RECORDS
from repro.studies.common import generated, make_page
from repro.studies.molecule_tables import SETS, Cache, Cell, Table, load, predict_members, test_error
from repro.studies.sweep import interval, record_file

FILE = RECORDS / "molecule-rivals.jsonl"
METHODS = {
    "ecfp": "random forest on ECFP",
    "ensemble": "`joao finetune --ensemble`",
    "chemprop": "chemprop, its defaults",
}
DIFFERENCES = (("chemprop", "ecfp"), ("chemprop", "ensemble"), ("ensemble", "ecfp"))
MEMBERS = ("ecfp", "descriptors", "both_kernels")
# MoleculeNet by the time that chemprop takes, so that the large sets come last.
GROUPS = {"development": SETS, "moleculenet": ("bace", "bbbp", "sider", "clintox", "tox21", "hiv")}
TITLES = {"development": "Development sets", "moleculenet": "MoleculeNet"}
WHAT_IS_SHOWN = {
    "development": "PharmaBench and MoleculeACE, published splits. The error is the RMSE in standard deviations of the training labels or, for `pharma_ames`, 1 - ROC-AUC; smaller is better.",
    "moleculenet": "Scaffold split of the transfer table, training molecules only, run once. The error is 1 - ROC-AUC, mean over the tasks of a set.",
}
FEWEST_SETS, ROUNDS = 5, 3
SMALL, LARGE = 200, 2200  # molecules of the tables that commands are timed with
SPEED_SET = "pharma_hum_mic_cl"
PROGRAMS = {
    "joao.baselines.forests.molecule_columns": (
        "from joao.baselines.forests import molecule_columns",
        "columns = molecule_columns(smiles, ['ecfp'])['ecfp']",
    ),
    "scikit-fingerprints": (
        "from skfp.fingerprints import ECFPFingerprint",
        "columns = ECFPFingerprint(fp_size=2048, radius=2, count=True, n_jobs=1).transform(smiles)",
    ),
}
_TIMED = """
import hashlib, json, sys, time
import numpy
{setup}
smiles = open(sys.argv[1]).read().split()
{work}
started = time.process_time()
{work}
seconds = time.process_time() - started
columns = numpy.minimum(numpy.asarray(columns), 255).astype(numpy.uint8)
print(json.dumps([seconds, hashlib.sha256(columns.tobytes()).hexdigest()]))
"""


def run(words: Sequence[str | Path]) -> float:
    """Run a program on one core with one thread; return the CPU seconds of all its processes."""
    before = child_seconds()
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=_environment(), check=False)
    if done.returncode:
        raise UserError(f"{' '.join(map(str, words))}: failed: {done.stderr[-500:]}")
    return child_seconds() - before


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "JOAO_CACHE": "off"}


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def train_chemprop(chemprop: Path, table: Table, folder: Path, *options: str) -> float:
    """Train on the training and validation part of a set; return CPU seconds."""
    dataset, split, kind, *_ = table
    assert dataset.targets is not None
    labels = np.where(np.isnan(dataset.targets), "", dataset.targets.astype(str))  # missing labels are empty cells
    rows = [
        [dataset.smiles[row], *labels[row], part]
        for part, numbers in (("train", split.train), ("val", split.validation))
        for row in numbers
    ]
    columns = _label_columns(labels.shape[1])
    write_table(folder / "learn.csv", ["smiles", *columns, "part"], rows)
    words = [str(chemprop), "train", "--data-path", str(folder / "learn.csv"), "--smiles-columns", "smiles"]
    words += ["--target-columns", *columns, "--splits-column", "part", "--accelerator", "cpu"]
    words += ["--task-type", "classification" if kind == "binary" else "regression", "--pytorch-seed", "0"]
    return run([*words, "--output-dir", str(folder / "model"), *options])


def _label_columns(tasks: int) -> list[str]:
    return [f"label{task}" for task in range(tasks)]


def predict_chemprop(
    chemprop: Path, smiles: Sequence[str], folder: Path, tasks: int = 1
) -> tuple[NDArray[np.float64], float]:
    """Predictions ``(n, tasks)`` and CPU seconds."""
    given, out = folder / "given.csv", folder / "predicted.csv"
    write_table(given, ["smiles"], [[text] for text in smiles])
    words: list[str | Path] = [
        chemprop,
        "predict",
        "--test-path",
        given,
        "--smiles-columns",
        "smiles",
        "--accelerator",
        "cpu",
    ]
    seconds = run([*words, "--model-paths", folder / "model/model_0/best.pt", "--output", out])
    columns = [read_text_column(out, name) for name in _label_columns(tasks)]
    return np.array(columns, dtype=np.float64).T, seconds


def bundled_encoder() -> str:
    """The hash by which records name the bundled encoder."""
    return hashlib.sha256(model_path("molecules").read_bytes()).hexdigest()[:8]


def compute(name: str, chemprop: Path, root: Path | None) -> dict[str, Any]:
    """Errors and CPU seconds of all methods on a set."""
    table = load(name, root)
    content = bundled_encoder()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cell = Cell(name, "rivals", encoder=content)
        predicted, seconds = predict_members(cell, table, model_path("molecules"), Cache(folder / "cache"))
        predicted["ensemble"] = np.mean([predicted[member] for member in MEMBERS], axis=0)
        seconds["ensemble"] = sum(seconds[each] for each in (*MEMBERS, "columns", "embedding"))
        trained = train_chemprop(chemprop, table, folder)
        smiles = [table.dataset.smiles[row] for row in table.split.test]
        tasks = len(table.dataset.target_names)
        predicted["chemprop"], used = predict_chemprop(chemprop, smiles, folder, tasks)
        seconds["chemprop"] = trained + used
    return {
        "cell": {"part": "errors", "name": name},
        "errors": {method: test_error(predicted[method], table) for method in METHODS},
        "seconds": {method: seconds[method] for method in METHODS},
        "sizes": list(map(len, table.split)),
        "encoder": content,
        "versions": versions() | {"chemprop": version_of(chemprop.with_name("python"), "chemprop")},
    }


def version_of(python: Path, package: str) -> str:
    words = [str(python), "-c", f"from importlib.metadata import version; print(version('{package}'))"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def measure_speed(chemprop: Path, skfp: Path, root: Path | None) -> dict[str, Any]:
    """Molecules per CPU second of fingerprints and of commands."""
    all_smiles = read_text_column(resolve_path(SPEED_SET, root), "smiles")
    pythons = dict(zip(PROGRAMS, (Path(sys.executable), skfp), strict=True))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        texts = folder / "smiles.txt"
        texts.write_text("\n".join(all_smiles[:LARGE]))
        rates: dict[str, list[float]] = {name: [] for name in PROGRAMS}
        hashes = {}
        for _ in range(ROUNDS):
            for name, (setup, work) in PROGRAMS.items():
                code = _TIMED.format(setup=setup, work=work)
                words = [str(pythons[name]), "-c", code, str(texts)]
                done = subprocess.run(words, capture_output=True, text=True, env=_environment(), check=True)
                seconds, hashes[name] = json.loads(done.stdout)
                rates[name].append(LARGE / seconds)
        commands = _commands(chemprop, folder, load(SETS[0], root))
        times: dict[str, dict[int, list[float]]] = {name: {SMALL: [], LARGE: []} for name in commands}
        for _ in range(ROUNDS):
            for name, timed in commands.items():
                for size, found in times[name].items():
                    found.append(timed(all_smiles[:size]))
    return {
        "cell": {"part": "speed", "name": SPEED_SET},
        "fingerprints": {name: median(each) for name, each in rates.items()},
        "equal": len({*hashes.values()}) == 1,
        "commands": {name: {str(size): median(each) for size, each in of.items()} for name, of in times.items()},
        "encoder": bundled_encoder(),
        "command": command(),
        "machine": machine("cpu"),
        "versions": versions()
        | {"scikit-fingerprints": version_of(skfp, "scikit-fingerprints"), "its rdkit": version_of(skfp, "rdkit")}
        | {"chemprop": version_of(chemprop.with_name("python"), "chemprop")},
    }


def _commands(chemprop: Path, folder: Path, table: Table) -> dict[str, Callable[[Sequence[str]], float]]:
    """What is timed with molecules, by name: models that were trained for a moment on a small set."""
    assert table.dataset.targets is not None
    train_chemprop(chemprop, table, folder, "--epochs", "3")
    joao = [sys.executable, "-m", "joao"]
    labels = folder / "labelled.csv"
    columns = zip(table.dataset.smiles, table.dataset.targets[:, 0], strict=True)
    write_table(labels, ["smiles", "label"], [[*each] for each in columns])
    for name, options in {"tuned": ["--epochs", "1"], "ensemble": ["--ensemble"]}.items():
        run([*joao, "finetune", "molecules", labels, "--out", folder / name, *options])

    def ours(what: str, model: str | Path, smiles: Sequence[str]) -> float:
        given, out = folder / "ours.csv", folder / "out.parquet"
        write_table(given, ["smiles"], [[text] for text in smiles])
        out.unlink(missing_ok=True)
        return run([*joao, what, model, given, "--out", out, "--device", "cpu"])

    return {
        "chemprop predict": lambda smiles: predict_chemprop(chemprop, smiles, folder)[1],
        "joao predict": lambda smiles: ours("predict", folder / "tuned", smiles),
        "joao predict, ensemble": lambda smiles: ours("predict", folder / "ensemble", smiles),
        "joao embed": lambda smiles: ours("embed", "molecules", smiles),
    }


def page(records: Sequence[Mapping[str, Any]]) -> str:
    of = {(each["cell"]["part"], each["cell"]["name"]): each for each in records}
    parts = [
        f"{generated('molecule_rivals')} The rules are in `repro/decision-rules.md`. One seed, one thread. Intervals are over sets (Student, 95 %).",
    ]
    for group, names in GROUPS.items():
        found = {name: of["errors", name] for name in names if ("errors", name) in of}
        missing = [name for name in names if name not in found]
        parts += [f"## {TITLES[group]}", WHAT_IS_SHOWN[group], *(_errors(group, found) if found else [])]
        parts.append(f"Missing sets: {', '.join(missing)}." if missing else f"All {len(names)} sets.")
    parts.append(
        "CheMeleon (`chemprop train --from-foundation CheMeleon`) is missing: its weights are downloaded from Zenodo when it is first used, and the machine "
        "of this study has no connection to it."
    )
    parts += ["## Speed", *(_speed(of["speed", SPEED_SET]) if ("speed", SPEED_SET) in of else ["Not measured yet."])]
    return make_page("chemprop and scikit-fingerprints beside joao", *parts)


def _errors(group: str, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    first = next(iter(found.values()))
    scored = group == "moleculenet"
    rows = []
    for method, what in METHODS.items():
        errors = [each["errors"][method] for each in found.values()]
        shown = [f"{100 * (1 - each):.1f}" if scored else f"{each:.3f}" for each in (np.mean(errors), *errors)]
        seconds = sum(each["seconds"][method] for each in found.values())
        rows.append([what, shown[0], f"{seconds:,.0f}", *shown[1:]])
    lines = []
    for one, other in DIFFERENCES:
        values = [each["errors"][one] - each["errors"][other] for each in found.values()]
        lines.append(
            [f"{METHODS[one]}, minus {METHODS[other]}", *verdict(values), *(f"{value:+.3f}" for value in values)]
        )
    mean = "mean ROC-AUC %" if scored else "mean error"
    also = "" if scored else " The forest and the ensemble also learn from it, which is an advantage."
    return [
        markdown(["method", mean, "seconds, all sets", *found], rows),
        markdown(["difference of errors", "mean (95 % CI)", "the first is", *found], lines),
        f"chemprop {first['versions']['chemprop']} uses the validation part to choose its epoch.{also} The ensemble has encoder {first['encoder']}. "
        "Seconds are CPU seconds of training and prediction on a machine that others used: chemprop's with two starts of the program, ours inside one process, and the forest's without its fingerprints.",
    ]


def verdict(differences: Sequence[float]) -> tuple[str, str]:
    """The mean difference of errors with its interval over sets, and what is said of it."""
    if len(differences) < FEWEST_SETS:
        return f"{np.mean(differences):+.3f}", f"not said of fewer than {FEWEST_SETS} sets"
    gain = interval(differences)
    word = "better" if gain.high < 0 else "worse" if gain.low > 0 else "inconclusive"
    return with_interval(gain, digits=3), word


def _speed(record: Mapping[str, Any]) -> list[str]:
    fingerprints = [[name, f"{rate:,.0f}"] for name, rate in record["fingerprints"].items()]
    rows = []
    for name, seconds in record["commands"].items():
        small, large = seconds[str(SMALL)], seconds[str(LARGE)]
        further = (LARGE - SMALL) / (large - small)
        rows.append([f"`{name}`", f"{small - SMALL / further:.1f}", f"{further:,.0f}", f"{LARGE / large:,.0f}"])
    used = record["versions"]
    equal = "are equal" if record["equal"] else "differ"
    encoder = record.get("encoder", "bundled until 2026-11-18, not that of the errors above")  # older records have none
    return [
        f"{record['machine']['processor']}, one process on one core that others used, too, medians of {ROUNDS} rounds; {LARGE:,} molecules of `{SPEED_SET}`.",
        markdown(["count ECFP4, 2,048 columns, from SMILES", "molecules per CPU second"], fingerprints),
        f"scikit-fingerprints {used['scikit-fingerprints']} with RDKit {used['its rdkit']}, ours with RDKit {used['rdkit']}; the columns {equal}.",
        markdown(["command", "CPU seconds to start", "further molecules per CPU second", f"all {LARGE:,} molecules per CPU second"], rows),
        f"chemprop {used['chemprop']}; joao's commands have the encoder {encoder}. The start is extrapolated from tables of {SMALL} and {LARGE:,} molecules.",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chemprop", type=Path, required=True, help="the program of an environment with chemprop")
    parser.add_argument("--skfp", type=Path, help="Python of an environment with scikit-fingerprints: measure speed")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--sets", choices=GROUPS, default="development")
    parser.add_argument("--minutes", type=float, default=60.0, help="CPU minutes after which no further set is begun")
    given = parser.parse_args()
    if shutil.which(given.chemprop) is None:
        raise UserError(f"{given.chemprop}: no such program. Install chemprop in an environment of its own.")
    records = record_file(FILE)
    if given.skfp is not None:
        records.write(measure_speed(given.chemprop, given.skfp, given.data_root))
        return
    done = {each["cell"]["name"] for each in records.read() if each["cell"]["part"] == "errors"}
    for name in GROUPS[given.sets]:
        if name not in done and sum(os.times()[:4]) < 60 * given.minutes:
            records.write(compute(name, given.chemprop, given.data_root))
            print(name, flush=True)


if __name__ == "__main__":
    main()
