"""Compares Triton kernels with their plain forms; run by test_triton.py with TRITON_INTERPRET=1."""

import dataclasses
import math
import sys

import torch

from joao.augmentations import EdgePerturb, Subgraph
from joao.core.padded import stack_views
from joao.data import Features, make_store
from joao.data.names import BUNDLED
from joao.data.sources import read
from joao.kernels import _triton
from joao.kernels.graph_ops import plain_copy_graphs, plain_first_passage, plain_rank_within_groups
from joao.kernels.layers import (
    GinWeights,
    _GinLayer,
    _GraphMax,
    _GraphSum,
    _MessageSum,
    _NeighbourSum,
    _ReluNorm,
    plain_gin_layer,
    plain_message_sum,
)
from joao.kernels.layers import batch_norm as plain_batch_norm_only
from joao.kernels.layers import graph_max as plain_graph_max
from joao.kernels.layers import graph_sum as plain_graph_sum
from joao.kernels.layers import neighbour_sum as plain_neighbour_sum
from joao.kernels.layers import relu_norm as plain_relu_norm
from joao.kernels.nt_xent import _NtXent
from joao.kernels.svm_dual import SvmProblems, plain_solve_duals
from joao.objectives import NtXent
from joao.training.fast.batches import PaddedStore

GRAPHS = torch.tensor([3, 4, 17, 11])
ROOM = 72, 160
DRAW = torch.Generator().manual_seed(1)


def batch():
    dataset = read(BUNDLED / "MUTAG.zip")
    store = PaddedStore(make_store(dataset, Features.from_dataset(dataset)))
    return store, store.batch(GRAPHS, *ROOM)


def copy_graphs():
    store, plain = batch()
    others = torch.tensor([7, 0, 8, 2])
    first = torch.cat([torch.zeros(1, dtype=torch.long), torch.cumsum(store.edges_of_graph[others], 0)])
    plain.first_node[1:] = torch.cumsum(store.nodes_of_graph[others], 0)
    names = ("x", "source", "target", "first_edge", "reverse_edge", "keep", "graph_of_node")
    found = dataclasses.replace(plain, **{name: torch.full_like(getattr(plain, name), 77) for name in names})
    plain_copy_graphs(store, others, first, plain)
    _triton.copy_graphs(store, others, first, found)
    for name in names:
        assert torch.equal(getattr(found, name), getattr(plain, name)), name


def rank_within_groups():
    _, given = batch()
    for values in (torch.randint(0, 9, (ROOM[0],), generator=DRAW), torch.rand(ROOM[0], generator=DRAW).double()):
        arguments = values, given.graph_of_node, given.first_node
        assert torch.equal(
            _triton.rank_within_groups(*arguments)[given.keep], plain_rank_within_groups(*arguments)[given.keep]
        )


def first_passage():
    _, given = batch()
    start = 50 * torch.rand(ROOM[0], dtype=torch.float64, generator=DRAW)
    waiting = torch.rand(ROOM[0], dtype=torch.float64, generator=DRAW)
    found = _triton.first_passage(given, start, waiting)
    assert torch.equal(found, plain_first_passage(given.source, given.target, start, waiting))


def gin_layer(dtype=torch.float32, tolerance=1e-5):
    _, given = batch()
    views = stack_views([augmentation.padded(given, DRAW) for augmentation in (EdgePerturb(), Subgraph())])
    keep = views.keep.unsqueeze(-1)
    for width in (5, 70):
        shapes = (width, 7), (width,), (width, width), (width,), (width,), (width,)
        parameters = [(torch.randn(shape, generator=DRAW) / shape[-1] ** 0.5).requires_grad_() for shape in shapes]
        x = (torch.randn(2, ROOM[0], 7, generator=DRAW) * keep).requires_grad_()
        weights = GinWeights(*parameters, 1e-5)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            expected = plain_gin_layer(x, views, weights)
            found = _GinLayer.apply(x, views, *weights)
        upstream = (
            torch.randn(expected.x.shape, generator=DRAW) * keep,
            torch.randn(expected.pooled.shape, generator=DRAW),
        )
        wanted = x, *parameters
        close(found, expected, tolerance)
        for used in ((0, 1), (1,)):  # the last layer's nodes are not used
            outputs = [[each[k] for k in used] for each in (found, expected)]
            one, other = (
                torch.autograd.grad(each, wanted, [upstream[k].to(each[n].dtype) for n, k in enumerate(used)], True)
                for each in outputs
            )
            close((one[0] * keep, *one[1:]), (other[0] * keep, *other[1:]), tolerance)


