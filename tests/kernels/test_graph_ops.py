"""Operations on whole graphs, compared with shortest paths of networkx and with Python's sort."""

import networkx as nx
import numpy as np
import pytest
import torch

from joao.kernels.graph_ops import first_passage, rank_within_groups
from joao.training.fast.batches import PaddedStore


def test_times_are_the_shortest_from_any_start(mutag):
    graphs = torch.tensor([0, 5, 99])
    batch = PaddedStore(mutag).batch(graphs, 80, 190)
    draw = torch.Generator().manual_seed(0)
    start = 20 * torch.rand(80, dtype=torch.float64, generator=draw)
    waiting = torch.rand(80, dtype=torch.float64, generator=draw)
    found = first_passage(batch, start, waiting)
    graph = nx.DiGraph()
    for node in range(80):
        graph.add_edge("start", node, weight=float(start[node]))
    num_edges = int(batch.first_edge[-1])  # padding comes after them
    for source, target in zip(batch.source[:num_edges].tolist(), batch.target[:num_edges].tolist(), strict=True):
        graph.add_edge(source, target, weight=float(waiting[target]))
    lengths = nx.single_source_dijkstra_path_length(graph, "start")
    assert found.tolist() == pytest.approx([lengths[node] for node in range(80)], rel=1e-12)


def test_ranks_match_a_sort_of_each_group():
    sizes = [3, 1, 6, 2]
    values = torch.tensor([2.0, 1.0, 2.0, 9.0, 5.0, 5.0, 1.0, 5.0, 0.0, 7.0, 4.0, 3.0, 0.0, 0.0])  # two left over
    group = torch.tensor([0] * 3 + [1] + [2] * 6 + [3] * 4)
    first = torch.tensor([0, *np.cumsum(sizes)])
    found = rank_within_groups(values, group, first, 6)
    expected = []
    for start, size in zip(first.tolist(), sizes, strict=False):
        part = values[start : start + size].tolist()
        expected += [sorted(range(size), key=lambda k, part=part: (part[k], k)).index(k) for k in range(size)]
    assert found[:12].tolist() == expected
    assert sorted(found[12:].tolist()) == [2, 3]  # behind the last group's two
