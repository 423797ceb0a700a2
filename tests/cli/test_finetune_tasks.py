"""``joao finetune`` and ``joao predict`` on tables of molecules: several tasks, missing labels, scaffolds, numbers."""

import csv
import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from joao.baselines.forests import FOREST, molecule_columns
from joao.data import read
from joao.evaluation.splits import scaffolds, split_by_scaffold, split_graphs
from joao.runs.finetuning import load_finetuned
from tests.cli.conftest import assert_noted, assert_refused, last_command
from tests.messages import assert_mentions

pytest.importorskip("rdkit")
ROOT = os.environ.get("JOAO_DATA")
needs_data = pytest.mark.skipif(not ROOT, reason="JOAO_DATA is not set")

# 12 skeletons with five chains each, so that a scaffold split has something to part.
RINGS = ["C1CC1", "C1CCC1", "C1CCCC1", "C1CCCCC1", "C1CCCCCC1", "c1ccccc1", "c1ccncc1", "c1ccoc1", "c1ccsc1"]
RINGS += ["C1CCOC1", "C1CCNCC1", "c1ccc2ccccc2c1"]
SMILES = ["C" * tail + ring for ring in RINGS for tail in range(5)]


def rows(path):
    with Path(path).open(newline="") as file:
        return list(csv.reader(file))


def write_table(path, smiles=SMILES, **columns):
    """A table of molecules called m0, m1, ... with further columns."""
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "smiles", *columns])
        for number, each in enumerate(smiles):
            writer.writerow([f"m{number}", each, *(column[number] for column in columns.values())])


def labels(period):
    """0 and 1 by turns, of which every seventh is missing."""
    return ["" if n % 7 == 3 else str(int(n % period == 0)) for n in range(60)]


SIZES = [f"{len(each) * 1.5:g}" for each in SMILES]


@pytest.fixture(scope="module")
def run(joao, tmp_path_factory):
    """A small encoder of atoms and bonds."""
    folder = tmp_path_factory.mktemp("molecules")
    write_table(folder / "plain.csv")
    small = ["--set", "encoder.width=8", "--set", "encoder.layers=2", "--epochs", 2, "--device", "cpu", "--quiet"]
    outcome = joao("pretrain", folder / "plain.csv", "--out", folder / "run", *small)
    assert outcome.code == 0, outcome.err
    return folder / "run"


def figures(line):
    return [float(each) for each in re.findall(r"\d+\.\d+", line)]


def test_tasks_on_a_scaffold_split(joao, run, tmp_path):
    write_table("mine.csv", odd=labels(2), third=labels(3))
    outcome = joao("finetune", run, "mine.csv", "--out", "tuned", "--epochs", 3)
    assert (outcome.code, outcome.err) == (0, "")
    found = load_finetuned(tmp_path / "tuned", device="cpu")
    labelled = [n for n in range(60) if n % 7 != 3]  # both columns have their gaps in the same rows
    split = split_by_scaffold(scaffolds([SMILES[n] for n in labelled]))
    sizes = [len(part) for part in split]
    said = outcome.out.splitlines()
    assert_mentions(said[0], "mine: ", "51", "odd, third")
    assert_mentions(said[1], sizes[0], sizes[1], f"epoch {found.fit.chosen} ")
    assert_mentions(said[2], "ROC-AUC")
    assert_mentions(said[3], "ROC-AUC", "2 tasks", f" {sizes[2]} ")
    # A forest of scikit-learn on the same molecules.
    columns = molecule_columns([SMILES[n] for n in labelled], ["ecfp"])["ecfp"]
    learn, forests = np.concatenate(split[:2]), []
    for truth in (labels(2), labels(3)):
        known = np.array([float(truth[n]) for n in labelled])
        forest = RandomForestClassifier(**FOREST["binary"], random_state=0).fit(columns[learn], known[learn])
        forests.append(roc_auc_score(known[split.test], forest.predict_proba(columns[split.test])[:, 1]))
    assert_mentions(said[4], "ECFP", f"{np.mean(forests):.3f}", f"{found.scores['test']['roc_auc']:.3f}")
    assert len(said) == 6
    assert last_command(outcome) == ["predict", "tuned", "mine.csv", "--out", "predictions.csv"]
    # The test score by hand, from the predictions that the next command writes.
    assert joao(*last_command(outcome)).code == 0
    header, *lines = rows("predictions.csv")
    assert header == ["graph", "p_odd", "p_third"]
    # Some molecules have equal predictions except for rounding, which may put them in either order.
    lowest, highest = [], []
    for column, truth in ((1, labels(2)), (2, labels(3))):
        test = [labelled[place] for place in split.test]
        known, predicted = (np.array([float(each[n]) for n in test]) for each in (truth, [x[column] for x in lines]))
        for areas, order in ((lowest, -1e-7), (highest, 1e-7)):
            areas.append(roc_auc_score(known, predicted.round(5) + order * known))
    assert np.mean(lowest) - 6e-4 <= figures(said[3])[0] <= np.mean(highest) + 6e-4
    record = json.loads((tmp_path / "tuned" / "finetune.json").read_text())
    assert (record["kind"], record["tasks"], record["classes"]) == ("binary", ["odd", "third"], [])
    assert record["info"]["split"] == "scaffold"
    assert record["scores"]["test"]["roc_auc"] == pytest.approx(figures(said[3])[0], abs=6e-4)


