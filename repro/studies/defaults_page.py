"""The page of studies/defaults.py, from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from joao.evaluation.statistics import Gain, gain_over_seeds
from joao.evaluation.tables import markdown, with_deviation
from repro.protocols.unsupervised.table import gain_between, rows

Records = Sequence[Mapping[str, Any]]
CRITERIA = ("held-out loss", "alignment", "uniformity", "effective rank")
INTRODUCTION = """# Candidates for the defaults

Made from the records in `{folder}` by `python studies/defaults.py`; not to be edited. Accuracy % of an SVM on frozen embeddings, on
development sets: no set of the paper's table is among them. The seed is that of pre-training and partition. Each set is used with its node
labels and, in place of sets that have none, with one-hot degrees and with a constant. A line says what differs from the present default.
Log: the signed log of the embedding, taken afterwards, or inside the encoder, so that it is there in pre-training. All readouts: beside the
sums of every layer their means and maxima, and the sums of the input. Calibrated: normalisation by the statistics of all graphs as they
are. Seeds: embeddings of several encoders side by side. An untrained encoder is always calibrated."""


def page(records: Records, words: Mapping[str, str], folder: str = "defaults") -> str:
    """Differences to the default, on average and for each set; then what can be said without labels, and what it costs."""
    places = sorted({record["cell"]["dataset"] for record in records})
    rules = [
        rule for rule in ("labels", "degree", "constant") if any(split_features(place)[1] == rule for place in places)
    ]
    gains = gains_over_default(records, places, words)
    sections = [
        INTRODUCTION.format(folder=folder),
        how_many(records),
        "## Difference to the default",
        means(gains, places, rules, words),
    ]
    for rule in rules:
        here = [place for place in places if split_features(place)[1] == rule]
        sections += [f"## Features: {rule}", of_sets(records, gains, here, words)]
    sections += ["## Without labels, and cost", without_labels(records, words), correlations(records)]
    return "\n\n".join(sections) + "\n"


def gains_over_default(records: Records, places: Sequence[str], names: Iterable[str]) -> dict[tuple[str, str], Gain]:
    """Return the paired gains over the default, by data set (with its features) and candidate."""
    return {
        (place, name): gain
        for place in places
        for name in names
        if (gain := gain_between(records, place, name, "default")) is not None
    }


def split_features(place: str) -> tuple[str, str]:
    """Data set and rule of features."""
    dataset, _, rule = place.rpartition("-")
    return dataset, rule


def how_many(records: Records) -> str:
    seeds = sorted({record["cell"]["seed"] for record in records})
    devices = sorted({record["machine"]["device"] for record in records})
    return f"Seeds: {', '.join(map(str, seeds))}. Device: {', '.join(devices)}."


def means(
    gains: Mapping[tuple[str, str], Gain], places: Sequence[str], rules: Sequence[str], words: Mapping[str, str]
) -> str:
    """A line for each candidate: its mean difference over the sets, for each rule of features and over all."""
    lines = []
    for name in words:
        if name == "default" or not any((place, name) in gains for place in places):
            continue
        by_rule = [over_sets(gains, name, [p for p in places if split_features(p)[1] == rule]) for rule in rules]
        told = [gains[place, name] for place in places if (place, name) in gains]
        higher, lower = sum(gain.low > 0 for gain in told), sum(gain.high < 0 for gain in told)
        lines.append([words[name], *by_rule, over_sets(gains, name, places), f"{higher}", f"{lower}", f"{len(told)}"])
    table = markdown(["candidate", *rules, "all", "higher", "lower", "of"], lines)
    return (
        f"{table}\n\nMean over the sets, in brackets Student's 95 % interval with a set as the unit (over its kinds of "
        "features): what other sets would give. Higher and lower: sets and kinds of features on which the 95 % interval "
        "over seeds and folds excludes zero."
    )


def over_sets(gains: Mapping[tuple[str, str], Gain], name: str, places: Sequence[str]) -> str:
    """The mean difference, a set counting once; nothing where a place is missing."""
    if not places or any((place, name) not in gains for place in places):
        return ""
    of_set: dict[str, list[float]] = {}
    for place in places:
        of_set.setdefault(split_features(place)[0], []).append(gains[place, name].mean)
    differences = [float(np.mean(each)) for each in of_set.values()]
    if len(differences) < 2:
        return f"{differences[0]:+.2f}"
    gain = gain_over_seeds(differences, np.zeros(len(differences)))
    return f"{gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def of_sets(
    records: Records, gains: Mapping[tuple[str, str], Gain], places: Sequence[str], words: Mapping[str, str]
) -> str:
    """A line for each candidate, below one for the share of the largest class: a set where the default is no better
    than that tells candidates apart by chance alone."""
    table = {(row.dataset, row.method): row for row in rows(records)}
    chance = {record["cell"]["dataset"]: record["chance"] for record in records}
    lines = [["the largest class", *(f"{100 * chance[place]:.2f}" for place in places)]]
    for name, said in words.items():
        cells = []
        for place in places:
            row, gain = table.get((place, name)), gains.get((place, name))
            if row is None:
                cells.append("")
            elif name == "default" or gain is None:
                cells.append(with_deviation(row.mean, row.std))
            else:
                cells.append(f"{row.mean:.2f}; {gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})")
        if any(cells):
            lines.append([said, *cells])
    return markdown(["candidate", *(split_features(place)[0] for place in places)], lines)


def without_labels(records: Records, words: Mapping[str, str]) -> str:
    """Return one line per candidate, with medians over its records."""
    lines = []
    for name, longer in relative_times(records, words).items():
        own = [record["criteria"] for record in records if method(record) == name]
        found = [[each[c] for each in own if c in each] for c in ("dimensions", *CRITERIA)]
        figures = [f"{np.median(each):.3g}" if each else "" for each in found]
        lines.append([words[name], f"{longer:.1f}", *figures])
    table = markdown(["candidate", "times as long", "dimensions", *CRITERIA], lines)
    return (
        f"{table}\n\nMedians. Times as long: the seconds of pre-training beside the default's. Held-out loss: less that of "
        "knowing nothing, on a fifth of the graphs, of a pre-training on the others. Alignment: mean squared distance of a "
        "graph and its augmented views. Uniformity: log of the mean of exp(-2 squared distance) of two graphs. Both of "
        "embeddings scaled by column, then to length 1."
    )


def relative_times(records: Records, names: Iterable[str]) -> dict[str, float]:
    """Return the time of pre-training of each candidate relative to the default on the same cell: the median."""
    base = {key(record): record["seconds of pre-training"] for record in records if method(record) == "default"}
    found = {}
    for name in names:
        own = [record for record in records if method(record) == name and key(record) in base]
        if own:
            found[name] = float(np.median([each["seconds of pre-training"] / base[key(each)] for each in own]))
    return found


def rank_correlations(records: Records) -> dict[str, float]:
    """Return the rank correlation of each criterion with accuracy over the candidates, mean over the cells."""
    result = {}
    for criterion in CRITERIA:
        found = []
        for place, seed in sorted({key(record) for record in records}):
            here = [r for r in records if key(r) == (place, seed) and criterion in r["criteria"]]
            values = [[r["criteria"][criterion] for r in here], [r["scores"]["mean"] for r in here]]
            if len(here) > 2 and all(len(set(each)) > 1 for each in values):
                found.append(np.corrcoef(*map(rankdata, values))[0, 1])
        if found:
            result[criterion] = float(np.mean(found))
    return result


def correlations(records: Records) -> str:
    """Return whether a criterion would have chosen as accuracy does, as text."""
    shown = [f"{criterion} {value:+.2f}" for criterion, value in rank_correlations(records).items()]
    return (
        f"Rank correlation with accuracy over the candidates, mean over sets, features and seeds: {', '.join(shown)}."
    )


def key(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["cell"]["dataset"], record["cell"]["seed"]


def method(record: Mapping[str, Any]) -> str:
    name: str = record["cell"]["method"]
    return name
