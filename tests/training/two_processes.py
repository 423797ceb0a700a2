"""What two processes compute together for the tests, started once for all of them, and what one computes alone."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import torch
from torch import nn

from joao.config.builder import build_method
from joao.config.recipe import make_recipe
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.objectives import NtXent
from joao.runs.pretraining import pretrain
from joao.training import steps as training_steps
from joao.training.checkpoint import capture_state, restore_state
from joao.training.device import make_fabric
from joao.training.distributed.group import GradientExchange, ProcessGroup, synced_batch_norms
from joao.training.distributed.launch import find_process_layout
from joao.training.pretrain import Pretraining

# Recipes by name, with the size of a section. 21 graphs in batches of 6 leave a last one of 3, in parts of 1 and 2.
TRAININGS = {
    "joao": ({"method": "joao", "training": {"epochs": 2}}, 1024),
    "joaov2": ({"method": "joaov2"}, 1024),
    "joaov2, a pair for each graph": ({"method": "joaov2", "training": {"pair_per": "graph"}}, 1024),
    "graphcl, res_gcn": ({"method": "graphcl", "encoder": "res_gcn"}, 1024),
    "uniform, molecule_gin": ({"method": "uniform", "encoder": "molecule_gin", "features": "atoms"}, 1024),
    "bootstrap": ({"method": "joao", "objective": "bootstrap"}, 1024),
    "joao in sections": ({"method": "joao"}, 4),
    "joaov2 in sections, a pair for each graph": ({"method": "joaov2", "training": {"pair_per": "graph"}}, 4),
}

KILLED = make_recipe({"training": {"epochs": 6, "batch_size": 10}})


def small_recipe(table):
    encoder = {"name": table.get("encoder", "gin"), "width": 5, "layers": 2}
    training = {"epochs": 1, "batch_size": 6, "learning_rate": 0.003, "update_every": 3, **table.get("training", {})}
    kind = "molecules" if table.get("features") == "atoms" else "graphs"
    return make_recipe({**table, "encoder": encoder, "training": training}, kind=kind)


def graphs_for(recipe):
    dataset = random_graphs(21, 8, 2.5, seed=3)
    store = make_store(dataset, Features.from_dataset(dataset))
    if recipe.features != "atoms":
        return replace(store, x=store.x.double())
    number = torch.arange(len(store.x))
    kind = store.source * store.target  # the same in both directions
    return replace(
        store,
        x=torch.stack([number % 13, number % 4], dim=1).double(),
        edge_attr=torch.stack([kind % 4, kind % 3], dim=1).double(),
    )


def trained_step_by_step(name, fabric=None):
    """Loss, table and weights after every step, in float64, and what the epochs showed."""
    table, section = TRAININGS[name]
    recipe = small_recipe(table)
    store = graphs_for(recipe)
    method = build_method(recipe, store)
    method.encoder.double(), method.heads.double()
    training = Pretraining(store, method, recipe.training, fabric)
    training.model.double()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in training.model.parameters():
            # Biases of 0 are where ReLUs bend: there, rounding decides on gradients.
            parameter += 0.1 * torch.randn(parameter.shape, dtype=torch.float64, generator=noise)
    steps, train = [], training.steps.train

    def train_and_tell(batch, pairs):
        before = training.steps.loss_sum.item()
        train(batch, pairs)
        steps.append(
            {
                "loss": (training.steps.loss_sum.item() - before) / batch.numel(),
                "table": method.policy.probabilities.tolist(),
                "weights": {key: value.tolist() for key, value in training.model.state_dict().items()},
            }
        )

    training.steps.train = train_and_tell
    training.steps.loss_sum = training.steps.loss_sum.double()
    before, training_steps.SECTION = training_steps.SECTION, section
    try:
        epochs = [(each.loss, each.probabilities, each.pair_losses, each.drawn) for each in training.run()]
    finally:
        training_steps.SECTION = before
    return {"steps": steps, "epochs": epochs, "names": [type(each).__name__ for each in training.model.modules()]}


def kept_inside_an_epoch(fabric):
    """Whether a training that goes on from a state inside an epoch ends as the one that the state is of."""
    recipe = small_recipe({"method": "joao", "training": {"epochs": 2}})
    store = graphs_for(recipe)
    store = replace(store, x=store.x.float())
    whole, part = (Pretraining(store, build_method(recipe, store), recipe.training, fabric) for _ in range(2))
    states = []
    losses = [each.loss for each in whole.run(lambda: states.append(capture_state(whole)) if whole.step == 6 else None)]
    restore_state(part, states[0])
    assert (part.epoch, part.step, part.progress.steps) == (1, 6, 2)  # four steps an epoch
    assert [each.loss for each in part.run()] == losses[1:]
    final, expected = capture_state(part), capture_state(whole)
    return all(torch.equal(final[name], value) for name, value in expected.items())


def batch_of(rows, seed=0):
    return torch.randn(rows, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradients_through_gather(group=None):
    """Of NT-Xent between five rows and a linear map of them, with respect to this process's rows and the map."""
    whole, linear = batch_of(5), batch_of(3, 1).requires_grad_()
    own = whole[group.shard(5) if group else slice(5)].clone().requires_grad_()
    rows, mapped = (group.gather_rows(each, 5) if group else each for each in (own, own @ linear))
    loss = NtXent()(rows, mapped)
    loss.backward()
    if group:
        own.grad /= group.size
        GradientExchange(group, [linear]).average()
    return {"loss": loss.item(), "rows": own.grad.tolist(), "map": linear.grad.tolist()}


