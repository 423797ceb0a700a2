"""Does JOAO choose the pairs that help? The gain of each single pair, and its share of JOAO's draws (Figure 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joao.config.recipe import POOL
from joao.core.pair_table import PairTable
from joao.core.plots import draw_tables
from joao.evaluation.tables import markdown
from repro.protocols.semi_supervised.run import PAIRS
from repro.protocols.semi_supervised.table import check_same_parts
from repro.statistics import TableCorrelation, table_correlation
from repro.tables.learned import learned_tables, pairs_table


@dataclass(frozen=True)
class Agreement:
    """Gains and shares of all pairs on a data set.

    Attributes:
        gains: gain of each pair over no pre-training, in points of accuracy, mean over seeds.
        shares: share of the draws of JOAO (or JOAOv2) of each pair, mean over seeds.
        num_seeds: number of seeds of both.
        correlation: rank correlation of gains and shares over all pairs.
        num_filled: number of pairs without a record, whose gain is that of the reversed pair.
    """

    gains: PairTable
    shares: PairTable
    num_seeds: int
    correlation: TableCorrelation
    num_filled: int = 0


def agreements(records: Sequence[Mapping[str, Any]], method: str = "joao") -> dict[str, Agreement]:
    """Compare gains and shares of a method's draws by data set, with 10 % of the labels.

    Only seeds are used for which every pair or its reverse, the method and no pre-training have a record. If there are
    seeds for which both directions of all pairs have one, only these are used. Data sets without any are omitted.
    """
    by_seed: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for record in records:
        cell = record["cell"]
        if cell["label_rate"] == 10:
            by_seed.setdefault(cell["dataset"], {}).setdefault(cell["method"], {})[cell["seed"]] = record
    found = {}
    for dataset, of_method in by_seed.items():
        groups = {name: of_method.get(name, {}) for name in ("none", method, *PAIRS)}
        either = {name: {**groups.get(reverse_of(name), {}), **group} for name, group in groups.items()}
        for taken in (groups, either):
            seeds = sorted(set.intersection(*map(set, taken.values())))
            if seeds:
                found[dataset] = _agreement(dataset, method, taken, seeds)
                break
    return found


def reverse_of(method: str) -> str:
    """Return the pair with exchanged views.

    >>> reverse_of("node_drop+identity")
    'identity+node_drop'
    """
    return "+".join(reversed(method.split("+")))


def _agreement(
    dataset: str, method: str, groups: Mapping[str, Mapping[int, Mapping[str, Any]]], seeds: Sequence[int]
) -> Agreement:
    none = {seed: groups["none"][seed] for seed in seeds}
    gains = []
    for pair in PAIRS:
        group = {seed: groups[pair][seed] for seed in seeds}
        check_same_parts(group, none)
        first, second = (
            100 * float(np.mean([each[seed]["scores"]["accuracy"] for seed in seeds])) for each in (group, none)
        )
        gains.append(first - second)
    drawn = learned_tables([groups[method][seed] for seed in seeds])[dataset, method]
    shares = [drawn[pair] for pair in PAIRS.values()]
    size = len(POOL), len(POOL)
    gain_table, share_table = (PairTable.of(POOL, np.reshape(values, size)) for values in (gains, shares))
    filled = sum(any(groups[pair][seed]["cell"]["method"] != pair for seed in seeds) for pair in PAIRS)
    correlation = table_correlation(gain_table.values, share_table.values)
    return Agreement(gain_table, share_table, len(seeds), correlation, filled)


def pairs_markdown(found: Mapping[str, Agreement], absent: Sequence[str] = ()) -> str:
    """Return the correlations and the tables as Markdown; ``absent`` are data sets of the figure without records."""
    lines = []
    for dataset, each in found.items():
        rank = each.correlation
        pairs = f"{len(PAIRS) - each.num_filled} of {len(PAIRS)}"
        lines.append([dataset, f"{rank.value:+.2f} (p = {rank.p_value:.2f})", str(each.num_seeds), pairs, _best(each)])
    header = ["data", "rank correlation of gain and share", "seeds", "pairs", "best pair and its share"]
    parts = [markdown(header, lines)]
    if absent:
        parts.append(f"Not run yet: {', '.join(absent)}.")
    if any(each.num_filled for each in found.values()):
        parts.append("Of a pair that was not run, the gain is that of the reversed pair.")
    for dataset, each in found.items():
        for what, table, form in (("gain over no pre-training", each.gains, "+.2f"), ("share", each.shares, ".3f")):
            parts += [f"## {dataset}, {what}", pairs_table(table, form)]
        parts.append(f"![{dataset}: gains and shares of augmentation pairs](pairs-{dataset}.png)")
    return "\n\n".join(parts) + "\n"


def _best(agreement: Agreement) -> str:
    first, second, gain = agreement.gains.top(1)[0]
    return f"{first} + {second}: {gain:+.2f} points, share {agreement.shares[first, second]:.3f}"


def draw_agreement(dataset: str, agreement: Agreement, path: Path) -> None:
    """Draw gains and shares next to each other."""
    rank = agreement.correlation
    seeds = f"{agreement.num_seeds} seed{'s' if agreement.num_seeds > 1 else ''}"
    title = f"{dataset}: rank correlation {rank.value:+.2f} (p = {rank.p_value:.2f}), {seeds}"
    gain, share = "gain of the pair alone (points)", "share of JOAO's draws"
    draw_tables({gain: agreement.gains, share: agreement.shares}, title, path, differences=[gain])
