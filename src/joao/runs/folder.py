"""A run on disk: a folder, or one file written by ``joao export``.

=========================  =========================================================================================
``recipe.toml``            the complete recipe
``run.json``               features, name and shape of the data, versions, machine, and whether the run is finished
``metrics.jsonl``          one line per epoch: loss, probabilities and losses of pairs, pairs drawn, seconds, graphs/s
``weights.safetensors``    encoder and heads of a finished run; encoder and classifier if it was fine-tuned
``checkpoint-STEP…``       state of an unfinished run after that step; the newest two are kept
``finetune.json``          of a fine-tuned run: classes, settings, epochs and facts, see :mod:`joao.runs.finetuning`
``tensorboard``, ``csv``   optional logs for other programs, see :mod:`joao.runs.logs`
=========================  =========================================================================================

An exported file holds the weights without the heads, and the text of the other files as metadata under their names.
Weights have a checksum, except those of older versions.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from joao.config.recipe import COMPLETE, Recipe, make_recipe, parse_toml
from joao.core.errors import JoaoNotice, UserError, WriteError, one_line, short_repr, user_error_on_failure
from joao.core.files import (
    already_exists,
    lock_folder,
    make_folder,
    parse_json,
    read_regular,
    refuse_dash,
    temporary_path,
    user_error_on_os_error,
    write_file,
    write_json,
)
from joao.core.registry import make_record
from joao.data.dataset import as_bytes
from joao.data.features import Features
from joao.data.molecules import FEATURISER, is_standardised
from joao.training.metrics import EpochMetrics

FORMAT = 1
FILE_FORMAT = 1
FILE_FORMAT_KEY = "joao.format"
CHECKSUM_KEY = "joao.checksum"
CHECKPOINTS_KEPT = 2
LOG_FOLDERS = ("tensorboard", "csv")
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def format_epoch(metrics: EpochMetrics) -> str:
    """Format the metrics of an epoch as one line of JSON."""
    return json.dumps(asdict(metrics)) + "\n"


def parse_epoch(line: str, size: int, num_graphs: int, place: str = "epoch", partial: bool = False) -> EpochMetrics:
    """Parse a line of :func:`format_epoch` of a run with ``size`` augmentations; a ValueError says what is wrong.

    A ``partial`` epoch covers fewer than all graphs.
    """
    metrics = make_record(EpochMetrics, parse_json(line), place)
    for name in ("probabilities", "drawn", "pair_losses"):
        table = getattr(metrics, name)
        if table is not None and [len(row) for row in table] != [size] * size:
            raise ValueError(f"{name}: expected {size} rows of {size} numbers")
    probabilities, drawn = list(chain(*metrics.probabilities)), list(chain(*metrics.drawn))
    if min(probabilities) < 0 or not math.isclose(math.fsum(probabilities), 1, abs_tol=1e-4):
        raise ValueError(f"probabilities: expected numbers from 0 that sum to 1, got {short_repr(probabilities)}")
    if min(drawn) < 0 or not (0 < sum(drawn) < num_graphs if partial else sum(drawn) == num_graphs):
        total = f"less than {num_graphs}" if partial else str(num_graphs)
        raise ValueError(f"drawn: expected counts that sum to {total}, got {short_repr(drawn)}")
    return metrics


def check_format(path: Path, version: Any, newest: int) -> None:
    """Raise an error if a file has no format number, or a newer format than this version can read."""
    if type(version) is not int or version < 1:
        raise UserError(f"{path}: expected a positive integer under the key 'format', got {short_repr(version)}.")
    if version > newest:
        raise UserError(f"{path}: format {version} is newer than this joao supports. Update joao.")


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Hash names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(as_bytes(value.detach().cpu().numpy()))
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    write_file(path, save(dict(tensors), {CHECKSUM_KEY: checksum(tensors)}))


def read_tensors(path: Path, checked: bool = False) -> dict[str, Tensor]:
    """Read tensors and verify their checksum; without one, the file is accepted unless it must be ``checked``."""
    try:
        content = read_regular(path, most=None)
        tensors: dict[str, Tensor] = load(content)
        # The file starts with the size of its JSON header in 8 bytes.
        header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
        expected = (header.get("__metadata__") or {}).get(CHECKSUM_KEY)
        is_valid = expected == checksum(tensors) if expected is not None else not checked
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:  # also for unknown data types
        raise UserError(f"{path}: is damaged ({one_line(error)}).") from error
    if not is_valid:
        raise UserError(f"{path}: is damaged: the checksum does not match. Restore it from a copy.")
    return tensors


@dataclass(frozen=True)
class RunInfo:
    """The content of ``run.json``: what a run needs in addition to its recipe.

    Attributes:
        data, fingerprint, num_graphs: name of the data set, fingerprint and number of its graphs.
        pool: names of the augmentations, in the order of the tables.
        num_features, num_edge_features: columns of ``x`` and ``edge_attr``.
        features: how ``x`` was computed.
        codes: for molecules, the version of the codes of atoms and bonds; 0 for other graphs.
        featuriser: for molecules, a description of the program that converted SMILES to graphs.
        versions, machine, command: see :mod:`joao.core.provenance`.
        precision, fast: precision of the training, and whether it used padded batches or the compiled core.
        compiled: level of instructions of the compiled core (:mod:`joao.kernels.native`), or empty.
        devices, num_nodes: processes per machine and number of machines.
        negatives: ``local`` or ``global`` if there were several processes.
        own: custom objects that replaced parts of the recipe: their description by kind.
        partial: whether training was interrupted in its last epoch, whose metrics then cover a part of the graphs.
        pretrained: whether the encoder was pre-trained with the recipe; otherwise it was only initialised.
        finetuned_on: fingerprints of the graphs whose labels were used for fine-tuning.
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
    compiled: str = ""
    devices: int = 1
    num_nodes: int = 1
    negatives: str = ""
    own: Mapping[str, str] = field(default_factory=dict)
    codes: int = 0
    featuriser: str = ""
    partial: bool = False
    pretrained: bool = True
    finetuned_on: tuple[str, ...] = ()
    finished: bool = False
    format: int = FORMAT

    @property
    def standardised(self) -> bool:
        """Whether the molecules that the encoder learned from were standardised: those to embed should be, too."""
        return is_standardised(self.featuriser)


