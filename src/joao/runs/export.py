"""The models that come with the package.

A trained encoder as one file, to be passed on: ``joao export`` writes it, :func:`load` reads it.

The file is safetensors: tensors and text, nothing that runs. It has the weights that embed or predict, and the
texts of the run's other files as metadata (:mod:`joao.runs.folder`), so that it is taken wherever the folder of a run is. Its
model card is in it as ``card.md``, and beside it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from joao.config.recipe import Part, toml_value
from joao.core.errors import UserError, escape_control
from joao.core.files import check_new_file, write_file
from joao.core.graphs import GraphStore
from joao.core.provenance import strip_absolute_path
from joao.core.randomness import numpy_generator
from joao.data.features import CODE_RULES, Features, make_store
from joao.data.formats.packed import make_header
from joao.data.synthetic import random_graphs
from joao.evaluation.tables import markdown
from joao.runs.finetuning import FILE, FinetunedModel, load_finetuned
from joao.runs.folder import CHECKSUM_KEY, FILE_FORMAT, FILE_FORMAT_KEY, Run, checksum, read_text
from joao.runs.trained import TrainedEncoder, load_run
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


_KINDS = {"classes": "a class", "binary": "yes or no in tasks", "numbers": "numbers"}
_PARTS = {"validation": ", which chose the epoch and are therefore no test"}
_MOLECULES = (
    "An atom is its element and chirality, a bond its type and direction. Charges, isotopes, numbers of hydrogens and "
    "positions in space are not seen.",
    "An element that the pre-training data do not have keeps the vector it began with.",
)


def model_card(
    name: str, trained: TrainedEncoder, *, finetuned: FinetunedModel | None = None, half_change: float | None = None
) -> str:
    """The page as Markdown, from facts alone.

    Args:
        name: of the file.
        trained: what is in it.
        finetuned: of a fine-tuned one, what predicts.
        half_change: where matrices are kept in half precision, by how much that changes embeddings at most.
    """
    parts = [f"# {name}", _what(trained, finetuned), _facts(trained), "## Use", *_use(name, trained, finetuned)]
    parts += ["## Augmentations", _augmentations(trained), "## Limits", _limits(trained, finetuned, half_change)]
    text = "\n\n".join([*parts, "## Origin", _origin(trained)]) + "\n"
    # Names come from elsewhere: Markdown takes HTML, and a terminal what controls it.
    return escape_control(text).replace("<", "&lt;")


def _what(trained: TrainedEncoder, finetuned: FinetunedModel | None) -> str:
    info = trained.info
    graphs = "molecules" if info.codes else "graphs"
    learned = "pre-trained without labels" if info.pretrained else "with initial weights, calibrated"
    lines = [f"An encoder of {graphs}, {learned} on {info.num_graphs:,} {graphs} ({info.data})."]
    if finetuned is not None:
        facts, names = finetuned.info, finetuned.tasks or finetuned.class_names
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        lines.append(
            f"It was then fine-tuned on labels of {facts.data} and predicts {_KINDS[finetuned.kind]} ({shown}): "
            f"{facts.num_train:,} {graphs} to learn from, {facts.num_validation:,} others to choose the epoch"
            + (f", {facts.num_test:,} others to test ({facts.split} split)." if facts.num_test else ".")
        )
    return " ".join(lines)


def _facts(trained: TrainedEncoder) -> str:
    recipe, info = trained.recipe, trained.info
    schedule = recipe.training
    num_parameters = sum(each.numel() for each in trained.encoder.parameters())
    rows = [
        ["encoder", f"{_shown(recipe.encoder)}: {num_parameters:,} parameters"],
        ["embedding", f"{trained.encoder.num_dimensions} dimensions"],
        ["node features", info.features.rule],
        ["data", f"{info.data}, {info.num_graphs:,} graphs, fingerprint {info.fingerprint}"],
    ]
    if info.pretrained:
        rows += [
            ["objective", _shown(recipe.objective)],
            ["policy", _shown(recipe.policy)],
            ["heads", f"{_shown(recipe.heads)}, left out here"],
            [
                "training",
                f"{schedule.epochs} epochs, batches of {schedule.batch_size}, learning rate {schedule.learning_rate}, "
                f"seed {schedule.seed}, {info.precision}",
            ],
        ]
    if info.codes:
        rows.append(["featuriser", info.featuriser or f"codes {info.codes}"])
    return markdown(["", ""], rows)


def _use(name: str, trained: TrainedEncoder, finetuned: FinetunedModel | None) -> Sequence[str]:
    graphs = '["CCO", "c1ccccc1"]' if trained.info.codes else 'joao.read("graphs.jsonl")'
    data = "molecules.csv" if trained.info.codes else "graphs.jsonl"
    call = "predict" if finetuned is not None else "transform"
    python = f'```python\nimport joao\n\nmodel = joao.load("{name}")\nresult = model.{call}({graphs})\n```'
    command = "predict" if finetuned is not None else "embed"
    return python, f"```\njoao {command} {name} {data} --out {command}.csv\n```"


def _augmentations(trained: TrainedEncoder) -> str:
    if not trained.metrics:
        return "None: it was not pre-trained."
    if len(trained.info.pool) == 1:
        return f"Every graph was shown under {trained.info.pool[0]}."
    policy, drawn = trained.policy, trained.drawn
    rows = [[f"{first} + {second}", f"{p:.3f}", f"{drawn[first, second]:.3f}"] for first, second, p in policy.top(5)]
    table = markdown(["pair", "probability", "share of training"], rows)
    return f"The leading pairs at the end of training.\n\n{table}"


def _limits(trained: TrainedEncoder, finetuned: FinetunedModel | None, half_change: float | None) -> str:
    info = trained.info
    limits = []
    if finetuned is None or not finetuned.scores.get("test"):
        limits.append(
            f"How useful it is was not measured on graphs that it had not seen, neither of {info.data} nor of another "
            "kind. Compare with a simple baseline on data of your own."
        )
    limits += _MOLECULES if info.codes else ()
    for part, figures in ({} if finetuned is None else finetuned.scores).items():
        limits.append(f"Score on the {part} graphs{_PARTS.get(part, '')}: {_figures(figures)}.")
    if half_change is not None:
        limits.append(
            "Matrices of the encoder are kept in half precision. On 64 random graphs this changes embeddings by up to "
            f"{half_change:.2g} of their length."
        )
    limits.append(f"Licence of the data ({info.data}): to be filled in by whoever passes this file on.")
    return "\n".join(f"- {line}" for line in limits)


def _figures(figures: Mapping[str, Any] | None) -> str:
    """The means of a score, without those of single tasks."""
    means = {name: value for name, value in (figures or {}).items() if isinstance(value, float)}
    return ", ".join(f"{name} {value:.4g}" for name, value in means.items()) or "none"


def _origin(trained: TrainedEncoder) -> str:
    info = trained.info
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    machine = ", ".join(f"{name}: {value}" for name, value in info.machine.items())
    return f"Command: `{info.command}`  \nVersions: {versions}  \nMachine: {machine}"


def _shown(part: Part) -> str:
    options = ", ".join(f"{name} = {toml_value(value)}" for name, value in part.options.items() if value is not None)
    return f"{part.name} ({options})" if options else part.name
