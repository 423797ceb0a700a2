import math
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from joao.augmentations import Augmentation, EdgePerturb, Identity, NodeDrop
from joao.encoders import Convolutions, Gin, ResGcn
from joao.encoders.convolutions import ModuleEncoder
from joao.training.fast.batches import BufferPool, CudaGraphRunner, buffer_capacity, find_padding_obstacle
from tests.messages import assert_mentions

CPU = torch.device("cpu")
NAMES = ("x", "source", "target", "graph_of_node", "first_node")


@pytest.fixture
def buffers(store):
    return BufferPool(store, 2, CudaGraphRunner(CPU, []))


def test_capacity_fits_usual_batches_and_at_most_the_largest_graphs():
    sizes = torch.tensor([10, 12, 14, 8, 16, 12] * 50)
    counts = Counter(sizes.tolist())
    usual = math.ceil(100 * sizes.double().mean() + 40 * sizes.double().std(correction=0))
    assert buffer_capacity(counts, 100) == usual
    assert buffer_capacity(counts, 2) == 32
    assert buffer_capacity(Counter({5: 3, 9: 1}), 2) == 14
    assert buffer_capacity(Counter({5: 3}), 3) == 15


def test_batches_fit_if_their_nodes_and_edges_do(buffers, store, generator):
    draw = generator()
    batches = [torch.randperm(21, generator=draw)[:count] for count in (6, 6, 6, 2, 9)]
    sizes = [[int(first[g + 1] - first[g]) for g in range(21)] for first in (store.first_node, store.first_edge)]
    # Room that is exactly enough, that lacks a node, that lacks an edge, and as much as is usual.
    nodes, edges = ([sum(each[g] for g in batch.tolist()) for batch in batches] for each in sizes)
    for filled, fits in [((0, 0), True), ((-1, 0), False), ((0, -1), False)]:
        buffers.capacities = {len(batches[0]): (nodes[0] + filled[0], edges[0] + filled[1])}
        assert buffers.load(batches[:1])[0].fits is fits
    buffers.capacities = {}
    loaded = buffers.load(batches)
    for k, (batch, found) in enumerate(zip(batches, loaded, strict=True)):
        assert torch.equal(found.graphs, batch)
        there_is = [buffer_capacity(Counter(each), len(batch)) for each in sizes]
        assert found.fits == (nodes[k] <= there_is[0] and edges[k] <= there_is[1])


def test_buffers_are_reused_and_refilled(buffers, store):
    first = None
    for graphs in ([3, 17, 5, 0], [1, 2, 20, 9], [4, 4, 4, 8]):
        (loaded,) = buffers.load([torch.tensor(graphs)])
        assert loaded.fits
        filled = buffers.fill(loaded)
        first = first or filled
        assert filled is first  # recordings read and write the same tensors again
        found, expected = filled.batch.compact(), store.batch(loaded.graphs)
        for name in NAMES:
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert filled.graphs.tolist() == graphs


def test_each_number_of_graphs_has_its_own_buffers(buffers):
    loaded = buffers.load([torch.tensor([3, 17, 5]), torch.tensor([2, 1])])
    three, two = (buffers.fill(each) for each in loaded)
    assert (three.batch.num_graphs, two.batch.num_graphs) == (3, 2)
    assert three.graphs.tolist() == [3, 17, 5]
    assert buffers.fill(loaded[0]) is three


def test_a_view_is_written_to_its_side_only(buffers, generator):
    (loaded,) = buffers.load([torch.tensor([6, 17, 5, 8])])
    filled, pool = buffers.fill(loaded), [NodeDrop(0.5), EdgePerturb(0.5)]
    buffers.draw_view(filled, 0, 0, pool, generator(3))
    buffers.draw_view(filled, 1, 1, pool, generator(4))
    for side, (augmentation, seed) in enumerate(zip(pool, (3, 4), strict=True)):
        expected = augmentation.padded(filled.batch, generator(seed))
        for name in ("x", "source", "target", "first_edge", "keep"):
            assert torch.equal(getattr(filled.views, name)[side], getattr(expected, name)), name
    assert not torch.equal(filled.views.keep[0], filled.views.keep[1])
    assert torch.equal(filled.views.first_node, filled.batch.first_node)
    assert torch.equal(filled.views.graph_of_node, filled.batch.graph_of_node)


def test_views_change_when_buffers_are_refilled(buffers, store, generator):
    for graphs in ([3, 17, 5], [1, 12, 20]):
        (loaded,) = buffers.load([torch.tensor(graphs)])
        filled = buffers.fill(loaded)
        buffers.draw_view(filled, 0, 0, [Identity()], generator())
        expected = store.batch(loaded.graphs)
        assert torch.equal(filled.views.x[0][filled.views.keep[0]], expected.x)
        assert torch.equal(filled.views.first_node, expected.first_node)
        assert torch.equal(filled.views.graph_of_node[: expected.num_nodes], expected.graph_of_node)


class Unpadded(Augmentation):
    def __call__(self, batch, generator):
        return batch


class Mine(nn.Module):
    def forward(self, x, batch_size):
        return x[:batch_size]


def fabric(precision="32-true", scaler=None, device=CPU):
    """What is asked of a fabric, for those that need more than there is here."""
    chosen = SimpleNamespace(precision=precision, scaler=scaler)
    return SimpleNamespace(strategy=SimpleNamespace(precision=chosen), device=device)


@pytest.mark.parametrize("encoder", [Gin, ResGcn])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_padded_parts_have_no_obstacle(encoder, precision):
    own = Fabric(accelerator="cpu", devices=1, precision=precision)
    assert find_padding_obstacle(encoder(3), [NodeDrop(), Identity()], own) == ""


@pytest.mark.parametrize(
    ("pool", "given", "values"),
    [
        ([Identity(), Unpadded()], fabric(), ["Unpadded"]),
        ([], fabric("16-mixed", scaler=object()), ["16-mixed"]),
        ([], fabric("64-true"), ["64-true", "32-true", "tf32", "bf16-mixed"]),
    ],
)
def test_obstacles_are_named(pool, given, values):
    assert_mentions(find_padding_obstacle(Gin(3), pool, given), *values)


def test_a_gpu_needs_triton_and_a_cpu_does_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    on_gpu = fabric(device=torch.device("cuda"))
    assert_mentions(find_padding_obstacle(Gin(3), [], on_gpu), "pip install triton")
    assert find_padding_obstacle(Gin(3), [], fabric()) == ""


def test_encoders_without_a_padded_form_are_named(store):
    assert_mentions(find_padding_obstacle(Convolutions(3), [], fabric()), "encoder Convolutions")
    wrapped = ModuleEncoder(Mine(), store.batch(torch.arange(3)))
    assert_mentions(find_padding_obstacle(wrapped, [], fabric()), "encoder Mine")
