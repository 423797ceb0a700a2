"""Folders of runs: what a stranger's may make joao write, and what is left where the disk is full or a process dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tests.faults.harness import assert_one_line, command, run, start, stop

EPOCHS = 25


@pytest.fixture(scope="session")
def unfinished(graphs, tmp_path_factory):
    """The folder of a run that was stopped behind its first epochs. It is shared: copy it."""
    folder = tmp_path_factory.mktemp("unfinished")
    options = ["--epochs", EPOCHS, "--checkpoint-every", 1, "--device", "cpu"]
    child = start(command("pretrain", graphs, "--out", folder / "run", *options), folder)
    limit = time.monotonic() + 60
    while len(list(folder.glob("run/checkpoint-*"))) < 2 and time.monotonic() < limit:
        time.sleep(0.002)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    return folder / "run"


def _tree(folder):
    """Every file in a folder and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_stopped_run_goes_on(unfinished, tmp_path):
    shutil.copytree(unfinished, tmp_path / "run")
    assert run("pretrain", "--resume", "run", deadline=60).code == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["finished"] is True


@pytest.mark.parametrize("name", ["csv", "tensorboard"])
def test_resume_does_not_write_through_a_link(name, unfinished, tmp_path):
    """A link in somebody else's run leads to a folder of ours, in which nothing may change."""
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    shutil.copytree(unfinished, tmp_path / "run")
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "metrics.csv").write_text("years of work\n")
    before = _tree(ours)
    (tmp_path / "run" / name).symlink_to(ours)
    ended = run("pretrain", "--resume", "run", deadline=60)
    assert _tree(ours) == before
    assert ended.code in (0, 2), ended.err


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json"])
def test_resume_does_not_write_through_a_linked_file(name, unfinished, tmp_path):
    shutil.copytree(unfinished, tmp_path / "run")
    ours = tmp_path / "ours"
    ours.mkdir()
    path = tmp_path / "run" / name
    if path.exists():
        path.rename(ours / name)
    else:
        (ours / name).write_text("years of work\n")
    before = _tree(ours)
    path.symlink_to(ours / name)
    ended = run("pretrain", "--resume", "run", deadline=60)
    assert _tree(ours) == before
    assert ended.code in (0, 2), ended.err