def normalised(rows, sizes, group=None, momentum=0.1):
    """What this process's part of ``rows`` becomes, with the gradients of a sum over all rows, and the statistics."""
    norm = nn.BatchNorm1d(3, momentum=momentum).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 1.5, -2.0]))
        norm.bias.copy_(torch.tensor([0.1, -0.2, 0.3]))
    rank = group.rank if group else 0
    first = sum(sizes[:rank])
    part = slice(first, first + sizes[rank])
    own = batch_of(rows)[part].clone().requires_grad_()
    with synced_batch_norms(norm) if group else contextlib.nullcontext():
        for _ in range(2):
            y = norm(own)
    (y * batch_of(rows, 2)[part]).sum().backward()
    if group:
        for parameter in norm.parameters():
            parameter.grad *= group.size
        GradientExchange(group, norm.parameters()).average()
    return {
        "y": y.tolist(),
        "x gradient": own.grad.tolist(),
        "weight gradient": norm.weight.grad.tolist(),
        "bias gradient": norm.bias.grad.tolist(),
        "state": {key: value.tolist() for key, value in norm.state_dict().items()},
        "kind": type(norm).__name__,
    }


def averaged(group):
    """Gradients of three parameters: one that both processes used, one that the second used, one that neither used."""
    both, second, neither = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    both.grad = torch.full((2,), 1.0 + group.rank)
    second.grad = torch.full((2,), 8.0) if group.rank == 1 else None
    GradientExchange(group, [both, second, neither]).average()
    return [None if each.grad is None else each.grad.tolist() for each in (both, second, neither)]


def own_tensors(rank):
    """Tensors of other types and sizes in each process."""
    return {
        "values": torch.arange(3.0 * rank).double() + 0.1,
        "empty": torch.zeros(0, rank),
        "flag": torch.tensor(rank > 0),
    }


def read_tensors(tensors):
    return {name: (str(value.dtype), tuple(value.shape), value.tolist()) for name, value in tensors.items()}


def together(send, killed_run, reference_run, dataset):
    """Everything, in each of two processes."""
    fabric = make_fabric("cpu", "32-true", find_process_layout(2))
    group = ProcessGroup(fabric.global_rank, fabric.world_size)
    told = {
        "gather": gradients_through_gather(group),
        "norm": normalised(7, (3, 4), group),
        "norm of one process's rows": normalised(4, (0, 4), group, momentum=None),
        "averaged": averaged(group),
        "mean": group.mean(torch.tensor([group.rank + 0.5])).tolist(),
        "broadcast": read_tensors(group.broadcast(own_tensors(group.rank))),
        "all gathered": [*map(read_tensors, group.all_gather(own_tensors(group.rank)))],
        "kept_inside_an_epoch": kept_inside_an_epoch(fabric),
        "trainings": {name: trained_step_by_step(name, fabric) for name in TRAININGS},
    }
    for folder, resume in ((reference_run, False), (killed_run, True)):
        pretrain(KILLED, dataset, folder=folder, resume=resume, checkpoint_every=2, device="cpu", devices=2)
    send((group.rank, told))
