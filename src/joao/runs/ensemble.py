"""Ensembles for molecules: two random forests, and kernel ridge regression on a frozen encoder.

Their prediction is the mean of the members. They are stored as tensors among the weights of a fine-tuned run
(:mod:`joao.runs.finetuning`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joao.baselines.forests import Columns, Forests, molecule_columns
from joao.baselines.kernel_ridge import KernelRidge
from joao.core.errors import UserError
from joao.data.dataset import Dataset
from joao.runs.trained import TrainedEncoder

# Members of an ensemble and the columns that they use: two forests, and kernel ridge regression. They were chosen by a
# rule on development sets (docs/results/molecule-tables.md).
MEMBERS = {"ecfp": ("ecfp",), "descriptors": ("descriptors",), "encoder": ("encoder", "ecfp")}
_PREFIX = "members."  # of the names of their tensors among the weights of a run

Member = Forests | KernelRidge


def train_members(
    trained: TrainedEncoder, dataset: Dataset, kind: str, seed: int, jobs: int, on_member: Callable[[str], None]
) -> dict[str, Member]:
    """Train all members on the labels of ``dataset``, see :func:`joao.runs.finetuning.finetune`."""
    columns, labels = _columns(trained, dataset, jobs), _labels(dataset)
    members: dict[str, Member] = {}
    for name in MEMBERS:
        own_columns = _columns_of_member(name, columns)
        if isinstance(own_columns, dict):
            members[name] = KernelRidge.fit(own_columns, labels, _task_kind(kind), seed)
        else:
            members[name] = Forests.fit(own_columns, labels, _task_kind(kind), seed, jobs=jobs)
        on_member(name)
    return members


def predict_members(
    members: Mapping[str, Member], trained: TrainedEncoder, dataset: Dataset, jobs: int
) -> dict[str, Tensor]:
    """Predict ``(G, T)`` with each member: probabilities of a 1 or, for two classes, of the second, or numbers."""
    columns = _columns(trained, dataset, jobs)
    return {name: torch.from_numpy(each.predict(_columns_of_member(name, columns))) for name, each in members.items()}


def members_to_weights(members: Mapping[str, Member]) -> dict[str, Tensor]:
    return {
        f"{_PREFIX}{member}.{name}": value
        for member, model in members.items()
        for name, value in model.to_tensors().items()
    }


def is_member_weight(name: str) -> bool:
    """Whether a tensor among the weights of a run belongs to a member of an ensemble."""
    return name.startswith(_PREFIX)


def load_members(weights: Mapping[str, Tensor], kind: str, num_tasks: int) -> dict[str, Member]:
    """The members among the weights of a run; raises ValueError or KeyError if they are damaged."""
    tensors: dict[str, dict[str, Tensor]] = {name: {} for name in MEMBERS}
    for name, value in weights.items():
        if is_member_weight(name):
            member, _, part = name.removeprefix(_PREFIX).partition(".")
            tensors[member][part] = value
    return {
        name: (KernelRidge if name == "encoder" else Forests).from_tensors(each, _task_kind(kind), num_tasks)
        for name, each in tensors.items()
    }


def _task_kind(kind: str) -> str:
    """The kind of the labels for members, which learn two classes as one binary task."""
    return "numbers" if kind == "numbers" else "binary"


def _columns(trained: TrainedEncoder, dataset: Dataset, jobs: int) -> Columns:
    """Columns of all members by name; RDKit parses every molecule once for those without the encoder."""
    if not dataset.smiles:
        raise UserError(f"{dataset.name}: an ensemble needs molecules with SMILES. Give a table of SMILES.")
    columns = molecule_columns(dataset.smiles, ("ecfp", "descriptors"), jobs=jobs)
    return {**columns, "encoder": trained.embed(dataset).numpy()}


def _columns_of_member(name: str, columns: Columns) -> Any:
    """The columns of a forest, or those of kernel ridge regression by name."""
    return {each: columns[each] for each in MEMBERS[name]} if name == "encoder" else columns[name]


def _labels(dataset: Dataset) -> NDArray[np.float32]:
    """``(G, T)`` labels of tasks, or the number of the class, 0 or 1, as one column."""
    if dataset.classes is not None:
        return dataset.classes[:, None].astype(np.float32)
    assert dataset.targets is not None
    return dataset.targets
