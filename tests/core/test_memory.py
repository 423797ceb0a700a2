"""Oracle: memory of known size, taken and given back."""

import time

import numpy as np
import pytest

from joao.core import memory
from joao.core.memory import measure_run, memory_source, peak_memory


@pytest.mark.skipif(peak_memory(lambda: None, "cpu") is None, reason="this system does not tell a peak")
def test_the_peak_is_what_was_taken_at_once_even_if_it_was_given_back():
    def run():
        for _ in range(3):
            np.ones(2**24)  # 128 MiB, one after another

    assert 0.95 * 2**27 < peak_memory(run, "cpu") < 1.5 * 2**27
    assert peak_memory(lambda: None, "cpu") < 2**25
    assert "VmHWM" in memory_source("cpu")


def test_where_the_mark_cannot_be_set_back_nothing_is_claimed(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_RESET", tmp_path / "nowhere" / "clear_refs")
    assert peak_memory(lambda: None, "cpu") is None
    assert "VmHWM" not in memory_source("cpu")
    done = []
    made, seconds, said = measure_run(lambda: done.append("once") or time.sleep(0.05) or "made", "cpu")
    assert (made, done, said["peak bytes"]) == ("made", ["once"], None)
    assert 0.05 <= seconds < 5
