"""A record is made again and compared: what holds, what does not, and that it is told."""

import copy
import math

import pytest

from repro.protocols import check
from repro.protocols.cells import RunOptions
from repro.protocols.check import (
    OTHER_KIND,
    SAME,
    SAME_KIND,
    Spread,
    allowed_spread,
    check_record,
    compare_devices,
    compared,
    find_record,
    measure,
)
from repro.protocols.unsupervised.run import Cell, compute_missing, record_file
from repro.record_files import RECORDS
from tests.messages import refused

ALLOWED = Spread(first_loss=0.001, later_losses=0.1, score=2.0)
RECORD = {
    "recipe": {"method": "joao"},
    "data": {"fingerprint": "0123", "graphs": 100},
    "scores": {"mean": 0.9, "partitions": [{"fold_hash": "ab"}]},
    "losses": [2.0, -1.0, 0.5],
}


def with_change(change):
    again = copy.deepcopy(RECORD)
    change(again)
    return {each.what: each for each in compared("unsupervised", RECORD, again, ALLOWED)}


def test_identical_record_passes():
    findings = with_change(lambda again: None)
    assert list(findings) == ["recipe", "graphs", "splits", "epochs", "loss, epoch 1", "loss, epoch 2 (worst)", "score"]
    assert all(each.holds and each.difference == 0 for each in findings.values())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda again: again["recipe"].update(method="joaov2"), "recipe"),
        (lambda again: again["data"].update(fingerprint="4567"), "graphs"),
        (lambda again: again["scores"].update(partitions=[{"fold_hash": "cd"}]), "splits"),
        (lambda again: again.update(losses=[2.0, -1.0]), "epochs"),
        (lambda again: again.update(losses=[2.003, -1.0, 0.5]), "loss, epoch 1"),
        (lambda again: again.update(losses=[math.nan, -1.0, 0.5]), "loss, epoch 1"),
        (lambda again: again.update(losses=[2.0, -1.1, 0.71]), "loss, epoch 3 (worst)"),
        (lambda again: again.update(losses=[2.0, -1.0, math.nan]), "loss, epoch 3 (worst)"),
        (lambda again: again["scores"].update(mean=0.839), "score"),
        (lambda again: again["scores"].update(mean=0.961), "score"),
    ],
)
def test_single_difference_is_reported(change, what):
    assert [name for name, each in with_change(change).items() if not each.holds] == [what]


def test_tolerance_matches_a_hand_computation():
    # Two standard errors of 0.9 on 100 graphs: 2 * sqrt(0.09 / 100) = 0.06; losses are shares of the largest, 2.
    findings = with_change(
        lambda again: again["scores"].update(mean=0.841) or again.update(losses=[2.0019, -1.19, 0.5])
    )
    assert all(each.holds for each in findings.values())
    assert findings["score"].allowed == pytest.approx(0.06)
    assert findings["loss, epoch 2 (worst)"].difference == pytest.approx(0.095)


def test_fresh_record_passes_exactly_and_forged_record_fails(made_data, tmp_path, one_c):
    root, cell = str(made_data("MUTAG", num_graphs=40)), Cell("MUTAG", "histogram", 0)
    list(compute_missing([cell], RunOptions(tmp_path, data_root=root, device="cpu")))
    options = RunOptions(tmp_path / "unused", data_root=root, device="cpu")
    assert all(each.difference == 0 for each in check_record(tmp_path, cell.key, options))
    assert not options.records.exists()
    record = copy.deepcopy(record_file(tmp_path)[cell.key])
    record["scores"]["mean"] -= 0.5
    record_file(tmp_path).write(record)
    (finding,) = [each for each in check_record(tmp_path, cell.key, options) if not each.holds]
    assert finding.what == "score"


REMADE = [
    {"protocol": "unsupervised", "devices": SAME, "first loss": 9.0, "later losses": 9.0, "score": 9.0},
    {"protocol": "ogb", "devices": SAME_KIND, "first loss": 0.0, "later losses": 0.0, "score": 0.0},
    {"protocol": "unsupervised", "devices": SAME_KIND, "first loss": None, "later losses": None, "score": 0.1},
    {"protocol": "unsupervised", "devices": OTHER_KIND, "first loss": 0.03, "later losses": 0.3, "score": 0.6},
    {"protocol": "unsupervised", "devices": OTHER_KIND, "first loss": 0.04, "later losses": 0.4, "score": 0.8},
    {"protocol": "semi-supervised", "devices": OTHER_KIND, "first loss": 0.1, "later losses": 0.2, "score": 1},
]