def test_predictions_have_blank_rows_for_failures(joao, run):
    write_table("mine.csv", odd=labels(2))
    assert joao("finetune", run, "mine.csv", "--out", "tuned", "--epochs", 1, "--quiet").code == 0
    write_table("new.csv", ["CCO", "", "c1ccccc1", "C1CC(", "CCN"])
    outcome = joao("predict", "tuned", "new.csv", "--out", "new.out.csv")
    assert_noted(outcome, "joao: note: new: ", "2 of 5", "new.out.csv.failures.csv", "line 3", "''")
    assert [line[:3] for line in rows("new.out.csv.failures.csv")[1:]] == [["3", "m1", ""], ["5", "m3", "C1CC("]]
    assert_mentions(outcome.out.splitlines()[0], "new.out.csv: ", "3", "1 task", "2")
    lines = rows("new.out.csv")[1:]
    assert [line[0] for line in lines] == ["m0", "m1", "m2", "m3", "m4"]
    assert [bool(line[1]) for line in lines] == [True, False, True, False, True]
    expected = load_finetuned(Path("tuned"), device="cpu").predict(read(["CCO", "c1ccccc1", "CCN"])).numpy()[:, 0]
    np.testing.assert_allclose([float(lines[n][1]) for n in (0, 2, 4)], expected, rtol=1e-5)
    told = json.loads(joao("predict", "tuned", "new.csv", "--out", "new.npz", "--json", "--quiet").out)
    assert (told["blank"], told["failures"]) == (2, "new.npz.failures.csv")
    with np.load("new.npz", allow_pickle=False) as file:
        np.testing.assert_allclose(file["predicted"][file["row"], 0], expected, rtol=1e-5)
        assert np.isnan(file["predicted"][[1, 3]]).all()
        assert file["graph_names"].tolist() == ["m0", "m1", "m2", "m3", "m4"]
        assert file["columns"].tolist() == ["p_odd"]


def test_regression(joao, run):
    write_table("mine.csv", odd=labels(2), size=SIZES)
    options = ["--tasks", "size", "--split", "random", "--test-share", 0.25, "--epochs", 2]
    outcome = joao("finetune", run, "mine.csv", "--out", "tuned", *options)
    assert (outcome.code, outcome.err) == (0, "")
    said = outcome.out.splitlines()
    assert_mentions(said[0], "mine: ", "60", "size")
    found = load_finetuned(Path("tuned"), device="cpu")
    assert (found.kind, found.info.num_train, found.info.num_validation, found.info.num_test) == ("numbers", 33, 12, 15)
    test = found.scores["test"]
    of_mean = test["tasks"]["size"]["rmse_of_mean"]
    assert_mentions(said[3], f"RMSE {test['rmse']:.4g}", f"{of_mean:.4g}", f"MAE {test['mae']:.4g}", 15)
    outcome = joao("predict", "tuned", "mine.csv", "--out", "all.csv")
    header, *lines = rows("all.csv")
    assert header == ["graph", "size"]
    sizes = np.array([float(size) for size in SIZES])
    errors = np.array([float(line[1]) for line in lines]) - sizes
    learned = sizes[split_graphs(read(SMILES), "random", 0.2, 0.25, seed=0).train].mean()
    of_mean = np.sqrt(((sizes - learned) ** 2).mean())
    line = outcome.out.splitlines()[1]
    figures_of_mine = [np.sqrt((errors**2).mean()), of_mean, np.abs(errors).mean()]
    assert_mentions(line, "RMSE", "MAE", " mine", *(f" {figure:.4g}" for figure in figures_of_mine))


