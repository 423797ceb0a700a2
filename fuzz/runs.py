"""What is fuzzed of runs: the texts of their folders, and the file that ``joao export`` makes of one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors import safe_open
from safetensors.torch import save

import joao
from fuzz.targets import Target, _write, joined, parts_of
from joao.data.synthetic import random_graphs
from joao.runs.export import export
from joao.runs.folder import CHECKSUM_KEY

_GRAPHS = random_graphs(12, mean_nodes=4, seed=1)
_TEXTS = ("recipe.toml", "run.json", "metrics.jsonl", "finetune.json")


def use(path: Path) -> None:
    """Loads a run, shows it, and embeds graphs with it or predicts their classes."""
    model = joao.load(path, device="cpu")
    model._repr_html_()
    if hasattr(model, "predict"):
        assert len(model.predict(_GRAPHS)) == len(_GRAPHS)
        return
    _ = str(model.policy_) if model.trained_.metrics else ""
    assert np.isfinite(model.transform(_GRAPHS)).all()


def _folder_of(files: dict[str, bytes]) -> Target:
    """A run some of whose texts are others."""

    def run(data: bytes, folder: Path) -> None:
        _write(folder / "run", {**files, **{name: part for name, part in parts_of(data).items() if name in files}})
        use(folder / "run")

    texts = {name: content for name, content in files.items() if name in _TEXTS}
    return Target(run, (joined(texts), *(joined({name: content}) for name, content in texts.items())))


def _as_it_is(data: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(data)
    use(folder / "model.safetensors")


def _file_of(file: Path) -> Target:
    """An exported run some of whose texts are others, with the weights that belong to its checksum."""
    with safe_open(file, "pt") as opened:
        metadata, tensors = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    texts = {name: text.encode() for name, text in metadata.items() if name != CHECKSUM_KEY}

    def run(data: bytes, folder: Path) -> None:
        changed = {name: part.decode("utf-8", "replace") for name, part in parts_of(data).items() if name in texts}
        _as_it_is(save(tensors, {**metadata, **changed}), folder)

    return Target(run, tuple(joined({name: texts[name]}) for name in _TEXTS if name in texts))


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
        }


TARGETS = _made()
