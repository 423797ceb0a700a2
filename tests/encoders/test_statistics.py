import pytest
import torch
from torch import nn

from joao.encoders.layers import update_running_statistics


@pytest.mark.parametrize("momentum", [0.1, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_several_views_are_remembered_as_batch_normalisation_itself_does_it(momentum, dtype, generator):
    draw, rows = generator(), [9, 2, 30]
    widths = [4, 1, 7]
    own, given = ([nn.BatchNorm1d(width, momentum=momentum, dtype=dtype) for width in widths] for _ in range(2))
    for _ in range(2):  # the second time from statistics that are no longer those at the start
        means, variances = [], []
        for norm, width in zip(own, widths, strict=True):
            views = [torch.randn(count, width, dtype=dtype, generator=draw) * width + 1 for count in rows]
            for view in views:
                norm(view)
            means.append(torch.stack([view.mean(0) for view in views]))
            variances.append(torch.stack([view.var(0, correction=0) for view in views]))
        keep = torch.arange(max(rows)) < torch.tensor(rows)[:, None]
        update_running_statistics(given, keep, list(zip(means, variances, strict=True)))
        for norm, expected in zip(given, own, strict=True):
            for name, value in expected.named_buffers():
                torch.testing.assert_close(getattr(norm, name), value, msg=name)


def test_weights_are_not_touched():
    norm = nn.BatchNorm1d(3)
    update_running_statistics([norm], torch.ones(1, 5, dtype=torch.bool), [(torch.ones(1, 3), torch.ones(1, 3))])
    assert (norm.weight == 1).all()
    assert not norm.bias.any()
