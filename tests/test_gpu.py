"""The same on a GPU. Skipped, visibly, where torch sees none."""

from __future__ import annotations

import copy

import pytest
import torch

from joao.augmentations import AUGMENTATIONS
from joao.data import read
from joao.data.features import Features, make_store
from joao.encoders import Gin
from joao.experiment import pretrain
from joao.graphs import GraphBatch
from joao.randomness import seeded
from joao.recipe import make_recipe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.fixture(scope="module")
def dataset():
    return read("MUTAG")


@pytest.fixture(scope="module")
def batches(dataset) -> tuple[GraphBatch, GraphBatch]:
    store = make_store(dataset, Features.fixed_on(dataset))
    graphs = torch.arange(len(store))
    return store.batch(graphs), store.to("cuda").batch(graphs.cuda())


def test_a_batch_is_the_same_on_both_devices(batches):
    cpu, gpu = batches
    for name in ("x", "source", "target", "graph_of_node", "edge_attr", "first_edge", "reverse_edge"):
        torch.testing.assert_close(getattr(gpu, name).cpu(), getattr(cpu, name), rtol=0, atol=0)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_stay_on_the_device_sorted_symmetric_and_reproducible(name, batches):
    augmentation = AUGMENTATIONS[name]()
    first, again = (augmentation(batches[1], torch.Generator("cuda").manual_seed(3)) for _ in range(2))
    assert first.device.type == "cuda"
    key = first.target * first.num_nodes + first.source
    assert bool((key[1:] > key[:-1]).all())
    assert torch.equal(torch.sort(first.source * first.num_nodes + first.target).values, key)
    assert torch.equal(first.nodes_per_graph > 0, torch.ones_like(first.nodes_per_graph, dtype=torch.bool))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.source, again.source)


def test_gin_gives_the_same_embeddings_and_gradients(batches):
    cpu, gpu = (copy.copy(batch) for batch in batches)
    object.__setattr__(cpu, "x", cpu.x.double())
    object.__setattr__(gpu, "x", gpu.x.double())
    with seeded(0, "weights"):
        encoder = Gin(cpu.x.shape[1]).double()
    on_gpu = copy.deepcopy(encoder).cuda()
    expected, actual = encoder(cpu), on_gpu(gpu)
    torch.testing.assert_close(actual.cpu(), expected)
    expected.square().mean().backward()
    actual.square().mean().backward()
    for one, other in zip(encoder.parameters(), on_gpu.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("pair_per", ["batch", "graph"])
@pytest.mark.parametrize("method", ["joao", "joaov2"])
def test_pre_training_lowers_the_loss_as_on_a_cpu(method, pair_per, precision, dataset):
    recipe = make_recipe({"method": method, "training": {"epochs": 8, "pair_per": pair_per}})
    on_gpu = pretrain(recipe, dataset, device="cuda", precision=precision)
    on_cpu = pretrain(recipe, dataset, device="cpu")
    # Other generators, so other views: the same law, not the same numbers. Over seeds the spread is about 0.2.
    assert abs(on_gpu.metrics[0].loss - on_cpu.metrics[0].loss) < 0.6
    assert abs(on_gpu.metrics[-1].loss - on_cpu.metrics[-1].loss) < 0.8
    assert on_gpu.embed(dataset).isfinite().all()


def test_a_run_can_be_trained_on_a_gpu_interrupted_and_resumed(dataset, tmp_path):
    class Interruption(Exception):
        pass

    def interrupt(metrics):
        if metrics.epoch == 3:
            raise Interruption

    recipe = make_recipe({"data": "MUTAG", "training": {"epochs": 4}})
    options = {"device": "cuda", "checkpoint_every": 2}
    with pytest.raises(Interruption):
        pretrain(recipe, dataset, folder=tmp_path / "run", on_epoch=interrupt, **options)
    resumed = pretrain(recipe, dataset, folder=tmp_path / "run", resume=True, **options)
    undisturbed = pretrain(recipe, dataset, device="cuda")
    assert [epoch.epoch for epoch in resumed.metrics] == [1, 2, 3, 4]
    torch.testing.assert_close(
        torch.tensor([epoch.loss for epoch in resumed.metrics]),
        torch.tensor([epoch.loss for epoch in undisturbed.metrics]),
        rtol=1e-2,
        atol=1e-2,
    )
