"""Comparison on tables of molecules. Oracles: hand computations from the recorded folds, and scikit-learn's metrics."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import joao
from joao.comparison import molecules
from joao.comparison.molecule_table import METHODS, WITH_ENCODER, TableComparison
from joao.comparison.molecules import Labelled, TablePlan, Work, compare_table, predict_split
from joao.evaluation.splits import given_split, molecule_folds, scaffolds
from tests.messages import refused

pytest.importorskip("rdkit")

RINGS = [
    "c1ccccc1",
    "c1ccncc1",
    "C1CCCCC1",
    "C1CCNCC1",
    "c1ccsc1",
    "c1ccoc1",
    "C1CCOC1",
    "c1cc[nH]c1",
    "C1CC1",
    "C1CCC1",
]
CHAINS = ["C", "CC", "CCO", "CCN", "ClCC"]


def make_table(labels=("active",)):
    """Fifty molecules of ten scaffolds; the first label is 1 with nitrogen, the second the number of letters."""
    smiles = [f"{chain}{ring}" for ring in RINGS for chain in CHAINS]
    columns = {"active": [float("n" in text.lower()) for text in smiles], "size": [float(len(text)) for text in smiles]}
    dataset = joao.read(smiles)
    targets = np.array([columns[name] for name in labels], dtype=np.float32).T
    return molecules.replace(dataset, targets=targets, target_names=tuple(labels))


@pytest.fixture
def quick():
    """One epoch."""
    return TablePlan(folds=2, epochs=1, device="cpu")


def test_folds_keep_scaffolds_together_and_use_every_molecule_once():
    table = make_table()
    groups = np.array(scaffolds(table.smiles))
    folds = molecule_folds(table, "scaffold", 3, 0)
    assert sorted(np.concatenate([fold.test for fold in folds]).tolist()) == list(range(50))
    for fold in folds:
        parts = [{*groups[part]} for part in fold]
        assert sorted(np.concatenate(fold).tolist()) == list(range(50))
        assert sum(map(len, parts)) == len(set.union(*parts)) == 10
        assert len(fold.validation) >= 1
    other = molecule_folds(table, "scaffold", 3, 1)
    assert [fold.test.tolist() for fold in folds] != [fold.test.tolist() for fold in other]


def test_random_folds_are_stratified_and_keep_duplicates_together():
    table = make_table()
    doubled = molecules.replace(
        joao.read([*table.smiles, "OCC" + RINGS[0], *table.smiles]),
        targets=np.concatenate([table.targets, [[0.0]], table.targets]),
    )
    for fold in molecule_folds(doubled, "random", 5, 0):
        twins = (fold.test + 51)[fold.test < 50]
        assert {*twins.tolist()} <= {*fold.test.tolist()}
        assert doubled.targets[fold.test].mean() == pytest.approx(doubled.targets.mean(), abs=0.1)


def test_too_few_scaffolds_for_the_folds():
    with refused("10", "6 folds", "random"):
        molecule_folds(make_table(), "scaffold", 6, 0)


def test_given_split():
    table = make_table()
    split = given_split(table, ["train"] * 30 + ["valid"] * 5 + ["Test"] * 15)
    assert [part.tolist() for part in split] == [list(range(30)), list(range(30, 35)), list(range(35, 50))]
    without = given_split(table, ["train"] * 30 + ["test"] * 20)
    assert sorted([*without.train, *without.validation]) == list(range(30))
    assert len(without.validation) == 3
    with refused("molecule 2", "'hold'", "train"):
        given_split(table, ["train", "test", "hold"] * 16 + ["train"] * 2)
    with refused("0 for testing"):
        given_split(table, ["train"] * 50)


def test_record_has_every_method_and_its_scores_by_hand(quick):
    table = make_table()
    states = []
    comparison = compare_table(table, quick, on_state=lambda *each: states.append(each))
    texts, done, totals = zip(*states, strict=True)
    assert set(totals) == {4}
    assert list(done) == sorted(done)
    assert done[-1] == 4
    assert {f"seed 0, fold {fold}: ecfp" for fold in (1, 2)} < set(texts)
    assert [row.method for row in comparison.rows] == list(METHODS)
    assert comparison.record["unlabelled"] == 0
    data = Labelled(table, "binary", molecules.molecule_columns(table.smiles, ("ecfp", "descriptors")))
    expected = []
    for fold in molecule_folds(table, "scaffold", 2, 0):
        predicted, seconds = predict_split(Work(fold, 0, ("mean", "ecfp"), 0), data=data, plan=quick)
        expected.append(roc_auc_score(table.targets[fold.test, 0], predicted["ecfp"][:, 0]))
        assert np.unique(predicted["mean"]) == pytest.approx(table.targets[np.concatenate(fold[:2])].mean())
        assert seconds.keys() == {"mean", "ecfp"}
    metrics = comparison.record["methods"]["ecfp"]["metrics"]
    assert metrics == {"roc_auc": [pytest.approx(expected)]}
    assert comparison.record["methods"]["mean"]["metrics"]["roc_auc"] == [[0.5, 0.5]]


def test_labels_of_test_molecules_reach_no_model(quick):
    table = make_table(("size",))
    (fold, _) = molecule_folds(table, "scaffold", 2, 0)
    changed = table.targets.copy()
    changed[fold.test] += 100
    columns = molecules.molecule_columns(table.smiles, ("ecfp", "descriptors"))
    columns["encoder"] = columns["descriptors"]
    work = Work(fold, 0, [name for name in METHODS if name != "ensemble"], 0)
    before, after = (
        predict_split(work, data=Labelled(molecules.replace(table, targets=targets), "numbers", columns), plan=quick)[0]
        for targets in (table.targets, changed)
    )
    for name in before:
        assert (before[name] == after[name]).all(), name


def test_given_split_has_seeds_and_missing_labels_are_left_out(quick):
    table = make_table(("active", "size"))
    table.targets[[0, 7], :] = np.nan
    notices = []
    comparison = compare_table(
        table, quick, split=["train", "train", "test"] * 16 + ["test"] * 2, on_notice=notices.append
    )
    assert comparison.record["unlabelled"] == 2
    assert comparison.record["tasks"] == ["active"]
    assert "size" in notices[0]
    assert np.shape(comparison.record["methods"]["ecfp"]["metrics"]["roc_auc"]) == (3, 1)
    assert comparison.record["protocol"]["split"] == "given"


def test_continues_after_an_interruption(quick, tmp_path, monkeypatch):
    table, path = make_table(), tmp_path / "record.json"
    whole = compare_table(table, quick, out=tmp_path / "whole.json").record
    fits = []

    def two_fits(work, *arguments, **options):
        if len(fits) == 2:
            raise KeyboardInterrupt
        fits.append((work.methods, work.fold))
        return predict_split(work, *arguments, **options)

    monkeypatch.setattr(molecules, "predict_split", two_fits)
    with pytest.raises(KeyboardInterrupt):
        compare_table(table, quick, out=path)
    assert fits == [(("finetuned",), 0), (("finetuned",), 1)]
    kept = json.loads(path.read_text())["methods"]
    assert kept["finetuned"]["metrics"] == whole["methods"]["finetuned"]["metrics"]
    assert kept["ecfp"]["metrics"] == {"roc_auc": [[None, None]]}
    monkeypatch.setattr(molecules, "predict_split", predict_split)
    states = []
    again = compare_table(table, quick, on_state=lambda *each: states.append(each), out=path).record
    assert {total for *_, total in states} == {2}
    assert json.loads(path.read_text()) == json.loads(json.dumps(again))
    for name, entry in whole["methods"].items():
        assert again["methods"][name]["metrics"] == entry["metrics"], name
    monkeypatch.setattr(molecules, "predict_split", None)  # nothing is left to compute
    assert compare_table(table, quick, out=path).record == again


def test_ensemble_is_the_mean_of_its_members_and_takes_their_time(quick):
    table = make_table(("size",))
    (fold, _) = molecule_folds(table, "scaffold", 2, 0)
    columns = molecules.molecule_columns(table.smiles, ("ecfp", "descriptors"))
    columns["encoder"] = columns["descriptors"]
    methods = [*molecules.MEMBERS, "ensemble"]
    predicted, seconds = predict_split(Work(fold, 0, methods, 0), data=Labelled(table, "numbers", columns), plan=quick)
    parts = [predicted[name] for name in molecules.MEMBERS]
    assert predicted["ensemble"] == pytest.approx((parts[0] + parts[1] + parts[2]) / 3)
    assert seconds["ensemble"] >= sum(seconds[name] for name in molecules.MEMBERS)


def test_other_records_are_not_continued(quick, tmp_path, monkeypatch):
    table, path = make_table(), tmp_path / "record.json"
    compare_table(table, quick, out=path)
    monkeypatch.setattr(molecules, "predict_split", None)  # nothing is computed
    text = path.read_text()
    other_labels = molecules.replace(table, targets=1 - table.targets)
    for data, plan, value in (
        (table, replace(quick, epochs=2), "plan"),
        (table, replace(quick, folds=3), "plan"),
        (other_labels, quick, "data"),
    ):
        with refused(path.name, value):
            compare_table(data, plan, out=path)
    for old, new, values in (
        ("table of molecules", "comparison", ["protocol"]),
        ('"ensemble"', '"ensembles"', ["ensemble"]),
        ("{", "[", []),
        ("0.5", "[0.5]", ["mean"]),
    ):
        path.write_text(text.replace(old, new, 1))
        with refused(path.name, *values):
            compare_table(table, quick, out=path)
    assert path.read_text() == text.replace("0.5", "[0.5]", 1)


def test_only_scores_are_read_from_a_record_and_infinite_ones_are_refused(quick, tmp_path, monkeypatch):
    table, path = make_table(), tmp_path / "record.json"
    record = compare_table(table, quick, out=path).record
    damaged = json.loads(path.read_text())
    del damaged["sizes"]
    damaged["methods"]["tanimoto"]["seconds"][0][1] = None  # so that its group counts as missing in this fold
    path.write_text(json.dumps(damaged))
    fits = []

    def count(work, *arguments, **options):
        fits.append(repr(work))
        return predict_split(work, *arguments, **options)

    monkeypatch.setattr(molecules, "predict_split", count)
    again = compare_table(table, quick, out=path)
    assert len(fits) == 1
    assert fits[0].startswith("seed 0, fold 2: mean, ecfp")
    assert again.heading == TableComparison(record).heading

    def overflow(work, *arguments, **options):
        predicted, seconds = predict_split(work, *arguments, **options)
        return {name: np.full_like(values, 1e300) for name, values in predicted.items()}, seconds

    monkeypatch.setattr(molecules, "predict_split", overflow)
    with np.errstate(over="ignore"), refused("finetuned", "fold 1", "rmse"):
        compare_table(make_table(("size",)), quick)


def of_values(kind, **values):
    """A comparison with made-up values of the first metric, one per fold."""
    metric = "roc_auc" if kind == "binary" else "rmse"
    other = {} if kind == "binary" else {"mae": [[1.0] * 4], "spearman": [[None] * 4]}
    methods = {
        name: {"what": "", "metrics": {metric: [values.get(name, values["others"])], **other}, "seconds": [[1.0] * 4]}
        for name in METHODS
    }
    return TableComparison(
        {
            "kind": kind,
            "methods": methods,
            "data": {"name": "table", "molecules": 9},
            "tasks": ["t"],
            "unlabelled": 0,
            "sizes": [[[5, 1, 3]] * 4],
            "protocol": {"split": "scaffold"},
            "plan": {"model": "molecules", "folds": 4, "partitions": 1},
        }
    )


@pytest.mark.parametrize(
    ("kind", "encoder", "helps", "method"),
    [
        ("binary", [0.9, 0.91, 0.9, 0.91], "yes", "finetuned"),
        ("binary", [0.3, 0.31, 0.3, 0.31], "no", "descriptors"),
        ("binary", [0.9, 0.3, 0.8, 0.4], "cannot be told", "ecfp"),
        ("numbers", [0.1, 0.11, 0.1, 0.11], "yes", "finetuned"),
        ("numbers", [0.9, 0.91, 0.9, 0.91], "no", "descriptors"),
    ],
)
def test_verdict_follows_the_sign_of_the_metric(kind, encoder, helps, method):
    forest = [0.6, 0.61, 0.59, 0.6]
    slightly_better = [value + (0.001 if kind == "binary" else -0.001) for value in forest]
    others = [name for name in WITH_ENCODER if name != "finetuned"]
    encoders = dict.fromkeys(others, [0.3] * 4 if kind == "binary" else [0.9] * 4)
    comparison = of_values(kind, others=forest, descriptors=slightly_better, finetuned=encoder, **encoders)
    assert comparison.verdict[0] == helps
    assert method in comparison.verdict[1] or helps == "cannot be told"
    row = next(row for row in comparison.rows if row.method == "finetuned")
    assert row.difference.mean == pytest.approx(np.mean(encoder) - np.mean(forest))
    assert "finetuned" in repr(comparison)


@pytest.mark.parametrize(("kind", "best", "worst"), [("binary", 0.9, 0.2), ("numbers", 0.2, 0.9)])
def test_best_method_with_an_encoder(kind, best, worst):
    comparison = of_values(kind, others=[0.5] * 4, ensemble=[best] * 4, finetuned=[worst] * 4)
    assert comparison.best_with_encoder == "ensemble"
    comparison = of_values(kind, others=[0.5] * 4, ecfp=[best] * 4, frozen_linear=[0.51 if best > 0.5 else 0.49] * 4)
    assert comparison.best_with_encoder == "frozen_linear"


def test_graphs_without_smiles_are_refused():
    with refused("MUTAG", "SMILES"):
        compare_table(joao.read("MUTAG"), TablePlan())


@pytest.mark.parametrize(("option", "value"), [("split", "time"), ("folds", 1), ("epochs", 0), ("partitions", 0)])
def test_bad_options(option, value):
    with refused("compare", value):
        TablePlan(**{option: value})
