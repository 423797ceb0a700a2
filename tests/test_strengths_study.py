"""The study of strengths: its rule and figures by hand, and that the chosen configuration is the method."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from joao.config.recipe import make_recipe
from joao.policies import KullbackLeibler

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("strengths_study", ROOT / "repro/studies" / "strengths.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / "results/strengths.json").read_text(encoding="utf-8"))


def made(study, averages):
    """A record in which the candidates have these accuracies, and all else 50."""
    by_way = dict.fromkeys(study.WAYS, 50.0) | dict(zip(study.CANDIDATES, averages, strict=True))
    return {"data": ["A"], "runs": [{"way": way, "data": "A", "accuracy": each} for way, each in by_way.items()]}


def test_the_rule_by_hand(study):
    first, second, *_, last = study.CANDIDATES
    assert study.chosen(made(study, [70.0, 70.4, 60, 60, 70.5])) == first
    assert study.chosen(made(study, [69.9, 70.4, 60, 60, 70.5])) == second
    assert study.chosen(made(study, [60, 60, 60, 60, 70.5])) == last


def test_losses_compared_at_equal_strengths(study):
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


def test_losses_near_the_usual_one(study):
    policy = KullbackLeibler("ab", prior=[[0.5, 0.5], [0, 0]])
    found = study.near_the_usual(torch.tensor([[1.0, 3.0], [2.0, 9.0]], dtype=torch.float64), policy)
    assert found.tolist() == [[-1, -1], [0, -7]]


def test_the_page_is_that_of_its_record(study, record):
    assert study.page(record) == (ROOT / "results/strengths.md").read_text(encoding="utf-8")
    assert len(record["runs"]) == len(study.WAYS) * len(study.DATASETS) * len(study.SEEDS)


def test_the_method_is_what_was_chosen(study, record):
    table, adjust = study.CANDIDATES[study.chosen(record)]
    assert adjust is None
    assert make_recipe(table) == make_recipe({"method": "joao_strengths"})


def test_what_the_document_says_of_the_study(study, record):
    said = " ".join((ROOT / "docs/strengths.md").read_text(encoding="utf-8").split())
    lines = {line[0].strip("*"): line for line in study.score_lines(record)}
    chosen = lines[study.chosen(record)]
    for way in (study.FIXED, study.chosen(record), "JOAO's own maximiser over strengths"):
        assert f"{lines[way][-3]}" in said, way
    for value in (chosen[-1], chosen[-2].split()[0]):
        assert value in said
