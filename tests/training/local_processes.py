"""Trainings with local negatives in several processes, and the same computed by hand in one."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from joao.augmentations import AttributeMask, Identity, NodeDrop
from joao.config.builder import CustomParts, build_method
from joao.config.recipe import make_recipe
from joao.core.randomness import derive_seed, torch_generator
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.kernels.native import load_library
from joao.training.checkpoint import capture_state, restore_state
from joao.training.device import SingleDevice, _connect_locally, make_fabric
from joao.training.distributed.launch import RENDEZVOUS, find_process_layout
from joao.training.model import ContrastiveModel, split_into_batches
from joao.training.pretrain import Pretraining
from joao.training.steps import BatchViews, pair_losses
from tests.conftest import WithoutFirstNodes, WithoutSomeEdges

RANDOM = {"nodes": NodeDrop(0.3), "mask": AttributeMask(0.3), "identity": Identity()}
CERTAIN = {"nodes": WithoutFirstNodes(0.3), "edges": WithoutSomeEdges(), "identity": Identity()}
# By name: pool, method, path and settings. 21 graphs in batches of 8: a last batch of 5 in two processes; three
# processes need 6, so it is merged.
CASES = {
    "plain": (RANDOM, "joaov2", False, {}),
    "plain, a pair for each graph": (RANDOM, "joaov2", False, {"pair_per": "graph"}),
    "padded": (CERTAIN, "joaov2", True, {}),
    # In float32, in small steps: Adam makes steps of full length even of gradients that are nothing but rounding.
    "replayed": (CERTAIN, "joaov2", True, {"learning_rate": 1e-6, "epochs": 8}),  # on a GPU
    "compiled": ({"identity": Identity()}, "joao", True, {"learning_rate": 1e-6}),
}
IN_FLOAT64 = ("plain", "plain, a pair for each graph", "padded")
NAMES = ("source", "target", "first_node", "first_edge")


def recipe_for(method, settings):
    training = {"epochs": 2, "batch_size": 8, "learning_rate": 0.003, "update_every": 2, "negatives": "local"}
    return make_recipe(
        {"method": method, "encoder": {"name": "gin", "width": 5, "layers": 2}, "training": {**training, **settings}}
    )


def make_parts(pool, method, settings):
    """Store, method and schedule, in the default type of torch; weights are moved off 0, where ReLUs bend."""
    recipe = recipe_for(method, settings)
    dataset = random_graphs(21, 8, 2.5, seed=3)
    store = make_store(dataset, Features.from_dataset(dataset))
    store = type(store)(store.x.to(torch.get_default_dtype()), *(getattr(store, n) for n in NAMES))
    parts = build_method(recipe, store, CustomParts(augmentations=pool))
    noise = torch.Generator().manual_seed(3)  # with others, changes of 1e-6 move a node across a ReLU's bend
    with torch.no_grad():
        for parameter in [*parts.encoder.parameters(), *parts.heads.parameters()]:
            parameter += 0.1 * torch.randn(parameter.shape, generator=noise)
    return store, parts, recipe.training


def trained(name, fabric):
    """Gradients, weights and table after every step, and losses and tables of the epochs."""
    pool, method, fast, settings = CASES[name]
    store, parts, schedule = make_parts(pool, method, settings)
    training = Pretraining(store, parts, schedule, fabric, fast, compiled=name == "compiled")
    assert (training.is_fast, training.negatives) == (fast, "local")
    steps, train = [], training.steps.train

    def train_and_tell(batch, pairs):
        train(batch, pairs)
        if name == "replayed":  # after a replay, Python still sees the gradients of the capture
            training.steps.exchange.unpack(training.steps.used_parameters[tuple(pairs[0].tolist())])
        steps.append(tell(ContrastiveModel(parts.encoder, parts.heads), parts.policy))

    training.steps.train = train_and_tell
    return steps, [(each.loss, each.pair_losses, each.probabilities) for each in training.run()]


def tell(model, policy):
    gradients = {name: None if each.grad is None else each.grad.tolist() for name, each in model.named_parameters()}
    state = {name: value.tolist() for name, value in model.state_dict().items()}
    return {"gradients": gradients, "state": state, "table": policy.probabilities.tolist()}


class SinglePrecisionLoss(ContrastiveModel):
    """As on padded batches and in the compiled core."""

    def forward(self, *view):
        return super().forward(*view).float()


def by_hand(name, size):
    """What :func:`trained` returns in each of ``size`` processes: the mean of their losses, one after another."""
    pool, method, _, settings = CASES[name]
    store, parts, schedule = make_parts(pool, method, settings)
    kind = ContrastiveModel if name.startswith("plain") else SinglePrecisionLoss
    model = kind(parts.encoder, parts.heads).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=schedule.learning_rate)
    draws = {each: torch_generator(0, each) for each in ("batches", "pairs", "evaluation batches")}
    views, evaluation = ([torch_generator(0, each)] * size for each in ("views", "evaluation views"))
    augmentations, count = list(pool.values()), 0
    steps, epochs = [], []
    for epoch in range(schedule.epochs):
        for purpose, own in (("views", views), ("evaluation views", evaluation)):
            for rank in range(1, size):
                seed = derive_seed(0, f"{purpose}, epoch {epoch}, process {rank}")
                own[rank] = torch.Generator().manual_seed(seed)
        total, table = 0.0, None
        for batch in split_into_batches(torch.randperm(21, generator=draws["batches"]), 8, 2 * size):
            drawn = parts.policy.sample(len(batch) if schedule.pair_per == "graph" else 1, draws["pairs"])
            bounds = [len(batch) * rank // size for rank in range(size + 1)]
            before = [each.clone() for each in model.buffers()]
            statistics, gradients = [], []
            for rank in range(size):
                part = slice(bounds[rank], bounds[rank + 1])
                pairs = drawn[part] if schedule.pair_per == "graph" else drawn
                batch_views = BatchViews(store, batch[part])
                both = [batch_views.view(each, augmentations, views[rank]) for each in pairs.T]
                for buffer, value in zip(model.buffers(), before, strict=True):
                    buffer.copy_(value)
                loss = parts.objective(*(batch_views.project(model, each) for each in both))
                optimiser.zero_grad()
                loss.backward()
                gradients.append([each.grad for each in model.parameters()])
                statistics.append([each.clone().double() for each in model.buffers()])
                total += loss.item() * (part.stop - part.start)
            for parameter, each in zip(model.parameters(), zip(*gradients, strict=True), strict=True):
                used = [grad for grad in each if grad is not None]
                parameter.grad = sum(used) / size if used else None
            for buffer, each in zip(model.buffers(), zip(*statistics, strict=True), strict=True):
                buffer.copy_(sum(each) / size)
            optimiser.step()
            steps.append(tell(model, parts.policy))
            count += 1
            if count % 2 == 0:
                (graphs, *_) = split_into_batches(
                    torch.randperm(21, generator=draws["evaluation batches"]), 8, 2 * size
                )
                bounds = [len(graphs) * rank // size for rank in range(size + 1)]
                tables = [
                    pair_losses(
                        model,
                        BatchViews(store, graphs[bounds[rank] : bounds[rank + 1]]),
                        augmentations,
                        parts.objective,
                        evaluation[rank],
                    )
                    for rank in range(size)
                ]
                table = sum(tables) / size
                parts.policy.update(table)
        epochs.append((total / 21, table.tolist(), parts.policy.probabilities.tolist()))
    return steps, epochs


def resumes_exactly(fabric, path):
    """Whether trainings that resume after the first epoch and inside the second end as the undisturbed one."""

    def make():
        store, parts, schedule = make_parts(RANDOM, "joaov2", {})
        training = Pretraining(store, parts, schedule, fabric, path != "plain", compiled=path == "compiled")
        assert (training.is_fast, training.is_compiled) == (path != "plain", path == "compiled")
        return training

    whole, states = make(), []

    def keep():
        if whole.epoch == 1 and len(states) < 2:
            states.append(capture_state(whole))

    last = [each for each in whole.run(keep) if keep() is None][-1]
    expected, found = capture_state(whole), []
    for state in states:
        part = make()
        restore_state(part, state)
        assert part.epoch == 1
        assert list(part.run())[-1].loss == last.loss
        final = capture_state(part)
        found.append(all(torch.equal(final[name], value) for name, value in expected.items()))
    return found


def trained_on_one_gpu(send):
    """Two processes that share a GPU, which nccl does not allow and gloo does."""
    layout = find_process_layout(2)
    _connect_locally(Path(os.environ[RENDEZVOUS]), "gloo", layout)
    fabric = SingleDevice(torch.device("cuda", 0), "32-true")
    fabric.world_size, fabric.global_rank = 2, layout.rank
    send((layout.rank, trained("replayed", fabric)))


def together(send, size):
    """Everything, in each of ``size`` processes."""
    os.environ.pop("JOAO_NATIVE", None)
    fabric = make_fabric("cpu", "32-true", find_process_layout(size))
    torch.set_default_dtype(torch.float64)
    told = {name: trained(name, fabric) for name in IN_FLOAT64}
    torch.set_default_dtype(torch.float32)
    paths = ["plain", "padded"]
    if load_library() is not None:
        told["compiled"] = trained("compiled", fabric)
        paths.append("compiled")
    told["resumes"] = {path: resumes_exactly(fabric, path) for path in paths}
    send((fabric.global_rank, told))
