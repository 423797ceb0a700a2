"""The same on a GPU. Skipped, visibly, where torch sees none."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
import torch.distributed as distributed
from torch import Tensor, nn

from joao.augmentations import AUGMENTATIONS, AttributeMask, EdgePerturb, NodeDrop, Subgraph
from joao.config.builder import CustomParts, build_method
from joao.config.recipe import make_recipe
from joao.core.errors import Interrupted
from joao.core.graphs import GraphBatch, take_rows
from joao.core.padded import stack_views
from joao.core.randomness import temporary_seed
from joao.data import read
from joao.data.features import Features, make_store
from joao.data.shards.store import ShardStore
from joao.encoders import Gin, MoleculeGin, MoleculeGine, ResGcn
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.targets import KINDS, BinaryTargets, ClassTargets, NumberTargets
from joao.heads import HEADS
from joao.kernels.graph_ops import (
    first_passage,
    plain_copy_graphs,
    plain_first_passage,
    plain_rank_within_groups,
    rank_within_groups,
)
from joao.kernels.layers import GinWeights, gin_layer, plain_gin_layer
from joao.objectives import InfoGraph, MultiView
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from joao.runs.trained import make_untrained
from joao.training import pretrain as training_loop
from joao.training.checkpoint import capture_state, restore_state
from joao.training.device import make_fabric
from joao.training.distributed.group import BatchShard, GradientExchange, ProcessGroup, _GatherRows, synced_batch_norms
from joao.training.distributed.launch import find_process_layout, run_in_processes
from joao.training.fast import feed
from joao.training.fast.batches import CudaGraphRunner, PaddedStore
from joao.training.finetune import Finetune, Finetuning
from joao.training.model import calibrate
from joao.training.pretrain import Pretraining
from joao.training.targets import MoleculeTargets
from repro.protocols.stacked_fits import Part, fit_all
from tests.messages import refused
from tests.training.local_processes import by_hand, trained_on_one_gpu

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
    # From the first product in a thread of autograd that is new; the product is right.
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]


@pytest.fixture(scope="module")
def dataset():
    return read("MUTAG")


@pytest.fixture(scope="module")
def batches(dataset) -> tuple[GraphBatch, GraphBatch]:
    store = make_store(dataset, Features.from_dataset(dataset))
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
    with temporary_seed(0, "weights"):
        encoder = Gin(cpu.x.shape[1]).double()
    on_gpu = copy.deepcopy(encoder).cuda()
    expected, actual = encoder(cpu), on_gpu(gpu)
    torch.testing.assert_close(actual.cpu(), expected)
    expected.square().mean().backward()
    actual.square().mean().backward()
    for one, other in zip(encoder.parameters(), on_gpu.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


@pytest.mark.parametrize("precision", ["32-true", "tf32", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("pair_per", ["batch", "graph"])
@pytest.mark.parametrize("method", ["joao", "joaov2"])
def test_pre_training_lowers_the_loss_as_on_a_cpu(method, pair_per, precision, dataset):
    recipe = make_recipe({"method": method, "training": {"epochs": 8, "pair_per": pair_per}})
    on_gpu = pretrain(recipe, dataset, device="cuda", precision=precision)
    assert on_gpu.info.fast == (pair_per == "batch" and precision != "16-mixed")
    on_cpu = pretrain(recipe, dataset, device="cpu")
    # Other generators, so other views: the same law, not the same numbers. Over seeds the spread is about 0.2.
    assert abs(on_gpu.metrics[0].loss - on_cpu.metrics[0].loss) < 0.6
    assert abs(on_gpu.metrics[-1].loss - on_cpu.metrics[-1].loss) < 0.8
    assert on_gpu.embed(dataset).isfinite().all()


@pytest.mark.parametrize("kind", [Gin, ResGcn])
@pytest.mark.parametrize("objective", [InfoGraph(), MultiView()])
def test_nodes_against_graphs_give_the_same_loss_and_gradients(objective, kind, batches):
    results = []
    for batch in batches:
        with temporary_seed(0, "weights"):
            encoder = kind(batch.x.shape[1]).double()
            parts = objective.parts(encoder, encoder.num_node_dimensions).double()
        model = torch.nn.ModuleList([encoder, parts]).to(batch.device)
        draw = torch.Generator(batch.device)
        loss = objective(encoder.encode_nodes, parts, replace(batch, x=batch.x.double()), draw)
        gradients = torch.autograd.grad(loss, [*model.parameters()], allow_unused=True)
        results.append([loss.detach(), *(each for each in gradients if each is not None)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other.cpu(), one)


@pytest.mark.parametrize("precision", ["32-true", "tf32", "bf16-mixed"])
@pytest.mark.parametrize("method", ["infograph", "mvgrl"])
def test_nodes_against_graphs_are_pre_trained_on_as_on_a_cpu(method, precision, dataset):
    recipe = make_recipe({"method": method, "training": {"epochs": 8, "learning_rate": 0.001}})
    on_gpu = pretrain(recipe, dataset, device="cuda", precision=precision)
    on_cpu = pretrain(recipe, dataset, device="cpu")
    for one, other in zip(on_gpu.metrics, on_cpu.metrics, strict=True):  # nothing is drawn but the batches
        assert abs(one.loss - other.loss) < 0.2 * other.loss
    assert on_gpu.metrics[-1].loss < on_gpu.metrics[0].loss
    assert on_gpu.embed(dataset).isfinite().all()


@pytest.mark.parametrize("precision", ["32-true", "tf32", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("objective", ["jensen_shannon", "barlow_twins", "bootstrap"])
def test_other_objectives_lower_the_loss_as_on_a_cpu(objective, precision, dataset):
    recipe = make_recipe({"objective": objective, "training": {"epochs": 8}})
    on_gpu = pretrain(recipe, dataset, device="cuda", precision=precision)
    assert on_gpu.info.fast == (objective != "bootstrap" and precision != "16-mixed")
    on_cpu = pretrain(recipe, dataset, device="cpu")
    first, last, expected = on_gpu.metrics[0].loss, on_gpu.metrics[-1].loss, on_cpu.metrics[-1].loss
    assert last < first
    assert abs(last - expected) < 0.4 * expected  # other views; over seeds the spread is a tenth of the loss at most
    assert on_gpu.embed(dataset).isfinite().all()


@pytest.mark.parametrize("objective", ["nt_xent", "bootstrap"])
def test_a_run_can_be_trained_on_a_gpu_interrupted_and_resumed(objective, dataset, tmp_path):
    class Interruption(Exception):
        pass

    def interrupt(metrics):
        if metrics.epoch == 3:
            raise Interruption

    recipe = make_recipe({"data": "MUTAG", "objective": objective, "training": {"epochs": 4}})
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


@pytest.mark.parametrize(
    ("precision", "fast"),
    [("32-true", True), ("32-true", False), ("tf32", True), ("bf16-mixed", True), ("16-mixed", False)],
)
def test_a_run_is_stopped_inside_an_epoch_and_goes_on(precision, fast, dataset, tmp_path):
    recipe = make_recipe({"data": "MUTAG", "training": {"epochs": 4, "batch_size": 32}})  # 6 steps an epoch
    options = {"device": "cuda", "precision": precision, "fast": fast}
    asked = iter([False] * 9 + [True])
    with pytest.raises(Interrupted, match="step 9"):
        pretrain(recipe, dataset, folder=tmp_path / "run", should_stop=lambda: next(asked), **options)
    kept = Run.open(tmp_path / "run").read_checkpoint()
    assert kept["position"].tolist() == [1, 9]
    assert ("scaler/scale" in kept) == (precision == "16-mixed")
    resumed = pretrain(recipe, dataset, folder=tmp_path / "run", resume=True, **options)
    undisturbed = pretrain(recipe, dataset, **options)
    # The plain path adds in another order each time, and a table that is a little different draws other pairs.
    alike = 4 if fast else 1
    assert [epoch.drawn for epoch in resumed.metrics[:alike]] == [epoch.drawn for epoch in undisturbed.metrics[:alike]]
    compared = 4 if fast else 2  # the second epoch is the one that was interrupted
    torch.testing.assert_close(
        torch.tensor([epoch.loss for epoch in resumed.metrics[:compared]]),
        torch.tensor([epoch.loss for epoch in undisturbed.metrics[:compared]]),
        rtol=1e-2 if fast else 0.1,
        atol=1e-2,
    )
    assert len(resumed.metrics) == len(undisturbed.metrics) == 4


def test_a_loss_that_is_no_number_is_told_with_its_step_on_recorded_steps(dataset, monkeypatch):
    recipe = make_recipe({"data": "MUTAG", "training": {"epochs": 4, "batch_size": 32}})
    follow = Pretraining._update_copy

    def spoil(training, progress):
        follow(training, progress)
        if training.step == 14:  # after the fifteenth step
            next(training.model.parameters()).data.fill_(torch.nan)

    monkeypatch.setattr(Pretraining, "_update_copy", spoil)
    with refused("nan", "step 16", "epoch 3"):
        pretrain(recipe, dataset, device="cuda", fast=True)


@pytest.fixture(scope="module")
def padded(dataset):
    store = PaddedStore(make_store(dataset, Features.from_dataset(dataset)).to("cuda"))
    return store, store.batch(torch.arange(150, device="cuda"), 2900, 6300)


def test_the_kernels_do_what_the_plain_forms_do(padded):
    store, batch = padded
    names = ("x", "source", "target", "first_edge", "reverse_edge", "keep", "graph_of_node")
    first = take_rows(batch.first_edge, batch.first_node)
    again = replace(batch, **{name: torch.empty_like(getattr(batch, name)) for name in names})
    plain_copy_graphs(store, torch.arange(150, device="cuda"), first, again)
    for name in names:
        assert torch.equal(getattr(again, name), getattr(batch, name)), name

    draw = torch.Generator("cuda").manual_seed(0)
    values = torch.rand(2900, dtype=torch.float64, device="cuda", generator=draw)
    for each in (values, (9 * values).long()):
        arguments = each, batch.graph_of_node, batch.first_node
        assert torch.equal(
            rank_within_groups(*arguments, batch.most_nodes)[batch.keep],
            plain_rank_within_groups(*arguments)[batch.keep],
        )
    waiting = torch.rand(2900, dtype=torch.float64, device="cuda", generator=draw)
    assert torch.equal(
        first_passage(batch, 50 * values, waiting),
        plain_first_passage(batch.source, batch.target, 50 * values, waiting),
    )


@pytest.mark.parametrize("width", [1, 5, 32, 300])
def test_a_layer_of_gin_does_what_its_plain_form_does(padded, width):
    draw = torch.Generator("cuda").manual_seed(1)
    views = stack_views([each().padded(padded[1], draw) for each in AUGMENTATIONS.values()])
    keep = views.keep.unsqueeze(-1)
    shapes = (width, 7), (width,), (width, width), (width,), (width,), (width,)
    parameters = [torch.randn(shape, generator=draw, device="cuda").requires_grad_() for shape in shapes]
    x = (torch.randn(5, 2900, 7, generator=draw, device="cuda") * keep).requires_grad_()
    results = []
    for layer in (gin_layer, plain_gin_layer):
        made = layer(x, views, GinWeights(*parameters, 1e-5))
        loss = (made.x * torch.sin(made.x.detach())).sum() + (made.pooled * torch.cos(made.pooled.detach())).sum()
        dx, *rest = torch.autograd.grad(loss, (x, *parameters))
        results.append((*made, dx * keep, *rest))
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() <= 1e-4 * other.norm() + 1e-6


@pytest.fixture(scope="module")
def molecules(dataset):
    """MUTAG, its node labels taken for elements and its edge labels for types of bonds."""
    elements = dataset.node_labels.astype(np.uint8)
    bonds = dataset.edge_attr.argmax(axis=1).astype(np.uint8)
    return replace(
        dataset,
        kind="molecules",
        node_labels=np.concatenate([elements, elements % 3], axis=1),
        edge_attr=np.stack([bonds, bonds % 3], axis=1),
        source=dataset.source.astype(np.uint8),
        target=dataset.target.astype(np.uint8),
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ResGcn, {}),
        (ResGcn, {"residual": True}),
        (MoleculeGin, {}),
        (MoleculeGin, {"layers": 1}),
        (MoleculeGine, {}),
        (MoleculeGine, {"readout": "mean+max"}),
    ],
)
def test_padded_views_are_encoded_as_on_a_cpu(kind, options, dataset, molecules, ogb_store):
    if kind is MoleculeGine:
        store = ogb_store
    elif kind.takes_atoms:
        store = make_store(molecules, Features.from_dataset(molecules))
    else:
        store = replace(
            make_store(dataset, Features.from_dataset(dataset, "with_degree", max_degree=4)), edge_attr=None
        )
    given, draw = PaddedStore(store).batch(torch.arange(150), 2900, 6300), torch.Generator().manual_seed(1)
    pool = [AttributeMask(fill="token" if kind.codes else "mean"), NodeDrop(), EdgePerturb(), Subgraph()]
    views = stack_views([each.padded(given, draw) for each in pool])
    with temporary_seed(0, "weights"):
        encoder = kind(store.num_features, store.num_edge_features, width=70, **options)
    results = []
    for device in ("cuda", "cpu"):
        own = copy.deepcopy(encoder).to(device)
        there = {each.name: getattr(views, each.name) for each in fields(views)}
        embeddings = own.encode_padded(
            replace(views, **{name: value.to(device) for name, value in there.items() if value is not None})
        )
        upstream = torch.cos(torch.arange(embeddings.numel(), dtype=torch.float64)).float().to(device)
        (embeddings.flatten() * upstream).sum().backward()
        gradients = {name: each.grad for name, each in own.named_parameters()}
        results.append({"embeddings": embeddings.detach(), **gradients, **dict(own.named_buffers())})
    for name, expected in results[1].items():
        difference = (results[0][name].cpu() - expected).double().norm()
        assert difference <= 1e-3 * expected.double().norm() + 1e-6, name


@pytest.fixture
def ogb_store(dataset, as_input):
    """MUTAG with numbers of nodes taken for OGB's codes."""
    store = make_store(dataset, Features.from_dataset(dataset))
    batch = as_input(MoleculeGine, store.batch(torch.arange(188)))
    return replace(store, x=batch.x, edge_attr=batch.edge_attr)


