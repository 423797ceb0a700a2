"""The page that goes with an exported encoder: what it is, what it learned from, how to use it, what is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from joao.config.recipe import Part, toml_value
from joao.core.errors import escape_control
from joao.evaluation.tables import markdown
from joao.runs.finetuned import FinetunedModel
from joao.runs.trained import TrainedEncoder

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
