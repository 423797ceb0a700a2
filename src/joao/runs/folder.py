"""Epochs as lines of JSON; what is read is believed only where its numbers are numbers.

A run is a folder, or one file.

=========================  =========================================================================================
``recipe.toml``            the complete recipe
``run.json``               features, names and shape of the data, versions, machine, and whether it is finished
``metrics.jsonl``          a line per epoch: loss, table of probabilities, pair losses, pairs drawn, seconds, rate
``weights.safetensors``    encoder and heads, once it is finished; of a fine-tuned one, encoder and classifier
``checkpoint-STEP…``       everything needed to go on after that step, until it is finished; the newest are kept
``finetune.json``          of a fine-tuned one: classes, settings, epochs and facts, see :mod:`joao.runs.finetuning`
``tensorboard``, ``csv``   logs for other programs, where they were asked for, see :mod:`joao.runs.logs`
=========================  =========================================================================================

The file is what ``joao export`` makes of a finished one: its weights without the heads, and the texts of the folder's
other files, by their names, as metadata. Tensors of files and folders come with a checksum, which weights of older
versions do not have.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from joao.config.recipe import Recipe, make_recipe, parse_toml
from joao.core.errors import JoaoNotice, UserError, WriteError, one_line, user_error_on_failure
from joao.core.files import make_folder, write_file, write_json
from joao.data.dataset import as_bytes
from joao.data.features import Features
from joao.data.molecules import FEATURISER
from joao.training.metrics import EpochMetrics


def format_epoch(metrics: EpochMetrics) -> str:
    """What an epoch showed, with the end of the line."""
    return json.dumps(dataclasses.asdict(metrics)) + "\n"


def parse_epoch(line: str, size: int) -> EpochMetrics:
    """The reverse of :func:`format_epoch`; the tables must have ``size`` rows and columns.

    Raises:
        ValueError, TypeError, RecursionError: where the line is none.
    """
    metrics = EpochMetrics(**json.loads(line))
    tables = [metrics.probabilities, metrics.drawn]
    if metrics.pair_losses is not None:
        tables.append(metrics.pair_losses)
    if not all(are_numbers(table, (size, size)) for table in tables):
        raise ValueError(f"a table is not {size} rows of {size} numbers")
    if not are_numbers([metrics.epoch, metrics.loss, metrics.seconds, metrics.graphs_per_second], (4,)):
        raise ValueError("a number is none")
    return metrics


def are_numbers(values: Any, shape: tuple[int, ...]) -> bool:
    """Whether ``values`` are finite numbers, nested in this shape."""
    array = np.array(values)
    return array.shape == shape and array.dtype.kind in "if" and bool(np.isfinite(array).all())


FORMAT = 1
FILE_FORMAT = 1
FILE_FORMAT_KEY = "joao.format"
CHECKPOINTS_KEPT = 2
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
        versions, machine: see :mod:`joao.core.provenance`.
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
    def create(cls, folder: Path, recipe: Recipe, info: RunInfo, state: Mapping[str, Tensor] | None = None) -> Run:
        """Makes the folder, with a first checkpoint of ``state``; an existing one must be empty."""
        check_new_folder(folder)
        make_folder(folder)
        run = cls(folder, recipe, info)
        try:
            write_file(folder / "recipe.toml", recipe.toml())
            write_file(folder / "metrics.jsonl", "")
            if state is not None:
                run.write_checkpoint(state)
            run._write_info(info)  # last: what has it is a run
        except BaseException:
            run.discard()
            raise
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Reads a run, finished or not, from its folder or its file."""
        path = folder / "run.json"
        text = read_text(folder, path.name)
        if text is None:
            raise UserError(f"{folder}: is not a run: it has no run.json. Make one with 'joao pretrain'.")
        with user_error_on_failure(f"{path}: is damaged or not of a run"):
            fields = json.loads(text)
            if fields["format"] > FORMAT:
                raise UserError(f"{path}: format {fields['format']} is newer than this version of joao knows.")
            known = {field.name for field in dataclasses.fields(RunInfo)}
            fields = {key: value for key, value in fields.items() if key in known}
            features = Features.from_json(fields.pop("features"))
            lists = {"pool": tuple(fields["pool"]), "finetuned_on": tuple(fields.get("finetuned_on", ()))}
            info = RunInfo(features=features, **{**fields, **lists})
            _check_info(info)
        if info.codes not in (0, FEATURISER):
            raise UserError(
                f"{folder}: was trained with version {info.codes} of the codes of atoms and bonds; this joao "
                f"makes version {FEATURISER}. Use joao {info.versions.get('joao', 'of its time')}."
            )
        path = folder / "recipe.toml"
        text = read_text(folder, path.name)
        if text is None:
            raise UserError(f"{path}: cannot be read (it is not there).")
        return cls(folder, make_recipe(parse_toml(text, str(path)), str(path)), info)

    def metrics(self, num_epochs: int | None = None) -> list[EpochMetrics]:
        """What the first ``num_epochs`` epochs showed; of a finished run, all of them."""
        path = self.folder / "metrics.jsonl"
        trained = self.recipe.training.epochs if self.info.pretrained else 0
        wanted = trained if num_epochs is None else num_epochs
        with user_error_on_failure(f"{path}: cannot be read"):
            lines = (read_text(self.folder, path.name) or "").splitlines()[:wanted]
            metrics = [parse_epoch(line, len(self.info.pool)) for line in lines]
        if len(metrics) != wanted or [each.epoch for each in metrics] != list(range(1, wanted + 1)):
            raise UserError(f"{path}: is damaged: it does not have a line for each of {wanted} epochs.")
        return metrics

    def append(self, metrics: EpochMetrics) -> None:
        """Adds the line of an epoch."""
        path = self.folder / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(format_epoch(metrics))
                file.flush()
                os.fsync(file.fileno())  # a checkpoint must not be on the disk before the epochs it counts
        except OSError as error:
            raise WriteError(f"{path}: cannot be written ({error.strerror}).") from error

    def check_unfinished(self) -> None:
        """Refuses to go on with what is complete."""
        if self.info.finished:
            raise UserError(f"{self.folder}: is finished; there is nothing to resume.")

    def checkpoints(self) -> list[Path]:
        """The files of its checkpoints, newest first."""
        return sorted(self.folder.glob("checkpoint-*.safetensors"), reverse=True)

    def write_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Adds a checkpoint, named after its step, and removes those that are no longer kept."""
        step = int(tensors["position"][1])
        write_tensors(self.folder / f"checkpoint-{step:012}.safetensors", tensors)
        for old in self.checkpoints()[CHECKPOINTS_KEPT:]:
            old.unlink(missing_ok=True)

    def read_checkpoint(self) -> dict[str, Tensor]:
        """The state of the run when it was last saved, and ``metrics.jsonl`` cut back to that moment.

        A damaged checkpoint is passed over, with a notice, if there is an older one; it is then removed, as is what
        a process that was killed left half written.
        """
        self.check_unfinished()
        damaged: dict[Path, str] = {}
        for path in self.checkpoints():
            try:
                tensors = read_tensors(path, checked=True)
                kept = self.metrics(int(tensors["position"][0]))  # later lines, perhaps cut off, are not read
            except (LookupError, ValueError, RuntimeError) as error:
                damaged[path] = str(error) if isinstance(error, UserError) else f"{path}: is damaged ({error})."
                continue
            for fault in damaged.values():
                warnings.warn(f"{fault} Going on from {path.name}, which is older.", JoaoNotice, stacklevel=2)
            for useless in (*damaged, *self.folder.glob(".*.safetensors.*"), *self.folder.glob(".metrics.jsonl.*")):
                useless.unlink(missing_ok=True)
            write_file(self.folder / "metrics.jsonl", "".join(format_epoch(metrics) for metrics in kept))
            return tensors
        none = f"{self.folder}: has no checkpoint yet. Remove the folder and start again."
        raise UserError(next(iter(damaged.values()), none))

    def discard(self) -> None:
        """Removes what was written of an unfinished run."""
        assert not self.info.finished
        for path in (*map(self.folder.joinpath, ("recipe.toml", "metrics.jsonl", "run.json")), *self.checkpoints()):
            path.unlink(missing_ok=True)
        for name in LOG_FOLDERS:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        with suppress(OSError):  # somebody else's file in it
            self.folder.rmdir()

    def finish(self, weights: Mapping[str, Tensor]) -> Run:
        """Writes the final weights, says that they are final, and drops the checkpoints."""
        tensors = {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
        write_tensors(self.folder / "weights.safetensors", tensors)
        finished = dataclasses.replace(self.info, finished=True)
        self._write_info(finished)
        for path in self.checkpoints():
            path.unlink(missing_ok=True)
        return dataclasses.replace(self, info=finished)

    def weights(self) -> dict[str, Tensor]:
        """The final weights by name: ``encoder.…`` and ``heads.…`` or, fine-tuned, ``classifier.…``."""
        if not self.info.finished:
            raise UserError(f"{self.folder}: is not finished. {self.resume_hint()}")
        if self.folder.is_dir():
            return read_tensors(self.folder / "weights.safetensors")
        weights = read_tensors(self.folder)
        # What is kept in half precision is used in single.
        return {name: value.float() if value.dtype == torch.float16 else value for name, value in weights.items()}

    def resume_hint(self) -> str:
        """The command that resumes it, in a sentence."""
        return f"Go on: joao pretrain --resume {shlex.quote(str(self.folder))}"

    def _write_info(self, info: RunInfo) -> None:
        write_json(self.folder / "run.json", dataclasses.asdict(info))


def read_text(run: Path, name: str) -> str | None:
    """The text of one of a run's files, from its folder or its file; None where it has none of that name."""
    if run.is_file():
        return _read_metadata(run).get(name)
    if not run.is_dir():
        raise UserError(f"{run}: is not a run: there is no such folder. Make one with 'joao pretrain'.")
    path = run / name
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is damaged ({error}).") from error