def gin_layer_bf16():
    gin_layer(torch.bfloat16, 0.2)
    # Against float64.
    _, given = batch()
    views = stack_views([augmentation.padded(given, DRAW) for augmentation in (EdgePerturb(), Subgraph())])
    keep = views.keep.unsqueeze(-1)
    shapes = (70, 7), (70,), (5, 70), (5,), (5,), (5,)
    parameters = [(torch.randn(shape, generator=DRAW) / shape[-1] ** 0.5).requires_grad_() for shape in shapes]
    exact = [each.detach().double().requires_grad_() for each in parameters]
    x = torch.randn(2, ROOM[0], 7, generator=DRAW) * keep
    upstream = torch.randn(2, len(GRAPHS), 5, generator=DRAW)
    expected = plain_gin_layer(x.double(), views, GinWeights(*exact, 1e-5))
    wanted = torch.autograd.grad(expected.pooled, exact, upstream.double())
    with torch.autocast("cpu", torch.bfloat16):
        y, pooled, means, variances = _GinLayer.apply(x, views, *parameters, 1e-5)
    assert [y.dtype, means.dtype, variances.dtype] == [torch.bfloat16, torch.float32, torch.float32]
    found = torch.autograd.grad(pooled, parameters, upstream.to(pooled.dtype))
    assert {each.dtype for each in found} == {torch.float32}
    close([means, variances, y * keep], [expected.means, expected.variances, expected.x * keep], 0.02)
    close(found, wanted, 0.1)  # the interpreter cuts off digits where a GPU rounds: twice the error


def relu_norm(dtype=torch.float32, tolerance=1e-5, with_relu=True):
    _, given = batch()
    keep = stack_views([augmentation.padded(given, DRAW) for augmentation in (EdgePerturb(), Subgraph())]).keep
    for shape in ((5,), (70,), (2, 70)):  # one for all views, or one for each
        width = shape[-1]
        z = torch.randn(2, ROOM[0], width, generator=DRAW).to(dtype).requires_grad_()
        bias, scale, shift = (torch.randn(shape, generator=DRAW).requires_grad_() for _ in range(3))
        wanted = (z, scale, shift, bias) if with_relu else (z, scale, shift)  # alone, a bias does nothing
        if with_relu:
            expected = plain_relu_norm(z, bias, keep, scale, shift, 1e-5)
        else:
            expected = plain_batch_norm_only(z + bias.unsqueeze(-2), keep, scale, shift, 1e-5)
        found = _ReluNorm.apply(z, bias, keep, scale, shift, 1e-5, 0.0 if with_relu else -math.inf)
        assert [each.requires_grad for each in found] == [True, False, False]
        assert found[0].dtype == dtype
        close(found, expected, tolerance)
        # In every row, also in those that are not kept: what comes back from them must not count. And laid out in
        # memory as a transposed matrix is.
        upstream = torch.randn(2, width, ROOM[0], generator=DRAW).transpose(1, 2)
        one, other = (torch.autograd.grad(each[0], wanted, upstream.to(each[0].dtype)) for each in (found, expected))
        assert not one[0][~keep].any()
        close(one, other, tolerance)


def batch_norm():
    relu_norm(with_relu=False)


def relu_norm_bf16():
    relu_norm(torch.bfloat16, 0.02)


def sums(dtype=torch.float32, tolerance=1e-6, wide=600):
    store, given = batch()
    views = stack_views([augmentation.padded(given, DRAW) for augmentation in (EdgePerturb(), Subgraph())])
    keep = views.keep.unsqueeze(-1)
    weight = torch.rand(2, ROOM[0], generator=DRAW) + 0.5
    for width, weights in ((5, (None, weight)), (wide, (weight,))):
        # As columns of a wider tensor, whose rows do not follow each other in memory.
        x = (torch.randn(2, ROOM[0], width + 3, generator=DRAW) * keep).to(dtype)[:, :, 3:].requires_grad_()
        for each in weights:
            found, expected = _NeighbourSum.apply(x, views, each), plain_neighbour_sum(x, views, each)
            assert found.dtype == dtype
            upstream = (torch.randn(2, width, ROOM[0], generator=DRAW).transpose(1, 2) * keep).to(dtype)
            one, other = (torch.autograd.grad(each, x, upstream)[0] for each in (found, expected))
            close([found * keep, one * keep], [expected * keep, other * keep], tolerance)
        others = store.batch(torch.tensor([7, 0, 8, 2]), *ROOM)
        own = {
            name: torch.stack([getattr(each, name) for each in (given, others)])
            for name in ("graph_of_node", "first_node", "keep")
        }
        for each in (views, dataclasses.replace(views, **own)):  # the same graphs in all views, or graphs of their own
            kept = x * each.keep.unsqueeze(-1)
            found, expected = _GraphSum.apply(kept, each), plain_graph_sum(kept, each)
            upstream = torch.randn(2, width, len(GRAPHS), generator=DRAW).transpose(1, 2).to(dtype)
            one, other = (torch.autograd.grad(total, x, upstream, True)[0] for total in (found, expected))
            close([found, one], [expected, other], tolerance)


