"""Pre-training of molecules: contrastive only, targets only, both; frozen embeddings and a forest on 21 sets.

    python -m repro.studies.molecule_pretraining --part corpus --out CORPUS
    python -m repro.studies.molecule_pretraining --part pretrain --corpus CORPUS --arm both --epochs 4 --out RUN
    python -m repro.studies.molecule_pretraining --part score --arm both --model RUN

The rules are in ``repro/decision-rules.md``.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.baselines.forests import Forests, molecule_columns
from joao.config.recipe import Recipe, make_recipe
from joao.core.provenance import versions
from joao.data import Dataset, read_whole
from joao.data.formats.smiles import read_text_column
from joao.evaluation.tables import markdown
from joao.runs.pretraining import pretrain
from joao.runs.trained import bundled_model_path, load_run, make_untrained
from repro.protocols.transfer.overlap import count, find_shared, molecules_of_test
from repro.record_files import RECORDS
from repro.studies.common import generated, make_page
from repro.studies.molecule_tables import SETS, Table, load, test_error
from repro.studies.sweep import interval, record_file

MOLECULENET = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace")
SOURCES = {"chembl_part": 160_000, "zinc250k": 30_000, "zinc_moses": 20_000}
SEED = 20261118
ARMS: dict[str, dict[str, float]] = {
    "contrastive": {},
    "targets": {"descriptors": 1, "ecfp": 1, "contrastive": 0},
    "both": {"descriptors": 1, "ecfp": 1, "contrastive": 1},
}
SHOWN = {
    "ecfp": "ECFP + forest",
    "bundled": "earlier bundled encoder",
    "untrained": "`molecule_gine`, untrained",
    "contrastive": "contrastive only",
    "targets": "targets only",
    "both": "both",
    "main": "main run",
}
TREES = 100
OVERLAP, RECORD = RECORDS / "molecule-corpus.json", RECORDS / "molecule-pretraining.jsonl"


def make_corpus(root: Path, out: Path) -> dict[str, Any]:
    """Write the shuffled corpus without test molecules as a table, and count the overlap."""
    random = np.random.default_rng(SEED)
    sources = {}
    for name, size in SOURCES.items():
        smiles = read_text_column(root / "molecules" / f"{name}.csv.xz", "SMILES" if "moses" in name else "smiles")
        sources[name] = [smiles[each].strip() for each in sorted(random.permutation(len(smiles))[:size])]
    tests = {}
    for name in SETS:
        path = root / "molecules_dev" / f"{name}.csv.gz"
        splits = read_text_column(path, "split")
        tests[name] = [
            text for text, part in zip(read_text_column(path, "smiles"), splits, strict=True) if part == "test"
        ]
    tests |= {name: molecules_of_test(name, str(root)) for name in MOLECULENET}
    corpus = [text for found in sources.values() for text in found]
    made = count(corpus, tests)
    shared = find_shared(corpus, {text for found in tests.values() for text in found})[2]
    kept = [text for text, is_shared in zip(corpus, shared, strict=True) if not is_shared]
    out.write_text("\n".join(["smiles", *(kept[each] for each in random.permutation(len(kept)))]) + "\n")
    origin = [name for name, found in sources.items() for _ in found]
    parts = {
        name: {
            "taken": len(found),
            "left out": sum(s for s, of in zip(shared.tolist(), origin, strict=True) if of == name),
        }
        for name, found in sources.items()
    }
    return made | {"sources": parts}


def recipe_of(arm: str, dataset: Dataset, epochs: int) -> Recipe:
    # Complete, because the defaults of a table of SMILES and of a packed corpus with OGB's codes differ.
    table = {
        "data": "corpus",
        "encoder": "molecule_gine",
        "objective": {"name": "nt_xent", "temperature": 0.1},
        "targets": ARMS[arm],
        "training": {"epochs": epochs, "batch_size": 256, "learning_rate": 0.001, "decay": "cosine"},
    }
    return make_recipe(table, kind=dataset.kind)


def score(columns: NDArray[np.float32], table: Table) -> float:
    """Error of a forest, see :func:`repro.studies.molecule_tables.test_error`."""
    dataset, split, kind, learn, settings = table
    assert dataset.targets is not None
    forest = Forests.fit(columns[learn], dataset.targets[learn], kind, 0, {**settings, "n_estimators": TREES})
    return test_error(forest.predict(columns[split.test]), table)


def score_sets(arm: str, model: Path | None, root: Path | None, minutes: float) -> None:
    """Score the sets without a record, the smallest first."""
    records, end = record_file(RECORD), time.time() + 60 * minutes
    done = {each["cell"]["dataset"] for each in records.read() if each["cell"]["arm"] == arm}
    trained = None if model is None else load_run(model, device="cpu")
    for name in SETS:
        if name in done or time.time() > end:
            continue
        started = time.process_time()
        table = load(name, root)
        if arm == "ecfp":
            columns = molecule_columns(table.dataset.smiles, ["ecfp"])["ecfp"]
        elif trained is None:
            raise SystemExit(f"{arm}: missing option --model")
        else:
            columns = trained.embed(table.dataset).numpy()
        error = round(score(columns, table), 6)
        seconds = round(time.process_time() - started, 1)
        cell = {"dataset": name, "arm": arm}
        records.write({"cell": cell, "error": error, "cpu_seconds": seconds, "versions": versions()})
        print(name, arm, error, flush=True)


def run_arm(arm: str, corpus: Path, epochs: int, out: Path, device: str) -> None:
    """Pre-train one arm; ``untrained`` only initialises."""
    dataset = read_whole(corpus)
    if arm == "untrained":
        make_untrained(recipe_of("targets", dataset, epochs), dataset[:4096], device="cpu").save(out)
        return
    trained = pretrain(recipe_of(arm, dataset, epochs), dataset, device=device, precision="bf16-mixed", on_epoch=print)
    trained.save(out)
    seconds = sum(epoch.seconds for epoch in trained.metrics)
    facts = {"molecules": len(dataset), "epochs": epochs, "seconds": round(seconds, 1), "fast": trained.info.fast}
    (out / "facts.json").write_text(json.dumps(facts))


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown; the figures of the pre-trainings are in records without a data set."""
    errors: dict[str, dict[str, float]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    for record in records:
        arm, name = record["cell"]["arm"], record["cell"]["dataset"]
        if name:
            errors.setdefault(arm, {})[name] = record["error"]
        else:
            facts[arm] = record
    arms = [arm for arm in SHOWN if arm in errors]
    common = [name for name in SETS if all(name in errors[arm] for arm in arms)]
    overlap = json.loads(OVERLAP.read_text(encoding="utf-8"))

    def gain(one: str, other: str) -> str:
        if one not in errors or other not in errors or one == other:
            return ""
        shared = [name for name in SETS if name in errors[one] and name in errors[other]]
        found = interval([errors[one][name] - errors[other][name] for name in shared])
        return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f}; {len(shared)} sets)"

    rows = []
    for arm in arms:
        fact = facts.get(arm, {})
        mean = np.mean([errors[arm][name] for name in common])
        made = f"{fact['molecules']:,} x {fact['epochs']}" if fact else ""
        rows.append([SHOWN[arm], f"{mean:.3f}", gain(arm, "ecfp"), made, f"{fact['seconds']:.0f}" if fact else ""])
    sets = [[name, *(f"{errors[arm][name]:.3f}" if name in errors[arm] else "" for arm in arms)] for name in SETS]
    tested = [
        [name, *(f"{each[key]:,}" for key in ("test", "with stereochemistry", "without stereochemistry"))]
        for name, each in overlap["sets"].items()
    ]
    missing = [name for name in SETS if name not in common]
    main_run = gain("main", "bundled")
    sources = ", ".join(f"{each['taken']:,} of `{name}`" for name, each in overlap["sources"].items())
    head = ["method", "mean error", "difference to ECFP (95 % interval over sets)", "molecules x epochs", "seconds"]
    corpus = [
        "## Corpus",
        f"{overlap['corpus']:,} molecules were drawn: {sources}. {overlap['left out']:,} of them are in a test split below, whatever their stereochemistry, and are left out.",
        markdown(["test split", "molecules", "in the sample, with stereochemistry", "without"], tested),
    ]
    title = "Pre-training of molecules"
    origin = f"{generated('molecule_pretraining')} The rules are in `repro/decision-rules.md`."
    if not arms:
        return make_page(title, origin, "No pre-training has been run yet.", *corpus)
    return make_page(
        title,
        origin,
        f"Frozen embeddings and a forest of {TREES} trees on the development sets, published splits, one seed; pre-trained on one H200 in bf16-mixed on the fast path. The runs shared the GPU with each other or with other work, so the seconds are no speeds. "
        "Each arm has one pre-training, and intervals over sets say nothing about another one. [Forests of 500 trees](molecule-tables.md) have slightly smaller errors. "
        "The error is the RMSE in standard deviations of the training labels or, for `pharma_ames`, 1 - ROC-AUC; smaller is better.",
        markdown(head, rows),
        f"Means over {len(common)} sets that all methods have."
        + (f" Missing: {', '.join(missing)}." if missing else ""),
        f"JOAO's contrastive loss beside the targets, *both* minus *targets only*: {gain('both', 'targets') or 'not computed'}. *Targets only* minus *contrastive only*: {gain('targets', 'contrastive') or 'not computed'}. "
        f"*Both* minus *contrastive only*: {gain('both', 'contrastive') or 'not computed'}. *Contrastive only* minus untrained: {gain('contrastive', 'untrained') or 'not computed'}. "
        f"*Both* minus the earlier bundled encoder: {gain('both', 'bundled') or 'not computed'}. "
        + (f"The main run minus it: {main_run}." if main_run else "There was no main run."),
        "## Sets",
        markdown(["data set", *(SHOWN[arm] for arm in arms)], sets),
        *corpus,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("corpus", "pretrain", "score"), required=True)
    parser.add_argument("--arm", choices=[*SHOWN], default="targets")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=600.0)
    given = parser.parse_args()
    if given.part == "corpus":
        OVERLAP.write_text(json.dumps(make_corpus(given.data_root, given.out), indent=1) + "\n", encoding="utf-8")
    elif given.part == "pretrain":
        run_arm(given.arm, given.corpus, given.epochs, given.out, given.device)
    else:
        model = bundled_model_path("molecules") if given.arm == "bundled" else given.model
        score_sets(given.arm, model, given.data_root, given.minutes)


if __name__ == "__main__":
    main()