def made_targets(weights):
    """Random targets, because RDKit may be missing where there is a GPU; some values are missing."""
    draw, sizes = np.random.default_rng(0), np.arange(188) % 40 + 1
    descriptors = torch.from_numpy(draw.standard_normal((188, 7)).astype(np.float32))
    descriptors[::3, ::2] = torch.nan
    columns = np.concatenate([np.sort(draw.choice(2048, size, replace=False)) for size in sizes])
    return MoleculeTargets(
        weights,
        descriptors,
        torch.from_numpy(np.cumsum([0, *sizes])),
        torch.from_numpy(columns.astype(np.int16)),
        torch.from_numpy(draw.integers(1, 5, len(columns)).astype(np.uint8)),
        torch.zeros(2048),
        torch.ones(2048),
        40,
    )


@pytest.mark.parametrize("precision", ["32-true", "tf32", "bf16-mixed"])
@pytest.mark.parametrize("weights", [{"contrastive": 0, "ecfp": 1, "descriptors": 2}, {"contrastive": 1, "ecfp": 1}])
def test_replayed_steps_on_targets_do_what_plain_steps_do(weights, precision, ogb_store, certain_pool):
    results = []
    for fast in (True, False):
        # The rate rises from 0 and falls to 0: a replay that kept its first value would learn nothing.
        training = {"epochs": 6, "batch_size": 47, "learning_rate": 3e-4, "decay": "cosine"}
        encoder = {"name": "molecule_gine", "width": 70, "layers": 3}
        recipe = make_recipe({"encoder": encoder, "training": training}, kind="ogb_molecules")
        method = build_method(recipe, ogb_store, CustomParts(augmentations=certain_pool))
        fabric = make_fabric("cuda", precision)
        training = Pretraining(ogb_store, method, recipe.training, fabric, fast, targets=made_targets(weights))
        epochs = list(training.run())
        results.append(([each.loss for each in epochs], epochs[-1].pair_losses))
        assert training.is_fast == fast
        if fast:
            assert any(key[0] == "step" for key in training.steps.runner._graphs)
    (losses, pairs), (expected, expected_pairs) = results
    tolerance = 2e-2 if precision == "bf16-mixed" else 5e-3
    assert losses == pytest.approx(expected, rel=tolerance, abs=tolerance)
    assert losses[-1] < losses[0] - 0.01
    assert (pairs is None) == (expected_pairs is None) == (weights["contrastive"] == 0)
    if pairs is not None:
        torch.testing.assert_close(torch.tensor(pairs), torch.tensor(expected_pairs), rtol=0.05, atol=0.05)


