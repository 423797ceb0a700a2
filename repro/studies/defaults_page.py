"""The page of :mod:`repro.studies.defaults`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from joao.evaluation.statistics import Gain
from joao.evaluation.tables import markdown, with_deviation, with_interval
from repro.intervals import estimate_over_sets
from repro.protocols.unsupervised.table import by_seed, gain_in, rows
from repro.studies.common import generated, make_page

Records = Sequence[Mapping[str, Any]]
CRITERIA = ("held-out loss", "alignment", "uniformity", "effective rank")
INTRODUCTION = """{generated} Accuracy in percent of an SVM on frozen embeddings, on development data sets: none of them is in the paper's table. The seed
determines pre-training and partition. Each data set is used with its node labels and, to represent sets without labels, with one-hot degrees and
with a constant. Each line states what differs from the default of that time (until 2026-11-18). Log: the signed logarithm of the embedding, taken afterwards, or inside
the encoder, so that it is also used in pre-training. All readouts: means and maxima in addition to the sums of every layer, and the sums of the
input. Calibrated: batch normalisation with the statistics of all unchanged graphs. Seeds: concatenated embeddings of several encoders.
Untrained encoders are always calibrated."""


def page(records: Records, words: Mapping[str, str], title: str = "Candidates for the defaults") -> str:
    """Return the page: differences from the default, on average and per data set; criteria without labels; costs."""
    places = sorted({record["cell"]["dataset"] for record in records})
    rules = [
        rule for rule in ("labels", "degree", "constant") if any(split_features(place)[1] == rule for place in places)
    ]
    gains = gains_over_default(records, places, words)
    seeds = sorted({record["cell"]["seed"] for record in records})
    devices = sorted({record["machine"]["device"] for record in records})
    sections = [
        INTRODUCTION.format(generated=generated("defaults", intervals=True)),
        f"Seeds: {', '.join(map(str, seeds))}. Device: {', '.join(devices)}.",
        "## Difference from the default",
        means(gains, places, rules, words),
    ]
    for rule in rules:
        here = [place for place in places if split_features(place)[1] == rule]
        sections += [f"## Features: {rule}", accuracy_table(records, gains, here, words)]
    sections += ["## Criteria without labels, and cost", without_labels(records, words), correlations(records)]
    return make_page(title, *sections)


def gains_over_default(records: Records, places: Sequence[str], names: Iterable[str]) -> dict[tuple[str, str], Gain]:
    """Return the paired gains over the default, by data set (with its features) and candidate."""
    groups = by_seed(records)
    return {
        (place, name): gain
        for place in places
        for name in names
        if (gain := gain_in(groups, place, name, "default")) is not None
    }


def split_features(place: str) -> tuple[str, str]:
    """Split a place into data set and kind of features."""
    dataset, _, rule = place.rpartition("-")
    return dataset, rule


def means(
    gains: Mapping[tuple[str, str], Gain], places: Sequence[str], rules: Sequence[str], words: Mapping[str, str]
) -> str:
    """Return one line per candidate: its mean difference over the data sets, by kind of features and overall."""
    lines = []
    for name in words:
        if name == "default" or not any((place, name) in gains for place in places):
            continue
        by_rule = [over_sets(gains, name, [p for p in places if split_features(p)[1] == rule]) for rule in rules]
        found = [gains[place, name] for place in places if (place, name) in gains]
        higher, lower = sum(gain.low > 0 for gain in found), sum(gain.high < 0 for gain in found)
        lines.append([words[name], *by_rule, over_sets(gains, name, places), f"{higher}", f"{lower}", f"{len(found)}"])
    table = markdown(["candidate", *rules, "all", "higher", "lower", "of"], lines)
    return (
        f"{table}\n\nMean over the data sets, with Student's 95 % interval over data sets (each averaged over its kinds of "
        "features), which covers other data sets. Higher and lower: number of data sets and kinds of features on which the "
        "95 % interval over seeds and folds excludes zero."
    )


def over_sets(gains: Mapping[tuple[str, str], Gain], name: str, places: Sequence[str]) -> str:
    """Return the mean difference over data sets; empty if one is missing."""
    if not places or any((place, name) not in gains for place in places):
        return ""
    of_set: dict[str, list[float]] = {}
    for place in places:
        of_set.setdefault(split_features(place)[0], []).append(gains[place, name].mean)
    differences = [float(np.mean(each)) for each in of_set.values()]
    if len(differences) < 2:
        return f"{differences[0]:+.2f}"
    return with_interval(estimate_over_sets(differences).interval())


def accuracy_table(
    records: Records, gains: Mapping[tuple[str, str], Gain], places: Sequence[str], words: Mapping[str, str]
) -> str:
    """Return one line per candidate, below the share of the largest class. If the default is no better than that
    share, differences on this data set are chance."""
    table = {(row.dataset, row.method): row for row in rows(records)}
    chance = {record["cell"]["dataset"]: record["chance"] for record in records}
    lines = [["largest class", *(f"{100 * chance[place]:.2f}" for place in places)]]
    for name, said in words.items():
        cells = []
        for place in places:
            row, gain = table.get((place, name)), gains.get((place, name))
            if row is None:
                cells.append("")
            elif name == "default" or gain is None:
                cells.append(with_deviation(row.mean, row.std))
            else:
                cells.append(f"{row.mean:.2f}; {with_interval(gain)}")
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
    table = markdown(["candidate", "relative time", "dimensions", *CRITERIA], lines)
    return (
        f"{table}\n\nMedians. Relative time: time of pre-training relative to the default. Held-out loss: on a fifth of the "
        "graphs after pre-training on the others, minus the loss of random embeddings. Alignment: mean squared distance of "
        "a graph and its augmented views. Uniformity: logarithm of the mean of exp(-2 squared distance) of two graphs. Both "
        "for embeddings that are standardised by column and then scaled to length 1."
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
    return f"Rank correlation with accuracy over the candidates, mean over data sets, features and seeds: {', '.join(shown)}."


def key(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["cell"]["dataset"], record["cell"]["seed"]


def method(record: Mapping[str, Any]) -> str:
    name: str = record["cell"]["method"]
    return name
