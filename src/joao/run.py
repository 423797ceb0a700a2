"""A run is a folder, or one file.

=========================  =========================================================================================
``recipe.toml``            the complete recipe
``run.json``               features, names and shape of the data, versions, machine, and whether it is finished
``metrics.jsonl``          a line per epoch: loss, table of probabilities, pair losses, pairs drawn, seconds, rate
``weights.safetensors``    encoder and heads, once it is finished; of a fine-tuned one, encoder and classifier
``checkpoint.safetensors`` everything needed to go on, until it is finished
``finetune.json``          of a fine-tuned one: classes, settings, epochs and facts, see :mod:`joao.finetuning`
``tensorboard``, ``csv``   logs for other programs, where they were asked for, see :mod:`joao.epoch_logs`
=========================  =========================================================================================

The file is what ``joao export`` makes of a finished one: its weights without the heads, and the texts of the folder's
other files, by their names, as metadata. Among these is a checksum of the weights, which older files do not have.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from joao.data.base import as_bytes
from joao.data.features import Features
from joao.data.molecules import FEATURISER
from joao.errors import UserError
from joao.files import make_folder, write_file, write_json
from joao.recipe import Recipe, make_recipe, parsed_table
from joao.training.pretrain import EpochMetrics

FORMAT = 1
FILE_FORMAT = 1
FILE_FORMAT_KEY = "joao.format"
CHECKSUM_KEY = "joao.checksum"
LOG_FOLDERS = ("tensorboard", "csv")


@dataclass(frozen=True)
class RunInfo:
    """What a run must know beside its recipe.

    Attributes:
        data: name of the data set.
        fingerprint: of its graphs.
        num_graphs: it was trained on.
        pool: the names of the augmentations, in the order of the tables.
        num_features, num_edge_features: columns of ``x`` and ``edge_attr``.
        features: how ``x`` was made.
        codes: of molecules, the version of the numbers of atoms and bonds; 0 for other graphs.
        featuriser: of molecules, what made graphs of them, in words.
        versions, machine: see :mod:`joao.provenance`.
        command: that started it.
        precision: of the training.
        fast: whether it was trained on padded batches.
        devices, num_nodes: processes on each machine, and machines, that it was started with.
        own: a user's own objects that took the place of the recipe's parts, by kind, as they describe themselves.
        pretrained: whether the encoder was pre-trained as the recipe says; if not, it began as initialised.
        finetuned_on: the fingerprints of the graphs whose labels the encoder was fine-tuned with.
        finished: whether the weights are final.
    """

    data: str
    fingerprint: str
    num_graphs: int
    pool: tuple[str, ...]
    num_features: int
    num_edge_features: int
    features: Features
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    command: str = ""
    precision: str = "32-true"
    fast: bool = False
    devices: int = 1
    num_nodes: int = 1
    own: Mapping[str, str] = field(default_factory=dict)
    codes: int = 0
    featuriser: str = ""
    pretrained: bool = True
    finetuned_on: tuple[str, ...] = ()
    finished: bool = False
    format: int = FORMAT


@dataclass(frozen=True)
class Run:
    """A run that has been opened, or made.

    Attributes:
        folder: of the run; of one that is a file, the file, which cannot be written to.
    """

    folder: Path
    recipe: Recipe
    info: RunInfo

    @classmethod
    def create(cls, folder: Path, recipe: Recipe, info: RunInfo) -> Run:
        """Makes the folder; an existing one must be empty."""
        check_new_folder(folder)
        make_folder(folder)
        run = cls(folder, recipe, info)
        write_file(folder / "recipe.toml", recipe.toml())
        write_file(folder / "metrics.jsonl", "")
        run._write_info(info)
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Reads a run, finished or not, from its folder or its file."""
        path = folder / "run.json"
        text = read_text(folder, path.name)
        if text is None:
            raise UserError(f"{folder}: is not a run: it has no run.json. Make one with 'joao pretrain'.")
        try:
            fields = json.loads(text)
            if fields["format"] > FORMAT:
                raise UserError(f"{path}: format {fields['format']} is newer than this version of joao knows.")
            known = {field.name for field in dataclasses.fields(RunInfo)}
            fields = {key: value for key, value in fields.items() if key in known}
            features = Features.from_json(fields.pop("features"))
            lists = {"pool": tuple(fields["pool"]), "finetuned_on": tuple(fields.get("finetuned_on", ()))}
            info = RunInfo(features=features, **{**fields, **lists})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path}: is damaged or not of a run ({error}).") from error
        if info.codes not in (0, FEATURISER):
            raise UserError(
                f"{folder}: was trained with version {info.codes} of the codes of atoms and bonds; this joao "
                f"makes version {FEATURISER}. Use joao {info.versions.get('joao', 'of its time')}."
            )
        path = folder / "recipe.toml"
        text = read_text(folder, path.name)
        if text is None:
            raise UserError(f"{path}: cannot be read (it is not there).")
        return cls(folder, make_recipe(parsed_table(text, str(path)), str(path)), info)

    def metrics(self, num_epochs: int | None = None) -> list[EpochMetrics]:
        """What the first ``num_epochs`` epochs showed; of a finished run, all of them."""
        path = self.folder / "metrics.jsonl"
        trained = self.recipe.training.epochs if self.info.pretrained else 0
        wanted = trained if num_epochs is None else num_epochs
        try:
            lines = (read_text(self.folder, path.name) or "").splitlines()[:wanted]
            metrics = [EpochMetrics(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path}: cannot be read ({error}).") from error
        if [each.epoch for each in metrics] != list(range(1, wanted + 1)):
            raise UserError(f"{path}: is damaged: it does not have a line for each of {wanted} epochs.")
        return metrics

    def append(self, metrics: EpochMetrics) -> None:
        """Adds the line of an epoch."""
        path = self.folder / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(_line(metrics))
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror}).") from error

    def write_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Replaces the checkpoint."""
        write_file(self.folder / "checkpoint.safetensors", save(dict(tensors)))

    def read_checkpoint(self) -> dict[str, Tensor]:
        """The state of the run when it was last saved, and ``metrics.jsonl`` cut back to that moment."""
        if self.info.finished:
            raise UserError(f"{self.folder}: is finished; there is nothing to resume.")
        path = self.folder / "checkpoint.safetensors"
        if not path.exists():
            raise UserError(f"{self.folder}: has no checkpoint yet. Remove the folder and start again.")
        tensors = _read_tensors(path)
        # Later lines may be cut off where the run was: they are not read.
        kept = self.metrics(int(tensors["position"][0]) if "position" in tensors else 0)
        write_file(self.folder / "metrics.jsonl", "".join(_line(metrics) for metrics in kept))
        return tensors

    def discard_if_lost(self) -> bool:
        """Removes what was written if there is no checkpoint to go on from; whether it did."""
        if (self.folder / "checkpoint.safetensors").exists():
            return False
        self.discard()
        return True

    def discard(self) -> None:
        """Removes what was written of an unfinished run."""
        for name in ("recipe.toml", "metrics.jsonl", "run.json", "checkpoint.safetensors"):
            (self.folder / name).unlink(missing_ok=True)
        for name in LOG_FOLDERS:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        with suppress(OSError):  # somebody else's file in it
            self.folder.rmdir()

    def finish(self, weights: Mapping[str, Tensor]) -> Run:
        """Writes the final weights, says that they are final, and drops the checkpoint."""
        tensors = {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
        write_file(self.folder / "weights.safetensors", save(tensors))
        finished = dataclasses.replace(self.info, finished=True)
        self._write_info(finished)
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)
        return dataclasses.replace(self, info=finished)

    def weights(self) -> dict[str, Tensor]:
        """The final weights by name: ``encoder.…`` and ``heads.…`` or, fine-tuned, ``classifier.…``."""
        if not self.info.finished:
            raise UserError(f"{self.folder}: is not finished. Go on with 'joao pretrain --resume {self.folder}'.")
        if self.folder.is_dir():
            return _read_tensors(self.folder / "weights.safetensors")
        weights, told = _read_tensors(self.folder), _metadata(self.folder).get(CHECKSUM_KEY)
        if told is not None and told != checksum(weights):
            raise UserError(f"{self.folder}: is damaged: its weights are not those that were written. Copy it again.")
        # What is kept in half precision is used in single.
        return {name: value.float() if value.dtype == torch.float16 else value for name, value in weights.items()}

    def _write_info(self, info: RunInfo) -> None:
        write_json(self.folder / "run.json", dataclasses.asdict(info))


def read_text(run: Path, name: str) -> str | None:
    """The text of one of a run's files, from its folder or its file; None where it has none of that name."""
    if run.is_file():
        return _metadata(run).get(name)
    if not run.is_dir():
        raise UserError(f"{run}: is not a run: there is no such folder. Make one with 'joao pretrain'.")
    path = run / name
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is damaged ({error}).") from error


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(as_bytes(value.detach().cpu().numpy()))
    return digest.hexdigest()


def check_new_folder(folder: Path) -> None:
    """Refuses a folder with something in it, and a place that cannot be written to, before any work is done."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already. Choose another name or remove it first.")
    parent = next(each for each in [folder, *folder.absolute().parents] if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UserError(f"{folder}: cannot be made: {parent} cannot be written to.")


def _metadata(path: Path) -> dict[str, str]:
    """What the file of a run says beside its weights."""
    try:
        with safe_open(path, "pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except SafetensorError as error:
        raise UserError(
            f"{path}: is not a run: no folder, and no file of 'joao export' or damaged ({error})."
        ) from error
    version = metadata.get(FILE_FORMAT_KEY, "")
    if not version.isdecimal():
        raise UserError(
            f"{path}: is not a run: 'joao export' did not write it. Give the folder of a run, or its export."
        )
    if int(version) > FILE_FORMAT:
        raise UserError(f"{path}: format {version} is newer than this version of joao knows.")
    return metadata


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load(path.read_bytes())
        return tensors
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except SafetensorError as error:
        raise UserError(f"{path}: is damaged ({error}).") from error


def _line(metrics: EpochMetrics) -> str:
    return json.dumps(dataclasses.asdict(metrics)) + "\n"
