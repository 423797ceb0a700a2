"""Ctrl-C and SIGTERM save the state and print the resume command; a second Ctrl-C stops at once."""

import json
import signal
import sys
from functools import partial

import pytest

from joao.core.signals import catch_stop_signals
from joao.data.shards import writer
from joao.runs import parts
from joao.runs.folder import Run
from joao.training.pretrain import Pretraining
from tests.cli.conftest import assert_noted
from tests.messages import assert_mentions

SMALL = ("--epochs", 4, "--set", "training.batch_size=6", "--set", "encoder.width=4", "--device", "cpu")


@pytest.fixture
def signal_in(monkeypatch):
    """Send signals to this process within a step."""

    def arrange(step, *numbers):
        follow = Pretraining._update_copy

        def send(training, progress):
            follow(training, progress)
            if training.step == step - 1:
                for number in numbers:
                    signal.raise_signal(number)

        monkeypatch.setattr(Pretraining, "_update_copy", send)

    return arrange


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_state_and_resume_continues(joao, labelled, tmp_path, signal_in, number, code):
    assert joao("pretrain", labelled, "--out", "whole", *SMALL).code == 0
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    signal_in(6, number)
    stopped = joao("pretrain", labelled, "--out", "my run", *SMALL)
    assert stopped.code == code
    note, end = stopped.err.splitlines()
    assert_mentions(note, f"joao: note: {number.name}: ", "Ctrl-C")
    assert_mentions(end, "step 6", "joao pretrain --resume 'my run'")
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert joao("pretrain", "--resume", "my run", "--device", "cpu").code == 0
    ours, expected = (Run.open(tmp_path / name).weights() for name in ("my run", "whole"))
    assert {name: value.tolist() for name, value in ours.items()} == {
        name: value.tolist() for name, value in expected.items()
    }


def test_a_second_ctrl_c_stops_at_once(joao, labelled, tmp_path, signal_in):
    signal_in(6, signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
    stopped = joao("pretrain", labelled, "--out", "run", *SMALL, "--checkpoint-every", 1)
    assert stopped.code == 143
    assert_mentions(stopped.err.splitlines()[-1], "joao pretrain --resume run")
    # The step under way is lost, and what came before it since the checkpoint.
    assert Run.open(tmp_path / "run").read_checkpoint()["position"].tolist() == [1, 4]


def test_a_damaged_checkpoint_gives_a_notice(joao, labelled, tmp_path, signal_in, monkeypatch):
    signal_in(6, signal.SIGINT)
    joao("pretrain", labelled, "--out", "run", *SMALL)
    newest, older = Run.open(tmp_path / "run").checkpoints()
    newest.write_bytes(newest.read_bytes()[:-1])
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    resumed = joao("pretrain", "--resume", "run", "--device", "cpu")
    assert_noted(resumed, f"joao: note: run/{newest.name}: ", older.name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_once_stops_at_the_first_signal(number):
    notices = []
    with catch_stop_signals(notices.append, at_once=True) as stop:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert (stop.code, notices) == (128 + number, [])


def test_no_signal_no_stop_request():
    with catch_stop_signals(lambda text: None) as stop:
        assert not stop
    assert stop.code == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", [("embed", "molecules", "--part-rows"), ("pack", "--name", "m", "--shard-graphs")])
def test_a_signal_ends_parts_and_shards_which_the_same_command_continues(
    joao, tmp_path, monkeypatch, command, number, code
):
    pytest.importorskip("rdkit")
    pytest.importorskip("pyarrow")
    (tmp_path / "m.csv").write_text("smiles\n" + "CCO\nCC\n" * 3)
    words = (*command, 2, tmp_path / "m.csv", "--workers", 1, "--out")
    assert joao(*words, tmp_path / "whole").code == 0
    for module in (parts, writer):
        monkeypatch.setattr(module, "write_file", partial(write_and_signal, module.write_file, number))
    stopped = joao(*words, tmp_path / "out")
    assert stopped.code == code
    assert_mentions(stopped.err.splitlines()[-1], "joao: interrupted")
    assert len(list((tmp_path / "out").glob("[ps]*-*1.*"))) == 1
    monkeypatch.undo()
    assert joao(*words, tmp_path / "out").code == 0
    ours, whole = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("out", "whole"))
    assert ours == whole


def write_and_signal(write, number, path, content):
    write(path, content)
    if path.stem.endswith("1"):
        signal.raise_signal(number)


def test_what_ray_prints_is_not_mixed_with_json(joao, tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    pytest.importorskip("pyarrow")
    (tmp_path / "m.csv").write_text("smiles\nCC\n")
    write = parts.write_file

    def write_and_print(path, content):
        sys.stdout.write("(raylet) A worker died")
        write(path, content)

    monkeypatch.setattr(parts, "write_file", write_and_print)
    shown = joao("embed", "molecules", tmp_path / "m.csv", "--workers", 1, "--json", "--out", tmp_path / "out")
    assert json.loads(shown.out)["rows"] == 1
    assert "raylet" in shown.err
