r"""Predict what can be computed from a molecule, in addition to the contrastive loss or instead of it.

The targets are functions of the SMILES: RDKit's 2D descriptors, and counts of ECFP neighbourhoods, as
:func:`joao.baselines.forests.molecule_columns` computes them. With the weights :math:`w` of a recipe,

.. math:: L = w_\mathrm{contrastive} L_\mathrm{contrastive} + \sum_t w_t \, \mathrm{mean}_{gk} (p_{gk} - y_{gk})^2 ,

where :math:`p` is a network on the embedding of the graph without augmentation. The mean is over the known values of
:math:`y`, which are standardised, so that predicting the mean of every column costs about 1 for each target.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from joao.baselines.forests import NUM_BITS, molecule_columns
from joao.config.recipe import CONTRASTIVE_WEIGHT
from joao.core.errors import UserError, quantity
from joao.core.files import make_folder, read_regular, write_file
from joao.core.graphs import GraphBatch, take_rows
from joao.core.processes import all_cores
from joao.data.cache import folder
from joao.data.dataset import Dataset
from joao.data.molecules import featuriser_version
from joao.data.shards.shards import Shards
from joao.encoders import Encoder

HIDDEN = 1024  # width of the network that predicts the targets
_CLIP = 5.0  # standard deviations
_PERCENTILES = (0.5, 99.5)  # descriptors outside are set to these before their deviation is computed
_SMALLEST_DEVIATION = 0.1  # of the logarithm of a count: rare neighbourhoods do not dominate
_MIN_CACHED = 1000  # molecules


@dataclass(frozen=True, eq=False)
class MoleculeTargets:
    """The targets of all graphs of a store, and their weights.

    Attributes:
        weights: weight of each target, and of the contrastive loss.
        descriptors: ``(G, D)`` standardised, NaN for missing values.
        first, column, count: ``(G + 1,)`` offsets of the graphs in the lists of columns and counts that are not 0.
        shift, scale: ``(2048,)`` standardisation of the logarithms of counts.
        most: largest number of such columns of a graph.
    """

    weights: Mapping[str, float]
    descriptors: Tensor
    first: Tensor
    column: Tensor
    count: Tensor
    shift: Tensor
    scale: Tensor
    most: int

    def to(self, device: torch.device) -> MoleculeTargets:
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    @property
    def contrastive(self) -> float:
        return self.weights[CONTRASTIVE_WEIGHT]

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of each target with a weight."""
        sizes = {"descriptors": self.descriptors.shape[1], "ecfp": NUM_BITS}
        return {name: size for name, size in sizes.items() if self.weights.get(name)}

    def values(self, graphs: Tensor) -> dict[str, Tensor]:
        """The targets of ``graphs`` ``(B,)``: ``(B, columns)`` each, NaN for missing values.

        It neither synchronises with the host nor makes tensors of other shapes for other graphs, so that a GPU can
        replay it.
        """
        values = dict[str, Tensor]()
        if "descriptors" in self.sizes:
            values["descriptors"] = take_rows(self.descriptors, graphs)
        if "ecfp" in self.sizes:
            # As many slots for each graph as the longest list has; the unused ones go to one more column.
            slot = take_rows(self.first, graphs).unsqueeze(1) + torch.arange(self.most, device=graphs.device)
            is_used = slot < take_rows(self.first, graphs + 1).unsqueeze(1)
            slot = torch.where(is_used, slot, 0)
            column, count = self.column[slot].long(), self.count[slot].float()
            dense = torch.zeros(len(graphs), NUM_BITS + 1, device=graphs.device)
            dense.scatter_(1, torch.where(is_used, column, NUM_BITS), count.log1p())
            values["ecfp"] = (dense[:, :NUM_BITS] - self.shift) / self.scale
        return values

    def loss(self, predicted: Tensor, graphs: Tensor) -> Tensor:
        """The weighted sum ``()`` of the losses of the targets; ``predicted`` ``(B, all columns)``."""
        parts = torch.split(predicted.float(), [*self.sizes.values()], dim=1)
        values = self.values(graphs)
        losses = [
            self.weights[name] * masked_error(part, values[name]) for name, part in zip(values, parts, strict=True)
        ]
        return torch.stack(losses).sum()