@contextmanager
def small_disk(folder, *options):
    """A file system of its own in ``folder``, with these options; skips where that is not possible."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here: needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def assert_no_lie(folder):
    """There is no folder, or one that does not say that it is finished while it has no weights."""
    info = folder / "run.json"
    if info.exists():
        says_finished = json.loads(info.read_text())["finished"]
        assert not says_finished or (folder / "weights.safetensors").exists(), sorted(os.listdir(folder))


def _pages(path):
    return -(-path.stat().st_size // 4096)


def test_finetune_on_a_full_disk_leaves_no_folder_that_says_it_is_finished(trained, tuned, graphs, tmp_path):
    files = {path.name: _pages(path) for path in tuned.iterdir() if path.is_file()}
    beside = sum(pages for name, pages in files.items() if name != "weights.safetensors")
    for pages in (2, beside - 1, beside, beside + 1, beside + files["weights.safetensors"] - 1):
        with small_disk(tmp_path / f"disk-{pages}", f"size={4 * pages}k") as disk:
            ended = run("finetune", trained, graphs, "--out", disk / "tuned", "--epochs", 1, deadline=30)
            assert_no_lie(disk / "tuned")
            assert_one_line(ended)
            assert not list(disk.glob("tuned/.*"))


def test_finetune_without_room_for_files_ends_in_a_line(trained, graphs, tmp_path):
    for inodes in range(2, 9):
        with small_disk(tmp_path / f"disk-{inodes}", "size=10m", f"nr_inodes={inodes}") as disk:
            ended = run("finetune", trained, graphs, "--out", disk / "tuned", "--epochs", 1, deadline=30)
            assert_no_lie(disk / "tuned")
            if ended.code != 0:
                assert_one_line(ended)


@pytest.mark.parametrize("what", ["pretrain", "export", "embed", "pack"])
def test_other_commands_on_a_full_disk_end_in_a_line(what, trained, graphs, tmp_path):
    with small_disk(tmp_path / "disk", "size=8k") as disk:
        arguments = {
            "pretrain": ("pretrain", graphs, "--out", disk / "run", "--epochs", 1),
            "export": ("export", trained, "--out", disk / "model.safetensors"),
            "embed": ("embed", trained, graphs, "--out", disk / "out.csv"),
            "pack": ("pack", graphs, "--out", disk / "store.joao", "--shard-graphs", 2),
        }
        ended = run(*arguments[what], deadline=60)
        assert_one_line(ended)
        assert not list(disk.rglob(".*"))


def test_a_second_finetuning_into_one_folder_is_refused(trained, graphs, tmp_path):
    """The first has the folder from its beginning on, as a pre-training has."""
    out, logs = tmp_path / "tuned", tmp_path / "logs"
    logs.mkdir()
    options = ["--out", out, "--device", "cpu", "--patience", 100_000]
    first = start(command("finetune", trained, graphs, *options, "--epochs", 100_000), logs)
    try:
        limit = time.monotonic() + 5
        while not out.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        assert os.waitpid(first, os.WNOHANG) == (0, 0), (logs / "err").read_text()
        assert_one_line(run("finetune", trained, graphs, "--out", out, "--epochs", 1, "--device", "cpu", deadline=30))
    finally:
        stop(first)


def test_a_killed_finetuning_leaves_a_folder_that_can_be_used_again(trained, graphs, tmp_path):
    for moment in range(1, 40):
        folder = tmp_path / f"tuned-{moment}"
        arguments = ("finetune", trained, graphs, "--out", folder, "--epochs", 1, "--device", "cpu")
        ended = run(*arguments, before=kill_at(moment, folder), deadline=30)
        assert_no_lie(folder)
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
        if not (folder / "run.json").exists() or not json.loads((folder / "run.json").read_text())["finished"]:
            again = run(*arguments, deadline=30)
            assert again.code == 0, (moment, sorted(os.listdir(folder)), again.err)
        assert not list(folder.rglob(".*")), moment
    else:
        raise AssertionError("it was killed every time")


def kill_at(moment, folder):
    """Has the process killed before it changes ``folder`` or something in it for the ``moment``-th time."""

    def watch():
        place, left = str(folder), moment

        def count(event, arguments):
            nonlocal left
            if event == "open":
                is_change = bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            else:
                is_change = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate")
            if is_change and any(
                str(each).startswith(place) for each in arguments if isinstance(each, str | os.PathLike)
            ):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)

    return watch


def test_a_kill_while_a_folder_is_made_leaves_one_that_can_be_used_again(graphs, tmp_path):
    """Whatever is left either goes on or is begun anew, and no half-written file stays."""
    options = ["--epochs", 1, "--device", "cpu"]
    for moment in range(1, 60):
        folder = tmp_path / f"run-{moment}"
        ended = run("pretrain", graphs, "--out", folder, *options, before=kill_at(moment, folder), deadline=30)
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
        left = sorted(os.listdir(folder)) if folder.exists() else None
        again = run("pretrain", graphs, "--out", folder, *options, deadline=30)
        if again.code != 0:
            again = run("pretrain", "--resume", folder, deadline=30)
        is_finished = (folder / "run.json").exists() and json.loads((folder / "run.json").read_text())["finished"]
        assert again.code == 0 or is_finished, (moment, left, again.err)
        # A finished run is not written again, so half a picture of it stays until the next one is drawn.
        assert {path.name for path in folder.rglob(".*")} <= {".policy.png.joao-0"}, (moment, left)
    else:
        raise AssertionError("it was killed every time")


@pytest.mark.parametrize("what", ["export", "embed", "pack"])
def test_a_killed_command_leaves_no_hidden_file_behind_the_next_one(what, trained, graphs, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    arguments = {
        "export": ("export", trained, "--out", out / "model.safetensors"),
        "embed": ("embed", trained, graphs, "--out", out / "out.csv"),
        "pack": ("pack", graphs, "--out", out / "packed.safetensors"),
    }[what]
    for moment in range(1, 30):
        ended = run(*arguments, before=kill_at(moment, out), deadline=30)
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
        for path in out.iterdir():
            if not path.name.startswith("."):
                path.unlink()
    assert ended.code == 0
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
