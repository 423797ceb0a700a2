import numpy as np
import torch

from joao.kernels.random_ranks import ranks


def test_items_are_numbered_by_value_inside_their_group_and_equal_ones_as_they_come():
    sizes = [3, 1, 6, 2]
    values = torch.tensor([2.0, 1.0, 2.0, 9.0, 5.0, 5.0, 1.0, 5.0, 0.0, 7.0, 4.0, 3.0, 0.0, 0.0])  # two left over
    group = torch.tensor([0] * 3 + [1] + [2] * 6 + [3] * 4)
    first = torch.tensor([0, *np.cumsum(sizes)])
    found = ranks(values, group, first, 6)
    expected = []
    for start, size in zip(first.tolist(), sizes, strict=False):
        part = values[start : start + size].tolist()
        expected += [sorted(range(size), key=lambda k, part=part: (part[k], k)).index(k) for k in range(size)]
    assert found[:12].tolist() == expected
    assert sorted(found[12:].tolist()) == [2, 3]  # behind the last group's two
