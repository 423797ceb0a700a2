"""Where the studies keep their records and pages."""

from __future__ import annotations

import json
from typing import Any

from joao.core.files import write_file, write_json
from repro.record_files import RECORDS

PAGES = RECORDS.parents[1] / "docs/results"


def read_record(name: str) -> dict[str, Any]:
    """Return the record of a study."""
    record: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    return record


def has_record(name: str) -> bool:
    return (RECORDS / f"{name}.json").exists()


def write_record(name: str, record: dict[str, Any]) -> None:
    """Write the record of a study."""
    write_json(RECORDS / f"{name}.json", record)


def write_page(name: str, text: str) -> None:
    """Write the page of a study."""
    write_file(PAGES / f"{name}.md", text)
