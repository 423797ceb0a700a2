from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

TASKS_SHOWN = 5


class Told(NamedTuple):
    """What a score is called, and its figures; None where there is none."""

    name: str
    figures: str | None


def told(scores: Mapping[str, Any]) -> Told:
    """The scores of :meth:`joao.finetuned.Finetuned.score` in words."""
    if "accuracy" in scores:
        return Told("accuracy", f"{100 * scores['accuracy']:.1f} %")
    tasks = scores["tasks"]
    if "roc_auc" in scores:
        over = _over(tasks, "roc_auc", "one class only")
        return Told("ROC-AUC", None if scores["roc_auc"] is None else f"{scores['roc_auc']:.3f}{over}")
    scored = {name: each for name, each in tasks.items() if each["rmse"] is not None}
    if len(tasks) == 1:
        (figures,) = scored.values()
        return Told("RMSE", f"{_beside_the_mean(figures)}, MAE {figures['mae']:.4g}")
    if len(tasks) > TASKS_SHOWN and "rmse_in_deviations" in scores:
        over = _over(tasks, "rmse", "no label")
        mean = f"{scores['rmse_of_mean_in_deviations']:.4g}"
        return Told(
            "RMSE", f"{scores['rmse_in_deviations']:.4g} of each task's deviation, predicting the mean {mean}{over}"
        )
    shown = [f"{_beside_the_mean(each)} of {name}" for name, each in list(scored.items())[:TASKS_SHOWN]]
    more = f" and {len(scored) - TASKS_SHOWN} more tasks" if len(scored) > TASKS_SHOWN else ""
    return Told("RMSE", "; ".join(shown) + more)


def _beside_the_mean(figures: Mapping[str, Any]) -> str:
    """The RMSE, and that of always predicting the mean of what was learned from, where it is known."""
    mean = f" (predicting the mean {figures['rmse_of_mean']:.4g})" if "rmse_of_mean" in figures else ""
    return f"{figures['rmse']:.4g}{mean}"


def _over(tasks: Mapping[str, Any], figure: str, what_others_have: str) -> str:
    """Over how many tasks a mean is."""
    scored = sum(each[figure] is not None for each in tasks.values())
    if len(tasks) == 1:
        return ""
    if scored == len(tasks):
        return f" (mean over {scored} tasks)"
    return f" (mean over {scored} of {len(tasks)} tasks; the others have {what_others_have} there)"
