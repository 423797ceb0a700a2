"""What the studies share: records, pages, options and scores."""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from joao.baselines.base import Rows
from joao.core.files import write_file, write_json
from joao.core.provenance import command, machine, versions
from joao.data import Dataset
from joao.evaluation.embeddings import Scores, evaluate_embeddings
from joao.runs.scoring import require_classes
from joao.training.device import pick_device
from repro.record_files import RECORDS

# The settings of `JOAO()` until 2026-11-18, for studies whose records have them.
OLDER_DEFAULT: dict[str, Any] = {"features": "auto", "encoder": {"name": "gin", "readout": "sum"}}
PAGES = RECORDS.parents[1] / "docs/results"


def read_record(name: str) -> dict[str, Any]:
    """Return the record of a study."""
    record: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    return record


def write_record(name: str, record: dict[str, Any]) -> None:
    """Write the record of a study."""
    write_json(RECORDS / f"{name}.json", record)


def read_or_start(name: str, **facts: Any) -> dict[str, Any]:
    """Return the record of a study, to be continued, or a new one with ``facts``."""
    return read_record(name) if (RECORDS / f"{name}.json").exists() else {**facts, **origin()}


def parse_options(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Parse the options of a study; an option has the type of its default or, without one, the given type."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        is_type = isinstance(default, type)
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=default if is_type else type(default), default=None if is_type else default)
    return parser.parse_args()


def origin() -> dict[str, Any]:
    """Return what the record of a study on a CPU says about its origin."""
    return {"command": command(), "versions": versions(), "machine": machine("cpu")}


def describe_origin(record: Mapping[str, Any]) -> str:
    """Return versions and machine of a record in words."""
    used, where = record["versions"], record["machine"]
    return (
        f"joao {used['joao']} (source {used['source']}), torch {used['torch']}, {where['processor']}, "
        f"{where['threads']} thread"
    )


def are_equal(weights: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    """Whether two runs have the same weights, bit for bit."""
    return weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in expected)


def score_rows(rows: Rows, dataset: Dataset, seed: int, device: str = "cpu", **options: Any) -> Scores:
    """Score the rows of all graphs of a data set by the protocol of the unsupervised table: seed s on partition s."""
    return evaluate_embeddings(
        rows,
        require_classes(dataset),
        class_names=dataset.class_names,
        partitions=[seed],
        device=pick_device(device).type,
        **options,
    )


def with_range(values: ArrayLike, form: str = ".2f", middle: Callable[..., Any] = np.mean) -> str:
    """
    >>> with_range([1.0, 2.0, 6.0])
    '3.00 (1.00 to 6.00)'
    """
    shown = (format(each, form) for each in (middle(values), np.min(values), np.max(values)))
    return "{} ({} to {})".format(*shown)


def generated(module: str, *, intervals: bool = False) -> str:
    """Return the first sentences of a page, with a link to the argument for its intervals if it has some."""
    link = " [How intervals are computed](../protocols.md#confidence-intervals)." if intervals else ""
    return (
        "Generated from `repro/records` by `python -m repro docs`. Do not edit. "
        f"Compute: `python -m repro.studies.{module}`.{link}"
    )


def make_page(title: str, *sections: str) -> str:
    """Return the text of a page. Empty sections are left out."""
    return "\n\n".join([f"# {title}", *filter(None, sections)]) + "\n"


def publish(name: str, record: dict[str, Any], page: Callable[[dict[str, Any]], str]) -> None:
    """Write the record of a study and its page."""
    write_record(name, record)
    write_page(name, page(record))


def write_page(name: str, text: str) -> None:
    """Write the page of a study."""
    write_file(PAGES / f"{name}.md", text)
