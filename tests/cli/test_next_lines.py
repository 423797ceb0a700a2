"""Every "Next:" line works when it is pasted: a session follows all of them, and each kind of line occurs."""

import re
import shlex
from pathlib import Path

import pytest

import joao as package
from joao.cli.output import next_in_python
from joao.comparison import record as recording

QUICK = {
    "pretrain": ["--epochs", "1", "--device", "cpu", "--set", "encoder.width=4", "--set", "encoder.layers=1"],
    "finetune": ["--epochs", "1", "--device", "cpu"],
    "evaluate": ["--folds", "2"],
    "compare": ["--folds", "2", "--partitions", "1", "--epochs", "1", "--methods", "untrained"],
}


class Session:
    """Runs commands and, once each, the commands that they suggest; ``followed`` has the pairs of both."""

    def __init__(self, run):
        self.run, self.followed, self.seen = run, set(), set()

    def follow(self, *words):
        outcome = self.run(*words, *QUICK.get(words[0], []))
        assert outcome.code == 0, (words, outcome.err)
        for line in outcome.out.splitlines():
            if found := re.match(r"(?:Next|Or): joao (.*)", line):
                suggested = shlex.split(found[1])
                self.followed.add((words[0], suggested[0]))
                if found[1] not in self.seen:
                    self.seen.add(found[1])
                    self.follow(*suggested)
            elif found := re.match(r"Next, in Python: (.*)", line):
                self.followed.add((words[0], "python"))
                exec(found[1], {})
            else:
                assert not line.startswith("Next"), line


@pytest.fixture
def session(joao, monkeypatch, one_partition):
    """Comparisons run in this process; tests/comparison is about those in other processes."""
    monkeypatch.setattr(
        recording, "run_in_processes", lambda tasks, at_once, on_step: recording.run_here(tasks, on_step)
    )
    return Session(joao)


def test_labelled_graphs(session, labelled):
    folder = Path("my graphs")
    folder.mkdir()
    source = str(Path(labelled).rename(folder / "all of them.jsonl"))
    session.follow("data", source)
    session.follow("compare", source)
    session.follow("pack", source, "--out", "packed.safetensors")
    session.follow("pack", source, "--out", "shards", "--shard-graphs", "10")
    session.follow("finetune", "runs/mine", source, "--out", "tuned 1")
    session.follow("embed", "tuned 1", source, "--out", "tuned.csv")
    session.follow("export", "runs/mine", "--out", "model 1.safetensors")
    session.follow("export", "tuned 1", "--out", "tuned.safetensors")
    assert session.followed == {
        ("data", "pretrain"),
        ("compare", "pretrain"),
        ("pack", "pretrain"),
        ("pretrain", "evaluate"),
        ("pretrain", "embed"),
        ("evaluate", "embed"),
        ("embed", "evaluate"),
        ("embed", "predict"),
        ("finetune", "predict"),
        ("predict", "python"),
        ("export", "embed"),
        ("export", "predict"),
    }


def test_unlabelled_and_half_labelled_graphs(session, unlabelled, labelled):
    session.follow("pretrain", unlabelled, "--out", "run")
    lines = Path(labelled).read_text().splitlines()
    half = [re.sub(r', "label": \d', "", line) if number % 3 else line for number, line in enumerate(lines)]
    Path("half.jsonl").write_text("\n".join(half))
    session.follow("pretrain", "half.jsonl", "--out", "half")
    assert {("embed", "python"), ("pretrain", "finetune"), ("finetune", "predict")} <= session.followed


def test_table_of_molecules(session):
    pytest.importorskip("rdkit")
    rings = [
        "C1CC1",
        "C1CCC1",
        "C1CCCC1",
        "C1CCCCC1",
        "c1ccccc1",
        "c1ccncc1",
        "c1ccoc1",
        "c1ccsc1",
        "C1CCNCC1",
        "C1CCOC1",
    ]
    texts = rings + [f"C{ring}" for ring in rings] + [f"O{ring}" for ring in rings]  # ten scaffolds with both labels
    rows = [f"m{row},{text},{(row + row // 10) % 2}" for row, text in enumerate(texts)]
    Path("m.csv").write_text("\n".join(["key,structure,toxic", *rows]) + "\n")
    session.follow("pretrain", "m.csv", "--smiles", "structure", "--id", "key", "--out", "run")
    expected = {("pretrain", "finetune"), ("finetune", "predict"), ("pretrain", "embed"), ("embed", "finetune")}
    assert expected <= session.followed
    on_the_table = [line for line in session.seen if "m.csv" in line and not line.startswith("predict")]
    assert all("--smiles structure --id key" in line for line in on_the_table)


def test_the_data_root_is_repeated(session, made_data):
    session.follow("pretrain", "SMALL", "--data-root", str(made_data("SMALL", num_graphs=24)), "--out", "small")
    assert ("pretrain", "embed") in session.followed


def test_quickstart(joao, started):
    """Its suggestion is the report of its run."""
    (line,) = (line for line in started[0].out.splitlines() if line.startswith("Next: joao "))
    outcome = joao(*shlex.split(line.removeprefix("Next: joao ")))
    assert outcome.code == 0
    assert Path("report.html").exists()


def test_export_without_recorded_data(joao, labelled):
    package.JOAO(epochs=1, device="cpu").fit(package.read(labelled)).save("python")
    outcome = joao("export", "python", "--out", "python.safetensors")
    assert outcome.code == 0
    assert "Next" not in outcome.out


def test_pandas_is_named_where_it_is_missing(monkeypatch):
    known = next_in_python(Path("rows.csv"), "embeddings")
    monkeypatch.setattr("joao.cli.output.find_spec", lambda name: None)
    assert next_in_python(Path("rows.csv"), "embeddings") == known.replace("Python:", "Python (pip install pandas):")
    assert "pandas" not in next_in_python(Path("rows.npz"), "embeddings")
