"""Oracles: the graphs themselves, and the published sizes of the data sets."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from joao.data import names as _download
from repro.benchmarks.plan import NAMES, Plan
from repro.benchmarks.workloads import make_workload, molecule_like_graphs, part
from tests.messages import assert_mentions, refused

CPU = torch.device("cpu")
# Mean nodes and undirected edges of the published data sets, and of ZINC's molecules.
SIZES = {
    "NCI1": (29.87, 32.3),
    "DD": (284.3, 715.7),
    "REDDIT-BINARY": (429.6, 497.8),
    "COLLAB": (74.5, 2457.8),
    "molecules": (23.2, 24.9),
}


@pytest.fixture(autouse=True)
def without_data(monkeypatch, tmp_path):
    monkeypatch.delenv("JOAO_DATA", raising=False)
    monkeypatch.setattr(_download, "download_folder", lambda: tmp_path / "cache")


@pytest.mark.parametrize("name", NAMES)
def test_synthetic_graphs_have_the_sizes_of_real_ones(name):
    workload = make_workload(name, Plan(quick=True, batch_size=64), CPU)
    table = workload.table()
    assert table["origin"].startswith("made: ")
    assert (table["graphs"], table["batches"], table["batch size"]) == (640, 10, 64)
    nodes, edges = SIZES[name]
    assert table["nodes per graph"] == pytest.approx(nodes, rel=0.03)
    assert table["directed edges per graph"] / 2 == pytest.approx(edges, rel=0.1)


def test_part_of_a_workload_has_the_same_graphs(mutag):
    numbers = torch.tensor([5, 0, 187, 33])
    packed = part(mutag, numbers)
    assert len(packed) == 4
    for place, number in enumerate(numbers.tolist()):
        one, other = packed.batch(torch.tensor([place])), mutag.batch(torch.tensor([number]))
        for name in ("x", "source", "target"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=0)
    for name in ("x", "source", "target"):
        assert getattr(packed, name).dtype == getattr(mutag, name).dtype


@pytest.mark.parametrize(("batch_size", "batches"), [(2, 10), (100, 10), (5000, 1)])
def test_workloads_have_tens_of_whole_batches(batch_size, batches):
    workload = make_workload("REDDIT-BINARY", Plan(batch_size=batch_size), CPU)
    assert workload.num_batches == batches
    assert len(workload.store) == min(batches * batch_size, 2000)


def test_real_graphs_are_used_if_available(tmp_path, mutag):
    folder = tmp_path / "NCI1"
    folder.mkdir()
    edges = [f"{graph * 3 + 1}, {graph * 3 + 2}" for graph in range(50)]
    (folder / "NCI1_A.txt").write_text("\n".join(edges) + "\n")
    (folder / "NCI1_graph_indicator.txt").write_text("".join(f"{node // 3 + 1}\n" for node in range(150)))
    (folder / "NCI1_node_labels.txt").write_text("".join(f"{node % 2}\n" for node in range(150)))
    workload = make_workload("NCI1", Plan(data_root=str(tmp_path), batch_size=4, width=5, layers=1), CPU)
    assert_mentions(workload.origin, "NCI1", 40, 50)
    assert len(workload.store) == 40
    assert (workload.store.first_node.diff() == 3).all()
    assert workload.table()["encoder"] == "gin 1x5"
    assert len(workload.part(3).store) == 12


def test_molecule_like_graphs_are_connected_with_a_few_rings():
    dataset = molecule_like_graphs(2000, seed=0)
    sizes = np.diff(dataset.first_node)
    assert sizes.min() >= 8
    assert sizes.mean() == pytest.approx(23, abs=0.5)  # deviation of the mean 0.09
    matrix = csr_array(
        (
            np.ones(2 * dataset.num_edges),
            tuple(
                end + np.repeat(dataset.first_node[:-1], np.diff(dataset.first_edge))
                for end in (dataset.source, dataset.target)
            ),
        ),
        shape=(dataset.num_nodes, dataset.num_nodes),
    )
    assert connected_components(matrix)[0] == 2000
    rings = np.diff(dataset.first_edge) / 2 - (sizes - 1)
    assert 2.5 < rings.mean() <= 3.1  # three draws each, less the repeats


def test_labels_of_molecule_like_graphs_become_rarer_by_a_factor_of_three():
    counts = np.bincount(molecule_like_graphs(2000, num_node_labels=4).node_labels[:, 0])
    assert counts / counts.sum() == pytest.approx(np.array([27, 9, 3, 1]) / 40, abs=0.01)


def test_impossible_molecules_are_rejected():
    with refused("mean_nodes", 8, 10, 5):
        molecule_like_graphs(10, 5)