def sums_bf16():
    sums(torch.bfloat16, 0.02, wide=70)


def molecule_sums(dtype=torch.float32, tolerance=1e-5):
    _, given = batch()
    views = stack_views([augmentation.padded(given, DRAW) for augmentation in (EdgePerturb(), Subgraph())])
    keep = views.keep.unsqueeze(-1)
    # Numbered by both ends, so the same both ways; -1 where an end is not kept, as at padding.
    kind = (views.source + views.target) % 4 - 1
    ends = [views.keep.gather(1, each) for each in (views.source, views.target)]
    kind = torch.where(ends[0] & ends[1], kind, -1)
    for width in (5, 300):
        x = (torch.randn(2, ROOM[0], width, generator=DRAW) * keep).requires_grad_()
        table = torch.randn(3, width, generator=DRAW).to(dtype).requires_grad_()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            found = _MessageSum.apply(x, views, table, kind)
        assert found.dtype == dtype
        expected = plain_message_sum(x, views, table, kind)
        upstream = torch.randn(2, width, ROOM[0], generator=DRAW).transpose(1, 2) * keep
        one, other = (torch.autograd.grad(each, (x, table), upstream.to(each.dtype)) for each in (found, expected))
        assert [each.dtype for each in one] == [torch.float32, dtype]
        close([found * keep, *one], [expected * keep, *other], tolerance)
        # Small whole numbers, so that many are equal, and one graph whose values are all 0.
        x = (torch.randint(0, 3, x.shape, generator=DRAW) * keep).float()
        x[:, given.graph_of_node == 2] = 0
        x = x.requires_grad_()
        upstream = torch.randn(2, len(GRAPHS), width, generator=DRAW)
        found, expected = _GraphMax.apply(x, views), plain_graph_max(x, views)
        one, other = (torch.autograd.grad(each, x, upstream)[0] * (x > 0) for each in (found, expected))
        close([found, one], [expected, other], 1e-6)


def molecule_sums_bf16():
    molecule_sums(torch.bfloat16, 0.02)


def nt_xent():
    for size, width in ((2, 3), (37, 1500)):
        first, second = torch.randn(2, size, width, generator=DRAW)
        second += first
        first[1] = 0  # has no direction
        first, second = (each.requires_grad_() for each in (first, second))
        for temperature, positive in ((0.2, False), (1.5, True)):
            objective = NtXent(temperature, positive_in_denominator=positive)
            expected = objective(first.double(), second.double())
            found = _NtXent.apply(first, second, temperature, positive)
            one, other = (torch.autograd.grad(3 * each, (first, second)) for each in (found, expected))
            close([found, *one], [expected, *other], 1e-5)
    for bad in (torch.nan, torch.inf, 1e30):
        spoilt = first.detach().clone()
        spoilt[0, 0] = bad
        assert _NtXent.apply(spoilt, second, 0.2, False).isnan()
        assert NtXent()(spoilt, second).isnan()


def svm_dual():
    x = torch.randn(2, 40, 3, generator=DRAW)
    kernels = torch.exp(-torch.cdist(x, x).square() / 3)
    sign = torch.where(x[:, :, 0] + 0.5 * x[:, :, 1] > 0, 1.0, -1.0).double()
    sign[1, 30:] = 0.0  # the second has fewer rows
    rows = torch.stack([torch.randperm(40, generator=DRAW), torch.arange(40)])
    matrix = torch.tensor([0, 1, 1, 0])
    bound = torch.tensor([0.01, 1.0, 100.0, 10.0], dtype=torch.float64)
    problems = SvmProblems(kernels, matrix, rows[matrix], sign[matrix], bound)
    for found, expected in zip(_triton.solve_duals(problems), plain_solve_duals(problems), strict=True):
        assert torch.equal(found, expected)


def close(found, expected, tolerance):
    """Up to a share of the length: rounding may carry a single number across the corner of a ReLU."""
    for one, other in zip(found, expected, strict=True):
        assert (one.float() - other.float()).norm() <= tolerance * other.float().norm(), (one, other)


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases = copy_graphs, rank_within_groups, first_passage, gin_layer, gin_layer_bf16, sums, sums_bf16
    cases += nt_xent, relu_norm, batch_norm, relu_norm_bf16, molecule_sums, molecule_sums_bf16, svm_dual
    by_name = {each.__name__: each for each in cases}
    for name in sys.argv[1:]:
        DRAW.manual_seed(1)
        by_name[name]()
        sys.stdout.write(f"{name}: equal\n")
