"""Further pages of the unsupervised table: stricter protocols, learned strengths, losses, and costs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from joao.evaluation.tables import markdown, with_interval
from repro.intervals import estimate_difference, estimate_gain
from repro.protocols.unsupervised.table import Row, by_seed, over, percent, rows
from repro.tables.names import NAMES, OBJECTIVE_NAMES
from repro.tables.rows import VARIANTS, row_name, split_variant

Records = Sequence[Mapping[str, Any]]

ABOUT = """\
- **standard**: the protocol of [table.md](table.md). Pre-training sees all graphs without labels. Duplicate graphs may be in different folds.
- **twins together**: pre-training as in the standard protocol. Graphs that Weisfeiler-Lehman refinement cannot distinguish by edges and node labels are in the same fold, also when C is selected, so no test graph has a duplicate in the training set.
- **inductive**: pre-training sees only the training part of each fold. The folds are those of the standard protocol, or of *twins together*. Methods that learn nothing without labels have no figure.
- **difference**: from the standard protocol, over the seeds that both have. Paired by fold if the folds are the same; otherwise the variances of both sides add up.

Mean and standard deviation over five seeds (other numbers of seeds in square brackets).
"""  # noqa: E501


def variants_markdown(records: Records) -> str:
    """Return tables of accuracies, gains and numbers of twins. Empty if all records are of the standard protocol."""
    table = {(row.dataset, row.method): row for row in rows(records)}
    variants = [each for each in VARIANTS if each in {split_variant(method)[1] for _, method in table}]
    if not variants:
        return ""
    lines, gains = [], []
    for dataset, method in dict.fromkeys((dataset, split_variant(row)[0]) for dataset, row in table):
        found = {variant: table.get((dataset, f"{method}-{variant}")) for variant in variants}
        if not any(found.values()):
            continue
        standard = table.get((dataset, method))
        name = [dataset, NAMES.get(method, method)]
        pairs = [[_accuracy(row), _difference(records, row, method)] for row in found.values()]
        lines.append([*name, _accuracy(standard), *(cell for pair in pairs for cell in pair)])
        if method != "untrained":
            gains.append(
                [
                    *name,
                    *(with_interval(row.gains.get("untrained")) if row else "" for row in [standard, *found.values()]),
                ]
            )
    names = [VARIANTS[each] for each in variants]
    header = ["data", "method", "standard", *(cell for name in names for cell in (name, "difference (95 % CI)"))]
    parts = [
        ABOUT + "\n## Accuracy, %",
        markdown(header, lines),
        "## Gain over the untrained, calibrated encoder on the same folds, points (95 % CI)",
        markdown(["data", "method", "standard", *names], gains),
    ]
    if counts := _twins(records):
        parts += ["## Twins", markdown(["data", "graphs", "with a twin", "with a twin of another class"], counts)]
    return "\n\n".join(parts) + "\n"


def _accuracy(row: Row | None) -> str:
    if row is None:
        return ""
    return row.score + ("" if row.num_seeds == 5 else f" [{row.num_seeds}]")


def _difference(records: Records, row: Row | None, standard: str) -> str:
    if row is None:
        return ""
    groups = by_seed(records)
    ours, theirs = groups[row.dataset, row.method], groups.get((row.dataset, standard), {})
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return ""
    first, second = ([percent(scores[seed]) for seed in seeds] for scores in (ours, theirs))
    if len(seeds) == 1:
        return f"{np.mean(first) - np.mean(second):+.2f}"
    same = all(ours[seed]["fold_hash"] == theirs[seed]["fold_hash"] for seed in seeds)
    return with_interval((estimate_gain if same else estimate_difference)(first, second).interval())


def _twins(records: Records) -> list[list[str]]:
    """Return one line per data set whose records count twins."""
    found = {record["data"]["name"]: record for record in records if "twins" in record}
    lines = []
    for name, record in found.items():
        graphs, counts = record["data"]["graphs"], record["twins"]
        shares = [f"{count} ({100 * count / graphs:.1f} %)" for count in counts.values()]
        lines.append([name, str(graphs), *shares])
    return lines


FIXED, LEARNED = "joao", "joao_strengths"
STRENGTHS_HEADER = ["data", "JOAO at 0.2, accuracy %", "JOAO, strengths learned, accuracy %", "gain (95 % CI)", "seeds"]


def strength_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return one line per data set with records of both, and their averages (:data:`STRENGTHS_HEADER`)."""
    found = {(row.dataset, row.method): row for row in rows(records)}
    sets = [dataset for dataset, method in found if method == FIXED and (dataset, LEARNED) in found]
    lines = []
    for dataset in sets:
        lines.append([dataset, *over(records, found[dataset, FIXED], found[dataset, LEARNED])])
    if lines:
        means = [float(np.mean([found[dataset, method].mean for dataset in sets])) for method in (FIXED, LEARNED)]
        lines.append([f"average of {len(sets)}", *(f"{each:.2f}" for each in means), f"{means[1] - means[0]:+.2f}", ""])
    return lines


OBJECTIVES_HEADER = ["data", "objective", "uniform, accuracy %", "JOAO, accuracy %", "gain of JOAO (95 % CI)", "seeds"]


def objective_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return one line per data set and objective with records of both policies (:data:`OBJECTIVES_HEADER`)."""
    found = {(row.dataset, row.method): row for row in rows(records)}
    lines = []
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        for objective, name in OBJECTIVE_NAMES.items():
            methods = ["uniform", "joao"] if objective == "nt_xent" else [f"{objective}_uniform", f"{objective}_joao"]
            without, learned = (found.get((dataset, method)) for method in methods)
            if without is not None and learned is not None:
                lines.append([dataset, name, *over(records, without, learned)])
    return lines


COSTS_HEADER = ["data", "method", "accuracy %", "seconds", "peak memory, MB", "machine"]


def cost_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return one line per method, data set and machine (:data:`COSTS_HEADER`).

    Seconds are the median over seeds of the time to compute the embeddings, including pre-training. Memory is the
    maximum. Both exclude scoring.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        cell = record["cell"]
        if "seconds of pre-training" in record:
            machine = str(record["machine"].get("gpu") or f"{record['machine']['processor']}, one thread")
            groups.setdefault((cell["dataset"], cell["method"], machine), []).append(record)
    lines = []
    for (dataset, method, machine), found in groups.items():
        accuracy = f"{100 * float(np.mean([record['scores']['mean'] for record in found])):.1f}"
        seconds = f"{np.median([record['seconds of pre-training'] for record in found]):.1f}"
        peaks = [record["peak bytes"] for record in found if record.get("peak bytes") is not None]
        memory = f"{max(peaks) / 1e6:.0f}" if peaks else ""
        lines.append([dataset, row_name(method), accuracy, seconds, memory, machine])
    return lines
