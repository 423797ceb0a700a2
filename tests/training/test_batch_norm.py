"""Synced batch normalisation in one process; tests/training/test_distributed.py has two processes."""

import copy

import pytest
import torch
import torch.distributed as distributed
from torch import nn

from joao.training.distributed.group import SyncedBatchNorm1d, synced_batch_norms
from tests.messages import refused


@pytest.fixture(autouse=True)
def group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def outcome(norm, x, times=3):
    x = x.clone().requires_grad_()
    for _ in range(times):
        y = norm(x)
    y.float().square().mul(torch.arange(len(x))[:, None]).mean().backward()
    return [y, x.grad, *(each.grad for each in norm.parameters()), *norm.buffers()]


@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_synced_batch_norm_equals_batch_norm_in_one_process(options, dtype):
    x = (torch.randn(40, 3) * torch.tensor([1.0, 5.0, 0.0]) + torch.tensor([0.0, 100.0, 1.0])).to(dtype)
    expected = nn.BatchNorm1d(3, **options)
    expected = expected.to(dtype) if dtype == torch.float64 else expected
    norm = copy.deepcopy(expected)
    with synced_batch_norms(norm):
        found = outcome(norm, x)
    rounding = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 3e-2}[dtype]
    for one, other in zip(found, outcome(expected, x), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=rounding, atol=rounding)


def test_a_column_far_from_zero_keeps_its_variance():
    x = 1e4 + torch.linspace(0, 1, 64)[:, None]
    norm = nn.BatchNorm1d(1)
    with synced_batch_norms(norm):
        made = norm(x).detach()
    assert float(made.std(correction=0)) == pytest.approx(1, rel=1e-3)


def test_evaluation_mode_uses_running_statistics():
    norm = nn.BatchNorm1d(3)
    norm(torch.randn(9, 3))
    x, norm = torch.randn(4, 3), norm.eval()
    expected = norm(x)
    with synced_batch_norms(norm):
        assert torch.equal(norm(x), expected)


def test_norms_are_synced_only_inside_the_context(make_method):
    encoder = make_method().encoder
    before = {name: id(value) for name, value in encoder.state_dict(keep_vars=True).items()}
    with synced_batch_norms(encoder):
        assert sum(isinstance(each, SyncedBatchNorm1d) for each in encoder.modules()) == 2
        assert {name: id(value) for name, value in encoder.state_dict(keep_vars=True).items()} == before
    assert not any(isinstance(each, SyncedBatchNorm1d) for each in encoder.modules())


def test_other_kinds_of_batch_norm_are_rejected():
    norms = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm2d(2))
    with refused("BatchNorm2d"), synced_batch_norms(norms):
        pass
    assert type(norms[0]) is nn.BatchNorm1d
