"""Records made again: what is measured, what is skipped, and the page."""

import json

import pytest

from repro.protocols.cells import RunOptions
from repro.protocols.check import SAME, read_remade
from repro.protocols.unsupervised.run import Cell, compute_missing, record_file
from repro.studies import remade


@pytest.fixture
def records(made_data, tmp_path, monkeypatch, one_c):
    """A folder with one record, and the data to make it again."""
    root, folder = str(made_data("MUTAG", num_graphs=40)), tmp_path / "records"
    list(compute_missing([Cell("MUTAG", "histogram", 0)], RunOptions(folder, data_root=root, device="cpu")))
    monkeypatch.setattr(remade, "RECORDS", folder)
    return folder, ["MUTAG/histogram-0", "--device", "cpu", "--data-root", root]


def test_records_are_made_again_once(records, tmp_path, capsys):
    folder, arguments = records
    out = ["--out", str(tmp_path / "out")]
    remade.main([*arguments, *out])
    (line,) = read_remade(tmp_path / "out")
    assert (line["record"], line["protocol"], line["devices"]) == ("MUTAG/histogram-0", "unsupervised", SAME)
    assert (line["first loss"], line["later losses"], line["score"]) == (None, None, 0)
    assert line["recorded"]["machine"] == line["again"]["machine"] == record_file(folder).read()[0]["machine"]
    remade.main([*arguments, *out])
    assert len(read_remade(tmp_path / "out")) == 1


def test_another_processor_is_another_measurement(records, tmp_path):
    _, arguments = records
    out = tmp_path / "out"
    remade.main([*arguments, "--out", str(out)])
    line = read_remade(out)[0]
    line["again"]["machine"]["processor"] = "another"
    (out / "remade.jsonl").write_text(json.dumps(line) + "\n")
    remade.main([*arguments, "--out", str(out)])
    assert len(read_remade(out)) == 2


def test_page_counts_records_by_protocol_and_devices():
    machines = {"recorded": {"machine": {"processor": "A"}}, "again": {"machine": {"processor": "B", "gpu": "C"}}}
    spread = {"first loss": 0.5, "later losses": None, "score": 0.25}
    line = {"record": "MUTAG/joao-0", "protocol": "ogb", "devices": "CPU and GPU", **spread, **machines}
    text = remade.page([line, {**line, "first loss": 0.0, "score": 0.0}])
    # Root mean squares of (0.5, 0) and (0.25, 0), times three.
    assert "| ogb | CPU and GPU | 2 | 1 | 0.5 |  | 0.25 | 1.1 | 1e-05 | 0.53 |" in text
    assert "| MUTAG/joao-0 | A | C | 0.5 |  | 0.25 |" in text
