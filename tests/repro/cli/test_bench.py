"""The command writes a record and prints what is in it."""

import json

import pytest

from tests.cli.conftest import assert_refused
from tests.messages import assert_mentions

TINY = ("bench", "molecules", "--quick", "--repeats", 1, "--width", 2, "--layers", 1, "--batch-size", 2)


@pytest.mark.slow
def test_bench_writes_a_record_and_a_table(repro, tmp_path):
    outcome = repro(*TINY, "--scaling", "--out", "bench.json")
    assert (outcome.code, outcome.err) == (0, "")
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["command"].split()[:4][1:] == list(TINY[:3])
    workload = record["settings"][0]["workloads"][0]
    lines = outcome.out.splitlines()
    for name, row in workload["rows"].items():
        (line,) = [line for line in lines if line.startswith(f"│ {name} ")]
        assert f"{row['graphs per second']:,.0f}" in line
    for name in [*workload["ratios"], *workload["not measured"]]:
        assert any(line.startswith(f"{name}: ") for line in lines)
    scaling = record["settings"][0]["scaling"]
    assert len(scaling) == 4
    for name in scaling:
        assert name in outcome.out
    assert_mentions(outcome.out, "bench.json")
    assert_mentions(outcome.out.splitlines()[-1], "python -m repro bench NCI1")


@pytest.mark.slow
def test_json_output_is_the_record(repro, tmp_path):
    outcome = repro(*TINY, "--no-rivals", "--json")
    assert outcome.code == 0
    rows = json.loads(outcome.out)["settings"][0]["workloads"][0]["rows"]
    assert not [name for name in rows if "torch-geometric" in name]
    assert list(tmp_path.iterdir()) == []
    assert repro(*TINY, "--no-rivals", "--quiet").out == ""


def test_record_is_not_overwritten(repro, tmp_path):
    (tmp_path / "bench.json").write_text("precious")
    outcome = repro(*TINY, "--out", "bench.json")
    assert_refused(outcome, "repro: bench.json: ")
    assert (tmp_path / "bench.json").read_text() == "precious"


NONSENSE = {
    "an unknown workload": (["nci1"], ["repro: bench: ", "'nci1'", "'NCI1'"]),
    "an unknown device": (["--device", "tpu"], ["repro: bench: ", "device", "cpu", "'tpu'"]),
    "a GPU that is not there": (["--device", "cuda"], ["cuda", "--device cpu"]),
    "no threads": (["--threads", "0"], ["repro: bench: ", "threads", "'all'", "0"]),
    "threads in words": (["--threads", "1,many"], ["threads", "'many'"]),
    "repeats below zero": (["--repeats", "-1"], ["repro: bench: ", "repeats", "1", "-1"]),
    "no repeats": (["--repeats", "0"], ["repro: bench: ", "repeats", "1", "0"]),
    "no width": (["--width", "0"], ["repro: bench: ", "width", "1", "0"]),
    "no layers": (["--layers", "0"], ["repro: bench: ", "layers", "1", "0"]),
    "a batch of one": (["--batch-size", "1"], ["repro: bench: ", "batch-size", "2", "1"]),
    "a folder that is not there": (["--out", "nowhere/bench.json"], ["repro: nowhere/bench.json: "]),
    "a root that is not there": (["NCI1", "--data-root", "nowhere"], ["nowhere"]),
    "words for numbers": (["--repeats", "many"], ["'--repeats'"]),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_invalid_options_get_a_one_line_error(repro, tmp_path, kind, monkeypatch):
    arguments, values = NONSENSE[kind]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert_refused(repro("bench", *arguments), *values)
    assert list(tmp_path.iterdir()) == []
