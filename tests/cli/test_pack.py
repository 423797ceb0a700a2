"""Oracle: the same commands on the source itself."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from joao.runs.folder import Run

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


def test_a_table_by_way_of_shards(joao, table):
    pytest.importorskip("rdkit")
    packed = joao("pack", table, "--out", "m.joao", "--shard-graphs", 5)
    assert packed.code == 0
    assert packed.out.startswith("m.joao: 21 molecules in 5 shards, ")
    assert "joao: note: m: 3 of 24 rows are no molecules and are left out; m.joao/failures.csv lists them" in packed.err
    assert Path("m.joao/failures.csv").read_text() == (
        "line,name,smiles,reason\n3,m1,bad,not SMILES\n11,m9,bad,not SMILES\n19,m17,bad,not SMILES\n"
    )
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


def test_a_run_on_shards_goes_on(joao, labelled, monkeypatch):
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
    assert "Go on: joao pretrain --resume part" in stopped.err
    assert joao("pretrain", "--resume", "part", "--device", "cpu").code == 0
    assert weights("part") == weights("whole")


def test_what_shards_hold_and_whether_they_are_whole(joao, labelled):
    assert joao("pack", labelled, "--out", "store", "--shard-graphs", 10, "--json").code == 0
    facts = json.loads(joao("data", "store", "--json").out)
    assert (facts["graphs"], facts["shards"], facts["classes"], facts["checked"]) == (24, 3, ["0", "1"], False)
    assert "every shard is what was written" in joao("data", "store", "--check").out
    shard = Path("store/shard-00001.safetensors")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert joao("data", "store").code == 0
    checked = joao("data", "store", "--check")
    assert checked.code == 2
    assert checked.err.startswith(f"joao: {shard}: is damaged (its contents are not those that were written)")
    shard.write_bytes(content[:-7])
    for words in (("data", "store"), ("pretrain", "store", "--out", "run"), ("pack", "store", "--out", "again")):
        told = joao(*words)
        assert (told.code, told.err.count("\n")) == (2, 1)
        assert str(shard) in told.err
    assert not Path("run").exists()
    shard.unlink()
    assert joao("pretrain", "store", "--out", "run").err.startswith(f"joao: {shard}: is not there.")


def test_commands_that_need_everything_read_it(joao, labelled):
    assert joao("pack", labelled, "--out", "store", "--shard-graphs", 10).code == 0
    small = ("--device", "cpu", "--epochs", 1, "--set", "encoder.width=4")
    assert joao("pretrain", "store", "--out", "run", *small).code == 0
    assert joao("finetune", "run", "store", "--out", "tuned", "--device", "cpu", "--epochs", 1).code == 0
    predicted = joao("predict", "tuned", "store", "--out", "p.csv")
    assert predicted.code == 0
    assert len(Path("p.csv").read_text().splitlines()) == 25
    assert joao("pack", "store", "--out", "one.safetensors").code == 0
    assert json.loads(joao("data", "one.safetensors", "--json").out)["classes"] == {"0": 12, "1": 12}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pack", "g.jsonl", "--out", "g.bin"], "g.bin: unknown kind of file '.bin'. Use .safetensors or"),
        (["pack", "g.jsonl", "--out", "g", "--scaffolds"], "g: --scaffolds is for one file, .safetensors"),
        (["pack", "g.jsonl", "--out", "g.safetensors", "--shard-graphs", "3"], "--shard-graphs is for a folder"),
        (["pack", "g.jsonl", "--out", "full"], "full: exists already"),
        (["pack", "none.jsonl", "--out", "g"], "none.jsonl: no such file or folder"),
        (["data", "g.jsonl", "--check"], "g.jsonl: --check is for shards"),
        (["data", "--check"], "--check needs DATA"),
        (["pretrain", "store", "--out", "r", "--fast", "--device", "cpu"], "the fast path is not possible: graphs in"),
    ],
)
def test_what_cannot_be(joao, tmp_path, words, told):
    (tmp_path / "g.jsonl").write_text('{"edges": [[0, 1]], "num_nodes": 2}\n' * 4)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    joao("pack", "g.jsonl", "--out", "store")
    found = joao(*words)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert told in found.err


def test_an_interrupted_packing_goes_on(joao, tmp_path):
    """Killed, not asked: the same command again, and the store is that of an undisturbed one."""
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
