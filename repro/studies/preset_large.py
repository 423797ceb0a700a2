"""What does ``JOAO(preset="large")`` gain over ``JOAO()`` with default settings? On development sets.

    python -m repro.studies.preset_large

The rule is in ``repro/decision-rules.md``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from joao.config.recipe import make_recipe
from joao.evaluation.tables import markdown, with_interval
from joao.runs.pretraining import pretrain
from repro.studies.combinations import Cell, cells
from repro.studies.common import generated, make_page
from repro.studies.embedding import MOST_SCORED, SEEDS
from repro.studies.sweep import SETS, interval, load, made_with, main, score

FEWEST_SETS = 5


def compute(cell: Cell, root: Path | None, device: str) -> dict[str, Any]:
    graphs = load(cell.dataset, root, MOST_SCORED)[0].without_labels()
    recipe = make_recipe({"preset": "large", "training": {"seed": cell.seed}}, source=str(cell))
    trained = pretrain(recipe, graphs, device=device)
    rows = trained.embed(graphs).numpy()
    found = score(rows, cell.dataset, root, MOST_SCORED, cell.seed, trained.info.machine["device"])
    return {**found, "made with": made_with(trained)}


def means_of(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean accuracy in percent of each set that has five seeds."""
    by_set: dict[str, list[float]] = {}
    for record in records:
        accuracies = record["accuracies"]
        accuracies = accuracies["joao"] if isinstance(accuracies, dict) else accuracies
        by_set.setdefault(record["cell"]["dataset"], []).append(100 * float(np.mean(accuracies)))
    return {name: float(np.mean(values)) for name, values in by_set.items() if len(values) >= SEEDS}


def page(records: Sequence[Mapping[str, Any]], of_default: Sequence[Mapping[str, Any]]) -> str:
    large, default = means_of(records), means_of(of_default)
    done = [name for name in SETS if name in large and name in default]
    lines = [
        [name, *(f"{each:.2f}" for each in (default[name], large[name], large[name] - default[name]))] for name in done
    ]
    said = f"{len(done)} of {len(SETS)} sets are finished."
    if len(done) >= FEWEST_SETS:
        gain = interval([large[name] - default[name] for name in done])
        verdict = "better" if gain.low > 0 else "worse" if gain.high < 0 else "inconclusive"
        said += f" Mean difference, with the set as the unit: {with_interval(gain)}, {verdict}."
    return make_page(
        "The preset `large`",
        f'{generated("preset_large")} Accuracy in percent of an SVM on frozen embeddings of `JOAO()` and `JOAO(preset="large")` on the development sets, five seeds, the same folds. '
        "Sets of more than 2,000 graphs are scored on a sample; isomorphic graphs are in the same fold. The rule is in `repro/decision-rules.md`. How long it takes: [embedding](embedding.md).",
        markdown(["data set", "`JOAO()`", "large", "difference"], lines),
        said,
    )


if __name__ == "__main__":
    main(__doc__, "preset-large", cells, compute)
