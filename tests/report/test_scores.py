"""Scores on the page."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from joao.config.methods import titles
from joao.evaluation.statistics import best_over_best, paired_gain
from joao.report.scores import (
    CHANCE,
    OURS,
    PAPER,
    bars,
    chart,
    differences,
    find_score,
    gain_over_untrained,
    missing_baselines,
    same_folds,
    verdict,
)
from joao.runs.folder import Run
from tests.messages import refused


def record(accuracies, hashes="ab", fingerprint="f", labels="true"):
    scores = {
        "mean": 0.5,
        "std": 0.01,
        "partitions": [{"fold_hash": h, "accuracies": a} for h, a in zip(hashes, accuracies, strict=True)],
    }
    gains = {f"gain over {name}": {"mean": 0.1, "low": -0.1, "high": 0.2} for name in NAMES}
    data = {"fingerprint": fingerprint, "name": "MUTAG"}
    return (
        {"chance": 0.4, "data": data, "protocol": {"labels": labels}, "run": scores}
        | gains
        | dict.fromkeys(NAMES, scores)
    )


NAMES = ("histogram", "untrained_initial", "untrained")
ONE = record([[0.5, 0.7], [0.6, 0.8]])
TWO = record([[0.4, 0.7], [0.6, 0.5]])


def test_differences_are_paired_gains():
    (found,) = differences({"one": ONE, "none": None, "two": TWO})
    assert (found.one, found.other) == ("one", "two")
    assert found.gain == paired_gain([[50, 70], [60, 80]], [[40, 70], [60, 50]])
    assert found.gain.mean == pytest.approx(10)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (record([[0.4, 0.7], [0.6, 0.5]], hashes="ax"), "folds"),
        (record([[0.4, 0.7], [0.6, 0.5]], fingerprint="g"), "graphs"),
        (record([[0.4, 0.7]], hashes="a"), "folds"),
    ],
)
def test_incomparable_scores(other, why):
    (found,) = differences({"one": ONE, "two": other})
    assert found.gain is None
    assert why in found.why_not


def test_all_pairs_of_runs_are_compared():
    assert [(each.one, each.other) for each in differences({"a": ONE, "b": TWO, "c": ONE})] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]


def test_bars_end_with_the_published_accuracy():
    names = [bar.name for bar in bars(ONE, "joao", "MUTAG")]
    assert names[0] == CHANCE
    assert names[-2:] == [OURS, PAPER]
    assert bars(ONE, "joao", "MUTAG")[-1].mean == 87.35
    assert [bar.name for bar in bars(ONE, "joao", "mine")] == names[:-1]
    assert gain_over_untrained(ONE).low == pytest.approx(-10)


def written(folder, **files):
    for name, value in files.items():
        (folder / f"{name.replace('_', '-')}.json").write_text(json.dumps(value))
    return SimpleNamespace(folder=folder, info=SimpleNamespace(fingerprint="f"))


def test_which_record_is_used(tmp_path):
    shuffled, other = record([[1.0, 1.0]], "a", labels="shuffled"), record([[0.9, 0.9]], "a", fingerprint="g")
    second = record([[0.2, 0.2]], "a")
    assert find_score(written(tmp_path)) is None
    assert find_score(written(tmp_path, evaluation=shuffled)) is None
    assert find_score(written(tmp_path, evaluation_2=other)) == other
    assert find_score(written(tmp_path, evaluation_3=ONE)) == ONE
    assert find_score(written(tmp_path, evaluation_10=second, evaluation_11=shuffled, evaluation_12=other)) == second


@pytest.mark.parametrize("parts", [[[0.5]], [[0.5, 0.5], [0.5]], [[0.5, 2.0]], [[0.5, -1e300]], [[]], [], [None], [{}]])
def test_invalid_partitions(tmp_path, parts):
    ours = {**ONE["run"], "partitions": [{"fold_hash": "a", "accuracies": part} for part in parts]}
    with refused(tmp_path / "evaluation.json"):
        find_score(written(tmp_path, evaluation={**ONE, "run": ours}))


def test_invalid_records(tmp_path):
    of_text = [
        {**ONE, "run": {**ONE["run"], key: value}} for key in ("mean", "std") for value in ("0.5", [1], {"a": 1})
    ]
    for damage in ({}, {"run": 1}, [], *of_text):
        with refused(tmp_path / "evaluation.json", "'joao evaluate'"):
            find_score(written(tmp_path, evaluation=damage))


def test_the_record_of_a_real_run(scored_run):
    found = find_score(Run.open(scored_run))
    assert found == json.loads((scored_run / "evaluation.json").read_text())


def with_baselines(ours, **baselines):
    """A record on two partitions whose baselines have other accuracies."""
    scores = {name: {**ONE["run"], "partitions": parts(each)} for name, each in baselines.items()}
    return {**ONE, "run": {**ONE["run"], "partitions": parts(ours)}, **scores}


def parts(accuracies):
    return [{"fold_hash": h, "accuracies": list(a)} for h, a in zip("ab", accuracies, strict=True)]


def test_verdict_follows_the_rule_of_the_comparison():
    random = np.random.default_rng(0)
    weak, strong = 0.5 + 0.01 * random.standard_normal((2, 2, 10))
    names = dict.fromkeys(("histogram", "untrained", "wl"), weak)
    better = with_baselines(strong + 0.3, **names, ldp=strong, untrained_initial=strong + 0.9)
    found = verdict({"a": better}, {"a": "JOAO"})
    assert (found.helps, found.method, found.tried) == ("yes", "JOAO", (1, 4))
    assert found.baseline == titles()["ldp"]  # the encoder as initialised is not among the cheap baselines
    assert found.gain == best_over_best([strong + 0.3], [weak, weak, strong, weak])
    worse = with_baselines(weak - 0.2, **names, ldp=strong)
    assert verdict({"a": worse}, {"a": "JOAO"}).helps == "no"
    # The same baselines count once, different ones of two runs twice.
    both = verdict({"a": better, "b": worse}, {"a": "a", "b": "b"})
    assert (both.method, both.tried) == ("a", (2, 4))
    other = with_baselines(weak, **{**names, "untrained": strong}, ldp=strong)
    assert verdict({"a": better, "b": other}, {"a": "a", "b": "b"}).tried == (2, 5)
    assert verdict({"a": better}, {}) is None  # not pre-trained


def test_records_of_older_versions_have_fewer_baselines(tmp_path):
    assert missing_baselines(ONE) == [titles()["ldp"], titles()["wl"]]
    assert find_score(written(tmp_path, evaluation=ONE)) == ONE
    assert verdict({"a": ONE}, {"a": "JOAO"}).tried == (1, 2)
    fewer = {**ONE["run"], "partitions": ONE["run"]["partitions"][:1]}
    with refused(tmp_path / "evaluation.json", "wl"):
        find_score(written(tmp_path, evaluation={**ONE, "wl": fewer}))


def test_runs_on_the_same_folds_share_a_chart():
    elsewhere = record([[0.4, 0.7], [0.6, 0.5]], fingerprint="g")
    groups = same_folds({"a": ONE, "none": None, "b": elsewhere, "c": TWO})
    assert [list(group) for group in groups] == [["a", "c"], ["b"]]
    lines = chart(groups[0], {"a": "joao", "c": "joaov2"}, "MUTAG")
    assert [(bar.name, bar.run) for bar in lines if bar.run is not None] == [("a", 0), ("c", 1)]
    assert [bar.mean for bar in lines[-2:]] == [87.35, 87.67]  # of the paper's JOAO and JOAOv2
    different = {**ONE, "untrained": TWO["run"]}
    names = [bar.name for bar in chart({"a": ONE, "c": different}, {}, "mine")]
    assert sum(titles()["untrained"] in name for name in names) == 2
    assert names.count(titles()["histogram"]) == 1


def test_records_on_the_shown_graphs_are_preferred(tmp_path):
    other = record([[0.9, 0.9]], "a", fingerprint="g")
    run = written(tmp_path, evaluation=ONE, evaluation_2=other)
    assert find_score(run) == ONE
    assert find_score(run, {"g"}) == other
