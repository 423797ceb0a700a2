from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Told(NamedTuple):
    """What a score is called, and its figures; None where there is none."""

    name: str
    figures: str | None


def told(scores: Mapping[str, Any]) -> Told:
    """The scores of :meth:`joao.finetuning.Finetuned.score` in words."""
    if "accuracy" in scores:
        return Told("accuracy", f"{100 * scores['accuracy']:.1f} %")
    over = f" (mean over {len(scores['tasks'])} tasks)" if len(scores["tasks"]) > 1 else ""
    if "roc_auc" in scores:
        return Told("ROC-AUC", None if scores["roc_auc"] is None else f"{scores['roc_auc']:.3f}{over}")
    return Told("RMSE and MAE", f"{scores['rmse']:.4g} and {scores['mae']:.4g}{over}")
