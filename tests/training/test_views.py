from dataclasses import replace

import pytest
import torch

from joao.augmentations import Augmentation, NodeDrop
from joao.training.model import ContrastiveModel
from joao.training.steps import BatchViews, project
from tests.messages import refused

GRAPHS = torch.tensor([7, 3, 0, 12, 3, 1, 20])
NUMBERS = torch.tensor([1, 2, 1, 0, 0, 2, 2])


class Stamp(Augmentation):
    """Writes its strength, times ten, into every feature: not random, and easy to tell."""

    def __call__(self, batch, generator):
        return replace(batch, x=torch.full_like(batch.x, round(10 * self.strength)))


@pytest.fixture
def stamps():
    return [Stamp(0.1), Stamp(0.2), Stamp(0.3)]


def alone(batch, row):
    part = batch.keep_nodes(batch.graph_of_node == row)
    return replace(part, graph_of_node=torch.zeros_like(part.graph_of_node), num_graphs=1)


def test_one_index_augments_the_whole_batch(store, generator, assert_same, stamps):
    batch = store.batch(GRAPHS)
    views, pool = BatchViews(store, GRAPHS), [*stamps, NodeDrop()]
    view = views.view(torch.tensor([1]), pool, generator())
    assert (view.augmentation, view.row) == (1, None)
    assert_same(view.batch, replace(batch, x=torch.full_like(batch.x, 2)))
    view = views.view(torch.tensor([3]), pool, generator(4))
    assert_same(view.batch, NodeDrop()(batch, generator(4)))


def test_one_index_per_graph_augments_each_graph(store, generator, assert_same, stamps):
    view = BatchViews(store, GRAPHS).view(NUMBERS, stamps, generator())
    assert view.batch.num_graphs == len(GRAPHS)
    for place, (graph, number) in enumerate(zip(GRAPHS.tolist(), NUMBERS.tolist(), strict=True)):
        row = int(view.row[place])
        assert view.augmentation[row] == number
        assert_same(alone(view.batch, row), stamps[number](store.batch(torch.tensor([graph])), generator()))


def test_mixed_views_draw_augmentation_by_augmentation(store, generator, assert_same):
    pool = [NodeDrop(0.5), NodeDrop(0.2), NodeDrop(0.8)]
    view = BatchViews(store, GRAPHS).view(NUMBERS, pool, generator(6))
    source = generator(6)
    first_row = 0
    for number in range(3):
        expected = pool[number](store.batch(GRAPHS[torch.eq(NUMBERS, number)]), source)
        keep = (view.batch.graph_of_node >= first_row) & (view.batch.graph_of_node < first_row + expected.num_graphs)
        part = view.batch.keep_nodes(keep)
        part = replace(part, graph_of_node=part.graph_of_node - first_row, num_graphs=expected.num_graphs)
        assert_same(part, expected)
        first_row += expected.num_graphs


def test_projections_come_back_in_the_order_of_the_graphs(store, generator, stamps, make_method):
    method = make_method("head_per_augmentation")
    model = ContrastiveModel(method.encoder, method.heads).eval()
    found = project(model, BatchViews(store, GRAPHS).view(NUMBERS, stamps, generator()))
    for place, (graph, number) in enumerate(zip(GRAPHS.tolist(), NUMBERS.tolist(), strict=True)):
        shown = stamps[number](store.batch(torch.tensor([graph])), generator())
        torch.testing.assert_close(found[place], method.heads(method.encoder(shown), number)[0])


def test_an_augmentation_that_was_not_drawn_is_not_called(store, generator, stamps):
    def fails(batch, generator):
        pytest.fail("called")

    view = BatchViews(store, GRAPHS).view(torch.full_like(GRAPHS, 2), [fails, fails, stamps[2]], generator())
    assert view.row.tolist() == list(range(len(GRAPHS)))


class Nothing(Augmentation):
    def __call__(self, batch, generator):
        return None


class Wider(Augmentation):
    def __call__(self, batch, generator):
        return replace(batch, x=torch.cat([batch.x, batch.x], dim=1))


class Fewer(Augmentation):
    def __call__(self, batch, generator):
        return alone(batch, 0)


@pytest.mark.parametrize(
    ("own", "graphs", "factor"),
    [(Nothing(), None, None), (Wider(), 7, 2), (Fewer(), 1, 1)],
    ids=["none", "wider", "fewer"],
)
def test_invalid_results_of_custom_augmentations_are_rejected(store, generator, own, graphs, factor):
    values = [None] if graphs is None else [f"{graphs} graphs", f"{factor * store.num_features} features", 7]
    with refused(type(own).__name__, *values):
        BatchViews(store, GRAPHS).view(torch.tensor([0]), [own], generator())
    with refused(type(own).__name__, *values):
        BatchViews(store, GRAPHS).view(torch.zeros_like(GRAPHS), [own], generator())
