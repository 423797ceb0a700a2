"""Export a finished run as one file, with a model card.

The file is in the safetensors format: tensors and text, no code. It contains the weights that are needed to embed or
predict, and the text of the run's other files as metadata (:mod:`joao.runs.folder`). It can be used wherever a run
folder can. The model card is stored in it as ``card.md``, and next to it.
"""

import copy
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from joao.config.recipe import Part, toml_value
from joao.core.errors import UserError, escape_control, join_names, short_repr
from joao.core.files import check_new_file, read_regular, write_file
from joao.core.graphs import GraphStore
from joao.core.memory import Budget
from joao.core.provenance import strip_absolute_path
from joao.core.randomness import numpy_generator
from joao.data.features import CODE_RULES, Features, make_store
from joao.data.formats.packed import make_header
from joao.data.synthetic import random_graphs
from joao.evaluation.tables import markdown, plain_text
from joao.runs.finetuning import FILE, FinetunedModel, load_finetuned
from joao.runs.folder import CHECKSUM_KEY, FILE_FORMAT, FILE_FORMAT_KEY, Run, checksum, read_text
from joao.runs.trained import TrainedEncoder, bundled_model_path, bundled_models, load_run
from joao.training.model import embed

CARD = "card.md"
HALF_CHANGE = "half_change"


@dataclass(frozen=True)
class Exported:
    """The result of :func:`export`: the two files, the size of ``file``, and the model."""

    file: Path
    card: Path
    num_bytes: int
    half_change: float | None  # largest relative change of an embedding; None without half precision
    trained: TrainedEncoder
    finetuned: FinetunedModel | None


def export(run: Path, out: Path, *, half: bool = False) -> Exported:
    """Write a finished run as one file, and a model card next to it.

    Args:
        run: run folder, or an exported file.
        out: file to write, ``.safetensors``; the card has the same name with ``.md``.
        half: whether to store the encoder's matrices in half precision; always so if ``run`` is a file with half
            precision. Vectors keep single precision: they are small, and variances may exceed the range of half
            precision. So does the output layer, which has the units of the labels.
    """
    if out.suffix != ".safetensors":
        raise UserError(f"{out}: unknown file type '{out.suffix}'. Use .safetensors.")
    check_new_file(out)
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
    if finetuned is not None and finetuned.info.source:
        fields = json.loads(texts[FILE])
        fields["info"]["source"] = strip_absolute_path(finetuned.info.source)
        texts[FILE] = json.dumps(fields)
    content = _sort_metadata(save(weights, texts))
    card_file = out.with_suffix(".md")
    # The card first, so that no model is without; the same card was left by a process that was killed here.
    if not card_file.is_file() or read_regular(card_file) != card.encode():
        write_file(card_file, card, new=True)
    try:
        write_file(out, content, new=True)
    except BaseException:
        if not out.exists():
            card_file.unlink(missing_ok=True)
        raise
    return Exported(out, card_file, len(content), change, trained, finetuned)


