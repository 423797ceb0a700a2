"""The study of epochs: its rules and figures on traces made by hand."""

import json
from argparse import Namespace

import numpy as np

from joao.data import read
from repro.protocols.semi_supervised import run as reproduce
from repro.protocols.semi_supervised.run import Cell, Work, compute
from repro.studies import epochs
from repro.studies.common import read_record


def pages(folder):
    return Namespace(traces=folder / "traces")


def write(folder, seed, shares, dataset="NCI1", method="joao"):
    (folder / "traces").mkdir(exist_ok=True)
    trace = {"dataset": dataset, "method": method, "seed": seed, "shares": shares}
    origin = {"command": "joao", "versions": {"joao": "1"}, "machine": {"device": "cpu"}}
    (folder / "traces" / f"{dataset}-{method}-{seed}.json").write_text(json.dumps(trace | origin))


def lines(path):
    return [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if line.startswith("| ")]


def test_rules_match_a_hand_computation():
    accuracy, loss = np.array([0.5, 0.75, 0.75, 0.75, 0.5]), np.array([0.9, 0.6, 0.5, 0.7, 0.4])
    chosen = {name: rule(accuracy, loss) for name, rule in epochs.RULES.items()}
    # The best accuracy and of equals the last, or that of the least loss; the least loss; the last epoch.
    assert list(chosen.values()) == [3, 2, 4, 4]


def test_page_on_epoch_choice_matches_a_hand_computation(own_folders, tmp_path):
    fold = {
        "validation accuracy": [0.5, 1.0, 1.0],
        "validation loss": [0.1, 0.3, 0.2],
        "test accuracy": [0.2, 0.4, 0.6],
    }
    other = {
        "validation accuracy": [1.0, 0.5, 0.5],
        "validation loss": [0.3, 0.2, 0.4],
        "test accuracy": [0.8, 0.5, 0.3],
    }
    write(tmp_path, 0, {"0.1": [fold, other]})
    write(tmp_path, 1, {"0.1": [fold, fold], "0.0": [{"test accuracy": [0, 0, 0]}]})
    epochs.choice(pages(tmp_path))
    shown = {line[1]: line for line in lines(tmp_path / "epoch-choice.md")[2:]}
    # Of equals the last: seed 0 has 0.6 and 0.8, seed 1 has 0.6; least loss: 0.2 and 0.5, and 0.2.
    assert list(shown) == list(epochs.RULES)
    (last_of_equals, _, least_loss, last) = shown.values()
    assert (last_of_equals[0], *last_of_equals[2:]) == ("10%", "65.00", "65.00")
    assert (least_loss[0], *least_loss[2:]) == ("10%", "27.50", "27.50")
    assert (last[0], *last[2:]) == ("10%", "52.50", "52.50")


def test_page_on_the_published_rule_matches_a_hand_computation(own_folders, tmp_path, monkeypatch):
    monkeypatch.setattr(epochs, "RECORDS", tmp_path / "records")
    for seed, chosen in ((0, 0.5), (1, 0.4)):
        # Means over folds 0.5, 0.6, 0.4 of seed 0, and 0.4, 0.5, 0.3 of seed 1; each fold's own best would be higher.
        folds = [[0.5, 0.8, 0.3], [0.5, 0.4, 0.5]]
        write(tmp_path, seed, {"0.0": [{"test accuracy": [each - seed / 10 for each in fold]} for fold in folds]})
        cell = {"dataset": "NCI1", "method": "joao", "seed": seed, "label_rate": 10}
        record = {"cell": cell, "split_hash": "a", "scores": {"mean": chosen, "accuracy": [chosen]}}
        reproduce.record_file(tmp_path / "records").write(record)
    epochs.rule(pages(tmp_path))
    assert lines(tmp_path / "published-epoch.md")[2:] == [
        [
            *("NCI1", "JOAO", "2", "55.00 ± 7.07", "35.00 ± 7.07", "45.00 ± 7.07"),
            *("+20.00 (+20.00 to +20.00)", "+10.00 (+10.00 to +10.00)"),
        ]
    ]


def test_published_rule_is_compared_with_the_records_of_the_table():
    record = read_record("published-epoch")
    for key, row in record["rows"].items():
        name, method = key.split("|")
        for seed, chosen in enumerate(row["chosen by validation"]):
            cell = Cell(name, method, seed, epochs.LABEL_RATE)
            assert reproduce.record_file(epochs.RECORDS)[cell.key]["scores"]["mean"] == chosen


def test_traces_end_with_the_protocol(made_data, tmp_path, monkeypatch):
    root = made_data("NCI1", num_graphs=60)
    monkeypatch.setenv("JOAO_DATA", str(root))
    table = json.loads(json.dumps(reproduce.grid()))
    table["recipe"]["encoder"] |= {"width": 4, "layers": 1}
    table["finetuning"] |= {"epochs": 3, "batch_size": 2, "learning_rate": 0.1}
    for module in (reproduce, epochs):
        monkeypatch.setattr(module, "grid", lambda: table)
    work = Work("NCI1", "none", 0, (10,))
    epochs.trace_one(work, [0.1, 0.0], tmp_path, "cpu", "32-true")
    trace = json.loads((tmp_path / "NCI1-none-0.json").read_text())
    (record,) = compute(work, read("NCI1", root), device="cpu")
    for number, fold in enumerate(trace["shares"]["0.1"]):
        # Looking at the test graphs after every epoch changes nothing: the chosen epoch scores as in the record.
        chosen = record["scores"]["epoch"][number] - 1
        assert fold["test accuracy"][chosen] == record["scores"]["accuracy"][number]
        assert fold["validation accuracy"][chosen] == record["scores"]["validation_accuracy"][number]
    assert [list(fold) for fold in trace["shares"]["0.0"]] == [["test accuracy"]] * 10
    assert all(len(fold["test accuracy"]) == 3 for folds in trace["shares"].values() for fold in folds)
