"""Work in one process or several."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from repro.tasks import run_tasks


def test_one_process_does_one_after_the_other(tmp_path):
    folders = [tmp_path / name for name in "bca"]
    doing = run_tasks(os.mkdir, folders, jobs=1)
    for number, folder in enumerate(folders):
        assert next(doing) == folder
        assert [each.exists() for each in folders] == [place <= number for place in range(3)]
    assert list(doing) == []


@pytest.mark.parametrize("ends", ["done", "closed", "failed"])
def test_threads_are_given_back(tmp_path, ends):
    threads, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        doing = run_tasks(lambda work: seen.append((torch.get_num_threads(), 1 / work)), [1, 0], jobs=1)
        assert next(doing) == 1
        if ends == "closed":
            doing.close()
        else:
            with pytest.raises(ZeroDivisionError):
                next(doing)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert seen == [(1, 1.0)]


@pytest.mark.slow
def test_lightning_has_no_advice_in_other_processes(tmp_path, capfd):
    advice = (
        "from joao.training.device import make_fabric\nmake_fabric('cpu', 'bf16-mixed')\n"
        "from lightning_fabric.utilities.rank_zero import rank_zero_info, rank_zero_warn\n"
    )
    works = [f"{advice}rank_zero_info('advice')", f"{advice}rank_zero_warn('danger')"]
    assert set(run_tasks(exec, works, jobs=2)) == set(works)
    told = capfd.readouterr().err
    assert "danger" in told
    assert "advice" not in told


def test_several_processes_do_all_tasks_with_one_thread_each(tmp_path):
    paths = [tmp_path / name for name in ("a", "b", "c", "wrong")]
    works = [
        "import os, pathlib, time, torch\n"
        f"path = pathlib.Path({str(path)!r})\n"
        # The failure ends the other process, so it comes last.
        "while path.stem == 'wrong' and len(list(path.parent.glob('[abc]'))) < 3: time.sleep(0.01)\n"
        "path.with_suffix('.new').write_text(f'{os.getpid()} {torch.get_num_threads()}')\n"
        "path.with_suffix('.new').rename(path)\n"
        "assert path.stem != 'wrong'\n"
        for path in paths
    ]
    done = []
    with pytest.raises(AssertionError):
        done.extend(run_tasks(exec, works, jobs=2))
    assert len(done) == len(set(done))
    assert set(done) <= set(works[:3])
    told = [path.read_text().split() for path in paths]
    assert [threads for _, threads in told] == ["1"] * 4
    assert str(os.getpid()) not in {process for process, _ in told}


@pytest.fixture
def hears_ctrl_c():
    """What a shell starts in the background does not hear Ctrl-C, and hands that on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_other_processes_do_not_hear_ctrl_c_and_this_one_does(tmp_path, hears_ctrl_c):
    path = tmp_path / "done"
    work = f"import os, pathlib, signal\nos.kill(os.getpid(), signal.SIGINT)\npathlib.Path({str(path)!r}).touch()"
    try:
        list(run_tasks(exec, [work], jobs=2))
    except KeyboardInterrupt:  # as it is, it would end the tests
        pytest.fail("the other process heard it")
    assert path.exists()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("ready", [False, True], ids=["workers are starting", "workers are at work"])
def test_ctrl_c_ends_all_processes_and_prints_one_message(tmp_path, ready):
    (tmp_path / "work.py").write_text(
        "import pathlib, time\n"
        "from repro.tasks import run_tasks\n"
        "def wait(name):\n"
        "    pathlib.Path(name).touch()\n"
        "    time.sleep(300)\n"
        "if __name__ == '__main__':\n"
        "    print('begun', flush=True)\n"
        "    try:\n"
        "        list(run_tasks(wait, ['a', 'b'], jobs=2))\n"
        "    except KeyboardInterrupt:\n"
        "        print('stopped')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "work.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background work does not hear it
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(1.5)  # they import torch
    while ready and not (tmp_path / "a").exists() and process.poll() is None:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (out, err, process.returncode) == ("stopped\n", "", 0)