def test_json(joao, run):
    write_table("mine.csv", odd=labels(2))
    told = json.loads(joao("finetune", run, "mine.csv", "--out", "tuned", "--epochs", 1, "--json").out)
    found = load_finetuned(Path("tuned"), device="cpu")
    assert {key: told[key] for key in ("kind", "tasks", "split", "test_graphs")} == {
        "kind": "binary", "tasks": ["odd"], "split": "scaffold", "test_graphs": found.info.num_test,
    }  # fmt: skip
    assert told["scores"] == found.scores
    told = json.loads(joao("predict", "tuned", "mine.csv", "--out", "all.csv", "--json").out)
    assert (told["graphs"], told["blank"], told["fine_tuned_on"]) == (60, 0, True)
    assert 0 <= told["scores"]["tasks"]["odd"]["roc_auc"] <= 1


def test_tasks_of_a_packed_file(joao, run):
    write_table("mine.csv", odd=labels(2), size=SIZES, third=labels(3))
    assert joao("pack", "mine.csv", "--out", "mine.safetensors").code == 0
    for number, source in enumerate(("mine.csv", "mine.safetensors")):
        outcome = joao("finetune", run, source, "--tasks", "third,odd", "--out", f"tuned{number}", "--epochs", 1)
        assert outcome.code == 0, outcome.err
    table, packed = (load_finetuned(Path(f"tuned{number}"), device="cpu") for number in range(2))
    assert table.tasks == packed.tasks == ("third", "odd")
    assert table.scores == packed.scores
    outcome = joao("finetune", run, "mine.safetensors", "--tasks", "add", "--out", "tuned")
    assert_refused(outcome, "joao: mine.safetensors: ", "'add'", "'odd'", "odd, size, third")


def test_a_task_with_a_comma_in_its_name(joao, run):
    columns = {"odd, third": labels(2), "odd": labels(3), "third": labels(4)}
    write_table("mine.csv", **columns)
    assert joao("pack", "mine.csv", "--out", "mine.safetensors").code == 0
    cases = [
        (["--tasks", "odd, third"], ("odd, third",)),
        (["--tasks", "third,odd"], ("third", "odd")),
        (["--task", "odd, third", "--task", "third"], ("odd, third", "third")),
        (["--tasks", "third", "--task", "odd, third"], ("third", "odd, third")),
    ]
    for number, (options, tasks) in enumerate(cases):
        for source in ("mine.csv", "mine.safetensors"):
            out = f"{source}-{number}"
            outcome = joao("finetune", run, source, *options, "--out", out, "--epochs", 1, "--quiet")
            assert outcome.code == 0, outcome.err
            assert load_finetuned(Path(out), device="cpu").tasks == tasks
    for empty in ("", ","):
        assert_refused(joao("finetune", run, "mine.csv", "--tasks", empty, "--out", "tuned"), "--tasks")
    outcome = joao("finetune", run, "mine.csv", "--task", "third,odd", "--out", "tuned")
    assert_refused(outcome, "joao: mine.csv:1: ", "'third,odd'")
    outcome = joao("finetune", run, "nowhere.csv", "--tasks", "odd", "--out", "tuned")
    assert_refused(outcome, "joao: nowhere.csv: ")


def test_packed_molecules_without_smiles_are_split_at_random(joao, run):
    write_table("mine.csv", odd=labels(2))
    assert joao("pack", "mine.csv", "--out", "bare.safetensors", "--no-smiles").code == 0
    assert joao("pack", "mine.csv", "--out", "full.safetensors", "--no-smiles", "--scaffolds").code == 0
    for name, options in (("bare", []), ("bare", ["--split", "random"]), ("full", [])):
        out = f"{name}{len(options)}"
        outcome = joao("finetune", run, f"{name}.safetensors", "--out", out, "--epochs", 1, *options)
        if out == "bare0":
            assert_noted(outcome, "joao: note: bare: ", "SMILES", "--scaffolds")
        else:
            assert (outcome.code, outcome.err) == (0, "")


