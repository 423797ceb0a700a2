"""The records that a page is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.protocols.ogb import run as ogb
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.transfer import run as transfer
from repro.protocols.unsupervised import run as unsupervised

READERS = {
    "unsupervised": unsupervised.read_record,
    "semi-supervised": semi_supervised.read_record,
    "transfer": transfer.read_record,
    "ogb": ogb.read_record,
}


def read_records(protocol: str, folder: Path) -> list[dict[str, Any]]:
    """All of a protocol that lie in its folder, by their paths."""
    return [READERS[protocol](path) for path in sorted(folder.glob("*/*.json"))]
