"""The generated blocks by name. A block is regenerated from records or code by ``python -m repro docs``."""

from __future__ import annotations

import inspect
import json
import runpy
import textwrap
from collections.abc import Callable

from joao.comparison.table import Comparison
from joao.evaluation.tables import markdown
from joao.objectives import OBJECTIVES, PairObjective
from repro.documents import results_blocks, study_blocks
from repro.documents.commands import commands_page
from repro.record_files import RECORDS


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


def compare_mutag() -> str:
    """The table and the verdict that ``joao compare MUTAG`` prints."""
    record = json.loads((RECORDS / "compare-mutag.json").read_text(encoding="utf-8"))
    paragraphs = repr(Comparison(record)).split("\n\n")
    table = next(each for each in paragraphs if "accuracy" in each and "chance" in each)
    verdict = next(line for line in paragraphs[-1].splitlines() if line.startswith("Verdict"))
    return "\n".join(["```text", table, "", *textwrap.wrap(verdict, 100), "```"])


BLOCKS: dict[str, Callable[[], str]] = {
    "objective-options": objective_options,
    "layers": layers,
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
    "performance-gpu": study_blocks.performance_gpu,
    "performance-roofline": study_blocks.performance_roofline,
    "performance-finetuning": study_blocks.performance_finetuning,
    "performance-growth": study_blocks.performance_growth,
    "performance-reading": study_blocks.performance_reading,
    "strengths-findings": study_blocks.strengths_findings,
    "pair-losses": study_blocks.pair_losses_table,
    "report-size": study_blocks.report_size,
    "bundled-models": study_blocks.bundled_models,
    "default-candidates": study_blocks.default_candidates,
    "default-criteria": study_blocks.default_criteria,
    "default-averages": study_blocks.default_averages,
    "shards-memory": study_blocks.shards_memory,
    "processes-speed": study_blocks.processes_speed,
}
