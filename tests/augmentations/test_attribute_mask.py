from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from joao.augmentations import AttributeMask
from tests.messages import refused


def changed_rows(view, batch):
    return (view.x != batch.x).any(dim=1)


@pytest.mark.parametrize("fill", ["noise", "mean", "token"])
@pytest.mark.parametrize("strength", ["0.1", "0.3", "0.5", "0.9"])
def test_floor_of_the_share_is_replaced_in_each_graph(fill, strength, make_batch, generator):
    sizes = [*range(2, 14), 50]
    batch = make_batch([(size, []) for size in sizes])
    # squares: no node is equal to the mean of its graph
    batch.x[:, 0] = batch.x[:, 0] ** 2
    view = AttributeMask(float(strength), fill=fill)(batch, generator())
    counts = torch.bincount(batch.graph_of_node[changed_rows(view, batch)], minlength=len(sizes))
    assert counts.tolist() == [Fraction(strength) * size // 1 for size in sizes]


@pytest.mark.parametrize("fill", ["noise", "mean", "token"])
def test_edges_and_attributes_are_unchanged(fill, mutag, generator, edges_of):
    batch = mutag.batch(torch.arange(20))
    assert edges_of(AttributeMask(0.5, fill=fill)(batch, generator())) == edges_of(batch)


def test_every_set_of_nodes_is_equally_likely(make_batch, generator, assert_law):
    batch = make_batch([(5, [])] * 2000)
    rows = changed_rows(AttributeMask(0.4)(batch, generator(1)), batch).view(2000, 5).tolist()
    masked = [tuple(node for node in range(5) if row[node]) for row in rows]
    assert_law(masked, dict.fromkeys(combinations(range(5), 2), 1 / 10))


def test_noise_is_normal_and_independent_of_row_and_column(make_batch, generator):
    batch = make_batch([(10, [])] * 2000)
    view = AttributeMask(0.5)(batch, generator(2))
    noise = view.x[changed_rows(view, batch)].double().numpy()
    assert noise.shape == (10_000, 3)
    for column in noise.T:
        assert kstest(column, "norm", args=(0.5, 0.5)).pvalue > 1e-6
        assert column.mean() == pytest.approx(0.5, abs=5 * 0.5 / 100)
        assert column.std() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2 * 10_000))
    neighbours = np.corrcoef(np.vstack([noise.T[:, 1:], noise.T[:, :-1]]))
    assert np.abs(neighbours - np.eye(6)).max() < 5 / 100


def test_mean_fill_is_the_mean_over_all_nodes_of_the_graph(mutag, generator):
    batch = mutag.batch(torch.arange(30))
    view = AttributeMask(0.5, fill="mean")(batch, generator())
    masked = changed_rows(view, batch)
    assert masked.any()
    for node in masked.nonzero().flatten().tolist():
        own = [
            batch.x[other]
            for other in range(batch.num_nodes)
            if batch.graph_of_node[other] == batch.graph_of_node[node]
        ]
        torch.testing.assert_close(view.x[node], sum(own) / len(own))


def test_token_is_minus_one_in_every_column(mutag, generator):
    batch = mutag.batch(torch.arange(30))
    view = AttributeMask(0.5, fill="token")(batch, generator())
    masked = changed_rows(view, batch)
    assert masked.any()
    assert (view.x[masked] == -1).all()
    assert torch.equal(view.x[~masked], batch.x[~masked])


def test_unknown_fill_is_rejected():
    with refused("AttributeMask", "fill", "'noise'", "'mean'", "'token'", "'zero'"):
        AttributeMask(fill="zero")
