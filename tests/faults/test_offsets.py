"""Offsets and sizes in files: sums that do not fit 64 bits must not become small numbers again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import joao
from tests.faults.harness import assert_one_line, call, run
from tests.faults.packed_files import WIDE, by_targets, three_graphs, write_packed

WRAPPING = np.array([WIDE, WIDE, 8])  # whose sums in 64 bits are WIDE, -2 and 6


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
    assert_one_line(run("data", path))


@pytest.mark.parametrize("command", ["embed", "pretrain", "pack"])
def test_every_command_refuses_sizes_whose_sums_wrap(command, trained, tmp_path):
    path = write_packed(tmp_path / "wrapping.safetensors", _by_degrees())
    arguments = {
        "embed": ("embed", trained, path, "--out", "out.csv"),
        "pretrain": ("pretrain", path, "--out", "out", "--epochs", 1),
        "pack": ("pack", path, "--out", "out.safetensors"),
    }
    assert_one_line(run(*arguments[command]))
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("lengths", [[WIDE, WIDE, 8], [8, -5, 3], [-1, 4, 3]])
@pytest.mark.parametrize("what", ["graph_names", "smiles"])
def test_lengths_of_texts_that_leave_the_text_are_refused(what, lengths, tmp_path):
    texts = {what: np.frombuffer(b"onetwo", np.uint8), f"{what}_lengths": np.array(lengths)}
    assert_one_line(run("data", write_packed(tmp_path / "texts.safetensors", {**three_graphs(), **texts})))


@pytest.mark.parametrize("lengths", [np.array([1.5, 2.5, 2.0]), np.array([[3, 1, 2]])])
def test_lengths_of_texts_are_whole_numbers_in_a_row(lengths, tmp_path):
    texts = {"graph_names": np.frombuffer(b"onetwo", np.uint8), "graph_names_lengths": lengths}
    assert_one_line(run("data", write_packed(tmp_path / "texts.safetensors", {**three_graphs(), **texts})))


def write_ppi(folder, values, slices):
    """A folder of protein networks, as published, with these tensors."""
    path = folder / "processed" / "geometric_data_processed.pt"
    path.parent.mkdir(parents=True)
    torch.save((values, slices), path)
    return folder


def ppi_tensors():
    """Three networks of two proteins and an edge."""
    values = {
        "x": torch.ones(6, 1),
        "edge_index": torch.tensor([[0, 1] * 3, [1, 0] * 3]),
        "edge_attr": torch.ones(6, 9),
        "species_id": torch.tensor([9606, 9606, 10090]),
        "center_node_idx": torch.tensor([0, 1, 0]),
    }
    return values, {"x": torch.tensor([0, 2, 4, 6]), "edge_index": torch.tensor([0, 2, 4, 6])}


def test_a_folder_of_networks_by_hand_is_read(tmp_path):
    dataset = joao.read(write_ppi(tmp_path / "ppi", *ppi_tensors()))
    assert (len(dataset), dataset.num_nodes, dataset.num_edges) == (3, 6, 3)


@pytest.mark.parametrize("name", ["x", "edge_index"])
def test_slices_whose_differences_wrap_are_refused(name, tmp_path):
    values, slices = ppi_tensors()
    values["edge_index"] = torch.tensor([[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0]])
    slices = {"x": torch.tensor([0, 2, 4, 6]), "edge_index": torch.tensor([0, 6, 6, 6])}
    slices[name] = torch.tensor([0, WIDE, -2, 6])
    folder = write_ppi(tmp_path / "ppi", values, slices)
    assert_one_line(run("data", folder))
    assert_one_line(call(lambda: joao.read(folder)))
