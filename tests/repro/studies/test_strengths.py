"""The study of strengths: its rule and figures by hand, and that the chosen configuration is the method."""

import numpy as np
import pytest
import torch

from joao.config.recipe import make_recipe
from joao.policies import KullbackLeibler
from repro.studies import strengths as study
from repro.studies.common import read_record


@pytest.fixture(scope="module")
def record():
    return read_record("strengths")


def made(averages):
    """A record in which the candidates have these accuracies, and all else 50."""
    by_way = dict.fromkeys(study.WAYS, 50.0) | dict(zip(study.CANDIDATES, averages, strict=True))
    return {"data": ["A"], "runs": [{"way": way, "data": "A", "accuracy": each} for way, each in by_way.items()]}


def test_rule_matches_a_hand_computation():
    first, second, *_, last = study.CANDIDATES
    assert study.chosen(made([70.0, 70.4, 60, 60, 70.5])) == first
    assert study.chosen(made([69.9, 70.4, 60, 60, 70.5])) == second
    assert study.chosen(made([60, 60, 60, 60, 70.5])) == last


def test_losses_are_compared_at_equal_strengths():
    names = ["a(strength=0.1)", "b(strength=0.1)", "a(strength=0.3)", "same"]
    policy = KullbackLeibler(names)
    losses = torch.rand(4, 4, dtype=torch.float64)
    found, strengths = study.at_equal_strengths(losses, policy), [0.1, 0.1, 0.3, None]
    for i in range(4):
        for j in range(4):
            alike = [
                losses[k, m].item()
                for k in range(4)
                for m in range(4)
                if (strengths[k], strengths[m]) == (strengths[i], strengths[j])
            ]
            assert found[i, j].item() == pytest.approx(losses[i, j].item() - np.mean(alike))


def test_losses_near_the_default_strength():
    policy = KullbackLeibler("ab", prior=[[0.5, 0.5], [0, 0]])
    found = study.near_the_usual(torch.tensor([[1.0, 3.0], [2.0, 9.0]], dtype=torch.float64), policy)
    assert found.tolist() == [[-1, -1], [0, -7]]


def test_record_has_all_runs(record):
    assert len(record["runs"]) == len(study.WAYS) * len(study.DATASETS) * len(study.SEEDS)


def test_method_uses_the_selected_settings(record):
    table, adjust = study.CANDIDATES[study.chosen(record)]
    assert adjust is None
    assert make_recipe(table) == make_recipe({"method": "joao_strengths"})
