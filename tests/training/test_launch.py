"""Processes that end well, badly and not at all; they import no torch, so that they start at once."""

import multiprocessing
import os
import signal
import time

import pytest

from joao.core.errors import ProcessLost, UserError
from joao.training.distributed.launch import ProcessLayout, run_in_processes
from tests.messages import refused

THREE = ProcessLayout(3, is_worker=False)


def tell(send, word):
    send((word, os.environ["LOCAL_RANK"], os.environ["MASTER_PORT"]))


def second_dies(send, how):
    if os.environ["LOCAL_RANK"] == "1":
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7)
    time.sleep(600)


def second_raises(send, error):
    if os.environ["LOCAL_RANK"] == "1":
        raise error
    time.sleep(600)


@pytest.fixture(autouse=True)
def nobody_stays():
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) == before


def test_each_is_told_which_it_is_and_where_they_meet():
    words, ranks, ports = zip(*sorted(run_in_processes(tell, ["hello"], THREE)), strict=True)
    assert (set(words), ranks, len(set(ports))) == ({"hello"}, ("0", "1", "2"), 1)


@pytest.mark.parametrize(("how", "end"), [("killed", "SIGKILL"), ("exit", "code 7")])
def test_one_that_dies_ends_all(how, end):
    with refused("process 1", "2", end, error=ProcessLost):
        list(run_in_processes(second_dies, [how], THREE))


def test_wrong_input_in_one_is_wrong_input():
    with pytest.raises(UserError, match=r"^wrong input\.$"):
        list(run_in_processes(second_raises, [UserError("wrong input.")], THREE))


def test_a_fault_of_the_program_is_shown_with_its_place():
    with pytest.raises(RuntimeError, match=r"(?s)process 1:\nTraceback.*second_raises.*KeyError: 'made up'"):
        list(run_in_processes(second_raises, [KeyError("made up")], THREE))


def test_another_machine_that_is_gone_is_told_of():
    with pytest.raises(ProcessLost, match="gone"):
        list(run_in_processes(second_raises, [ProcessLost("gone.")], THREE))


def test_what_cannot_be_sent_is_said():
    with refused("devices", "<lambda>"):
        list(run_in_processes(tell, [lambda: None], THREE))