def test_replayed_steps_on_targets_resume_where_they_stopped(ogb_store):
    def make():
        training = {"epochs": 4, "batch_size": 47, "learning_rate": 1e-3, "decay": "cosine"}
        recipe = make_recipe(
            {"encoder": {"name": "molecule_gine", "width": 16}, "training": training}, kind="ogb_molecules"
        )
        targets = made_targets({"contrastive": 1, "ecfp": 1})
        method = build_method(recipe, ogb_store)
        return Pretraining(ogb_store, method, recipe.training, make_fabric("cuda", "32-true"), targets=targets)

    undisturbed = make()
    losses = [each.loss for each in undisturbed.run()]
    first, second = make(), make()
    assert first.is_fast
    epochs = first.run()
    next(epochs), next(epochs)
    restore_state(second, capture_state(first))
    assert [each.loss for each in second.run()] == pytest.approx(losses[2:], rel=1e-3)


@pytest.mark.parametrize("precision", ["32-true", "tf32", "bf16-mixed"])
@pytest.mark.parametrize("method", ["joao", "joaov2", "infomax", "edge_pred", "context_pred", "attr_masking"])
def test_molecules_are_pre_trained_on_as_on_a_cpu(method, precision, molecules):
    table = {"method": method, "encoder": {"name": "molecule_gin", "width": 60}}
    recipe = make_recipe({**table, "training": {"epochs": 4, "learning_rate": 0.001}}, kind="molecules")
    on_cpu = pretrain(recipe, molecules, device="cpu")
    on_gpu = pretrain(recipe, molecules, device="cuda", precision=precision)
    assert on_gpu.info.fast == (method in ("joao", "joaov2"))
    last, expected = on_gpu.metrics[-1].loss, on_cpu.metrics[-1].loss
    assert last < on_gpu.metrics[1].loss  # the first epoch is the easiest one for JOAO: its table is uniform yet
    share = 0.5 if method == "context_pred" else 0.15  # two batches an epoch: its loss is 3.1 to 4.9 over six seeds
    assert abs(last - expected) < 0.3 + share * expected
    assert on_gpu.embed(molecules).isfinite().all()