def masked_error(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over the entries of ``target`` that are not NaN; 0 if there are none."""
    known = ~target.isnan()
    return torch.where(known, predicted - target.nan_to_num(), 0).square().sum() / known.sum().clamp(min=1)


class TargetModel(nn.Module):
    """A model for pre-training, with a network on its encoder that predicts the targets. Called in the same way.

    Without a first argument (None) it returns the predictions ``(B, columns)`` for the graphs as they are.
    """

    def __init__(self, model: nn.Module, encoder: Encoder, num_columns: int) -> None:
        super().__init__()
        self.model = model
        size = encoder.embedding_size
        # Normalised, because the dimensions of an embedding may have very different ranges.
        self.predict = nn.Sequential(
            nn.BatchNorm1d(size), nn.Linear(size, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, num_columns)
        )

    def forward(self, first: Any, *fields: Any) -> Tensor:
        if first is not None:
            return cast(Tensor, self.model(first, *fields))
        encoder = cast(Encoder, getattr(self.model, "network", self.model).encoder)
        return cast(Tensor, self.predict(encoder.embed(GraphBatch(*fields))))

    def update_copy(self, momentum: float) -> None:
        """See :class:`joao.training.model.MomentumModel`."""
        cast(Any, self.model).update_copy(momentum)


def make_targets(
    dataset: Dataset | Shards, weights: Mapping[str, float], on_notice: Callable[[str], None] = lambda notice: None
) -> MoleculeTargets:
    """Compute the targets of molecules on all cores, or take them from the cache of data sets.

    Args:
        dataset: molecules with their SMILES.
        weights: as in a recipe.
        on_notice: called before a computation that takes long.
    """
    names = [name for name in weights if name != CONTRASTIVE_WEIGHT]
    if isinstance(dataset, Shards) or len(dataset.smiles) != len(dataset):
        what = "shards" if isinstance(dataset, Shards) else f"{dataset.kind} without SMILES"
        raise UserError(
            f"{dataset.name}: the targets {', '.join(names)} are computed from SMILES, got {what}. Use a table of "
            "molecules or a file packed with its SMILES, or leave out --targets."
        )
    arrays = _read_or_compute(dataset, on_notice)
    raw = arrays["descriptors"].astype(np.float64)
    with np.errstate(all="ignore"):
        low, high = (np.nan_to_num(each) for each in np.nanpercentile(raw, _PERCENTILES, axis=0))
        raw = np.clip(raw, low, high)
        deviation = np.nan_to_num(np.nanstd(raw, axis=0))
        raw = (raw - np.nan_to_num(np.nanmean(raw, axis=0))) / np.where(deviation > 0, deviation, 1)
    first, column, count = (arrays[name] for name in ("first", "column", "count"))
    logs = np.log1p(count.astype(np.float64))
    mean, square = (np.bincount(column, weights=each, minlength=NUM_BITS) / len(dataset) for each in (logs, logs**2))
    scale = np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), _SMALLEST_DEVIATION)
    return MoleculeTargets(
        weights,
        torch.from_numpy(np.clip(raw, -_CLIP, _CLIP).astype(np.float32)),
        torch.from_numpy(first),
        torch.from_numpy(column),
        torch.from_numpy(count),
        torch.from_numpy(mean.astype(np.float32)),
        torch.from_numpy(scale.astype(np.float32)),
        int(np.diff(first).max()),
    )


def _read_or_compute(dataset: Dataset, on_notice: Callable[[str], None]) -> dict[str, NDArray[Any]]:
    """Raw descriptors, and ECFP counts as sparse rows."""
    smiles, file = dataset.smiles, cache_file(dataset)
    if file is not None and (known := _read(file, len(smiles))) is not None:
        return known
    jobs = all_cores()
    if len(smiles) >= _MIN_CACHED:
        minutes = 0.007 * len(smiles) / jobs / 60
        on_notice(f"Computing descriptors of {quantity(len(smiles), 'molecules')}: about {minutes:.0f} minutes.")
    columns = molecule_columns(smiles, ["ecfp", "descriptors"], jobs=jobs, missing=np.nan)
    row, column = np.nonzero(columns["ecfp"])
    arrays: dict[str, NDArray[Any]] = {
        "descriptors": columns["descriptors"],
        "first": np.searchsorted(row, np.arange(len(smiles) + 1)).astype(np.int64),
        "column": column.astype(np.int16),
        "count": columns["ecfp"][row, column].astype(np.uint8),
    }
    if file is not None:
        write_arrays(file, arrays)
    return arrays


def cache_file(dataset: Dataset) -> Path | None:
    """The file that keeps the targets of ``dataset``; None without a cache and for few molecules."""
    # The same without RDKit: a packed data set keeps the version that converted its molecules.
    version = dataset.featuriser or str(featuriser_version())
    number = hashlib.sha256("\n".join([version, *dataset.smiles]).encode()).hexdigest()[:32]
    cache = folder() if len(dataset) >= _MIN_CACHED else None
    return None if cache is None else cache / f"targets-{number}.packed"


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to the cache; a cache that cannot be written is not used."""
    content = io.BytesIO()
    np.savez(content, **cast(dict[str, Any], arrays))
    with suppress(UserError):
        make_folder(file.parent, mode=0o700)
        write_file(file, content.getvalue())


def _read(file: Path, num_molecules: int) -> dict[str, NDArray[Any]] | None:
    """Read the arrays of a cached file; None if there is none or it is damaged."""
    with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):
        with np.load(io.BytesIO(read_regular(file)), allow_pickle=False) as file_arrays:
            arrays = {name: file_arrays[name] for name in ("descriptors", "first", "column", "count")}
        sizes = len(arrays["descriptors"]), len(arrays["first"]) - 1, len(arrays["column"]), len(arrays["count"])
        if sizes == (num_molecules, num_molecules, arrays["first"][-1], arrays["first"][-1]):
            return arrays
    return None
