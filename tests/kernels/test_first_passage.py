import networkx as nx
import pytest
import torch

from joao.kernels.first_passage import first_passage
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
    for source, target, is_edge in zip(
        batch.source.tolist(), batch.target.tolist(), batch.is_edge.tolist(), strict=True
    ):
        if is_edge:
            graph.add_edge(source, target, weight=float(waiting[target]))
    lengths = nx.single_source_dijkstra_path_length(graph, "start")
    assert found.tolist() == pytest.approx([lengths[node] for node in range(80)], rel=1e-12)
