"""The history of epochs on the page."""

import json

import numpy as np
import pytest

from joao.report.scores import effective_pairs, history
from joao.training.metrics import EpochMetrics

POOL = ("a(strength=0.1)", "a(strength=0.2)", "b")


def epochs(count, numbers, learns=True):
    found = []
    for epoch in range(1, count + 1):
        p = numbers.random((3, 3))
        losses = numbers.random((3, 3)).tolist() if learns else None
        drawn = numbers.integers(0, 99, (3, 3)).tolist()
        found.append(EpochMetrics(epoch, float(numbers.random()), (p / p.sum()).tolist(), losses, drawn, 0.5, 2.0))
    return found


def test_history_of_all_epochs(numbers):
    metrics = epochs(7, numbers)
    found = history(metrics, POOL, 10_000)
    assert found["epochs"] == found["tables"]["epochs"] == list(range(1, 8))
    assert found["groups"] == ["a", "b"]
    assert found["group"] == [0, 0, 1]
    assert found["seconds"] == 3.5
    for each, p, losses, drawn in zip(
        metrics, *(found["tables"][key] for key in ("probabilities", "losses", "drawn")), strict=True
    ):
        np.testing.assert_allclose(np.divide(p, 1000), np.ravel(each.probabilities), atol=0.00051)
        np.testing.assert_allclose(np.divide(losses, 1000), np.ravel(each.pair_losses), atol=0.00051)
        assert drawn == np.ravel(each.drawn).tolist()


def test_history_of_many_epochs_keeps_all_draws(numbers):
    metrics = epochs(100, numbers)
    found = history(metrics, POOL, 270)
    shown = found["tables"]["epochs"]
    assert (shown[0], shown[-1], len(shown)) == (1, 100, 10)
    total = np.sum([each.drawn for each in metrics], axis=0)
    assert np.sum(found["tables"]["drawn"], axis=0).tolist() == total.ravel().tolist()
    second = np.sum([each.drawn for each in metrics[1 : shown[1]]], axis=0)
    assert found["tables"]["drawn"][1] == second.ravel().tolist()
    assert len(found["loss"]) == 100


def test_history_without_losses_or_epochs(numbers):
    assert history(epochs(2, numbers, learns=False), POOL, 100)["tables"]["losses"] is None
    nothing = history([], POOL, 100)
    assert (nothing["epochs"], nothing["tables"]["epochs"], nothing["tables"]["drawn"]) == ([], [], [])
    json.dumps(nothing)


def test_effective_pairs():
    assert effective_pairs(np.full((5, 5), 1 / 25)) == pytest.approx(25)
    assert effective_pairs([[1.0, 0.0], [0.0, 0.0]]) == 1
    # Two at 0.25, one at 0.5: entropy 1.5 log 2.
    assert effective_pairs([[0.25, 0.25], [0.5, 0]]) == pytest.approx(2**1.5)