def test_labels_minus_one_and_one_give_a_notice(joao, run):
    write_table("mine.csv", y=[str(n % 2 * 2 - 1) for n in range(60)])
    outcome = joao("finetune", run, "mine.csv", "--out", "tuned", "--epochs", 1)
    assert_noted(outcome, "joao: note: mine: ", "-1 and 1", "0 and 1")
    assert re.search(r"\by\b", outcome.err)
    assert load_finetuned(Path("tuned"), device="cpu").kind == "numbers"


def test_a_run_on_other_graphs_is_refused(joao, mutag_run):
    write_table("mine.csv", odd=labels(2))
    outcome = joao("finetune", mutag_run, "mine.csv", "--out", "tuned")
    assert outcome.out == ""
    assert_refused(outcome, "joao: mine.csv: ", "2", " 1")


def test_tasks_of_two_kinds_are_not_mixed(joao, run, tmp_path):
    write_table("mine.csv", size=SIZES, odd=labels(2), mass=SIZES)
    outcome = joao("finetune", run, "mine.csv", "--split", "random", "--epochs", 1, "--device", "cpu", "--out", "tuned")
    assert_noted(outcome, "size", "mass", "--task 'size'")
    assert load_finetuned(tmp_path / "tuned").tasks == ("odd",)


def test_tasks_cannot_be_evaluated(joao, run, mutag_tuned):
    write_table("mine.csv", odd=labels(2))
    outcome = joao("evaluate", run, "mine.csv")
    assert outcome.out == ""
    assert_refused(outcome, "joao: mine.csv: ", "joao finetune --frozen")
    assert_refused(joao("evaluate", mutag_tuned, "nowhere.csv"), "joao: evaluate: ", "fine-tuned")


def test_text_columns_give_a_notice(joao, run):
    write_table("mine.csv", odd=labels(2), note=["1"] * 59 + ["see text"])
    outcome = joao("finetune", run, "mine.csv", "--out", "tuned", "--epochs", 1)
    assert_noted(outcome, "joao: note: mine: ", "'note'", "line 61", "'see text'")
    assert load_finetuned(Path("tuned"), device="cpu").tasks == ("odd",)
    write_table("new.csv", odd=[">1" if n == 9 else "1" for n in range(60)])
    outcome = joao("predict", "tuned", "new.csv", "--out", "p.csv")
    assert_noted(outcome, "joao: note: new: ", "'odd'", "line 11", "'>1'")
    assert len(rows("p.csv")) == 61


def test_a_test_set_of_one_class_has_no_score(joao, run):
    last = split_by_scaffold(scaffolds(SMILES)).test
    odd = ["1" if n in last else str(n % 2) for n in range(60)]
    write_table("mine.csv", odd=odd)
    outcome = joao("finetune", run, "mine.csv", "--out", "tuned", "--epochs", 1)
    assert outcome.code == 0
    assert_mentions(outcome.out.splitlines()[3], "ROC-AUC", f" {len(last)} ", "--split random", "--test-share")
    assert json.loads(Path("tuned/finetune.json").read_text())["scores"]["test"]["roc_auc"] is None


@pytest.mark.parametrize(
    ("columns", "options", "values"),
    [
        ({}, [], ["joao: mine.csv: "]),
        ({"odd": labels(2), "size": SIZES}, ["--tasks", "odd,size"], ["odd", "size", "--tasks"]),
        ({"odd": labels(2)}, ["--tasks", "add"], ["joao: mine.csv:1: ", "'add'", "'odd'"]),
        ({"odd": ["yes", "no"] * 30}, ["--tasks", "odd"], ["joao: mine.csv:2: ", "'odd'", "'yes'"]),
        ({"odd": ["yes", "no"] * 30}, [], ["joao: mine.csv: "]),
        ({"odd": [""] * 60}, ["--tasks", "odd"], ["joao: mine.csv: ", " odd"]),
        ({"odd": ["1"] * 60}, [], ["joao: mine.csv: ", " 45 ", "0 and 1", "odd"]),
        ({"odd": ["2.5"] * 60}, [], ["joao: mine.csv: ", " 45 ", "odd"]),
        ({"odd": ["1", "0"] + [""] * 58}, [], ["joao: mine.csv: ", " 2"]),
        ({"odd": labels(2)}, ["--split", "skeleton"], ["split: ", "'skeleton'"]),
        ({"odd": labels(2)}, ["--test-share", 0.95], ["test", "0.95", "0.1"]),
    ],
)
def test_invalid_tasks(joao, run, columns, options, values, tmp_path):
    write_table("mine.csv", **columns)
    outcome = joao("finetune", run, "mine.csv", "--out", "tuned", *options)
    assert outcome.code == 2
    said = [line for line in outcome.err.splitlines() if not line.startswith("joao: note: ")]
    assert len(said) == 1
    assert_mentions(said[0], *values)
    assert not (tmp_path / "tuned").exists()


