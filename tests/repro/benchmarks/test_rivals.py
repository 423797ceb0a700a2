"""A rival does the work it is said to do: the same views, the same network, the same loss."""

import builtins
import sys
import types

import pytest
import torch

from joao.config.builder import build_method
from joao.objectives import NtXent
from joao.training.model import ContrastiveModel
from joao.training.steps import View, project
from repro.benchmarks import rivals
from repro.benchmarks.plain_geometric import GeometricGin, PlainTraining, TwoViews, data_list, node_drop, subgraph
from repro.benchmarks.rivals import GEOMETRIC, PYGCL, UNCHANGED, rivals_of
from repro.benchmarks.steps import recipe_of
from repro.benchmarks.workloads import Workload
from tests.messages import assert_mentions

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def graphs(mutag):
    return data_list(mutag)


@pytest.fixture
def workload(mutag):
    return Workload("MUTAG", mutag, "bundled", width=8, layers=2, batch_size=32)


def components(num_nodes, edge_index):
    """By repeated relabelling."""
    label = list(range(num_nodes))
    for _ in range(num_nodes):
        for source, target in zip(*edge_index.tolist(), strict=True):
            label[source] = label[target] = min(label[source], label[target])
    return len(set(label))


def test_list_has_the_graphs_of_the_store(mutag, graphs):
    assert len(graphs) == len(mutag)
    batch = mutag.batch(torch.tensor([7]))
    torch.testing.assert_close(graphs[7].x, batch.x)
    torch.testing.assert_close(graphs[7].edge_index, batch.edge_index)


@pytest.mark.parametrize("transform", [node_drop, subgraph])
def test_views_are_induced_subgraphs_without_a_fifth_of_the_nodes(graphs, transform, generator):
    for data in graphs[:20]:
        numbered = data.clone()
        numbered.x = torch.arange(data.num_nodes)[:, None]
        view = transform(numbered, generator(3))
        kept = view.x[:, 0].tolist()
        assert len(set(kept)) == view.num_nodes == data.num_nodes - data.num_nodes // 5
        found = {(kept[u], kept[v]) for u, v in view.edge_index.T.tolist()}
        assert found == {(u, v) for u, v in data.edge_index.T.tolist() if u in kept and v in kept}


def test_subgraph_of_a_connected_graph_is_connected(graphs, generator):
    random = generator(1)
    views = [subgraph(data, random) for data in graphs[:20]]
    assert all(components(view.num_nodes, view.edge_index) == 1 for view in views)
    dropped = [node_drop(data, random) for data in graphs[:20]]
    assert any(components(view.num_nodes, view.edge_index) > 1 for view in dropped)


def test_subgraph_continues_in_another_component(make_batch, generator):
    batch = make_batch([(9, [(0, 3), (3, 5), (1, 2), (4, 7)])])
    data = types.SimpleNamespace(num_nodes=9, edge_index=batch.edge_index, subgraph=lambda kept: sorted(kept.tolist()))
    for seed in range(20):
        assert len(set(subgraph(data, generator(seed)))) == 8


def test_both_transforms_make_views(graphs, generator):
    made = []
    transforms = [lambda data, random: made.append("one") or data, lambda data, random: made.append("two") or data]
    views = TwoViews(graphs[:40], transforms, generator())
    for number in range(len(views)):
        assert views[number] == (graphs[number], graphs[number])
    assert len(made) == 80
    assert 20 < made.count("one") < 60


def test_equal_weights_give_equal_projections(workload, graphs):
    from torch_geometric.data import Batch

    method = build_method(recipe_of(workload, "graphcl", 0), workload.store)
    ours = ContrastiveModel(method.encoder, method.heads)
    theirs = GeometricGin(workload.store.num_features, workload.width, workload.layers)
    weights, others = list(ours.parameters()), list(theirs.parameters())
    assert [weight.shape for weight in weights] == [weight.shape for weight in others]
    with torch.no_grad():
        for weight, other in zip(weights, others, strict=True):
            other.copy_(weight)
    numbers = torch.arange(32)
    projected = project(ours, View(workload.store.batch(numbers), 0))
    torch.testing.assert_close(theirs(Batch.from_data_list(graphs[:32])), projected, rtol=1e-3, atol=1e-3)


def test_epoch_uses_every_graph_once_and_updates_every_weight(graphs, generator):
    model = GeometricGin(graphs[0].num_features, 8, 2)
    before = [weight.clone() for weight in model.parameters()]
    seen = []
    views = [lambda data, random: seen.append(id(data)) or node_drop(data, random)]
    training = PlainTraining(graphs[:60], views, model, NtXent(), 20, CPU, generator())
    assert training.epoch() > 0
    assert sorted(seen) == sorted(2 * [id(data) for data in graphs[:60]])
    assert all((now != then).any() for now, then in zip(model.parameters(), before, strict=True))


def test_missing_package_is_reported_without_error(workload, monkeypatch):
    monkeypatch.setitem(sys.modules, "GCL", None)
    makers, missing = rivals_of(workload, CPU, 0)
    assert list(makers) == [GEOMETRIC, UNCHANGED]
    assert list(missing) == [PYGCL]
    assert "ModuleNotFoundError" in missing[PYGCL]
    assert "\n" not in missing[PYGCL]
    for make in makers.values():
        assert make()() > 0


def test_package_that_fails_to_import_is_reported(workload, monkeypatch):
    real = rivals.importlib.import_module

    def broken(name):
        if name.startswith("GCL"):
            raise builtins.AttributeError("no attribute\n'scatter'")
        return real(name)

    monkeypatch.setattr(rivals.importlib, "import_module", broken)
    missing = rivals_of(workload, CPU, 0)[1]
    assert list(missing) == [PYGCL]
    assert_mentions(missing[PYGCL], "AttributeError", "attribute 'scatter'")


def test_pygcl_is_used_as_in_its_examples(workload, monkeypatch):
    """Oracle: a stand-in with the signatures of PyGCL 0.1.2, since the package does not load with current torch."""
    calls = []

    class NodeDropping:
        def __init__(self, pn):
            calls.append(("pn", pn))

        def __call__(self, x, edge_index, edge_weight=None):
            calls.append("view")
            return x, edge_index[:, ::2], edge_weight

    class DualBranchContrast(torch.nn.Module):
        def __init__(self, loss, mode):
            super().__init__()
            calls.append((loss, mode))

        def forward(self, g1=None, g2=None, batch=None):
            return NtXent()(g1, g2)

    package = {
        "GCL": types.ModuleType("GCL"),
        "GCL.augmentors": types.SimpleNamespace(NodeDropping=NodeDropping),
        "GCL.losses": types.SimpleNamespace(InfoNCE=lambda tau: ("InfoNCE", tau)),
        "GCL.models": types.SimpleNamespace(DualBranchContrast=DualBranchContrast),
    }
    for name, module in package.items():
        monkeypatch.setitem(sys.modules, name, module)
    makers, missing = rivals_of(workload, CPU, 0)
    assert missing == {}
    assert makers[PYGCL]()() > 0
    assert calls[:2] == [("pn", 0.2), (("InfoNCE", 0.2), "G2G")]
    assert calls.count("view") == 2 * 6  # of 188 graphs in batches of 32
