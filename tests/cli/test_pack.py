"""``joao pack``. Oracle: the same commands on the source files."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from joao.runs.folder import Run
from tests.cli.conftest import assert_noted, assert_refused
from tests.messages import assert_mentions

TABLE = "name,smiles,toxic\n" + "".join(
    f"m{row},{text},{row % 2}\n"
    for row, text in enumerate(["CCO", "bad", "c1ccccc1", "CN", "C=O", "CC", "CF", "N"] * 3)
)
SMALL = ("--device", "cpu", "--epochs", 2, "--set", "encoder.width=8", "--set", "encoder.layers=2")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "m.csv").write_text(TABLE)
    return "m.csv"


def weights(run):
    return (Path(run) / "weights.safetensors").read_bytes()


def test_shards_give_the_same_weights_as_the_table(joao, table):
    pytest.importorskip("rdkit")
    packed = joao("pack", table, "--out", "m.joao", "--shard-graphs", 5)
    assert packed.code == 0
    assert_mentions(packed.out.splitlines()[0], "m.joao: ", "21", "5 shards")
    assert_mentions(packed.err, "joao: note: m: ", "3 of 24", "m.joao/failures.csv")
    failures = [line.split(",") for line in Path("m.joao/failures.csv").read_text().splitlines()]
    assert [line[:3] for line in failures] == [
        ["line", "name", "smiles"], ["3", "m1", "bad"], ["11", "m9", "bad"], ["19", "m17", "bad"],
    ]  # fmt: skip
    for source, run in (("m.joao", "a"), (table, "b")):
        assert joao("pretrain", source, "--out", run, *SMALL).code == 0
        assert joao("embed", run, source, "--out", f"{run}.npz").code == 0
    assert weights("a") == weights("b")
    one, other = np.load("a.npz"), np.load("b.npz")
    assert one.files == other.files
    for name in one.files:
        if name == "embeddings":
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5)
        else:
            assert (one[name] == other[name]).all()
    assert Path("a.npz.failures.csv").read_text() == Path("b.npz.failures.csv").read_text()


def test_resume_on_shards(joao, labelled, monkeypatch):
    assert joao("pack", labelled, "--out", "store", "--shard-graphs", 7).code == 0
    small = ("--device", "cpu", "--epochs", 3, "--set", "encoder.width=4", "--set", "training.batch_size=5")
    assert joao("pretrain", "store", "--out", "whole", *small).code == 0
    write = Run.write_checkpoint

    def write_and_stop(run, tensors):
        write(run, tensors)
        if tensors["position"][1] > 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write_checkpoint", write_and_stop)
        stopped = joao("pretrain", "store", "--out", "part", "--checkpoint-every", 1, *small)
    assert_mentions(stopped.err, "joao pretrain --resume part")
    assert joao("pretrain", "--resume", "part", "--device", "cpu").code == 0
    assert weights("part") == weights("whole")


def test_shards_are_described_and_checked(joao, labelled):
    assert joao("pack", labelled, "--out", "store", "--shard-graphs", 10, "--json").code == 0
    facts = json.loads(joao("data", "store", "--json").out)
    assert (facts["graphs"], facts["shards"], facts["classes"], facts["checked"]) == (24, 3, ["0", "1"], False)
    assert joao("data", "store", "--check").code == 0
    assert json.loads(joao("data", "store", "--check", "--json").out)["checked"]
    shard = Path("store/shard-00001.safetensors")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert joao("data", "store").code == 0
    assert_refused(joao("data", "store", "--check"), f"joao: {shard}: ")
    shard.write_bytes(content[:-7])
    for words in (("data", "store"), ("pretrain", "store", "--out", "run"), ("pack", "store", "--out", "again")):
        assert_refused(joao(*words), shard)
    assert not Path("run").exists()
    shard.unlink()
    assert_refused(joao("pretrain", "store", "--out", "run"), f"joao: {shard}: ")


def test_commands_load_shards_into_memory(joao, labelled):
    assert joao("pack", labelled, "--out", "store", "--shard-graphs", 10).code == 0
    small = ("--device", "cpu", "--epochs", 1, "--set", "encoder.width=4")
    assert joao("pretrain", "store", "--out", "run", *small).code == 0
    assert joao("finetune", "run", "store", "--out", "tuned", "--device", "cpu", "--epochs", 1).code == 0
    predicted = joao("predict", "tuned", "store", "--out", "p.csv")
    assert predicted.code == 0
    assert len(Path("p.csv").read_text().splitlines()) == 25
    assert joao("pack", "store", "--out", "one.safetensors").code == 0
    assert json.loads(joao("data", "one.safetensors", "--json").out)["classes"] == {"0": 12, "1": 12}


def test_a_run_on_several_shards_finds_its_graphs_again(joao, labelled):
    assert joao("pack", labelled, "--out", "store", "--shard-graphs", 10).code == 0
    small = ("--device", "cpu", "--epochs", 1, "--set", "encoder.width=4")
    assert joao("pretrain", "store", "--out", "run", *small).code == 0
    assert joao("evaluate", "run", "--folds", 2).code == 0
    protocol = json.loads(Path("run/evaluation.json").read_text())["protocol"]
    assert protocol["pre-training"].startswith("transductive")
    reported = joao("report", "run")
    assert (reported.code, reported.err) == (0, "")
    assert joao("pack", labelled, labelled, "--out", "other", "--shard-graphs", 10).code == 0
    Path("store").rename("old")
    Path("other").rename("store")
    assert_noted(joao("report", "run"), "joao: note: run: ")  # other graphs


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["pack", "g.jsonl", "--out", "g.bin"], ["joao: g.bin: ", "'.bin'", ".safetensors"]),
        (["pack", "g.jsonl", "--out", "g", "--scaffolds"], ["joao: g: ", "--scaffolds", ".safetensors"]),
        (
            ["pack", "g.jsonl", "--out", "g.safetensors", "--shard-graphs", "3"],
            ["joao: g.safetensors: ", "--shard-graphs"],
        ),
        (["pack", "g.jsonl", "--out", "full"], ["joao: full: "]),
        (["pack", "none.jsonl", "--out", "g"], ["joao: none.jsonl: "]),
        (["data", "g.jsonl", "--check"], ["joao: g.jsonl: ", "--check"]),
        (["data", "--check"], ["--check", "DATA"]),
    ],
)
def test_invalid_input(joao, tmp_path, words, values):
    (tmp_path / "g.jsonl").write_text('{"edges": [[0, 1]], "num_nodes": 2}\n' * 4)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert_refused(joao(*words), *values)


def test_interrupted_packing_continues(joao, tmp_path):
    """After SIGKILL the same command completes the shards as if it had not been interrupted."""
    (tmp_path / "g.jsonl").write_text('{"edges": [[0, 1]], "num_nodes": 2}\n' * 400)
    words = ["pack", "g.jsonl", "--shard-graphs", "4", "--name", "g", "--out"]
    process = subprocess.Popen([sys.executable, "-m", "joao", *words, "store"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(3000):
            if Path("store/shard-00002.safetensors").exists() or process.poll() is not None:
                break
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert joao(*words, "store").code == 0
    assert joao(*words, "other").code == 0
    one, other = ({path.name: path.read_bytes() for path in Path(name).iterdir()} for name in ("store", "other"))
    assert one == other
