"""The study of chemprop beside joao, with a program in the place of chemprop. Oracles: figures by hand."""

import stat
import sys
from dataclasses import replace

import numpy as np
import pytest

from joao.core.errors import UserError
from repro.studies import molecule_rivals as study
from repro.studies.molecule_tables import SETS
from tests.messages import assert_mentions

# Takes the arguments of chemprop; predicts the mean of the training labels plus the length of the SMILES.
FAKE = """#!{python}
import csv, json, pathlib, sys
words = sys.argv[1:]
given = {{word: words[place + 1] for place, word in enumerate(words) if word.startswith("--")}}
if words[0] == "train":
    rows = list(csv.DictReader(open(given["--data-path"])))
    assert given["--task-type"] == "regression", given
    assert [row["part"] for row in rows] == sorted(row["part"] for row in rows)
    start = words.index("--target-columns") + 1
    names = words[start : words.index("--splits-column")]
    learn = [row for row in rows if row["part"] == "train"]
    labels = {{name: [float(row[name]) for row in learn if row[name]] for name in names}}
    folder = pathlib.Path(given["--output-dir"]) / "model_0"
    folder.mkdir(parents=True)
    means = {{name: sum(found) / len(found) for name, found in labels.items()}}
    (folder / "best.pt").write_text(json.dumps(means))
else:
    means = json.loads(pathlib.Path(given["--model-paths"]).read_text())
    rows = list(csv.DictReader(open(given["--test-path"])))
    assert list(rows[0]) == ["smiles"], rows[0]
    lines = [[row["smiles"], *(mean + len(row["smiles"]) for mean in means.values())] for row in rows]
    csv.writer(open(given["--output"], "w")).writerows([["smiles", *means], *lines])
"""


@pytest.fixture
def chemprop(tmp_path):
    path = tmp_path / "chemprop"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def table(tmp_path):
    pytest.importorskip("rdkit")
    parts = ["train"] * 18 + ["validation"] * 2 + ["test"] * 4
    rows = [f"{'C' * (number + 1)},{number % 5},{part}\n" for number, part in enumerate(parts)]
    folder = tmp_path / "molecules_dev"
    folder.mkdir()
    (folder / "ace_tiny.csv").write_text("smiles,activity,split\n" + "".join(rows))
    return study.load("ace_tiny", tmp_path)


def test_chemprop_learns_from_two_parts_and_predicts_the_third(chemprop, table, tmp_path):
    seconds = study.train_chemprop(chemprop, table, tmp_path)
    smiles = [table.dataset.smiles[row] for row in table.split.test]
    predicted, _ = study.predict_chemprop(chemprop, smiles, tmp_path)
    mean = np.mean([number % 5 for number in range(18)])
    np.testing.assert_allclose(predicted[:, 0], [mean + number + 1 for number in range(20, 24)])
    assert seconds > 0
    labels = np.array([number % 5 for number in range(24)])
    error = np.sqrt(np.mean((predicted[:, 0] - labels[20:]) ** 2)) / labels[:20].std()
    assert study.test_error(predicted, table) == pytest.approx(error)


def test_chemprop_learns_several_tasks_with_missing_labels(chemprop, table, tmp_path):
    several = np.stack([table.dataset.targets[:, 0], np.arange(24)], axis=1).astype(np.float32)
    several[[3, 4, 20], 1] = np.nan
    dataset = replace(table.dataset, targets=several, target_names=("one", "two"))
    study.train_chemprop(chemprop, table._replace(dataset=dataset), tmp_path)
    predicted, _ = study.predict_chemprop(chemprop, ["CC", "CCCC"], tmp_path, tasks=2)
    means = [np.mean(several[:18, 0]), np.nanmean(several[:18, 1])]
    np.testing.assert_allclose(predicted, [[mean + length for mean in means] for length in (2, 4)], rtol=1e-6)


def test_a_failing_program_is_named(tmp_path):
    with pytest.raises(UserError) as info:
        study.run(["bash", "-c", "echo broken >&2; exit 3"])
    assert_mentions(info.value, "bash", "broken")


def record(name, ecfp, ensemble, chemprop):
    errors = {"ecfp": ecfp, "ensemble": ensemble, "chemprop": chemprop}
    return {
        "cell": {"part": "errors", "name": name},
        "errors": errors,
        "seconds": {"ecfp": 1.0, "ensemble": 2.0, "chemprop": 30.0},
        "sizes": [1, 1, 1],
        "encoder": "abc",
        "versions": {"chemprop": "2"},
    }


def lines_of(records):
    return {row[0]: row for line in study.page(records).splitlines() if (row := line.strip("| ").split(" | "))}


def test_verdicts_need_five_sets_and_an_interval_without_0():
    records = [record(name, 0.6 + number / 50, 0.5, 0.7 + number / 40) for number, name in enumerate(SETS[:5])]
    found = lines_of(records)
    chemprop, ensemble = study.METHODS["chemprop"], study.METHODS["ensemble"]
    assert found[f"{chemprop}, minus {study.METHODS['ecfp']}"][2] == "worse"
    assert found[f"{ensemble}, minus {study.METHODS['ecfp']}"][2] == "better"
    assert found[chemprop][2] == "150"
    mixed = [record(name, 0.6, 0.5, 0.6 + (-1) ** number / 10) for number, name in enumerate(SETS[:6])]
    assert lines_of(mixed)[f"{chemprop}, minus {study.METHODS['ecfp']}"][2] == "inconclusive"
    few = lines_of(records[:4])[f"{ensemble}, minus {study.METHODS['ecfp']}"]
    assert_mentions(few[2], "5 sets")


def test_start_and_rate_are_those_of_a_straight_line():
    commands = {"x": {str(study.SMALL): 3 + study.SMALL / 50, str(study.LARGE): 3 + study.LARGE / 50}}
    speed = {
        "cell": {"part": "speed", "name": study.SPEED_SET},
        "fingerprints": {"ours": 1000.0},
        "equal": True,
        "commands": commands,
        "machine": {"processor": "p"},
        "versions": {"scikit-fingerprints": "2", "its rdkit": "1", "rdkit": "1", "chemprop": "2"},
    }
    assert lines_of([speed])["`x`"][1:3] == ["3.0", "50"]