def test_tolerance_is_three_times_the_measured_spread(monkeypatch):
    monkeypatch.setattr(check, "ENOUGH", 1)
    found = allowed_spread("unsupervised", OTHER_KIND, REMADE)  # of 3 and 4 the root mean square is sqrt(12.5)
    assert (found.first_loss, found.later_losses, found.score) == pytest.approx(
        (3 * math.sqrt(12.5) / 100, 3 * math.sqrt(12.5) / 10, 6 * math.sqrt(12.5) / 10)
    )
    # What was not measured: the largest of the others with such devices. Rounding is always allowed.
    assert allowed_spread("transfer", OTHER_KIND, REMADE) == Spread(
        *map(pytest.approx, (0.3, 3 * math.sqrt(12.5) / 10, 3))
    )
    assert allowed_spread("unsupervised", SAME_KIND, REMADE) == Spread(
        check.ROUNDING, check.ROUNDING, pytest.approx(0.3)
    )
    assert allowed_spread("transfer", SAME_KIND, REMADE).score == pytest.approx(0.3)
    assert allowed_spread("ogb", SAME_KIND, REMADE).score == allowed_spread("ogb", SAME, REMADE).score == 0
    # Without a measurement between devices of the same kind: that between CPU and GPU.
    assert allowed_spread("semi-supervised", SAME_KIND, REMADE[3:]).score == pytest.approx(3)
    assert allowed_spread("semi-supervised", SAME, []) == Spread(check.ROUNDING, check.ROUNDING, 0)


def test_few_measurements_do_not_count_alone(monkeypatch):
    for enough, expected in ((2, 6 * math.sqrt(12.5) / 10), (3, 3.0)):
        monkeypatch.setattr(check, "ENOUGH", enough)
        assert allowed_spread("unsupervised", OTHER_KIND, REMADE).score == pytest.approx(expected)


def test_devices_are_compared_by_kind_and_name():
    amd, intel = ({"machine": {"device": "cpu", "processor": name}} for name in ("AMD", "Intel"))
    gpu, other = ({"machine": {"device": "cuda", "processor": "Intel", "gpu": name}} for name in ("A", "B"))
    assert compare_devices(amd, amd) == compare_devices(gpu, gpu) == SAME
    assert compare_devices(amd, intel) == compare_devices(gpu, other) == SAME_KIND
    assert compare_devices(intel, gpu) == compare_devices(gpu, amd) == OTHER_KIND


def test_measured_differences_match_a_hand_computation():
    again = {**RECORD, "losses": [2.2, -1.0, 0.1], "scores": {"mean": 0.84}}
    found = measure("unsupervised", RECORD, again)
    assert (found.first_loss, found.later_losses) == pytest.approx((0.1, 0.2))
    assert found.score == pytest.approx(2)  # of standard errors of 0.03
    transfer = {"scores": {"test": [0.7, 0.9]}, "molecules": {"test": 400}, "corpus": {"losses": [4.0]}}
    found = measure("transfer", transfer, {"scores": {"test": [0.8, 0.9]}, "corpus": {"losses": [5.0]}})
    assert (found.first_loss, found.score) == pytest.approx((0.25, 2.5))  # 0.05 of standard errors of 0.02
    assert math.isnan(found.later_losses)


def test_other_corpus_is_reported():
    record = {**RECORD, "molecules": {"test": 10}, "split_hash": "ab", "scores": {"test": [0.5]}}
    one, other = ({**record, "corpus": {"fingerprint": name, "losses": [1.0]}} for name in "ab")
    found = compared("transfer", one, other, ALLOWED)
    assert [each.what for each in found if not each.holds] == ["corpus"]


@pytest.mark.parametrize(
    ("key", "protocol"),
    [
        ("MUTAG/joao-0", "unsupervised"),
        ("NCI1/joao-10-0", "semi-supervised"),
        ("bace/joao", "transfer"),
        ("ogbg-molbace/joao-10", "ogb"),
    ],
)
def test_protocol_is_found_by_key(key, protocol):
    found, record = find_record(RECORDS, key)
    assert found == protocol
    assert check.PROTOCOLS[found].record_file(RECORDS)[key] == record


@pytest.mark.parametrize(("name", "device"), [("uniform-0", "cuda"), ("infograph-0", "cpu")])
def test_project_record_passes(name, device):
    assert record_file(RECORDS)[f"MUTAG/{name}"]["machine"]["device"] == device
    findings = check_record(RECORDS, f"MUTAG/{name}", RunOptions(RECORDS, device="cpu"))
    assert all(each.holds for each in findings), [each for each in findings if not each.holds]


def test_missing_record_is_rejected(tmp_path):
    with refused(tmp_path, "MUTAG/joao-0"):
        check_record(tmp_path, "MUTAG/joao-0", RunOptions(tmp_path))
