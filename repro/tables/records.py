"""The records of the four tables of the paper."""

from collections.abc import Callable
from pathlib import Path

from repro.protocols.ogb import run as ogb
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.transfer import run as transfer
from repro.protocols.unsupervised import run as unsupervised
from repro.record_files import Record, RecordFile

FILES: dict[str, Callable[[Path], RecordFile]] = {
    "unsupervised": unsupervised.record_file,
    "semi-supervised": semi_supervised.record_file,
    "transfer": transfer.record_file,
    "ogb": ogb.record_file,
}


def read_records(protocol: str, folder: Path) -> list[Record]:
    """Return all records of a protocol in a folder."""
    return FILES[protocol](folder).read()
