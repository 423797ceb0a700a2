"""Scores of fine-tuned models as text."""

import re

import pytest

from joao.cli.finetune import format_scores


def areas(*values):
    known = [value for value in values if value is not None]
    tasks = {f"t{n}": {"roc_auc": value, "labels": 9} for n, value in enumerate(values)}
    return {"roc_auc": sum(known) / len(known) if known else None, "labels": 9, "tasks": tasks}


def errors(*values, **means):
    tasks = {f"t{n}": {"rmse": value, "mae": value, "rmse_of_mean": 5.0, "labels": 9} for n, value in enumerate(values)}
    return {"rmse": 99.0, "mae": 99.0, **means, "tasks": tasks}


MANY = {"rmse_in_deviations": 0.83, "rmse_of_mean_in_deviations": 1.02}


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"accuracy": 0.875}, ("accuracy", ["87.5"])),
        (areas(0.75), ("ROC-AUC", ["0.750"])),
        (areas(0.75, 0.25), ("ROC-AUC", ["0.500", "2"])),
        (areas(0.75, None, 0.25, None), ("ROC-AUC", ["0.500", "2", "4"])),
        (areas(None, None), ("ROC-AUC", None)),
        (errors(4.1), ("RMSE", ["4.1", "5", "4.1"])),
        (errors(4.1, None, 2.5, **MANY), ("RMSE", ["4.1", "5", "t0", "2.5", "5", "t2"])),
        (errors(*[1.0] * 6, None, **MANY), ("RMSE", ["0.83", "1.02", "6", "7"])),
    ],
)
def test_formatted_scores(scores, expected):
    """The values and their tasks, in order."""
    name, figures = format_scores(scores)
    assert (name, figures and re.findall(r"t?\d+(?:\.\d+)?", figures)) == expected


def test_scores_of_older_folders():
    scores = errors(*[2.0] * 7)
    for each in scores["tasks"].values():
        del each["rmse_of_mean"]
    figures = re.findall(r"t?\d+", format_scores(scores)[1])
    assert figures == [*["2", "t0", "2", "t1", "2", "t2", "2", "t3", "2", "t4"], "2"]  # and two more tasks
