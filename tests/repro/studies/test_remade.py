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
