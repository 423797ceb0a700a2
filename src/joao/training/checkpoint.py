"""The complete state of a pre-training as named tensors, from which it resumes bit for bit."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.core.randomness import global_rng_state
from joao.training.pretrain import VIEWS, EpochProgress, Pretraining

# Adam's state of a parameter, and a tensor of the same shape and type.
OPTIMISER: dict[str, Callable[[Tensor], Tensor]] = {
    "step": lambda parameter: torch.zeros(()),
    "exp_avg": lambda parameter: parameter,
    "exp_avg_sq": lambda parameter: parameter,
}
SCALER = ("scale", "_growth_tracker")  # the state of torch's GradScaler that changes


def capture_state(training: Pretraining) -> dict[str, Tensor]:
    """Return weights, optimiser, policy, generators and position by name; in an epoch all processes must call it."""
    tensors = {f"model/{name}": value for name, value in training.model.state_dict().items()}
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
    """Return the state that exists only inside an epoch."""
    progress = training.progress
    if progress is None:
        return {}
    tensors = {
        "generator/batches": progress.batches_state,
        "epoch/drawn": progress.drawn,
        "epoch/steps": torch.tensor(progress.steps),
        "epoch/seconds": torch.tensor(time.perf_counter() - progress.started, dtype=torch.float64),
        "epoch/finite_steps": training.steps.finite_steps,
    }
    own = {f"global/{number}": state for number, state in enumerate(global_rng_state(training.fabric.device))}
    own["loss_sum"] = training.steps.loss_sum
    if training.negatives == "local":
        own |= {name: training.generators[name].get_state() for name in VIEWS}
    by_rank = [own] if training.group is None else training.group.all_gather(own)
    return tensors | {f"process/{rank}/{name}": each[name] for rank, each in enumerate(by_rank) for name in each}


def restore_state(training: Pretraining, tensors: Mapping[str, Tensor]) -> None:
    """Set ``training``, made from the same recipe, to a state returned by :func:`capture_state`."""
    try:
        _check(training, tensors)
        training.model.load_state_dict({name: tensors[f"model/{name}"] for name in training.model.state_dict()})
        optimiser_state = {  # by the index of a parameter; one that no step has used has no state
            index: {name: tensors[f"optimiser/{index}/{name}"] for name in OPTIMISER}
            for index in range(len(_parameters(training)))
            if any(f"optimiser/{index}/{name}" in tensors for name in OPTIMISER)
        }
        training.optimiser.load_state_dict({**training.optimiser.state_dict(), "state": optimiser_state})
        for name, generator in training.generators.items():
            generator.set_state(tensors[f"generator/{name}"])
        if (scaler := _scaler(training)) is not None:
            scaled = {name: tensors[f"scaler/{name}"].item() for name in SCALER}
            scaler.load_state_dict({**scaler.state_dict(), **scaled})
        training.method.policy.probabilities = tensors["policy"]
        training.last_pair_losses = tensors.get("pair_losses")
        training.epoch, training.step = tensors["position"].tolist()
        training.progress = _restore_progress(training, tensors)
    except KeyError as missing:
        raise UserError(f"checkpoint: {missing} is missing. The checkpoint belongs to another recipe.") from missing
    except (RuntimeError, ValueError, TypeError) as error:
        line = str(error).splitlines()[0]
        raise UserError(
            f"checkpoint: does not match this recipe or type of device ({line}). Resume with those it was made with."
        ) from error


def _check(training: Pretraining, tensors: Mapping[str, Tensor]) -> None:
    """Check shapes and types, because Adam, for one, would read and write tensors of any shape."""
    for name, own in _expected_tensors(training).items():
        if name in tensors and (tensors[name].shape, tensors[name].dtype) != (own.shape, own.dtype):
            actual = f"{list(tensors[name].shape)} of {tensors[name].dtype}"
            raise ValueError(f"'{name}' is {actual}, not {list(own.shape)} of {own.dtype}")
    if not ((tensors["policy"] >= 0).all() and torch.isclose(tensors["policy"].sum(), torch.ones(()).double())):
        raise ValueError("'policy' is not a probability distribution")
    if "epoch/steps" in tensors and tensors["epoch/steps"] < 0:
        raise ValueError("'epoch/steps' is negative")


def _expected_tensors(training: Pretraining) -> dict[str, Tensor]:
    """Return tensors of the shape and type that a checkpoint must have, by name."""
    table, number = training.method.policy.probabilities, torch.zeros((), dtype=torch.long)
    expected = {"position": number.expand(2), "policy": table, "pair_losses": table, "epoch/drawn": table.long()}
    expected |= {"epoch/steps": number, "epoch/finite_steps": number, "epoch/seconds": number.double()}
    for index, parameter in enumerate(_parameters(training)):
        expected |= {f"optimiser/{index}/{name}": like(parameter) for name, like in OPTIMISER.items()}
    own = f"process/{training.fabric.global_rank}/"
    expected |= {f"{own}global/{index}": state for index, state in enumerate(global_rng_state(training.fabric.device))}
    return expected | {f"{own}loss_sum": training.steps.loss_sum}


def _restore_progress(training: Pretraining, tensors: Mapping[str, Tensor]) -> EpochProgress | None:
    if "epoch/steps" not in tensors:
        return None
    own, device = f"process/{training.fabric.global_rank}/", training.fabric.device
    training.steps.loss_sum.copy_(tensors[f"{own}loss_sum"])
    training.steps.finite_steps.copy_(tensors["epoch/finite_steps"])
    states = [tensors[f"{own}global/{index}"] for index in range(len(global_rng_state(device)))]
    if training.negatives == "local":
        for name in VIEWS:
            training.generators[name].set_state(tensors[f"{own}{name}"])
    for state, kind in zip(states, ("cpu", str(device)), strict=False):
        torch.Generator(kind).set_state(state)  # raises if it is not a valid state
    return EpochProgress(
        batches_state=tensors["generator/batches"],
        drawn=tensors["epoch/drawn"].clone(),
        started=time.perf_counter() - tensors["epoch/seconds"].item(),
        steps=int(tensors["epoch/steps"]),
        global_rng_state=states,
    )


def _parameters(training: Pretraining) -> list[Tensor]:
    return [each for group in training.optimiser.param_groups for each in group["params"]]


def _scaler(training: Pretraining) -> Any:
    """Return the gradient scaler of 16-mixed, or None."""
    return getattr(training.fabric.strategy.precision, "scaler", None)
