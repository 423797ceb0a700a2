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
from repro.benchmarks import packages
from repro.benchmarks.plain_geometric import GeometricGin, PlainTraining, data_list, node_drop
from repro.benchmarks.rivals import DIG, GEOMETRIC, PYGCL, UNCHANGED, rivals_of
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


def test_list_has_the_graphs_of_the_store(mutag, graphs):
    assert len(graphs) == len(mutag)
    batch = mutag.batch(torch.tensor([7]))
    torch.testing.assert_close(graphs[7].x, batch.x)
    torch.testing.assert_close(graphs[7].edge_index, batch.edge_index)


def test_views_are_induced_subgraphs_without_about_a_fifth_of_the_nodes(graphs, generator):
    from torch_geometric.data import Batch

    batch = Batch.from_data_list(graphs)
    graph_of_node, batch.x = batch.batch, torch.arange(batch.num_nodes)[:, None]
    view = node_drop(batch, generator(3))
    kept = view.x[:, 0]
    assert len(kept) == pytest.approx(0.8 * batch.num_nodes, abs=5 * (0.16 * batch.num_nodes) ** 0.5)
    assert torch.equal(view.batch, graph_of_node[kept])
    found = {(kept[u].item(), kept[v].item()) for u, v in view.edge_index.T.tolist()}
    names = set(kept.tolist())
    assert found == {(u, v) for u, v in batch.edge_index.T.tolist() if u in names and v in names}


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

    def augment(batch, random):
        seen.extend(batch.number.tolist())
        return node_drop(batch, random)

    for number, data in enumerate(graphs):
        data.number = number
    training = PlainTraining(graphs[:60], augment, model, NtXent(), 20, CPU, generator())
    assert training.epoch() > 0
    assert sorted(seen) == sorted(2 * [*range(60)])
    assert all((now != then).any() for now, then in zip(model.parameters(), before, strict=True))


def test_missing_package_is_reported_without_error(workload, monkeypatch):
    monkeypatch.setitem(sys.modules, "GCL", None)
    monkeypatch.setitem(sys.modules, "dig", None)
    makers, missing = rivals_of(workload, CPU, 0)
    assert list(makers) == [GEOMETRIC, UNCHANGED]
    assert list(missing) == [PYGCL, DIG]
    for reason in missing.values():
        assert "ModuleNotFoundError" in reason
        assert "\n" not in reason
    for make in makers.values():
        assert make()() > 0


def test_package_that_fails_to_import_is_reported(workload, monkeypatch):
    def broken(*names):
        if names:
            raise builtins.AttributeError("no attribute\n'scatter'")

    monkeypatch.setattr(packages, "import_package", broken)
    missing = rivals_of(workload, CPU, 0)[1]
    assert list(missing) == [PYGCL, DIG]
    assert_mentions(missing[PYGCL], "AttributeError", "attribute 'scatter'")


def test_packages_are_used_as_in_their_examples(workload, monkeypatch):
    """Oracle: stand-ins with the signatures of PyGCL 0.1.2 and DIG 1.1.0, which need an environment of their own."""
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

    class GraphCL:
        def __init__(self, dim, aug_1=None, aug_2=None, aug_ratio=0.2, **options):
            calls.append((dim, aug_1, aug_2, aug_ratio, options["tau"]))

        def train(self, encoder, data_loader, optimizer, epochs, per_epoch_out=False):
            assert per_epoch_out
            for _ in range(epochs):
                calls.append(("dig", sum(batch.num_graphs for batch in data_loader)))
                yield encoder

    trainer = types.SimpleNamespace(trange=range)
    package = {
        "GCL": types.ModuleType("GCL"),
        "GCL.augmentors": types.SimpleNamespace(NodeDropping=NodeDropping),
        "GCL.losses": types.SimpleNamespace(InfoNCE=lambda tau: ("InfoNCE", tau)),
        "GCL.models": types.SimpleNamespace(DualBranchContrast=DualBranchContrast),
        "dig.sslgraph.method": types.SimpleNamespace(GraphCL=GraphCL),
        "dig.sslgraph.utils": types.SimpleNamespace(Encoder=lambda features, width, **_: torch.nn.Linear(3, 3)),
        "dig.sslgraph.method.contrastive.model.contrastive": trainer,
    }
    for name, module in package.items():
        monkeypatch.setitem(sys.modules, name, module)
    makers, missing = rivals_of(workload, CPU, 0)
    assert missing == {}
    assert not {"dgl", "torch_scatter", "torch_sparse"} & {*sys.modules}
    assert makers[PYGCL]()() > 0
    assert calls[:2] == [("pn", 0.2), (("InfoNCE", 0.2), "G2G")]
    assert calls.count("view") == 2 * 6  # of 188 graphs in batches of 32
    epoch = makers[DIG]()
    epoch()
    epoch()
    assert calls[-3:] == [(workload.width * workload.layers, "dropN", "dropN", 0.2, 0.2)] + 2 * [("dig", 188)]