def check_new_folder(folder: Path) -> None:
    """Refuses a folder with something in it, and a place that cannot be written to, before any work is done."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already. Choose another name or remove it first.{_unfinished_hint(folder)}")
    parent = next(each for each in [folder, *folder.absolute().parents] if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UserError(f"{folder}: cannot be made: {parent} cannot be written to.")


def _unfinished_hint(folder: Path) -> str:
    """How to go on with what is in the way, if it is a run that is not finished."""
    try:
        run = Run.open(folder)
    except UserError:
        return ""
    return "" if run.info.finished else f" It is a run that is not finished. {run.resume_hint()}"


def _check_info(info: RunInfo) -> None:
    """Counts are counts, and texts are texts: everybody relies on it, also pages that show them."""
    counts = (info.num_graphs, info.num_features, info.num_edge_features, info.codes, info.devices, info.num_nodes)
    if not all(type(count) is int and 0 <= count < 1 << 31 for count in counts):
        raise ValueError("a count is none")
    texts = (info.data, info.fingerprint, info.command, info.precision, info.featuriser, *info.pool, *info.finetuned_on)
    if not all(isinstance(text, str) for text in (*texts, *info.own.values(), *info.versions.values())):
        raise ValueError("a text is none")
    if not isinstance(info.machine, dict) or not all(type(each) is bool for each in (info.fast, info.finished)):
        raise ValueError("a value is of another type")
    if info.features.width not in (None, info.num_features):
        raise ValueError(f"its features have {info.features.width} columns, not {info.num_features}")


def _read_metadata(path: Path) -> dict[str, str]:
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


CHECKSUM_KEY = "joao.checksum"


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(as_bytes(value.detach().cpu().numpy()))
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors with their checksum."""
    write_file(path, save(dict(tensors), {CHECKSUM_KEY: checksum(tensors)}))


def read_tensors(path: Path, checked: bool = False) -> dict[str, Tensor]:
    """The tensors of a file, which must be those of its checksum; with ``checked``, it must have one."""
    try:
        content = path.read_bytes()
        tensors: dict[str, Tensor] = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        told = (header.get("__metadata__") or {}).get(CHECKSUM_KEY)
        is_whole = told == checksum(tensors) if told is not None else not checked
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:  # also of types without a name
        raise UserError(f"{path}: is damaged ({one_line(error)}).") from error
    if not is_whole:
        raise UserError(f"{path}: is damaged: its weights are not those that were written. Bring back a copy.")
    return tensors
