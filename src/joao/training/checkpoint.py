"""The whole state of a pre-training as named tensors, so that it can go on exactly where it was."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from joao.errors import UserError
from joao.randomness import global_state
from joao.training.pretrain import Pretraining, UnderWay

SCALER = ("scale", "_growth_tracker")  # what of torch's GradScaler changes


def state_of(training: Pretraining) -> dict[str, Tensor]:
    """Weights, optimiser, policy, generators and position, by name; inside an epoch all processes must ask for it."""
    tensors = {f"model/{name}": value for name, value in _model_state(training).items()}
    for number, entries in training.optimiser.state_dict()["state"].items():
        for name, value in entries.items():
            tensors[f"optimiser/{number}/{name}"] = torch.as_tensor(value)
    for name, generator in training.generators.items():
        tensors[f"generator/{name}"] = generator.get_state()
    tensors["policy"] = training.method.policy.probabilities
    tensors["position"] = torch.tensor([training.epoch, training.step])
    if training.last_pair_losses is not None:
        tensors["pair_losses"] = training.last_pair_losses
    if (scaler := _scaler(training)) is not None:
        tensors |= {f"scaler/{name}": torch.tensor(scaler.state_dict()[name]) for name in SCALER}
    tensors |= _epoch_state(training)
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def _epoch_state(training: Pretraining) -> dict[str, Tensor]:
    """What is known in the middle of an epoch only."""
    so_far = training.under_way
    if so_far is None:
        return {}
    tensors = {
        "generator/batches": so_far.order,
        "epoch/drawn": so_far.drawn,
        "epoch/steps": torch.tensor(so_far.steps),
        "epoch/seconds": torch.tensor(time.perf_counter() - so_far.started, dtype=torch.float64),
        "epoch/finite_steps": training.steps.finite_steps,
    }
    own = training.steps.loss_sum.cpu(), global_state(training.fabric.device)
    for rank, (loss_sum, states) in enumerate(training.ranks.everybody(own)):
        tensors[f"process/{rank}/loss_sum"] = loss_sum
        tensors |= {f"process/{rank}/global/{number}": state for number, state in enumerate(states)}
    return tensors


def restore(training: Pretraining, tensors: Mapping[str, Tensor]) -> None:
    """Puts ``training``, made with the same recipe, into the state that :func:`state_of` returned."""
    try:
        model = {name: tensors[f"model/{name}"] for name in _model_state(training)}
        generators = {name: tensors[f"generator/{name}"] for name in training.generators}
        epoch, step = tensors["position"].tolist()
        probabilities = tensors["policy"]
        scaled = {name: tensors[f"scaler/{name}"].item() for name in SCALER} if _scaler(training) is not None else {}
    except KeyError as missing:
        raise UserError(f"checkpoint: {missing} is not in it. It belongs to another recipe.") from missing
    optimiser_state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser/"):
            _, number, entry = name.split("/")
            optimiser_state.setdefault(int(number), {})[entry] = value
    optimiser = training.optimiser.state_dict()
    try:
        training.model.load_state_dict(model)
        training.optimiser.load_state_dict({"state": optimiser_state, "param_groups": optimiser["param_groups"]})
        for name, generator in training.generators.items():
            generator.set_state(generators[name])
    except (RuntimeError, ValueError, TypeError) as error:
        line = str(error).splitlines()[0]
        raise UserError(
            f"checkpoint: it does not fit this recipe or kind of device ({line}). Resume where it was made."
        ) from error
    if (scaler := _scaler(training)) is not None:
        scaler.load_state_dict({**scaler.state_dict(), **scaled})
    training.method.policy.probabilities = probabilities
    training.last_pair_losses = tensors.get("pair_losses")
    training.epoch, training.step = epoch, step
    training.under_way = _epoch_from(training, tensors)


def _epoch_from(training: Pretraining, tensors: Mapping[str, Tensor]) -> UnderWay | None:
    if "epoch/steps" not in tensors:
        return None
    own = f"process/{training.ranks.rank}/"
    training.steps.loss_sum.copy_(tensors[f"{own}loss_sum"])
    training.steps.finite_steps.copy_(tensors["epoch/finite_steps"])
    return UnderWay(
        order=tensors["generator/batches"],
        drawn=tensors["epoch/drawn"].clone(),
        started=time.perf_counter() - tensors["epoch/seconds"].item(),
        steps=int(tensors["epoch/steps"]),
        global_state=[tensors[name] for name in sorted(tensors) if name.startswith(f"{own}global/")],
    )


def _model_state(training: Pretraining) -> dict[str, Tensor]:
    state: dict[str, Tensor] = training.model.state_dict()
    return state


def _scaler(training: Pretraining) -> Any:
    """What scales the gradients of 16-mixed, if anything does."""
    return getattr(training.fabric.strategy.precision, "scaler", None)
