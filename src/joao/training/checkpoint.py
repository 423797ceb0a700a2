"""The whole state of a pre-training as named tensors, so that it can go on exactly where it was."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from joao.errors import UserError
from joao.training.pretrain import Pretraining


def state_of(training: Pretraining) -> dict[str, Tensor]:
    """Weights, optimiser, policy, generators and position, by name."""
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
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def restore(training: Pretraining, tensors: Mapping[str, Tensor]) -> None:
    """Puts ``training``, made with the same recipe, into the state that :func:`state_of` returned."""
    try:
        model = {name: tensors[f"model/{name}"] for name in _model_state(training)}
        generators = {name: tensors[f"generator/{name}"] for name in training.generators}
        epoch, step = tensors["position"].tolist()
        probabilities = tensors["policy"]
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
    training.method.policy.probabilities = probabilities
    training.last_pair_losses = tensors.get("pair_losses")
    training.epoch, training.step = epoch, step


def _model_state(training: Pretraining) -> dict[str, Tensor]:
    state: dict[str, Tensor] = training.model.state_dict()
    return state
