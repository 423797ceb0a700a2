"""Fuzz targets for trained models and results: run folders, exported files, reports, and records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.torch import save

import joao
from fuzz.targets import Target, _write, join_parts, split_parts
from joao.comparison.record import Plan, compute, start_record
from joao.comparison.table import Comparison
from joao.core.errors import UserError
from joao.data.dataset import Dataset
from joao.data.synthetic import random_graphs
from joao.report.rendering import render
from joao.report.reported_run import open_reported_run
from joao.runs.export import export
from joao.runs.folder import CHECKSUM_KEY
from joao.runs.scoring import evaluate
from repro.record_files import RECORDS
from repro.tables.pages import PAGES

_GRAPHS = random_graphs(12, mean_nodes=4, seed=1)
_TEXTS = ("recipe.toml", "run.json", "metrics.jsonl", "finetune.json")


def use(path: Path) -> None:
    """Load a run, show it, and embed graphs or predict their classes."""
    model = joao.load(path, device="cpu")
    model._repr_html_()
    if hasattr(model, "predict"):
        assert len(model.predict(_GRAPHS)) == len(_GRAPHS)
        return
    _ = str(model.policy_) if model.trained_.metrics else ""
    assert np.isfinite(model.transform(_GRAPHS)).all()


def _folder_of(files: dict[str, bytes]) -> Target:
    """A run folder with some texts replaced."""

    def run(data: bytes, folder: Path) -> None:
        _write(folder / "run", {**files, **{name: part for name, part in split_parts(data).items() if name in files}})
        use(folder / "run")

    texts = {name: content for name, content in files.items() if name in _TEXTS}
    return Target(run, (join_parts(texts), *(join_parts({name: content}) for name, content in texts.items())))


def _as_it_is(data: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(data)
    use(folder / "model.safetensors")


def _file_of(file: Path) -> Target:
    """An exported run with some texts replaced and unchanged weights."""
    with safe_open(file, "pt") as opened:
        metadata, tensors = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    texts = {name: text.encode() for name, text in metadata.items() if name != CHECKSUM_KEY}

    def run(data: bytes, folder: Path) -> None:
        changed = {name: part.decode("utf-8", "replace") for name, part in split_parts(data).items() if name in texts}
        _as_it_is(save(tensors, {**metadata, **changed}), folder)

    return Target(run, tuple(join_parts({name: texts[name]}) for name in _TEXTS if name in texts))


def _reported(files: dict[str, bytes], evaluation: bytes) -> Target:
    """The report on a run folder with some texts replaced, beside the unchanged one."""

    def no_graphs(source: str, columns: Mapping[str, Any]) -> Dataset:
        raise UserError("no graphs")

    def run(data: bytes, folder: Path) -> None:
        _write(folder / "one", {**files, "evaluation.json": evaluation})
        _write(folder / "two", {**files, **{name: part for name, part in split_parts(data).items() if name in texts}})
        render([open_reported_run(folder / name, name, no_graphs, 10) for name in ("one", "two")])

    texts = {name: content for name, content in files.items() if name in _TEXTS}
    texts["evaluation.json"] = evaluation
    return Target(run, (join_parts(texts), *(join_parts({name: content}) for name, content in texts.items())))


def _compared(folder: Path) -> Target:
    """A record of ``joao compare`` that is continued."""
    plan = Plan(("joao", "histogram", "ldp"), 1, 2, 1, "cpu")
    compute(_GRAPHS, plan, folder / "record.json")

    def run(data: bytes, folder: Path) -> None:
        (folder / "record.json").write_bytes(data)
        record = start_record(_GRAPHS, plan, folder / "record.json")
        _ = repr(Comparison(record))

    return Target(run, ((folder / "record.json").read_bytes(),))


def _cells() -> Target:
    """Records of a table of the paper."""

    def run(data: bytes, folder: Path) -> None:
        (folder / "unsupervised.jsonl").write_bytes(data)
        PAGES["unsupervised"](folder)

    lines = [line for line in (RECORDS / "unsupervised.jsonl").read_bytes().splitlines(True) if b'"MUTAG"' in line[:40]]
    chosen = [line for line in lines if b'"joao"' in line[:80] or b'"wl"' in line[:80]]
    return Target(run, (b"".join(chosen[:2]),))


def _made() -> dict[str, Target]:
    with TemporaryDirectory() as place:
        folder = Path(place)
        trained = joao.JOAO(epochs=2, device="cpu").fit(_GRAPHS)
        trained.save(folder / "run")
        joao.JOAOClassifier(trained, epochs=2, device="cpu").fit(_GRAPHS).save(folder / "tuned")
        exported = export(folder / "tuned", folder / "model.safetensors").file
        runs, tuned = (
            {path.name: path.read_bytes() for path in sorted((folder / name).iterdir()) if path.is_file()}
            for name in ("run", "tuned")
        )
        return {
            "run": _folder_of(runs),
            "finetuned_run": _folder_of(tuned),
            "exported": _file_of(exported),
            "exported_as_it_is": Target(_as_it_is, (exported.read_bytes(),)),
            "report": _reported(runs, json.dumps(evaluate(trained.trained_, _GRAPHS, num_folds=2)).encode()),
            "finetuned_report": _reported(tuned, json.dumps(evaluate(trained.trained_, _GRAPHS, num_folds=2)).encode()),
            "compare_record": _compared(folder),
            "paper_record": _cells(),
        }


TARGETS = _made()