def _sort_metadata(content: bytes) -> bytes:
    """Sort the metadata of a safetensors file by name, because safetensors writes it in random order."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    metadata = dict(sorted(header.pop("__metadata__").items()))
    return make_header(metadata, header) + content[8 + size :]


def _stored_half_change(run: Path) -> float | None:
    text = read_text(run, HALF_CHANGE) if run.is_file() else None
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise UserError(f"{run}: is damaged ({HALF_CHANGE}: expected a number, got {short_repr(text)}).") from error


def _to_half(value: Tensor) -> Tensor:
    r"""Convert a matrix to half precision if no row and no column changes by more than :math:`2^{-11}` of its length.

    Rounding changes a number by at most this share, unless it is outside the normal range of half precision.
    """
    if value.dtype != torch.float32 or value.dim() < 2:
        return value
    half, exact = value.half(), value.flatten(1).double()
    error = half.flatten(1).double() - exact
    is_close = [bool((error.norm(dim=dim) <= 2**-11 * exact.norm(dim=dim)).all()) for dim in (0, 1)]
    return half if all(is_close) else value


@torch.no_grad()
def _measure_half_change(trained: TrainedEncoder, weights: Mapping[str, Tensor]) -> float:
    r"""Compute the largest :math:`\lVert z' - z \rVert / \lVert z \rVert` by ``weights``, over random graphs."""
    encoder = copy.deepcopy(trained.encoder)
    encoder.load_state_dict({name: weights[f"encoder.{name}"] for name in encoder.state_dict()})
    store = _random_graphs(trained)
    before, after = embed(trained.encoder, store), embed(encoder, store)
    change = (after - before).norm(dim=1) / before.norm(dim=1).clamp(min=1e-12)
    return float(change.max())


def _random_graphs(trained: TrainedEncoder) -> GraphStore:
    """Make 64 random graphs with the columns of the encoder: one-hot, or codes of common atoms and bonds."""
    info = trained.info
    random = numpy_generator(0, "made graphs")
    graphs = random_graphs(64, num_node_labels=0, num_classes=0)
    nodes, edges = graphs.num_nodes, len(graphs.source)
    columns = nodes * info.num_features + edges * info.num_edge_features
    Budget(info.data).take(8 * columns, "columns of 64 random graphs")
    if info.features.rule == "atoms":
        x = np.stack([random.choice([5, 6, 7, 8, 15, 16], nodes), random.integers(0, 3, nodes)], axis=1)
        attr = np.stack([random.integers(0, 4, edges), random.integers(0, 3, edges)], axis=1)
    elif info.features.rule in CODE_RULES:
        x = random.integers(0, 20, (nodes, info.num_features))
        attr = random.integers(0, 2, (edges, info.num_edge_features))
    else:
        x = np.zeros((nodes, info.num_features), dtype=np.uint8)
        x[np.arange(nodes), random.integers(0, info.num_features, nodes)] = 1
        attr = random.integers(0, 2, (edges, info.num_edge_features))
    of_edges = torch.from_numpy(attr.astype(np.uint8 if trained.encoder.codes else np.float32)) if attr.size else None
    store = make_store(graphs, Features("constant"))
    return replace(store, x=torch.from_numpy(x.astype(np.uint8)), edge_attr=of_edges)


_KINDS = {"classes": "a class", "binary": "binary tasks", "numbers": "numbers"}
_PARTS = {"validation": ", which chose the epoch and are therefore not a test"}
# What the columns of molecules describe, by the rule of the node features.
_ATOMS_AND_BONDS = {
    "atoms": "Atoms are described by element and chirality, bonds by type and direction. Charges, isotopes, hydrogen "
    "counts and 3D coordinates are not used.",
    "ogb_atoms": "Atoms are described by element, chirality, degree, charge, hydrogens, radical electrons, "
    "hybridisation, aromaticity and rings, bonds by type, stereochemistry and conjugation. Isotopes and 3D coordinates "
    "are not used.",
}
_STATE_IT = "State it when you distribute this file."
_NEW_ELEMENTS = "Elements that do not occur in the pre-training data keep their initial vector."
_STANDARDISED = (
    "Molecules were standardised (RDKit's charge parent: largest fragment, neutralised), and joao does the same with "
    "those that it embeds or predicts."
)


def model_card(
    name: str, trained: TrainedEncoder, *, finetuned: FinetunedModel | None = None, half_change: float | None = None
) -> str:
    """Write the model card of the exported file ``name`` in Markdown: the model, its training data, use and limits."""
    name = " ".join(name.split())
    parts = [
        f"# {plain_text(name)}",
        _summary(trained, finetuned),
        _facts(trained),
        "## Use",
        *_use(name, trained, finetuned),
    ]
    parts += ["## Augmentations", _augmentations(trained), "## Limits", _limits(trained, finetuned, half_change)]
    text = "\n\n".join([*parts, "## Origin", _origin(trained)]) + "\n"
    # All texts of runs are untrusted and pass plain_text; a terminal would obey control characters in the others.
    return escape_control(text)


def _summary(trained: TrainedEncoder, finetuned: FinetunedModel | None) -> str:
    info = trained.info
    graphs = "molecules" if info.codes else "graphs"
    learned = "pre-trained without labels" if info.pretrained else "with calibrated initial weights"
    lines = [f"An encoder of {graphs}, {learned} on {info.num_graphs:,} {graphs} ({plain_text(info.data)})."]
    if finetuned is not None:
        facts, names = finetuned.info, finetuned.tasks or finetuned.class_names
        training = f"{facts.num_train:,} {graphs} for training, {facts.num_validation:,} for validation"
        beginning = "It was then fine-tuned on labels of"
        if finetuned.members:
            training = f"{facts.num_train + facts.num_validation:,} {graphs} for training"
            beginning = (
                "The file has an ensemble with it, the mean of forests on ECFP and on descriptors and of kernel ridge "
                "regression on its embeddings and ECFP; the encoder is unchanged. The ensemble was trained on labels of"
            )
        lines.append(
            f"{beginning} {plain_text(facts.data)} and predicts {_KINDS[finetuned.kind]} "
            f"({plain_text(join_names(names))}). {plain_text(facts.split.capitalize())} split: {training}"
            + (f", {facts.num_test:,} for testing." if facts.num_test else ".")
        )
    return " ".join(lines)


def _facts(trained: TrainedEncoder) -> str:
    recipe, info, schedule = trained.recipe, trained.info, trained.recipe.training
    training = (
        f"{schedule.epochs} epochs, batches of {schedule.batch_size}, learning rate {schedule.learning_rate}, "
        f"seed {schedule.seed}, {info.precision}"
    )
    num_parameters = sum(each.numel() for each in trained.encoder.parameters())
    rows = [
        ["encoder", f"{_describe_part(recipe.encoder)}: {num_parameters:,} parameters"],
        ["embedding", f"{trained.encoder.embedding_size} dimensions"],
        ["node features", info.features.rule],
        ["data", f"{info.data}, {info.num_graphs:,} graphs, fingerprint {info.fingerprint}"],
    ]
    if info.pretrained:
        rows += [
            ["objective", _describe_part(recipe.objective)],
            ["policy", _describe_part(recipe.policy)],
            ["heads", f"{_describe_part(recipe.heads)}, not included"],
            *([["targets", f"{toml_value(recipe.targets)}, not included"]] if recipe.targets else []),
            ["training", training],
        ]
    if info.codes:
        rows.append(["featuriser", info.featuriser or f"codes {info.codes}"])
    return markdown(["", ""], [[name, plain_text(value)] for name, value in rows])


def _use(name: str, trained: TrainedEncoder, finetuned: FinetunedModel | None) -> Sequence[str]:
    graphs = '["CCO", "c1ccccc1"]' if trained.info.codes else 'joao.read("graphs.jsonl")'
    data = "molecules.csv" if trained.info.codes else "graphs.jsonl"
    call, command = ("transform", "embed") if finetuned is None else ("predict", "predict")
    python = (
        f"import joao\n\nmodel = joao.load({json.dumps(name, ensure_ascii=False)})\nresult = model.{call}({graphs})"
    )
    shell = f"joao {command} {shlex.quote(name)} {data} --out {command}.csv"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", name)), default=0))
    return f"{fence}python\n{python}\n{fence}", f"{fence}\n{shell}\n{fence}"


def _augmentations(trained: TrainedEncoder) -> str:
    if not trained.metrics:
        return "None: the encoder was not pre-trained."
    if len(trained.info.pool) == 1:
        return f"Every graph was augmented by {plain_text(trained.info.pool[0])}."
    top, drawn = trained.policy.top(5), trained.drawn
    rows = [[plain_text(f"{first} + {second}"), f"{p:.3f}", f"{drawn[first, second]:.3f}"] for first, second, p in top]
    table = markdown(["pair", "probability", "share of training"], rows)
    return f"The most probable pairs at the end of training.\n\n{table}"


def _limits(trained: TrainedEncoder, finetuned: FinetunedModel | None, half_change: float | None) -> str:
    info = trained.info
    limits = []
    if finetuned is None or not finetuned.scores.get("test"):
        limits.append(
            f"The model was not evaluated on unseen graphs, neither of {plain_text(info.data)} nor of other data. "
            "Compare it with a simple baseline on your data."
        )
    if info.codes:
        limits += [_ATOMS_AND_BONDS[info.features.rule]] if info.features.rule in _ATOMS_AND_BONDS else []
        limits += [_NEW_ELEMENTS, *([_STANDARDISED] if info.standardised else [])]
    for part, figures in ({} if finetuned is None else finetuned.scores).items():
        # The means over tasks, without the figures of single tasks.
        means = {name: value for name, value in (figures or {}).items() if isinstance(value, float)}
        shown = plain_text(", ".join(f"{name} {value:.4g}" for name, value in means.items())) or "none"
        limits.append(f"Score on the {plain_text(part)} graphs{_PARTS.get(part, '')}: {shown}.")
    if half_change is not None:
        limits.append(
            "The matrices of the encoder are stored in half precision. On 64 random graphs this changes embeddings by "
            f"up to {half_change:.2g} of their length."
        )
    limits.append(
        _bundled_licence(info.fingerprint)
        or f"Licence of the data ({plain_text(info.data)}): not recorded. {_STATE_IT}"
    )
    if finetuned is not None:
        limits.append(f"Licence of the labelled data ({plain_text(finetuned.info.data)}): not recorded. {_STATE_IT}")
    return "\n".join(f"- {line}" for line in limits)


def _bundled_licence(fingerprint: str) -> str | None:
    """What the model card of a bundled model that learned from these graphs says about their licence."""
    for path in map(bundled_model_path, bundled_models()):
        card = path.with_suffix(".md")
        if card.is_file() and Run.open(path).info.fingerprint == fingerprint:
            line = re.search(r"^- (Licence of the data: .+)$", read_regular(card).decode(), re.MULTILINE)
            return line and line[1]
    return None


def _origin(trained: TrainedEncoder) -> str:
    info = trained.info
    facts = {
        "Command": info.command,
        "Versions": ", ".join(f"{name} {version}" for name, version in info.versions.items()),
        "Machine": ", ".join(f"{name}: {value}" for name, value in info.machine.items()),
    }
    return "  \n".join(f"{what}: {plain_text(text)}" for what, text in facts.items())


def _describe_part(part: Part) -> str:
    options = ", ".join(f"{name} = {toml_value(value)}" for name, value in part.options.items() if value is not None)
    return f"{part.name} ({options})" if options else part.name