def test_scaffold_split_needs_molecules(joao, mutag_run):
    outcome = joao("finetune", mutag_run, "MUTAG", "--out", "tuned", "--split", "scaffold")
    assert outcome.out == ""
    assert_refused(outcome, "joao: MUTAG: ", "scaffold")
    outcome = joao("finetune", mutag_run, "MUTAG", "--out", "tuned", "--epochs", 1, "--test-share", 0.2)
    found = load_finetuned(Path("tuned"), device="cpu")
    assert_mentions(outcome.out.splitlines()[3], f"{100 * found.scores['test']['accuracy']:.1f} %", " 38 ")


@needs_data
def test_bace(joao, run, tmp_path):
    """Every seventh of its molecules."""
    with gzip.open(Path(ROOT) / "molecules" / "bace.csv.gz", "rt") as file:
        header, *lines = file.read().splitlines()
    (tmp_path / "bace.csv").write_text("\n".join([header, *lines[::7]]) + "\n")
    outcome = joao("finetune", run, "bace.csv", "--out", "tuned", "--epochs", 3, "--split", "scaffold")
    assert outcome.code == 0, outcome.err
    found = load_finetuned(tmp_path / "tuned", device="cpu")
    smiles, classes = zip(*(line.rsplit(",", 1) for line in lines[::7]), strict=True)
    split = split_by_scaffold(scaffolds(smiles))
    predicted = found.predict(read([smiles[n] for n in split.test])).numpy()[:, 0]
    area = roc_auc_score([int(classes[n]) for n in split.test], predicted)
    assert figures(outcome.out.splitlines()[3])[0] == pytest.approx(area, abs=6e-4)
    ones = [int(each) for each in classes].count(1)
    assert list(found.info.labels_per_task["Class"]) == [len(classes) - ones, ones]


def test_the_split_of_a_column_is_kept(joao, run, tmp_path):
    """Oracle: the test error by hand, from the predictions of the rows that the column names."""
    parts = ["valid" if n % 10 == 4 else "Test" if n % 10 > 6 else "train" for n in range(60)]
    size = ["" if n % 7 == 3 else each for n, each in enumerate(SIZES)]
    write_table("mine.csv", size=size, part=parts)
    outcome = joao("finetune", run, "mine.csv", "--task", "size", "--split", "part", "--out", "tuned", "--epochs", 3)
    assert (outcome.code, outcome.err) == (0, "")
    found = load_finetuned(tmp_path / "tuned", device="cpu")
    labelled = [n for n in range(60) if n % 7 != 3]
    test = [n for n in labelled if parts[n] == "Test"]
    validation = [n for n in labelled if parts[n] == "valid"]
    info = found.info
    assert (info.num_train, info.num_validation) == (len(labelled) - len(test) - len(validation), len(validation))
    assert (info.split, info.num_test, info.test_share) == ("given", len(test), len(test) / len(labelled))
    assert joao("predict", "tuned", "mine.csv", "--out", "predictions.csv").code == 0
    predicted = np.array([float(line[1]) for line in rows("predictions.csv")[1:]])
    errors = predicted[test] - [float(SIZES[n]) for n in test]
    assert found.scores["test"]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--split", "prt"], ["prt", "part"]),
        (["--split", "size"], ["train", "validation", "test", SIZES[0]]),
        (["--split", "part", "--test-share", 0.2], ["--test-share", 0.2]),
        (["--split", "part", "--validation-share", 0.2], ["--validation-share", 0.2]),
        (["--split", "one"], [60, 0]),
    ],
)
def test_split_columns_that_cannot_be_used(joao, run, words, named, tmp_path):
    write_table("mine.csv", size=SIZES, part=["train", "test"] * 30, one=["train"] * 60)
    outcome = joao("finetune", run, "mine.csv", "--task", "size", "--out", "tuned", "--epochs", 3, *words)
    assert_refused(outcome, "mine", *named)
    assert not (tmp_path / "tuned").exists()
