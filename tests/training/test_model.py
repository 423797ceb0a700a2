import pytest
import torch

from joao.encoders import Gin
from joao.training.model import batches_by_size, calibrate, embed


@pytest.fixture
def encoder(store):
    """An encoder whose statistics have left their start."""
    encoder = Gin(store.num_features, width=6, layers=2)
    encoder(store.batch(torch.arange(10)))
    return encoder


@pytest.mark.parametrize("budget", [1, 20, 100, 400_000])
def test_embeddings_are_those_of_each_graph_alone_whatever_the_budget(encoder, store, budget):
    found = embed(encoder, store, budget)
    assert encoder.training
    assert found.dtype == torch.float32
    assert not found.requires_grad
    encoder.eval()
    expected = torch.cat([encoder(store.batch(torch.tensor([graph]))) for graph in range(len(store))])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("training", [True, False])
def test_embedding_changes_neither_mode_nor_statistics(encoder, store, training):
    encoder.train(training)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    embed(encoder, store)
    assert encoder.training == training
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


@pytest.mark.parametrize("budget", [1, 30, 75, 10**6])
def test_batches_by_size_are_all_graphs_in_order_within_about_the_budget(store, budget):
    batches = batches_by_size(store, torch.arange(len(store)), budget)
    assert torch.cat(batches).tolist() == list(range(len(store)))
    sizes = [
        int(store.first_node[g + 1] - store.first_node[g] + store.first_edge[g + 1] - store.first_edge[g])
        for g in range(len(store))
    ]
    for graphs in batches:
        assert sum(sizes[g] for g in graphs.tolist()) < budget + max(sizes)
    if budget == 10**6:
        assert len(batches) == 1


def test_calibration_averages_the_statistics_of_shuffled_batches(store, generator):
    encoder = Gin(store.num_features, width=6, layers=2).eval()
    encoder.norms[0].running_mean += 100  # whatever was there before is forgotten
    calibrate(encoder, store, 6, generator(3))
    means, variances = [], []
    for graphs in torch.split(torch.randperm(21, generator=generator(3)), 6):
        batch = store.batch(graphs)
        summed = batch.x.clone()
        for u, v in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
            summed[v] += batch.x[u]
        hidden = torch.relu(encoder.mlps[0](summed)).detach()
        means.append(hidden.mean(dim=0))
        variances.append(hidden.var(dim=0))
    torch.testing.assert_close(encoder.norms[0].running_mean, torch.stack(means).mean(dim=0))
    torch.testing.assert_close(encoder.norms[0].running_var, torch.stack(variances).mean(dim=0))
    assert [norm.momentum for norm in encoder.norms] == [0.1, 0.1]
    assert not encoder.training


def test_calibrated_features_have_mean_zero_and_deviation_one(store, generator):
    encoder = Gin(store.num_features, width=6, layers=2)
    calibrate(encoder, store, len(store), generator())
    outputs = []
    for norm in encoder.norms:
        norm.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    with torch.no_grad():
        encoder.eval()(store.batch(torch.arange(len(store))))
    for output in outputs:
        live = output.std(dim=0) > 0  # a unit that is never on has no deviation
        # In training a layer sees variances over n, afterwards over n - 1: a difference of half a percent here.
        torch.testing.assert_close(output.mean(dim=0), torch.zeros(6), rtol=0, atol=0.01)
        torch.testing.assert_close(output[:, live].std(dim=0), torch.ones(int(live.sum())), rtol=0, atol=0.01)


def test_calibration_does_not_change_weights(encoder, store, generator):
    before = [parameter.clone() for parameter in encoder.parameters()]
    calibrate(encoder, store, 5, generator())
    assert all(torch.equal(*pair) for pair in zip(encoder.parameters(), before, strict=True))
    assert all(parameter.grad is None for parameter in encoder.parameters())
