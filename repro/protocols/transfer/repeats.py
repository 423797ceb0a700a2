"""Several pre-trainings per method, on a corpus without test molecules: records to a page with two rules for the epoch.

``python -m repro.studies.transfer_repeats`` computes the records; ``repro/decision-rules.md`` says what may be
concluded from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.evaluation.statistics import Estimate, Gain, sample_std
from joao.evaluation.tables import markdown, with_deviation, with_interval
from repro.intervals import estimate_difference, estimate_over_sets, holm, holm_levels, p_value
from repro.protocols.cells import load_grid
from repro.record_files import Record, RecordFile
from repro.tables.names import NAMES

Scores = NDArray[np.float64]
# The kinds of scores in a record, and what they are called.
RULES = {"last_test": "last epoch", "test": "epoch by validation"}
RIVALS = (("joao", "graphcl"), ("joaov2", "graphcl"), ("attr_masking", "joaov2"), ("infomax", "joaov2"))
LEAST_SETS = 4
CHANCE = 0.05


def record_file(folder: Path) -> RecordFile:
    """The records, one for each data set and method."""
    return RecordFile(folder / "transfer-repeats.jsonl", _key)


def _key(record: Record) -> str:
    _ = record["scores"]["pretraining"], record["split_hash"]
    return f"{record['cell']['dataset']}/{record['cell']['method']}"


def scores_of(record: Mapping[str, Any], kind: str) -> Scores:
    """``(r, k)`` scores in percent: a row for each pre-training, a column for each fine-tuning seed.

    A record without pre-trainings has a row for each seed, ``(r, 1)``: every seed has first weights of its own.
    """
    scores = record["scores"]
    rows: dict[int, dict[int, float]] = {}
    seeds = [0] * len(scores["seed"]) if "pretraining" not in scores else scores["seed"]
    for row, column, score in zip(scores.get("pretraining", scores["seed"]), seeds, scores[kind], strict=True):
        rows.setdefault(row, {})[column] = 100 * score
    return np.array([[row[column] for column in sorted(row)] for _, row in sorted(rows.items())])


@dataclass(frozen=True)
class Claim:
    """A difference of two methods over data sets, by one rule for the epoch.

    Attributes:
        kind: of the scores, see :data:`RULES`.
        gains: the difference on each data set.
        estimate: of their mean, with the data set as its unit.
        p_value: corrected for the number of claims on the page (Holm).
        interval: at the level of Holm's order, so that it excludes 0 exactly if ``p_value`` is at most 5 %.
    """

    first: str
    second: str
    kind: str
    gains: Mapping[str, float]
    estimate: Estimate
    p_value: float
    interval: Gain


@dataclass(frozen=True)
class Repeats:
    """All scores: by data set and method, including ``none``, and kind."""

    scores: Mapping[tuple[str, str, str], Scores]
    records: Sequence[Mapping[str, Any]]

    @property
    def missing(self) -> list[str]:
        """Data sets of the grid that are not finished."""
        return [name for name in load_grid("transfer")["repeats"]["datasets"] if name not in self.datasets]

    @property
    def datasets(self) -> list[str]:
        """Data sets on which all methods have all pre-trainings, in the order of the grid."""
        wanted = load_grid("transfer")["repeats"]
        number = len(wanted["pretrainings"])
        return [
            name
            for name in wanted["datasets"]
            if (name, "none", "test") in self.scores
            and all(len(self.scores.get((name, each, "test"), ())) == number for each in wanted["methods"])
        ]

    def gain(self, dataset: str, first: str, second: str, kind: str) -> Estimate:
        """The difference of two methods on a data set; seeds of the pre-training and of fine-tuning both vary."""
        scores = [self.scores[dataset, each, kind] for each in (first, second)]
        return estimate_difference(*scores, parts="runs")

    def claims(self) -> list[Claim]:
        """All differences by both rules; none if there are fewer data sets than the rule asks for."""
        if len(self.datasets) < LEAST_SETS:
            return []
        methods = load_grid("transfer")["repeats"]["methods"]
        pairs = [*((each, "none") for each in methods), *RIVALS]
        asked = [(first, second, kind) for first, second in pairs for kind in RULES]
        gains = [{name: self.gain(name, *each).mean for name in self.datasets} for each in asked]
        found = [estimate_over_sets(list(each.values())) for each in gains]
        p_values = [p_value(each) for each in found]
        intervals = [each.interval(level) for each, level in zip(found, holm_levels(p_values, CHANCE), strict=True)]
        return [
            Claim(*each, gains=own, estimate=estimate, p_value=p_value, interval=interval)
            for each, own, estimate, p_value, interval in zip(
                asked, gains, found, holm(p_values), intervals, strict=True
            )
        ]


def read_repeats(records: Sequence[Record], without: Sequence[Record]) -> Repeats:
    """Collect scores.

    Args:
        records: of :func:`record_file`.
        without: records of the transfer table, of which the rows without pre-training are used.
    """
    own = {record["cell"]["dataset"]: record["split_hash"] for record in records}
    none = [
        record
        for record in without
        if record["cell"]["method"] == "none" and own.get(record["cell"]["dataset"]) == record["split_hash"]
    ]
    scores = {
        (record["cell"]["dataset"], record["cell"]["method"], kind): scores_of(record, kind)
        for record in (*records, *none)
        for kind in RULES
    }
    return Repeats(scores, records)


def verdict(both: Sequence[Claim]) -> str:
    """What the two rules say together: a statement needs both."""
    signs = {np.sign(each.estimate.mean) for each in both}
    if len(signs) > 1 or any(each.p_value > CHANCE for each in both):
        return "inconclusive"
    return "better" if signs == {1.0} else "worse"


HEADER = [
    *("data", "method", "last epoch, ROC-AUC %", "gain over no pre-training (95 % CI)"),
    *("epoch by validation, ROC-AUC %", "gain over no pre-training (95 % CI)", "pre-trainings x fine-tunings"),
]
CLAIMS_HEADER = [
    *("difference", "last epoch (Holm's interval)", "p (Holm)", "epoch by validation (Holm's interval)", "p (Holm)"),
    *("sets above 0: last, validation", "verdict"),
]


def lines_of(found: Repeats) -> list[list[str]]:
    """The cells of all rows (:data:`HEADER`); deviations are those of the means of the pre-trainings."""
    methods = ["none", *load_grid("transfer")["repeats"]["methods"]]
    lines = []
    for name in found.datasets:
        for method in methods:
            cells = [name, NAMES.get(method, method)]
            for kind in RULES:
                scores = found.scores[name, method, kind]
                gain = None if method == "none" else found.gain(name, method, "none", kind).interval()
                cells += [with_deviation(float(scores.mean()), sample_std(scores.mean(axis=1))), with_interval(gain)]
            shape = found.scores[name, method, "test"].shape
            lines.append([*cells, f"none x {shape[0]}" if method == "none" else f"{shape[0]} x {shape[1]}"])
    return lines


def claim_lines(claims: Sequence[Claim]) -> list[list[str]]:
    """The cells of all claims (:data:`CLAIMS_HEADER`); both rules of a difference share a line."""
    lines = []
    for last, chosen in zip(claims[::2], claims[1::2], strict=True):
        above = ", ".join(
            f"{sum(gain > 0 for gain in each.gains.values())} of {len(each.gains)}" for each in (last, chosen)
        )
        figures = [text for each in (last, chosen) for text in (with_interval(each.interval), f"{each.p_value:.3f}")]
        name = f"{NAMES[last.first]} - {NAMES[last.second]}"
        lines.append([name, *figures, above, verdict((last, chosen))])
    return lines


def repeats_markdown(records: Sequence[Record], without: Sequence[Record]) -> str:
    """The page; empty without records."""
    found = read_repeats(records, without)
    if not found.datasets:
        return ""
    facts = records[0]["corpus"][0]
    epochs, runs = records[0]["recipe"]["training"]["epochs"], records[0]["finetuning"]["epochs"]
    claims = found.claims()
    missing = f" Not finished: {', '.join(found.missing)}." if found.missing else ""
    about = (
        f"Three pre-trainings per method on {facts['molecules']:,} molecules of MOSES and ZINC-250k, drawn at random, "
        "without those that have the canonical SMILES (stereochemistry ignored) of a test molecule of any of the eight "
        f"sets; {epochs} epochs. That is less than the rows of [the table](table.md) had, and the figures are not "
        f"comparable with theirs. Fine-tuning: {runs} epochs, batch size 32, scaffold split. No pre-training is the "
        "row of the table. Each row by two rules: the last epoch, which the paper's figures probably use, and the "
        "epoch that the validation molecules select. The rules for this page were committed before the run "
        f"(`repro/decision-rules.md`).{missing} The pre-trainings were repeated with equal seeds for "
        "clintox, for sider, and for bace and bbbp, which on a GPU gives nearly equal weights.\n\n"
        "Mean ± standard deviation of the means of the pre-trainings. Intervals: pre-trainings are the seeds, "
        "fine-tuning runs their parts ([coverage](../coverage.md)); both sides vary.\n\n"
    )
    over_sets = (
        f"\n\n## Over data sets\n\nMean of the differences on {len(found.datasets)} data sets, with the data set as "
        f"the unit. All {len(claims)} p-values are corrected together (Holm), and the intervals have the level that "
        "belongs to that. A statement needs both rules; everything else is inconclusive, which does not mean that "
        "there is no difference.\n\n" + markdown(CLAIMS_HEADER, claim_lines(claims))
        if claims
        else f"\n\nNo statement over data sets is made, because fewer than {LEAST_SETS} are complete."
    )
    return about + markdown(HEADER, lines_of(found)) + over_sets + "\n"