@dataclass(frozen=True)
class Run:
    """A run that was created or opened."""

    folder: Path  # or an exported file, which cannot be written to
    recipe: Recipe
    info: RunInfo

    @classmethod
    def create(
        cls,
        folder: Path,
        recipe: Recipe,
        info: RunInfo,
        state: Mapping[str, Tensor] | None = None,
        *,
        metrics: Iterable[EpochMetrics] = (),
        weights: Mapping[str, Tensor] | None = None,
        json_files: Mapping[str, Any] | None = None,
        claimed: bool = False,
    ) -> Run:
        """Write a run with a first checkpoint of ``state``, or with final ``weights`` and other JSON files by name.

        The folder must be new or empty, unless the caller has ``claimed`` it (:func:`claim_folder`).
        """
        run = cls(folder, recipe, info)
        with nullcontext() if claimed else claim_folder(folder):
            write_file(folder / "recipe.toml", recipe.toml())
            write_file(folder / "metrics.jsonl", "".join(map(format_epoch, metrics)))
            if state is not None:
                run.write_checkpoint(state)
            if weights is not None:
                run._write_weights(weights)
            for name, value in (json_files or {}).items():
                write_json(folder / name, value)
            run._write_info(info)  # last: a folder with run.json is a run
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open a run, finished or not, from its folder or its exported file."""
        path = folder / "run.json"
        if (text := read_text(folder, path.name)) is None:
            raise UserError(f"{folder}: is not a run: run.json is missing. Create a run with 'joao pretrain'.")
        with user_error_on_failure(f"{path}: is damaged or not the run.json of a run"):
            values = parse_json(text)
            check_format(path, values.get("format"), FORMAT)
            info = make_record(RunInfo, values, str(path), allow_unknown=True)
            _check_info(info)
        if info.codes not in (0, FEATURISER):
            raise UserError(
                f"{folder}: was trained with version {info.codes} of the codes of atoms and bonds, but this joao uses "
                f"version {FEATURISER}. Use joao {info.versions.get('joao', '(version unknown)')}."
            )
        path = folder / "recipe.toml"
        if (text := read_text(folder, path.name)) is None:
            raise UserError(f"{path}: is missing.")
        table = parse_toml(text, str(path))
        if missing := sorted(COMPLETE - table.keys()):
            raise UserError(f"{path}: is damaged: its TOML has no {', '.join(missing)}.")
        return cls(folder, make_recipe(table, str(path)), info)

    def metrics(self, num_epochs: int | None = None) -> list[EpochMetrics]:
        """Return the metrics of the first ``num_epochs`` epochs; None: of all epochs of a finished run."""
        path = self.folder / "metrics.jsonl"
        trained = self.recipe.training.epochs if self.info.pretrained else 0
        num_lines = trained if num_epochs is None else num_epochs
        lines = (read_text(self.folder, path.name) or "").splitlines()[:num_lines]
        metrics = []
        for number, line in enumerate(lines, 1):
            place = f"{path} line {number}"
            with user_error_on_failure(f"{place}: is damaged"):
                is_partial = self.info.partial and number == trained
                metrics.append(parse_epoch(line, len(self.info.pool), self.info.num_graphs, place, is_partial))
        if len(metrics) != num_lines or any(each.epoch != number for number, each in enumerate(metrics, 1)):
            raise UserError(
                f"{path}: is damaged: expected one line for each of {num_lines} epochs, got {len(metrics)}."
            )
        return metrics

    def append(self, metrics: EpochMetrics) -> None:
        path = self.folder / "metrics.jsonl"
        try:
            with open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags | _NO_LINKS)) as file:
                file.write(format_epoch(metrics))
                file.flush()
                os.fsync(file.fileno())  # the epochs must be on disk before a checkpoint that counts them
        except OSError as error:
            raise WriteError(f"{path}: cannot be written ({error.strerror}).") from error

    def check_unfinished(self) -> None:
        if self.info.finished:
            raise UserError(f"{self.folder}: is already finished; there is nothing to resume.")

    def checkpoints(self) -> list[Path]:
        """List the checkpoint files, newest first."""
        return sorted(self.folder.glob(f"checkpoint-{'[0-9]' * 12}.safetensors"), reverse=True)

    def write_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, named after its step, and remove old ones."""
        step = int(tensors["position"][1])
        write_tensors(self.folder / f"checkpoint-{step:012}.safetensors", tensors)
        for old in self.checkpoints()[CHECKPOINTS_KEPT:]:
            old.unlink(missing_ok=True)

    def read_checkpoint(self) -> dict[str, Tensor]:
        """Read the newest checkpoint and truncate ``metrics.jsonl`` to it.

        A damaged checkpoint is skipped with a notice if there is an older one. It is then removed, together with
        temporary files of a killed process.
        """
        self.check_unfinished()
        damaged: dict[Path, str] = {}
        for path in self.checkpoints():
            try:
                tensors = read_tensors(path, checked=True)
                metrics_so_far = self.metrics(int(tensors["position"][0]))  # later lines may be incomplete
            except (LookupError, ValueError, RuntimeError) as error:
                damaged[path] = str(error) if isinstance(error, UserError) else f"{path}: is damaged ({error})."
                continue
            for fault in damaged.values():
                warnings.warn(f"{fault} Continuing from the older {path.name}.", JoaoNotice, stacklevel=2)
            for useless in (*damaged, *self.folder.glob(".*.safetensors.*"), *self.folder.glob(".metrics.jsonl.*")):
                useless.unlink(missing_ok=True)
            write_file(self.folder / "metrics.jsonl", "".join(format_epoch(metrics) for metrics in metrics_so_far))
            return tensors
        none = f"{self.folder}: has no checkpoint. Remove the folder and start again."
        raise UserError(next(iter(damaged.values()), none))

    def discard(self) -> None:
        """Remove the files of an unfinished run."""
        assert not self.info.finished
        _remove_files(self.folder)

    def finish(self, weights: Mapping[str, Tensor]) -> Run:
        """Write the final weights, mark the run as finished and remove the checkpoints."""
        self._write_weights(weights)
        finished = replace(self.info, finished=True)
        self._write_info(finished)
        for path in self.checkpoints():
            path.unlink(missing_ok=True)
        return replace(self, info=finished)

    def weights(self) -> dict[str, Tensor]:
        """Read the final weights: ``encoder.…`` and ``heads.…``, or ``classifier.…`` if fine-tuned."""
        if not self.info.finished:
            raise UserError(f"{self.folder}: is not finished. {self.resume_hint()}")
        if self.folder.is_dir():
            return read_tensors(self.folder / "weights.safetensors")
        weights = read_tensors(self.folder)
        # Weights that were exported in half precision are used in single precision.
        return {name: value.float() if value.dtype == torch.float16 else value for name, value in weights.items()}

    def resume_hint(self) -> str:
        """Return a sentence with the command that resumes the run."""
        return f"Resume with: joao pretrain --resume {shlex.quote(str(self.folder))}"

    def _write_weights(self, weights: Mapping[str, Tensor]) -> None:
        tensors = {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
        write_tensors(self.folder / "weights.safetensors", tensors)

    def _write_info(self, info: RunInfo) -> None:
        write_json(self.folder / "run.json", asdict(info))


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run or its exported file; packed graphs have the same suffix."""
    if not path.is_file():
        return (path / "run.json").exists()
    with suppress(UserError):
        return FILE_FORMAT_KEY in _read_metadata(path)
    return False


def read_text(run: Path, name: str) -> str | None:
    """Read a text file of a run from its folder or exported file; None if there is no such file."""
    if run.is_file():
        return _read_metadata(run).get(name)
    if not run.is_dir():
        raise UserError(f"{run}: no such file or folder. Create a run with 'joao pretrain', or correct the path.")
    path = run / name
    with user_error_on_os_error(path, "cannot be read"), user_error_on_failure(f"{path}: is damaged"):
        return read_regular(path).decode() if path.is_file() else None


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Create the folder of a new run, or take an empty one, for this process alone.

    A run is written in several files, of which ``run.json`` is the last. Until then its temporary file marks the folder
    as incomplete. If the process fails, its files are removed; if it is killed, the next one that claims the folder
    removes them.
    """
    check_new_folder(folder)
    make_folder(folder)
    with lock_folder(folder) as is_locked:
        if is_locked and _is_incomplete(folder):
            _remove_files(folder, keep_folder=True)
        if any(folder.iterdir()):  # another process was quicker
            raise already_exists(folder)
        try:
            with user_error_on_os_error(folder, "cannot be written to"):
                temporary_path(folder / "run.json").touch(0o600)
            yield
        except BaseException:
            if not (folder / "run.json").exists():
                _remove_files(folder)
            raise


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Lock the folder of a run that is resumed. It must not contain links, through which other files would change."""
    with lock_folder(folder):
        for path in folder.rglob("*"):
            if path.is_symlink() or (path.is_file() and path.stat().st_nlink > 1):
                raise UserError(f"{path}: is a link. Replace it by a copy before you resume the run.")
        yield


def _is_incomplete(folder: Path) -> bool:
    """Whether a process has begun to create a run here: it is still running, or was killed."""
    return not (folder / "run.json").exists() and temporary_path(folder / "run.json").exists()


def _remove_files(folder: Path, *, keep_folder: bool = False) -> None:
    """Remove the files of a run, and the folder if it is then empty."""
    names = ("recipe.toml", "metrics.jsonl", "run.json", "finetune.json", "weights.safetensors")
    patterns = ("checkpoint-*.safetensors", ".*.joao-*")
    for path in (*map(folder.joinpath, names), *chain(*map(folder.glob, patterns))):
        path.unlink(missing_ok=True)
    for name in LOG_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    if not keep_folder:
        with suppress(OSError):  # the folder contains other files
            folder.rmdir()


def check_new_folder(folder: Path) -> None:
    """Raise an error if a folder is not empty or cannot be created, before any work is done."""
    refuse_dash(folder)
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not _is_incomplete(folder))):
        hint = ""
        with suppress(UserError):  # the folder is not a run
            run = Run.open(folder)
            hint = "" if run.info.finished else f" It is an unfinished run. {run.resume_hint()}"
        raise already_exists(folder, hint)
    parent = next(each for each in [folder, *folder.absolute().parents] if each.exists())
    if not parent.is_dir():
        raise UserError(f"{folder}: cannot be created: {parent} is not a folder.")
    if not os.access(parent, os.W_OK):
        raise UserError(f"{folder}: cannot be created: no write permission for the folder {parent}.")


def _check_info(info: RunInfo) -> None:
    """Raise a ValueError if a number is out of range; all readers rely on it."""
    for name in ("num_graphs", "num_features", "num_edge_features", "codes", "devices", "num_nodes"):
        if not 0 <= getattr(info, name) < 1 << 31:
            raise ValueError(f"{name}: expected a non-negative integer, got {getattr(info, name)}")
    if info.features.width not in (None, info.num_features):
        raise ValueError(f"features: have {info.features.width} columns, but num_features is {info.num_features}")


def _read_metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, "pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except SafetensorError as error:
        raise UserError(
            f"{path}: is not a run folder or an export of 'joao export', or is damaged ({error})."
        ) from error
    version = metadata.get(FILE_FORMAT_KEY, "")
    if re.fullmatch("[0-9]{1,9}", version) is None:
        raise UserError(
            f"{path}: is not a run: it was not written by 'joao export'. Give a run folder or an exported file."
        )
    check_format(path, int(version), FILE_FORMAT)
    return metadata
