"""The models that come with the package.

A trained encoder as one file, to be passed on: ``joao export`` writes it, :func:`load` reads it.

The file is safetensors: tensors and text, nothing that runs. It has the weights that embed or predict, and the
texts of the run's other files as metadata (:mod:`joao.runs.folder`), so that it is taken wherever the folder of a run is. Its
model card is in it as ``card.md``, and beside it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from joao.core.errors import UserError
from joao.core.files import check_new_file, write_file
from joao.core.graphs import GraphStore
from joao.core.provenance import strip_absolute_path
from joao.core.randomness import numpy_generator
from joao.data.features import CODE_RULES, Features, make_store
from joao.data.formats.packed import make_header
from joao.data.synthetic import random_graphs
from joao.estimators.classifier import JOAOClassifier
from joao.estimators.joao import JOAO
from joao.estimators.regressor import JOAORegressor
from joao.runs.finetuned import FILE, load_finetuned, read_label_kind
from joao.runs.folder import FILE_FORMAT, FILE_FORMAT_KEY, Run, read_text
from joao.runs.model_card import model_card
from joao.runs.tensor_files import CHECKSUM_KEY, checksum
from joao.runs.trained import TrainedEncoder, load_run, model_path
from joao.training.model import embed

CARD = "card.md"
HALF_CHANGE = "half_change"


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        file, card: the two files.
        num_bytes: of the first.
        half_change: by how much half precision changes an embedding at most; None where it is not used.
        trained: what was exported.
    """

    file: Path
    card: Path
    num_bytes: int
    half_change: float | None
    trained: TrainedEncoder


def export(run: Path, out: Path, *, half: bool = False) -> Exported:
    """Makes one file of a finished run, and a model card beside it.

    Args:
        run: its folder, or a file made earlier.
        out: to be written, ``.safetensors``; the card has the same name and ``.md``.
        half: whether to keep the encoder's matrices in half precision, as those of a file made so are in any case.
            Vectors, of which there are few numbers, stay as they are: the variances among them may be too small or too
            large for it. So does the linear layer that predicts, whose numbers have the unit of the labels.
    """
    if out.suffix != ".safetensors":
        raise UserError(f"{out}: unknown kind of file '{out.suffix}'. Use .safetensors.")
    for path in (out, out.with_suffix(".md")):
        check_new_file(path)
    opened = Run.open(run)
    finetuned = load_finetuned(run, device="cpu") if opened.info.finetuned_on else None
    trained = load_run(run, device="cpu") if finetuned is None else finetuned.trained
    weights = {name: value.contiguous() for name, value in trained.weights.items() if not name.startswith("heads.")}
    change = _stored_half_change(run)
    if half or change is not None:
        weights = {name: _to_half(value) if name.startswith("encoder.") else value for name, value in weights.items()}
        change = _measure_half_change(trained, weights) if change is None else change
    card = model_card(out.name, trained, finetuned=finetuned, half_change=change)
    texts = {
        FILE_FORMAT_KEY: str(FILE_FORMAT),
        CHECKSUM_KEY: checksum(weights),
        "recipe.toml": replace(opened.recipe, data=strip_absolute_path(opened.recipe.data)).toml(),
        CARD: card,
        **({} if change is None else {HALF_CHANGE: repr(change)}),
        **{name: text for name in ("run.json", "metrics.jsonl", FILE) if (text := read_text(run, name)) is not None},
    }
    content = _sort_metadata(save(weights, texts))
    write_file(out, content)
    write_file(out.with_suffix(".md"), card)
    return Exported(out, out.with_suffix(".md"), len(content), change, trained)


def load(model: str | Path, *, device: str = "auto") -> JOAO | JOAOClassifier | JOAORegressor:
    """A fitted estimator from a file of ``joao export``, the folder of a run, or the name of a model in the package.

    Args:
        model: an encoder gives a :class:`joao.JOAO`; a fine-tuned one a :class:`joao.JOAOClassifier` or, of numbers, a
            :class:`joao.JOAORegressor`.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.

    >>> import joao
    >>> joao.load("molecules", device="cpu").encoder_.num_dimensions
    300
    """
    path = model_path(model)
    if not Run.open(path).info.finetuned_on:
        return JOAO.load(path, device=device)
    if read_label_kind(path) in JOAORegressor.kinds:
        return JOAORegressor.load(path, device=device)
    return JOAOClassifier.load(path, device=device)


def _sort_metadata(content: bytes) -> bytes:
    """The same file with its metadata in the order of their names: safetensors writes them in any order."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    metadata = dict(sorted(header.pop("__metadata__").items()))
    return make_header(metadata, header) + content[8 + size :]


def _stored_half_change(run: Path) -> float | None:
    """Of a file made with half precision, by how much that changed an embedding at most."""
    text = read_text(run, HALF_CHANGE) if run.is_file() else None
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise UserError(f"{run}: is damaged ({HALF_CHANGE}: {error}).") from error


def _to_half(value: Tensor) -> Tensor:
    r"""A matrix in half precision, if that changes no row and no column by more than :math:`2^{-11}` of its length.

    This is the most that rounding changes a number, unless it is beyond the range of half precision or so near 0 that
    fewer digits are left.
    """
    if value.dtype != torch.float32 or value.dim() < 2:
        return value
    half, exact = value.half(), value.flatten(1).double()
    error = half.flatten(1).double() - exact
    is_close = [bool((error.norm(dim=dim) <= 2**-11 * exact.norm(dim=dim)).all()) for dim in (0, 1)]
    return half if all(is_close) else value


@torch.no_grad()
def _measure_half_change(trained: TrainedEncoder, weights: Mapping[str, Tensor]) -> float:
    r"""The largest :math:`\lVert z' - z \rVert / \lVert z \rVert`, over made graphs, of embeddings with ``weights``."""
    encoder = copy.deepcopy(trained.encoder)
    encoder.load_state_dict({name: weights[f"encoder.{name}"] for name in encoder.state_dict()})
    store = _random_graphs(trained)
    before, after = embed(trained.encoder, store), embed(encoder, store)
    change = (after - before).norm(dim=1) / before.norm(dim=1).clamp(min=1e-12)
    return float(change.max())


def _random_graphs(trained: TrainedEncoder) -> GraphStore:
    """64 random graphs with the columns that the encoder takes: one-hot, or codes of common atoms and bonds."""
    info = trained.info
    random = numpy_generator(0, "made graphs")
    graphs = random_graphs(64, num_node_labels=0, num_classes=0)
    nodes, edges = graphs.num_nodes, len(graphs.source)
    if info.features.rule == "atoms":
        x = np.stack([random.choice([5, 6, 7, 8, 15, 16], nodes), random.integers(0, 3, nodes)], axis=1)
        attr = np.stack([random.integers(0, 4, edges), random.integers(0, 3, edges)], axis=1)
    elif info.features.rule in CODE_RULES:
        x = random.integers(0, 20, (nodes, info.num_features))
        attr = random.integers(0, 2, (edges, info.num_edge_features))
    else:
        x = np.eye(info.num_features, dtype=np.int64)[random.integers(0, info.num_features, nodes)]
        attr = random.integers(0, 2, (edges, info.num_edge_features))
    of_edges = torch.from_numpy(attr.astype(np.uint8 if trained.encoder.codes else np.float32)) if attr.size else None
    store = make_store(graphs, Features("constant"))
    return replace(store, x=torch.from_numpy(x.astype(np.uint8)), edge_attr=of_edges)
