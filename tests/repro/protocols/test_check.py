"""A record is made again and compared: what holds, what does not, and that it is told."""

import copy
import math

import pytest

from repro.protocols.cells import RunOptions
from repro.protocols.check import check_record, compared
from repro.protocols.unsupervised.run import Cell, compute_missing, record_file
from repro.record_files import RECORDS
from tests.messages import refused

RECORD = {
    "recipe": {"method": "joao"},
    "data": {"fingerprint": "0123", "graphs": 100},
    "scores": {"mean": 0.9, "partitions": [{"fold_hash": "ab"}]},
    "losses": [2.0, -1.0, 0.5],
}


def with_change(change):
    again = copy.deepcopy(RECORD)
    change(again)
    return {each.what: each for each in compared(RECORD, again)}


def test_identical_record_passes():
    findings = with_change(lambda again: None)
    assert list(findings) == [
        "recipe",
        "graphs",
        "folds",
        "epochs",
        "loss, epoch 1",
        "loss, epoch 2 (worst)",
        "mean accuracy",
    ]
    assert all(each.holds and each.difference == 0 for each in findings.values())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda again: again["recipe"].update(method="joaov2"), "recipe"),
        (lambda again: again["data"].update(fingerprint="4567"), "graphs"),
        (lambda again: again["scores"].update(partitions=[{"fold_hash": "cd"}]), "folds"),
        (lambda again: again.update(losses=[2.0, -1.0]), "epochs"),
        (lambda again: again.update(losses=[2.0001, -1.0, 0.5]), "loss, epoch 1"),
        (lambda again: again.update(losses=[math.nan, -1.0, 0.5]), "loss, epoch 1"),
        (lambda again: again.update(losses=[2.0, -1.1, 0.71]), "loss, epoch 3 (worst)"),
        (lambda again: again["scores"].update(mean=0.839), "mean accuracy"),
        (lambda again: again["scores"].update(mean=0.961), "mean accuracy"),
    ],
)
def test_single_difference_is_reported(change, what):
    assert [name for name, each in with_change(change).items() if not each.holds] == [what]


def test_tolerance_matches_a_hand_computation():
    # Two standard errors of 0.9 on 100 graphs: 2 * sqrt(0.09 / 100) = 0.06; losses are shares of the largest, 2.
    findings = with_change(
        lambda again: again["scores"].update(mean=0.841) or again.update(losses=[2.000019, -1.19, 0.5])
    )
    assert all(each.holds for each in findings.values())
    assert findings["mean accuracy"].allowed == pytest.approx(0.06)
    assert findings["loss, epoch 2 (worst)"].difference == pytest.approx(0.095)


def test_fresh_record_passes_exactly_and_forged_record_fails(made_data, tmp_path):
    root, cell = str(made_data("MUTAG", num_graphs=40)), Cell("MUTAG", "histogram", 0)
    list(compute_missing([cell], RunOptions(tmp_path, data_root=root, device="cpu")))
    assert all(each.difference == 0 for each in check_record(tmp_path, cell.key, data_root=root, device="cpu"))
    record = copy.deepcopy(record_file(tmp_path)[cell.key])
    record["scores"]["mean"] -= 0.5
    record_file(tmp_path).write(record)
    (finding,) = [each for each in check_record(tmp_path, cell.key, data_root=root, device="cpu") if not each.holds]
    assert finding.what == "mean accuracy"


def test_first_loss_of_a_gpu_record_may_differ():
    def on(device, losses):
        return {**RECORD, "losses": losses, "machine": {"device": device}}

    for device, first, holds in (("cuda", 2.19, True), ("cuda", 2.21, False), ("cpu", 2.19, False)):
        findings = compared(on("cpu", [2.0, -1.0, 0.5]), on(device, [first, -1.0, 0.5]))
        assert next(each for each in findings if each.what == "loss, epoch 1").holds == holds


@pytest.mark.parametrize(("name", "device"), [("uniform-0", "cuda"), ("infograph-0", "cpu")])
def test_project_record_passes(name, device):
    assert record_file(RECORDS)[f"MUTAG/{name}"]["machine"]["device"] == device
    findings = check_record(RECORDS, f"MUTAG/{name}", data_root=None, device="cpu")
    assert all(each.holds for each in findings), [each for each in findings if not each.holds]


def test_missing_record_is_rejected(tmp_path):
    with refused(tmp_path, "MUTAG/joao-0"):
        check_record(tmp_path, "MUTAG/joao-0", data_root=None)