def test_seeds_of_a_molecule_encoder_learn_side_by_side_with_dropout(molecules):
    store = make_store(molecules, Features.from_dataset(molecules))
    values = torch.from_numpy(molecules.classes).float().unsqueeze(1)
    with temporary_seed(0, "weights"):
        encoder = MoleculeGin(width=60, dropout=0.5)
    how = Finetune(epochs=20, batch_size=32)
    fitting = Finetuning(store, BinaryTargets(values), encoder, how, make_fabric("cuda", "tf32"))
    order = torch.randperm(len(store), generator=torch.Generator().manual_seed(0))
    parts = [Part(order[:150], order[150:], seed, fitting.initial_weights(seed)) for seed in range(3)]
    found = torch.stack([shown(fit) for fit in fit_all(fitting, parts)])
    assert fitting.is_fast
    assert (found[:, -1, 0] < found[:, 0, 0] - 0.05).all()
    assert len(found[:, -1, 0].unique()) == 3  # each has draws of its own


def targets_of(classes):
    """Classes, and made of them two tasks of yes or no, and two of numbers, each with every third label missing."""
    both = torch.stack([classes, 1 - classes], dim=1).float()
    both[::3, 0] = both[1::3, 1] = torch.nan
    noise = torch.randn(both.shape, generator=torch.Generator().manual_seed(1))
    return {
        "classes": ClassTargets(classes, 2),
        "binary": BinaryTargets(both),
        "numbers": NumberTargets(100 * both + 20 * noise),
    }


