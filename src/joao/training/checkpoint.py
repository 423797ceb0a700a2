"""The whole state of a pre-training as named tensors, so that it can go on exactly where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.core.randomness import global_rng_state
from joao.training.pretrain import EpochProgress, Pretraining

# What Adam keeps of a parameter, and a tensor of the same form.
OPTIMISER: dict[str, Callable[[Tensor], Tensor]] = {
    "step": lambda parameter: torch.tensor(0.0),
    "exp_avg": lambda parameter: parameter,
    "exp_avg_sq": lambda parameter: parameter,
}
SCALER = ("scale", "_growth_tracker")  # what of torch's GradScaler changes


def capture_state(training: Pretraining) -> dict[str, Tensor]:
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
    so_far = training.progress
    if so_far is None:
        return {}
    tensors = {
        "generator/batches": so_far.order,
        "epoch/drawn": so_far.drawn,
        "epoch/steps": torch.tensor(so_far.steps),
        "epoch/seconds": torch.tensor(time.perf_counter() - so_far.started, dtype=torch.float64),
        "epoch/finite_steps": training.steps.finite_steps,
    }
    own = training.steps.loss_sum.cpu(), global_rng_state(training.fabric.device)
    for rank, (loss_sum, states) in enumerate(training.ranks.all_gather(own)):
        tensors[f"process/{rank}/loss_sum"] = loss_sum
        tensors |= {f"process/{rank}/global/{number}": state for number, state in enumerate(states)}
    return tensors


def restore_state(training: Pretraining, tensors: Mapping[str, Tensor]) -> None:
    """Puts ``training``, made with the same recipe, into the state that :func:`capture_state` returned."""
    try:
        _check(training, tensors)
        training.model.load_state_dict({name: tensors[f"model/{name}"] for name in _model_state(training)})
        training.optimiser.load_state_dict(
            {**training.optimiser.state_dict(), "state": _optimiser_state(training, tensors)}
        )
        for name, generator in training.generators.items():
            generator.set_state(tensors[f"generator/{name}"])
        if (scaler := _scaler(training)) is not None:
            scaled = {name: tensors[f"scaler/{name}"].item() for name in SCALER}
            scaler.load_state_dict({**scaler.state_dict(), **scaled})
        training.method.policy.probabilities = tensors["policy"]
        training.last_pair_losses = tensors.get("pair_losses")
        training.epoch, training.step = tensors["position"].tolist()
        training.progress = _epoch_from(training, tensors)
    except KeyError as missing:
        raise UserError(f"checkpoint: {missing} is not in it. It belongs to another recipe.") from missing
    except (RuntimeError, ValueError, TypeError) as error:
        line = str(error).splitlines()[0]
        raise UserError(
            f"checkpoint: it does not fit this recipe or kind of device ({line}). Resume where it was made."
        ) from error


def _check(training: Pretraining, tensors: Mapping[str, Tensor]) -> None:
    """Nothing has another form than the training's own: Adam, for one, reads and writes without a look at it."""
    for name, own in _forms(training).items():
        if name in tensors and (tensors[name].shape, tensors[name].dtype) != (own.shape, own.dtype):
            found = f"{list(tensors[name].shape)} of {tensors[name].dtype}"
            raise ValueError(f"'{name}' is {found}, not {list(own.shape)} of {own.dtype}")
    if not ((tensors["policy"] >= 0).all() and torch.isclose(tensors["policy"].sum(), torch.ones(()).double())):
        raise ValueError("'policy' is no distribution")
    if tensors.get("epoch/steps", torch.tensor(0)) < 0:
        raise ValueError("'epoch/steps' is negative")


def _forms(training: Pretraining) -> dict[str, Tensor]:
    """Tensors of the shape and type that those of a checkpoint must have, by name."""
    table, number = training.method.policy.probabilities, torch.tensor(0)
    forms = {"position": torch.tensor([0, 0]), "policy": table, "pair_losses": table, "epoch/drawn": table.long()}
    forms |= {
        "epoch/steps": number,
        "epoch/finite_steps": training.steps.finite_steps,
        "epoch/seconds": number.double(),
    }
    for place, parameter in enumerate(_parameters(training)):
        forms |= {f"optimiser/{place}/{name}": like(parameter) for name, like in OPTIMISER.items()}
    own = f"process/{training.ranks.rank}/"
    forms |= {f"{own}global/{place}": state for place, state in enumerate(global_rng_state(training.fabric.device))}
    return forms | {f"{own}loss_sum": training.steps.loss_sum}


def _optimiser_state(training: Pretraining, tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Of each parameter by its place; one that no step has used has none."""
    places = range(len(_parameters(training)))
    return {
        place: {name: tensors[f"optimiser/{place}/{name}"] for name in OPTIMISER}
        for place in places
        if any(f"optimiser/{place}/{name}" in tensors for name in OPTIMISER)
    }


def _epoch_from(training: Pretraining, tensors: Mapping[str, Tensor]) -> EpochProgress | None:
    if "epoch/steps" not in tensors:
        return None
    own, device = f"process/{training.ranks.rank}/", training.fabric.device
    training.steps.loss_sum.copy_(tensors[f"{own}loss_sum"])
    training.steps.finite_steps.copy_(tensors["epoch/finite_steps"])
    states = [tensors[f"{own}global/{place}"] for place in range(len(global_rng_state(device)))]
    for state, kind in zip(states, ("cpu", str(device)), strict=False):
        torch.Generator(kind).set_state(state)  # which looks whether it is one
    return EpochProgress(
        order=tensors["generator/batches"],
        drawn=tensors["epoch/drawn"].clone(),
        started=time.perf_counter() - tensors["epoch/seconds"].item(),
        steps=int(tensors["epoch/steps"]),
        global_state=states,
    )


def _parameters(training: Pretraining) -> list[Tensor]:
    return [each for group in training.optimiser.param_groups for each in group["params"]]


def _model_state(training: Pretraining) -> dict[str, Tensor]:
    state: dict[str, Tensor] = training.model.state_dict()
    return state


def _scaler(training: Pretraining) -> Any:
    """What scales the gradients of 16-mixed, if anything does."""
    return getattr(training.fabric.strategy.precision, "scaler", None)
