import math
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from joao.augmentations import Augmentation, EdgePerturb, Identity, NodeDrop
from joao.encoders import Convolutions, Gin, ResGcn
from joao.encoders.convolutions import ModuleEncoder
from joao.training.device import Fabric
from joao.training.fast.batches import BufferPool, CudaGraphRunner, buffer_capacity, find_padding_obstacle
from tests.messages import assert_mentions

CPU = torch.device("cpu")
NAMES = ("x", "source", "target", "graph_of_node", "first_node")


@pytest.fixture
def rooms(store):
    return BufferPool(store, 2, CudaGraphRunner(CPU, []))


def test_room_is_for_usual_batches_and_never_beyond_the_largest_graphs():
    sizes = torch.tensor([10, 12, 14, 8, 16, 12] * 50)
    assert buffer_capacity(sizes, 100) == math.ceil(100 * sizes.double().mean() + 40 * sizes.double().std(correction=0))
    assert buffer_capacity(sizes, 2) == 32
    assert buffer_capacity(torch.tensor([5, 5, 5]), 3) == 15


def test_batches_are_placed_as_they_come_and_fit_if_nodes_and_edges_do(rooms, store, generator):
    draw = generator()
    batches = [torch.randperm(21, generator=draw)[:count] for count in (6, 6, 6, 2, 9)]
    sizes = [[int(first[g + 1] - first[g]) for g in range(21)] for first in (store.first_node, store.first_edge)]
    # Room that is exactly enough, that lacks a node, that lacks an edge, and as much as is usual.
    nodes, edges = ([sum(each[g] for g in batch.tolist()) for batch in batches] for each in sizes)
    for room, fits in [((0, 0), True), ((-1, 0), False), ((0, -1), False)]:
        rooms.capacity = {len(batches[0]): (nodes[0] + room[0], edges[0] + room[1])}
        assert rooms.place(batches[:1])[0].fits is fits
    rooms.capacity = {}
    placed = rooms.place(batches)
    for k, (batch, found) in enumerate(zip(batches, placed, strict=True)):
        assert torch.equal(found.graphs, batch)
        there_is = [buffer_capacity(torch.tensor(each), len(batch)) for each in sizes]
        assert found.fits == (nodes[k] <= there_is[0] and edges[k] <= there_is[1])


def test_a_room_holds_the_graphs_it_was_filled_with_last(rooms, store):
    first = None
    for graphs in ([3, 17, 5, 0], [1, 2, 20, 9], [4, 4, 4, 8]):
        (placed,) = rooms.place([torch.tensor(graphs)])
        assert placed.fits
        room = rooms.filled(placed.graphs)
        first = first or room
        assert room is first  # recordings read and write the same tensors again
        found, expected = room.batch.compact(), store.batch(placed.graphs)
        for name in NAMES:
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert room.graphs.tolist() == graphs


def test_each_number_of_graphs_has_a_room_of_its_own(rooms):
    placed = rooms.place([torch.tensor([3, 17, 5]), torch.tensor([2, 1])])
    three, two = (rooms.filled(each.graphs) for each in placed)
    assert (three.batch.num_graphs, two.batch.num_graphs) == (3, 2)
    assert three.graphs.tolist() == [3, 17, 5]
    assert rooms.filled(placed[0].graphs) is three


def test_a_view_is_shown_on_its_side_and_on_no_other(rooms, generator):
    (placed,) = rooms.place([torch.tensor([6, 17, 5, 8])])
    room, pool = rooms.filled(placed.graphs), [NodeDrop(0.5), EdgePerturb(0.5)]
    rooms.show(room, 0, 0, pool, generator(3))
    rooms.show(room, 1, 1, pool, generator(4))
    for side, (augmentation, seed) in enumerate(zip(pool, (3, 4), strict=True)):
        expected = augmentation.padded(room.batch, generator(seed))
        for name in ("x", "source", "target", "first_edge", "keep"):
            assert torch.equal(getattr(room.views, name)[side], getattr(expected, name)), name
    assert not torch.equal(room.views.keep[0], room.views.keep[1])
    assert torch.equal(room.views.first_node, room.batch.first_node)
    assert torch.equal(room.views.graph_of_node, room.batch.graph_of_node)


def test_views_follow_when_the_room_is_filled_again(rooms, store, generator):
    for graphs in ([3, 17, 5], [1, 12, 20]):
        (placed,) = rooms.place([torch.tensor(graphs)])
        room = rooms.filled(placed.graphs)
        rooms.show(room, 0, 0, [Identity()], generator())
        expected = store.batch(placed.graphs)
        assert torch.equal(room.views.x[0][room.views.keep[0]], expected.x)
        assert torch.equal(room.views.first_node, expected.first_node)
        assert torch.equal(room.views.graph_of_node[: expected.num_nodes], expected.graph_of_node)


class Unpadded(Augmentation):
    def __call__(self, batch, generator):
        return batch


class Mine(nn.Module):
    def forward(self, x, batch_size):
        return x[:batch_size]


def fabric(precision="32-true", scaler=None, world_size=1, device=CPU):
    """What is asked of a fabric, for those that need more than there is here."""
    chosen = SimpleNamespace(precision=precision, scaler=scaler)
    return SimpleNamespace(strategy=SimpleNamespace(precision=chosen), world_size=world_size, device=device)


@pytest.mark.parametrize("encoder", [Gin, ResGcn])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_nothing_stands_in_the_way_of_padded_parts(encoder, precision):
    own = Fabric(accelerator="cpu", devices=1, precision=precision)
    assert find_padding_obstacle(encoder(3), [NodeDrop(), Identity()], own) == ""


@pytest.mark.parametrize(
    ("pool", "given", "values"),
    [
        ([Identity(), Unpadded()], fabric(), ["Unpadded"]),
        ([], fabric("16-mixed", scaler=object()), ["16-mixed"]),
        ([], fabric("64-true"), ["64-true", "32-true", "tf32", "bf16-mixed"]),
        ([], fabric(world_size=2), ["processes"]),
    ],
)
def test_what_stands_in_the_way_is_told(pool, given, values):
    assert_mentions(find_padding_obstacle(Gin(3), pool, given), *values)


def test_without_triton_a_gpu_is_told_the_cure_and_a_cpu_needs_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    on_gpu = fabric(device=torch.device("cuda"))
    assert_mentions(find_padding_obstacle(Gin(3), [], on_gpu), "pip install triton")
    assert find_padding_obstacle(Gin(3), [], fabric()) == ""


def test_an_encoder_without_a_padded_form_is_named_also_where_it_is_wrapped(store):
    assert_mentions(find_padding_obstacle(Convolutions(3), [], fabric()), "encoder Convolutions")
    wrapped = ModuleEncoder(Mine(), store.batch(torch.arange(3)))
    assert_mentions(find_padding_obstacle(wrapped, [], fabric()), "encoder Mine")
