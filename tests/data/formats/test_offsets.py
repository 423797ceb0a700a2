"""Offsets and sizes in files: sums that do not fit 64 bits must not become small numbers again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import joao
from joao.data.dataset import check_offsets, sizes_to_offsets
from tests.data.packed_files import WIDE, by_targets, three_graphs, write_packed
from tests.data.refusals import refused

WRAPPING = np.array([WIDE, WIDE, 8])  # whose sums in 64 bits are WIDE, -2 and 6
SIZES = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(SIZES, max_size=5), st.integers(0, 12))
def test_sizes_are_added_exactly_or_refused(sizes, total):
    """Python's integers, which never overflow, are the oracle."""
    exact = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    is_right = min(sizes, default=0) >= 0 and exact[-1] == total
    try:
        assert sizes_to_offsets(np.array(sizes, dtype=np.int64), total).tolist() == exact
        assert is_right
    except ValueError:
        assert not is_right


@given(st.lists(SIZES, min_size=1, max_size=5), st.integers(0, 3))
def test_offsets_ascend_or_are_refused(first, length):
    is_right = first[0] == 0 and first[-1] == length and first == sorted(first)
    try:
        assert check_offsets(np.array(first, dtype=np.int64), length).tolist() == first
        assert is_right
    except ValueError:
        assert not is_right


@pytest.mark.parametrize("sizes", [np.array([1.0]), np.array(1), np.array([[1]]), np.array([True])])
def test_sizes_are_a_list_of_integers(sizes):
    for check in (lambda: sizes_to_offsets(sizes), lambda: check_offsets(sizes, 1)):
        with pytest.raises(ValueError, match="integers"):
            check()


def test_readers_compute_offsets_in_no_other_way():
    """What a file says is added in one place; the other sums are of numbers that were checked before."""
    folder = Path(joao.__file__).parent / "data"
    trusted = {
        "validation.py": 1,
        "synthetic.py": 1,
        "ogb.py": 1,
        "refinement.py": 2,
        "dataset.py": 1,
        "features.py": 1,
    }
    found = {}
    for path in [*(folder / "formats").glob("*.py"), *(folder / "shards").glob("*.py"), *folder.glob("*.py")]:
        count = len(re.findall(r"np\.cumsum\(", path.read_text(encoding="utf-8")))
        found |= {path.name: count} if count else {}
    assert found == trusted


def test_a_packed_file_by_hand_is_read(tmp_path):
    """What the tests below change one array of."""
    for arrays in (three_graphs(), by_targets(three_graphs())):
        dataset = joao.read(write_packed(tmp_path / "by-hand.safetensors", arrays))
        assert (len(dataset), dataset.num_nodes, dataset.num_edges) == (3, 6, 3)


def _by_first_edge():
    return {**by_targets(three_graphs()), "first_edge": WRAPPING}


def _by_first_edge_without_sign():
    return {**by_targets(three_graphs()), "first_edge": WRAPPING.astype(np.uint64)}


def _by_degrees():
    degrees = np.array([WIDE, 0, WIDE, 0, 4, 4])
    return {**three_graphs(), "first_edge": WRAPPING, "degrees": degrees}


def _by_first_node():
    one_edge = {"first_edge": np.array([0, 0, 2]), "source": np.array([1, 0]), "target": np.array([0, 1])}
    return {**by_targets(three_graphs()), "first_node": WRAPPING, **one_edge}


BY = {
    "first_edge": _by_first_edge,
    "first_edge without sign": _by_first_edge_without_sign,
    "degrees": _by_degrees,
    "first_node": _by_first_node,
}


@pytest.mark.parametrize("by", BY)
def test_sizes_whose_sums_wrap_are_refused(by, tmp_path):
    path = write_packed(tmp_path / "wrapping.safetensors", BY[by]())
    with refused("wrapping.safetensors"):
        joao.read(path)


@pytest.mark.parametrize("lengths", [[WIDE, WIDE, 8], [8, -5, 3], [-1, 4, 3]])
@pytest.mark.parametrize("what", ["graph_names", "smiles"])
def test_lengths_of_texts_that_leave_the_text_are_refused(what, lengths, tmp_path):
    texts = {what: np.frombuffer(b"onetwo", np.uint8), f"{what}_lengths": np.array(lengths)}
    path = write_packed(tmp_path / "texts.safetensors", {**three_graphs(), **texts})
    with refused("texts.safetensors"):
        joao.read(path)


@pytest.mark.parametrize("lengths", [np.array([1.5, 2.5, 2.0]), np.array([[3, 1, 2]])])
def test_lengths_of_texts_are_whole_numbers_in_a_row(lengths, tmp_path):
    texts = {"graph_names": np.frombuffer(b"onetwo", np.uint8), "graph_names_lengths": lengths}
    path = write_packed(tmp_path / "texts.safetensors", {**three_graphs(), **texts})
    with refused("texts.safetensors"):
        joao.read(path)
