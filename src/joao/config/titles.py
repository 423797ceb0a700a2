"""Display names of methods and baselines, for tables, figures and reports."""

from __future__ import annotations

from joao.baselines import BASELINES
from joao.config.methods import all_methods
from joao.objectives import OBJECTIVES

TITLES: dict[str, str] = {
    **{name: method.title for name, method in all_methods(OBJECTIVES).items()},
    **{name: kind.title for name, kind in BASELINES.items()},
    "untrained_initial": "untrained encoder, as initialised",
    "untrained": "untrained encoder, calibrated",
}
