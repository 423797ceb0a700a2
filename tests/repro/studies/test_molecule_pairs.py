"""Study of augmentation pairs on molecules: what its page concludes from records, and its scorer."""

from dataclasses import asdict

import numpy as np
import pytest

from repro.studies import molecule_pairs
from repro.studies.molecule_tables import SETS


def make_records(gains=None, inside=None, seeds=(0, 1)):
    """Errors of 0.8 and noise that differs between sets and seeds, less ``gains``."""
    for cell in molecule_pairs.cells((), 4):
        if cell.seed not in seeds:
            continue
        noise = np.random.default_rng([cell.seed, molecule_pairs.METHODS.index(cell.method)]).normal(0, 1e-3, len(SETS))
        errors = 0.8 + noise - (gains or {}).get(cell.method, 0)
        loo = np.full(len(SETS), 0.7 - (inside or {}).get(cell.method, 0))
        fields = {"errors": errors, "leave-one-out errors": loo}
        yield {"cell": asdict(cell), **{name: dict(zip(SETS, each, strict=True)) for name, each in fields.items()}}


def verdicts(records):
    rows = [line.strip("| ").split(" | ") for line in molecule_pairs.page(list(records)).splitlines()]
    return {row[0]: row[4] for row in rows if len(row) == 6}


@pytest.mark.parametrize("seeds", molecule_pairs.ROUNDS.values(), ids=molecule_pairs.ROUNDS)
def test_only_the_method_with_a_gain_is_better(seeds):
    found = verdicts(make_records({"joaov2": 0.05, "subgraph+subgraph": -0.05}, seeds=seeds))
    assert found["joaov2"] == "better"
    assert found["subgraph+subgraph"] == "worse"
    assert found["joao"] == "inconclusive"


def test_variance_over_pre_trainings_is_added():
    """A shift of all errors of a seed, as by a lucky pre-training, is in this interval and not in that over sets."""
    records = list(make_records({"joao": 0.002}, seeds=(2, 3)))
    for number, record in enumerate(records):
        shift = 0.01 * (-1) ** (number % 2)
        record["errors"] = {name: error + shift for name, error in record["errors"].items()}
    errors = molecule_pairs.compared(records)
    found, variance = molecule_pairs.estimate_with_seeds(errors, records)
    means = {method: [] for method in molecule_pairs.METHODS}
    for record in records:
        means[record["cell"]["method"]].append(np.mean([*record["errors"].values()]))
    by_hand = np.mean([(one - other) ** 2 / 2 for one, other in means.values()])
    assert variance == pytest.approx(by_hand)
    over_sets = (errors["joao"] - errors["uniform"]).var(ddof=1) / len(SETS)
    assert found["joao"].variance == pytest.approx(over_sets + by_hand)
    assert found["joao"].mean == pytest.approx((errors["joao"] - errors["uniform"]).mean())


def test_nothing_is_concluded_from_unfinished_runs():
    assert molecule_pairs.compared(list(make_records())[:-20]) == {}


def test_ridge_agrees_with_leaving_out_each_molecule():
    generator = np.random.default_rng(0)
    x, noise = generator.normal(size=(12, 2)), generator.normal(0, 0.5, 12)
    y = x @ [1.0, -2] + noise
    predicted, error = molecule_pairs.ridge(x, y, x)
    z = (x - x.mean(0)) / x.std(0)

    def solve(rows, labels, penalty, new):
        shift, mean = rows.mean(0), labels.mean()
        centred = rows - shift
        return mean + (new - shift) @ np.linalg.solve(
            centred.T @ centred + penalty * np.eye(2), centred.T @ (labels - mean)
        )

    squares = {
        penalty: np.mean([(y[i] - solve(np.delete(z, i, 0), np.delete(y, i), penalty, z[i])) ** 2 for i in range(12)])
        for penalty in np.logspace(-1, 5, 13)
    }
    best = min(squares, key=squares.get)
    assert error == pytest.approx(np.sqrt(squares[best]))
    np.testing.assert_allclose(predicted, solve(z, y, best, z))


def test_forest_stays_within_the_training_labels_and_is_tested_out_of_bag():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 3))
    y = np.sign(x[:, 0]) + generator.normal(0, 0.5, 300)
    predicted, error = molecule_pairs.forest(x, y, 1e6 * x, "numbers")
    assert y.min() <= predicted.min() < predicted.max() <= y.max()
    assert 0.5 < error < 0.7  # the noise alone is 0.5; on the trees' own training molecules the error would be below it


def test_forest_of_random_labels_is_as_good_as_chance_out_of_bag():
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(400, 3)), generator.integers(0, 2, 400).astype(float)
    predicted, error = molecule_pairs.forest(x, y, x, "binary")
    assert error == pytest.approx(0.5, abs=0.1)
    assert ((predicted > 0.5) == y).mean() > 0.9
