"""Scores in words."""

import pytest

from joao.cli.predict import told


def areas(*values):
    known = [value for value in values if value is not None]
    tasks = {f"t{n}": {"roc_auc": value, "labels": 9} for n, value in enumerate(values)}
    return {"roc_auc": sum(known) / len(known) if known else None, "labels": 9, "tasks": tasks}


def errors(*values, **means):
    tasks = {f"t{n}": {"rmse": value, "mae": value, "rmse_of_mean": 5.0, "labels": 9} for n, value in enumerate(values)}
    return {"rmse": 99.0, "mae": 99.0, **means, "tasks": tasks}


MANY = {"rmse_in_deviations": 0.83, "rmse_of_mean_in_deviations": 1.02}
OTHERS = "the others have one class only there"


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"accuracy": 0.875}, ("accuracy", "87.5 %")),
        (areas(0.75), ("ROC-AUC", "0.750")),
        (areas(0.75, 0.25), ("ROC-AUC", "0.500 (mean over 2 tasks)")),
        (areas(0.75, None, 0.25, None), ("ROC-AUC", f"0.500 (mean over 2 of 4 tasks; {OTHERS})")),
        (areas(None, None), ("ROC-AUC", None)),
        (errors(4.1), ("RMSE", "4.1 (predicting the mean 5), MAE 4.1")),
        (
            errors(4.1, None, 2.5, **MANY),
            ("RMSE", "4.1 (predicting the mean 5) of t0; 2.5 (predicting the mean 5) of t2"),
        ),
        (
            errors(*[1.0] * 6, None, **MANY),
            (
                "RMSE",
                "0.83 of each task's deviation, predicting the mean 1.02 (mean over 6 of 7 tasks; the others have no "
                "label there)",
            ),
        ),
    ],
)
def test_words(scores, expected):
    assert told(scores) == expected


def test_an_older_folder_does_not_know_the_mean():
    scores = errors(*[2.0] * 7)
    for each in scores["tasks"].values():
        del each["rmse_of_mean"]
    assert told(scores).figures == "2 of t0; 2 of t1; 2 of t2; 2 of t3; 2 of t4 and 2 more tasks"
