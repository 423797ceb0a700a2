"""The command writes a record and prints what is in it."""

import json

import pytest

TINY = ("bench", "molecules", "--quick", "--repeats", 1, "--width", 2, "--layers", 1, "--batch-size", 2)


def test_a_record_and_a_table(joao, tmp_path):
    outcome = joao(*TINY, "--scaling", "--out", "bench.json")
    assert (outcome.code, outcome.err) == (0, "")
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["command"].startswith("joao bench molecules --quick")
    workload = record["settings"][0]["workloads"][0]
    lines = outcome.out.splitlines()
    for name, row in workload["rows"].items():
        (line,) = [line for line in lines if line.startswith(f"│ {name} ")]
        assert f"{row['graphs per second']:,.0f}" in line
    for name in [*workload["ratios"], *workload["not measured"], "Record", "Next"]:
        assert any(line.startswith(f"{name}: ") for line in lines)
    for name in ("number of graphs", "nodes per graph", "edges per node", "batch size"):
        assert f"Growth with the {name}" in outcome.out
        assert name in record["settings"][0]["scaling"]
    assert outcome.out.count("Exponents: least squares in logarithms, on the sizes from ") == 4
    assert "say little" in lines[0]


def test_json_is_the_record_alone(joao, tmp_path):
    outcome = joao(*TINY, "--no-rivals", "--json")
    assert outcome.code == 0
    rows = json.loads(outcome.out)["settings"][0]["workloads"][0]["rows"]
    assert not [name for name in rows if "torch-geometric" in name]
    assert list(tmp_path.iterdir()) == []
    assert joao(*TINY, "--no-rivals", "--quiet").out == ""


def test_a_record_is_not_overwritten(joao, tmp_path):
    (tmp_path / "bench.json").write_text("precious")
    outcome = joao(*TINY, "--out", "bench.json")
    assert outcome.code == 2
    assert outcome.err == "joao: bench.json: exists already. Choose another name or remove it first.\n"
    assert (tmp_path / "bench.json").read_text() == "precious"


NONSENSE = {
    "an unknown workload": (["nci1"], "bench: unknown workload 'nci1'. Did you mean 'NCI1'?"),
    "an unknown device": (["--device", "tpu"], "bench: device must be one of"),
    "a GPU that is not there": (["--device", "cuda"], "torch sees no GPU"),
    "no threads": (["--threads", "0"], "bench: threads must be 'all' or a number"),
    "threads in words": (["--threads", "1,many"], "got 'many'."),
    "repeats below zero": (["--repeats", "-1"], "bench: repeats must be at least 1, got -1."),
    "no repeats": (["--repeats", "0"], "bench: repeats must be at least 1, got 0."),
    "no width": (["--width", "0"], "bench: width must be at least 1, got 0."),
    "no layers": (["--layers", "0"], "bench: layers must be at least 1, got 0."),
    "a batch of one": (["--batch-size", "1"], "bench: batch_size must be at least 2, got 1."),
    "a folder that is not there": (["--out", "nowhere/bench.json"], "nowhere does not exist."),
    "a root that is not there": (["NCI1", "--data-root", "nowhere"], "data root: nowhere is not a folder."),
    "words for numbers": (["--repeats", "many"], "'--repeats'"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_told_in_one_line(joao, tmp_path, kind, monkeypatch):
    arguments, message = NONSENSE[kind]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    outcome = joao("bench", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("joao: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []
