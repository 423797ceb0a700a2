"""The generated blocks by name. A block is regenerated from records or code by ``python -m repro docs``."""

import inspect
import json
import runpy
import textwrap
from collections.abc import Callable
from typing import Any

import typer.main

from joao.comparison.table import Comparison
from joao.config.recipe import KINDS, toml_value
from joao.data.features import CODE_RULES
from joao.data.formats import FORMATS
from joao.encoders import ENCODERS, Convolutions
from joao.encoders.base import PaddedEncoder
from joao.evaluation.tables import markdown
from joao.objectives import OBJECTIVES, PairObjective
from repro.documents import results_blocks, study_blocks
from repro.record_files import RECORDS
from repro.studies import cluster, neighbors, pair_losses, report_page
from repro.studies.common import read_record


def layers() -> str:
    """The layers of the package, from the list that the architecture test checks."""
    path = RECORDS.parents[1] / "tests/test_architecture.py"
    found = runpy.run_path(str(path))["LAYERS"]
    lines = [
        [str(number), f"`{folder}`", content]
        for number, rooms in enumerate(found, 1)
        for folder, content in rooms.items()
    ]
    return markdown(["layer", "folder", "content"], lines)


def objective_options() -> str:
    """Return the options of the objectives that compare two views, with their defaults."""
    lines = []
    for name, kind in OBJECTIVES.items():
        if issubclass(kind, PairObjective):
            options = inspect.signature(kind).parameters.values()
            lines.append(f"- `{name}`: " + ", ".join(f"`{each.name}` = {each.default!r}" for each in options))
    return "\n".join(lines)


def encoders() -> str:
    """Return a table of the encoders: input, options with their defaults, and the first sentence of each class."""
    words = {name: name.replace("_", " ").replace("ogb", "OGB") for name in KINDS}
    default_for = {kind["encoder"]: words[name] for name, kind in KINDS.items()}
    lines = []
    for name, kind in ENCODERS.items():
        options = {
            each.name: each.default
            for each in inspect.signature(kind).parameters.values()
            if each.name not in ("num_features", "num_edge_features")
        } | KINDS["graphs"].get(name, {})
        edges = "depend on the convolution" if kind is Convolutions else "used" if kind.uses_edge_attr else "ignored"
        lines.append(
            [
                f"`{name}`" + (f" (default for {default_for[name]})" if name in default_for else ""),
                "any" if kind.codes is None else words[CODE_RULES[kind.codes]],
                edges,
                ", ".join(f"`{option}` {toml_value(value)}" for option, value in options.items() if value is not None),
                "yes" if issubclass(kind, PaddedEncoder) else "",
                " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()),
            ]
        )
    return markdown(["name", "graphs", "edge attributes", "options and defaults", "fast path", "what it is"], lines)


def file_formats() -> str:
    """Return a table of the file formats, each with a link to its section in the page."""
    page = (RECORDS.parents[1] / "docs/data-formats.md").read_text(encoding="utf-8")
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    lines = []
    for each in FORMATS:
        heading = next(found for found in headings if found.lower().startswith(each.title.split()[0].lower()))
        files = ", ".join(f"`{suffix}`" for suffix in each.suffixes)
        folder = (
            f"folder with {', '.join(f'`{pattern}`' for pattern in each.folder_files)}" if each.folder_files else ""
        )
        lines.append([f"[{each.title}](#{heading.lower().replace(' ', '-')})", files, folder])
    return markdown(["format", "file", "folder"], lines)


def compare_mutag() -> str:
    """The table and the verdict that ``joao compare MUTAG`` prints."""
    record = json.loads((RECORDS / "compare-mutag.json").read_text(encoding="utf-8"))
    paragraphs = repr(Comparison(record)).split("\n\n")
    table = next(each for each in paragraphs if "accuracy" in each and "chance" in each)
    verdict = next(line for line in paragraphs[-1].splitlines() if line.startswith("Verdict"))
    return "\n".join(["```text", table, "", *textwrap.wrap(verdict, 100), "```"])


INTRODUCTION = (
    "Exit codes: 0 for success, 2 for wrong input, 130 after Ctrl-C, 143 after SIGTERM, 1 if one of several processes "
    "died, 70 for a bug, with the traceback in a file. `joao --version` shows the version. `joao COMMAND --help` shows "
    "the text of this page in the terminal."
)


def commands_page() -> str:
    """The text of the page, generated from the command line itself.

    Only attributes that old and new versions of typer share are used, so that the text does not depend on the version.
    """
    from joao.cli.main import app

    root: Any = typer.main.get_command(app)
    commands = {name: command for name, command in root.commands.items() if not command.hidden}
    overview = [[f"[`joao {name}`](#joao-{name})", _paragraphs(each.help)[0]] for name, each in commands.items()]
    sections = ["# Commands", INTRODUCTION, markdown(["command", "purpose"], overview)]
    for name, command in commands.items():
        sections += _sections(f"joao {name}", command, level=2)
    return "\n\n".join(sections) + "\n"


def _sections(path: str, command: Any, level: int) -> list[str]:
    """Heading, usage, help and tables of a command, then those of its subcommands."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    subcommands = getattr(command, "commands", {})
    usage = [path, *map(_argument, arguments), *(["COMMAND"] if subcommands else []), "[OPTIONS]"]
    sections = [f"{'#' * level} {path}", f"```text\n{' '.join(usage)}\n```", *_paragraphs(command.help)]
    if arguments:
        rows = [[f"`{each.metavar or each.name.upper()}`", _description(each)] for each in arguments]
        sections.append(markdown(["argument", "description"], rows))
    if options:
        rows = [[_flags(each), _description(each), _default(each)] for each in options]
        sections.append(markdown(["option", "description", "default"], rows))
    for name, subcommand in subcommands.items():
        sections += _sections(f"{path} {name}", subcommand, level + 1)
    return sections


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (text or "").replace("\b\n", "").split("\n\n")]


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _flags(option: Any) -> str:
    names = sorted([*option.opts, *option.secondary_opts], key=lambda name: not name.startswith("--"))
    value = "" if option.is_flag else f" {option.metavar or option.opts[0].split('-')[-1].upper()}"
    return f"`{', '.join(names)}{value}`"


def _description(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    parts = [
        " ".join((parameter.help or "").split()),
        "Required." if is_option and parameter.required else "",
        "Can be repeated." if is_option and parameter.multiple else "",
        f"Environment variable: `{parameter.envvar}`." if parameter.envvar else "",
    ]
    return " ".join(filter(None, parts))


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    return "" if option.default is None or isinstance(option.default, bool | list | tuple) else str(option.default)


BLOCKS: dict[str, Callable[[], str]] = {
    "objective-options": objective_options,
    "layers": layers,
    "encoders": encoders,
    "file-formats": file_formats,
    "commands": lambda: commands_page().rstrip("\n"),
    "compare-mutag": compare_mutag,
    "results-overview": results_blocks.results_overview,
    "results-findings": results_blocks.results_findings,
    "summary-unsupervised": results_blocks.summary_unsupervised,
    "summary-semi-supervised": results_blocks.summary_semi_supervised,
    "summary-transfer": results_blocks.summary_transfer,
    "summary-ogb": results_blocks.summary_ogb,
    "speed": study_blocks.speed,
    "performance-targets": study_blocks.performance_targets,
    "performance-cpu": study_blocks.performance_cpu,
    "performance-molecules": study_blocks.performance_molecules,
    "performance-rivals": study_blocks.performance_rivals,
    "performance-gpu-kernels": study_blocks.performance_gpu_kernels,
    "performance-gpu": study_blocks.performance_gpu,
    "performance-roofline": study_blocks.performance_roofline,
    "performance-finetuning": study_blocks.performance_finetuning,
    "performance-growth": study_blocks.performance_growth,
    "performance-reading": study_blocks.performance_reading,
    "strengths-findings": study_blocks.strengths_findings,
    "pair-losses": lambda: study_blocks.tables_of(pair_losses.page(read_record("pair-losses"))),
    "report-size": lambda: study_blocks.tables_of(report_page.page(read_record("report-page"))),
    "bundled-models": study_blocks.bundled_models,
    "default-candidates": study_blocks.default_candidates,
    "default-criteria": study_blocks.default_criteria,
    "default-averages": study_blocks.default_averages,
    "new-default": study_blocks.new_default,
    "shards-memory": study_blocks.shards_memory,
    "processes-speed": study_blocks.processes_speed,
    "cluster": lambda: cluster.figures(read_record("cluster")),
    "several-gpus": study_blocks.several_gpus,
    "neighbors": neighbors.block,
    "molecule-answers": study_blocks.molecule_answers,
}
