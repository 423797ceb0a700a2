import pytest
import torch

from joao.core.padded import keep_nodes, stack_views
from joao.training.fast.batches import PaddedStore


@pytest.fixture
def graphs():
    return torch.tensor([7, 0, 150, 33])


@pytest.mark.parametrize("spare", [0, 1, 40])
def test_a_padded_batch_holds_the_graphs_of_a_plain_one(mutag, graphs, spare):
    plain = mutag.batch(graphs)
    assert plain.edge_attr.shape[1] > 0
    padded = PaddedStore(mutag).batch(graphs, plain.num_nodes + 1 + spare, plain.num_edges + spare)
    assert padded.num_nodes == plain.num_nodes + 1 + spare
    assert padded.num_edges == plain.num_edges + spare
    compact = padded.compact()
    for name in ("x", "source", "target", "graph_of_node", "first_node", "nodes_per_graph", "edge_attr"):
        torch.testing.assert_close(getattr(compact, name), getattr(plain, name), rtol=0, atol=0, msg=name)
    assert torch.equal(padded.first_edge[: plain.num_nodes + 1], plain.first_edge)
    assert torch.equal(padded.reverse_edge[: plain.num_edges], plain.reverse_edge)
    assert torch.equal(padded.first_node, plain.first_node)


def test_the_room_left_over_is_no_part_of_a_graph(mutag, graphs):
    plain = mutag.batch(graphs)
    padded = PaddedStore(mutag).batch(graphs, plain.num_nodes + 9, plain.num_edges + 5)
    last = padded.num_nodes - 1
    assert padded.keep.tolist() == [True] * plain.num_nodes + [False] * 9
    assert padded.source[-5:].tolist() == padded.target[-5:].tolist() == [last] * 5
    assert padded.first_edge[plain.num_nodes :].unique().tolist() == [plain.num_edges]
    assert not padded.x[plain.num_nodes :].any()


def test_a_batch_can_be_filled_again(mutag, graphs):
    store = PaddedStore(mutag)
    padded = store.batch(graphs, 200, 400)
    others = torch.tensor([1, 187, 90, 91])
    store.fill(padded, others)
    fresh = store.batch(others, 200, 400)
    for name in (
        "x",
        "source",
        "target",
        "first_edge",
        "reverse_edge",
        "keep",
        "graph_of_node",
        "first_node",
        "edge_attr",
    ):
        assert torch.equal(getattr(padded, name), getattr(fresh, name)), name


def test_nodes_are_left_out_by_a_mask(mutag, graphs, assert_same):
    padded = PaddedStore(mutag).batch(graphs, 200, 400)
    keep = torch.arange(200) % 3 > 0
    plain = mutag.batch(graphs)
    expected = plain.keep_nodes(keep[: plain.num_nodes])
    found = keep_nodes(padded, keep).compact()
    for name in ("x", "source", "target", "graph_of_node"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_views_are_stacked_as_they_are(mutag, graphs):
    padded = PaddedStore(mutag).batch(graphs, 200, 400)
    views = stack_views([padded, keep_nodes(padded, torch.arange(200) > 20)])
    assert views.x.shape == (2, 200, mutag.num_features)
    assert views.keep[1].sum() == padded.keep.sum() - 21
    assert torch.equal(views.first_edge[1], padded.first_edge)