@pytest.fixture(scope="module")
def fine_tuning(dataset):
    """Makes one on MUTAG, and says on which graphs to train and validate."""
    store = make_store(dataset, Features.from_dataset(dataset))
    targets = targets_of(torch.from_numpy(dataset.classes))
    order = torch.randperm(len(store), generator=torch.Generator().manual_seed(0))

    def make(encoder, device="cuda", fast=True, pool=(), kind="classes", **how):
        with temporary_seed(0, "weights"):
            made = encoder(store.num_features, width=16)
        calibrate(made, store, 64, torch.Generator().manual_seed(0))
        settings = Finetune(**{"epochs": 8, "batch_size": 32, "balanced": True, "standardise": True, **how})
        fabric = make_fabric(device, "32-true")
        return Finetuning(store, targets[kind], made, settings, fabric, pool, fast), order[:150], order[150:]

    return make


def shown(fit):
    return torch.tensor([[each.loss, each.validation_loss] for each in fit.epochs])


@pytest.mark.parametrize(("encoder", "kind"), [(Gin, "classes"), *((ResGcn, kind) for kind in KINDS)])
def test_fine_tuning_by_replayed_steps_does_what_plain_steps_do(encoder, kind, fine_tuning):
    found = []
    for device, fast in (("cuda", True), ("cuda", False), ("cpu", False)):
        # Small steps: Adam makes steps of full length even of gradients that are nothing but rounding.
        fitting, train, validation = fine_tuning(encoder, device, fast, kind=kind, learning_rate=1e-5)
        found.append(shown(fitting.fit(train, validation, seed=1)))
        assert fitting.is_fast == fast
        if fast:
            assert ("step", 32) in fitting.padded_steps.runner._graphs
            assert ("step", 22) in fitting.padded_steps.runner._graphs
    torch.testing.assert_close(found[0], found[1], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(found[0], found[2], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("encoder", [Gin, ResGcn])
def test_a_fit_by_replayed_steps_starts_where_the_first_did(encoder, fine_tuning):
    fitting, train, validation = fine_tuning(encoder, learning_rate=0.001)
    first = shown(fitting.fit(train, validation, seed=1))
    other = shown(fitting.fit(validation, train, seed=2))
    assert not torch.allclose(first, other, rtol=0.05)
    assert first[0, 0] > first[-1, 0] + 0.1  # so that one which did not start again would show
    torch.testing.assert_close(shown(fitting.fit(train, validation, seed=1)), first, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_fits_side_by_side_are_fits_one_after_another(kind, fine_tuning):
    found = []
    for fast in (True, False):
        fitting, train, validation = fine_tuning(ResGcn, fast=fast, kind=kind, learning_rate=1e-5)
        parts = [
            Part(train[:70], train[70:90], 1),
            Part(train[80:], validation, 2),
            Part(train[5:76], validation[:7], 3),
        ]
        found.append([(shown(fit), fitting.logits(validation)) for fit in fit_all(fitting, parts)])
        scores = [fit.epochs[-1].validation_score for fit in fit_all(fitting, parts)]
        fits = fit_all(fitting, parts)
        for part, score, _ in zip(parts, scores, fits, strict=True):  # what was recorded is what is found by looking
            fitting.restore_last_epoch()
            assert fitting.score(part.validation) == pytest.approx(score, abs=0.02)
    for (one, logits), (other, expected) in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(logits, expected, rtol=2e-3, atol=2e-3)


def test_replays_of_fine_tuning_draw_by_the_seed_of_the_fit(fine_tuning):
    # One batch a pass, and nothing is learned: what differs from pass to pass are the views.
    fitting, train, _ = fine_tuning(ResGcn, pool=[NodeDrop(0.5)], learning_rate=1e-9, batch_size=150)
    one, same, other = ([each.loss for each in fitting.fit(train, train[:0], seed=n).epochs] for n in (1, 1, 2))
    assert len({round(loss, 5) for loss in one}) > 4
    assert same == pytest.approx(one, rel=1e-4)
    assert other != pytest.approx(one, rel=1e-4)


def test_stacked_fits_replay_views_of_their_own(fine_tuning, monkeypatch):
    # As above. The losses of views are those of fits one after another: of other draws, so alike on average.
    how = {"pool": [NodeDrop(0.5), EdgePerturb(0.5)], "learning_rate": 1e-9, "batch_size": 150, "epochs": 40}
    fitting, train, validation = fine_tuning(ResGcn, **how)
    alone = [each.loss for each in fitting.fit(train, validation, seed=1).epochs]
    monkeypatch.setattr(fitting, "fit", None)  # stacked indeed
    parts = [Part(train, validation, seed) for seed in (1, 2)]
    (one, other), (same, _) = ([[each.loss for each in fit.epochs] for fit in fit_all(fitting, parts)] for _ in "12")
    assert len({round(loss, 5) for loss in one}) > 20
    assert same == pytest.approx(one, rel=1e-4)
    assert other != pytest.approx(one, rel=1e-4)
    spread = np.std(alone) / np.sqrt(len(alone))
    assert abs(np.mean(one) - np.mean(alone)) < 6 * spread


@pytest.mark.parametrize(
    ("heads", "objective"),
    [*((heads, "nt_xent") for heads in HEADS), ("shared_head", "jensen_shannon"), ("shared_head", "barlow_twins")],
)
def test_replayed_steps_do_what_plain_steps_do(heads, objective, dataset, certain_pool, monkeypatch):
    monkeypatch.setattr(training_loop, "LEAST_MEASURED", 64)  # of the batch of 188
    results = []
    for fast in (True, False):
        # Small steps: Adam makes steps of full length even of gradients that are nothing but rounding.
        training = {"epochs": 30, "batch_size": 188, "learning_rate": 1e-5}
        recipe = make_recipe({"heads": heads, "objective": objective, "training": training})
        store = make_store(dataset, Features.from_dataset(dataset))
        two = {name: certain_pool[name] for name in ("nodes", "edges")}
        method = build_method(recipe, store, CustomParts(augmentations=two))
        training = Pretraining(store, method, recipe.training, make_fabric("cuda", "32-true"), fast)
        results.append([(each.loss, each.pair_losses, each.drawn) for each in training.run()])
        assert training.is_fast == fast
        if fast:
            steps = [key for key in training.steps.runner._graphs if key[0] == "step"]
            times_drawn = (torch.tensor([drawn for _, _, drawn in results[0]]) > 0).sum(0)
            assert len(steps) == (1 if HEADS[heads].shared else (times_drawn > 1).sum())
    for one, other in zip(*results, strict=True):
        assert one[2] == other[2]
        assert one[0] == pytest.approx(other[0], rel=2e-3)
        torch.testing.assert_close(torch.tensor(one[1]), torch.tensor(other[1]), rtol=2e-3, atol=2e-3)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_chunk_of_shards_is_made_ready_without_waiting_for_the_gpu(dataset):
    store = make_store(dataset, Features.from_dataset(dataset)).to("cuda")
    expected = vars(PaddedStore(store))
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = vars(PaddedStore(store, most=(28, 66)))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(value)), name


def test_shards_are_replayed_as_graphs_on_the_card(dataset, as_shards, monkeypatch):
    monkeypatch.setattr(feed, "CHUNK_BYTES", 60_000)  # several chunks, read and copied while others are replayed
    chunks = []
    divide = feed.ShardFeed._chunks
    monkeypatch.setattr(feed.ShardFeed, "_chunks", lambda *given: chunks.append(divide(*given)) or chunks[-1])
    features = Features.from_dataset(dataset)
    results = []
    for store in (make_store(dataset, features), ShardStore(as_shards(dataset), features)):
        recipe = make_recipe({"training": {"epochs": 10, "batch_size": 16, "update_every": 5, "update_batches": 2}})
        training = Pretraining(store, build_method(recipe, store), recipe.training, make_fabric("cuda", "32-true"))
        assert training.is_fast
        results.append([(each.loss, each.pair_losses) for each in training.run()])
    assert len(training.steps.buffers.feed.stores) == 2
    assert max(map(len, chunks)) > 4
    for one, other in zip(*results, strict=True):
        assert one[0] == pytest.approx(other[0], rel=1e-4)
        torch.testing.assert_close(torch.tensor(one[1]), torch.tensor(other[1]), rtol=1e-3, atol=1e-3)


def test_every_replay_draws_anew_and_equal_seeds_draw_alike(dataset):
    losses = []
    for _ in range(2):
        recipe = make_recipe(
            {"method": "graphcl", "training": {"epochs": 30, "learning_rate": 1e-9, "batch_size": 188}}
        )
        store = make_store(dataset, Features.from_dataset(dataset))
        training = Pretraining(store, build_method(recipe, store), recipe.training, make_fabric("cuda", "32-true"))
        losses.append([each.loss for each in training.run()])
        assert training.is_fast
    assert len(set(losses[0])) == 30  # nothing is learned: what differs are the views
    assert losses[0] == losses[1]


def test_a_replay_does_not_overtake_its_recording_on_a_busy_gpu(monkeypatch):
    """What recording leaves to do on its own stream is held up, as by another process's work."""
    begin = torch.cuda.CUDAGraph.capture_begin

    def held_up(graph, *args, **kwargs):
        torch.cuda._sleep(200_000_000)
        begin(graph, *args, **kwargs)

    def drawn() -> list[Tensor]:
        generator = torch.Generator("cuda").manual_seed(0)
        runner, number = CudaGraphRunner(torch.device("cuda"), [generator]), torch.zeros(4, device="cuda")
        found = []
        for _ in range(4):
            runner.run("draw", lambda: number.copy_(torch.rand(4, device="cuda", generator=generator)))
            found.append(number.clone())
        return found

    undisturbed = drawn()
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", held_up)
    torch.testing.assert_close(torch.stack(drawn()), torch.stack(undisturbed), rtol=0, atol=0)


def test_an_encoder_that_knows_nothing_of_masks_trains_on_the_plain_path(dataset):
    recipe = make_recipe({"encoder": {"name": "convolutions"}, "training": {"epochs": 1}})
    assert not pretrain(recipe, dataset, device="cuda").info.fast


@pytest.fixture
def alone_with_nccl():
    """The collectives of GPUs, among one process: what can be tried with one GPU."""
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    yield ProcessGroup(0, 1)
    distributed.destroy_process_group()


def test_shared_normalisation_and_the_gather_work_with_nccl(alone_with_nccl):
    x = torch.randn(40, 3, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    results = []
    for shared in (True, False):
        norm, own = nn.BatchNorm1d(3).cuda(), x.clone().requires_grad_()
        with synced_batch_norms(norm) if shared else nullcontext():
            made = norm(own)
        made = _GatherRows.apply(made, alone_with_nccl, 40) if shared else made
        (made * torch.arange(40, device="cuda")[:, None]).sum().backward()
        results.append([made, own.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("heads", HEADS)
def test_gradients_exchanged_between_replays_are_those_of_one_replay(heads, dataset, certain_pool, alone_with_nccl):
    results = []
    for exchanges in (False, True):
        recipe = make_recipe({"heads": heads, "training": {"epochs": 20, "batch_size": 60, "learning_rate": 1e-5}})
        store = make_store(dataset, Features.from_dataset(dataset))
        method = build_method(recipe, store, CustomParts(augmentations=certain_pool))
        training = Pretraining(store, method, recipe.training, make_fabric("cuda", "32-true"), fast=True)
        if exchanges:
            exchange = GradientExchange(alone_with_nccl, training.model.parameters(), training.model.buffers())
            training.steps.exchange = training.steps.eager.exchange = exchange
        results.append([(each.loss, each.pair_losses) for each in training.run()])
        kinds = {key[0] for key in training.steps.runner._graphs}
        assert kinds >= ({"gradients", "update"} if exchanges else {"step"})
    torch.testing.assert_close(*(torch.tensor([loss for loss, _ in each]) for each in results), rtol=1e-4, atol=1e-5)


def test_two_processes_on_one_gpu_descend_the_mean_of_their_losses():
    answers = dict(run_in_processes(trained_on_one_gpu, (), find_process_layout(2)))
    assert answers[0] == answers[1]
    steps, epochs = by_hand("replayed", 2)
    found, found_epochs = answers[0]
    for one, other in zip(steps, found, strict=True):
        for name, value in one["gradients"].items():
            seen = other["gradients"][name]
            assert (seen is None) == (value is None), name  # a head that was not drawn
            if value is not None:
                torch.testing.assert_close(torch.tensor(seen), torch.tensor(value), rtol=1e-2, atol=1e-3)
    for expected, seen in zip(epochs, found_epochs, strict=True):
        torch.testing.assert_close(torch.tensor(seen[1]), torch.tensor(expected[1]), rtol=1e-3, atol=1e-3)


def test_a_share_of_a_batch_is_the_same_on_both_devices(dataset):
    store = make_store(dataset, Features.from_dataset(dataset))
    graphs = torch.arange(100)
    for rank in range(3):
        parts = [
            BatchShard(each, graphs.to(each.device), ProcessGroup(rank, 3)).sections[0].between(10 * rank, 40)
            for each in (store, store.to("cuda"))
        ]
        for name in ("x", "source", "target", "graph_of_node", "edge_attr"):
            assert torch.equal(*(getattr(part, name).cpu() for part in parts))


def test_machines_side_by_side_score_as_libsvm_does(dataset):
    classes = np.asarray(dataset.classes)
    recipe = make_recipe({"data": "MUTAG"})
    embeddings = make_untrained(recipe, dataset, Features.from_dataset(dataset), device="cpu").embed(dataset).numpy()
    for kernel in ("rbf", "linear"):
        one_by_one, together = (
            evaluate_embeddings(embeddings, classes, partitions=[0], kernel=kernel, device=device)
            for device in ("cpu", "cuda")
        )
        # Within the tolerance at which both stop, a graph at the border may fall on its other side.
        assert abs(one_by_one.mean - together.mean) < 0.01
        assert one_by_one.mean > 0.7
