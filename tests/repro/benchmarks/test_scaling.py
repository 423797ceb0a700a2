"""The arithmetic and the sizes of growth; nothing about speed."""

import statistics
from dataclasses import asdict

import pytest
import torch

from joao.data.synthetic import random_graphs
from repro.benchmarks.scaling import Axis, axes, fit_power_law, measure_axis

CPU = torch.device("cpu")


def test_sizes_cover_the_requested_range():
    found = axes(quick=False)
    graphs = [size[0] for size in found["number of graphs"].sizes]
    assert [each // graphs[0] for each in graphs] == [1, 2, 4, 8, 16, 32, 64]
    nodes = [size[1] for size in found["nodes per graph"].sizes]
    assert (nodes[0], nodes[-1]) == (10, 10_000)
    for axis, place in zip(found.values(), (0, 1, 2, 3), strict=True):
        varied = [size[place] for size in axis.sizes]
        assert varied == sorted(set(varied))


@pytest.mark.slow
def test_axis_is_measured_and_fitted():
    sizes = tuple((16, nodes, 3.0, 8) for nodes in (4.0, 8.0, 16.0))
    record = measure_axis(Axis(sizes, "nodes and edges", ("epochs", "parts", "loss")), CPU, repeats=2, seed=0)
    assert record["clock"] == "cpu"
    for series, points in record["seconds"].items():
        assert [len(point["wall"]) for point in points] == [2, 2, 2]
        medians = [statistics.median(point["cpu"]) for point in points]
        assert record["medians"][series] == medians
        assert record["fits"][series] == asdict(fit_power_law(record["sizes"], medians))
    expected = {"contrastive loss, forward and backward", "GraphCL, an epoch", "JOAO, an epoch", "subgraph", "backward"}
    assert expected <= record["seconds"].keys()
    for size, point in zip(record["sizes"], record["points"], strict=True):
        dataset = random_graphs(16, point["nodes"], 3.0, 0, num_node_labels=8, num_classes=0)
        assert size == dataset.num_nodes + 2 * dataset.num_edges


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "expected"), [("graphs", [6, 12, 24]), ("batch", [3, 6, 12])])
def test_growth_is_relative_to_the_varied_size(counts, expected):
    sizes = tuple((6 * times, 5.0, 2.0, 3 * times) for times in (1, 2, 4))
    assert measure_axis(Axis(sizes, counts, ("loss",)), CPU, repeats=1, seed=0)["sizes"] == expected
