r"""Makes a record again and says what differs.

On the machine and with the versions of a record, everything is the same bit for bit. On another processor sums round
differently, and training amplifies that: the loss of the first epoch still agrees to six digits, those of later epochs
to a few percent, and then other graphs are classified rightly. So much is allowed:

- the same graphs, recipe and folds;
- the loss of the first epoch: :data:`FIRST_LOSS`, of later ones :data:`LATER_LOSSES`, as shares of the largest loss;
  a GPU draws other random numbers than a CPU, so between them the first loss is allowed what later ones are;
- mean accuracy: two standard errors of an accuracy that is measured on so many graphs,
  :math:`2 \sqrt{p (1 - p) / n}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised.run import Cell, compute, record_file

FIRST_LOSS = 1e-5
LATER_LOSSES = 0.1


@dataclass(frozen=True)
class Finding:
    """One thing that was compared.

    Attributes:
        what: in words.
        recorded, found: as a person reads them.
        difference: of numbers; of other things 0 or infinite.
        allowed: how large it may be.
    """

    what: str
    recorded: str
    found: str
    difference: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the difference is allowed; nan never is."""
        return self.difference <= self.allowed

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "DIFFERS"


def check_record(records: Path, key: str, *, data_root: str | None, device: str = "auto") -> list[Finding]:
    """Compute the cell of a record again and compare.

    Args:
        records: folder of the records.
        key: of a record of the unsupervised table, such as ``MUTAG/joao-0``.
        data_root, device: as in :class:`repro.protocols.cells.RunOptions`.
    """
    record = record_file(records)[key]
    cell = Cell(**record["cell"])
    return list(compared(record, compute(cell, dataset_of(cell.dataset, data_root), device=device)))


def compared(record: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[Finding]:
    """What two records of one cell have in common, or not."""
    again = json.loads(json.dumps(again))
    for key in ("recipe", "baseline"):
        if record.get(key) or again.get(key):
            yield _same(key, record.get(key), again.get(key), hidden=True)
    yield _same("graphs", record["data"]["fingerprint"], again["data"]["fingerprint"])
    yield _same("folds", _folds(record), _folds(again))
    if "losses" in record:
        device, device_again = (each.get("machine", {}).get("device") for each in (record, again))
        yield from _losses(record["losses"], again["losses"], FIRST_LOSS if device == device_again else LATER_LOSSES)
    accuracy, accuracy_again = record["scores"]["mean"], again["scores"]["mean"]
    error = math.sqrt(accuracy * (1 - accuracy) / record["data"]["graphs"])
    yield _near("mean accuracy", accuracy, accuracy_again, abs(accuracy - accuracy_again), 2 * error)


def _folds(record: Mapping[str, Any]) -> str:
    return " ".join(part["fold_hash"] for part in record["scores"]["partitions"])


def _losses(recorded: list[float], found: list[float], first: float) -> Iterator[Finding]:
    yield _same("epochs", str(len(recorded)), str(len(found)))
    largest = max(map(abs, recorded))
    shares = [abs(one - other) / largest for one, other in zip(recorded, found, strict=False)]
    yield _near("loss, epoch 1", recorded[0], found[0], shares[0], first)
    if len(shares) > 1:
        worst = max(range(1, len(shares)), key=shares.__getitem__)
        yield _near(f"loss, epoch {worst + 1} (worst)", recorded[worst], found[worst], shares[worst], LATER_LOSSES)


def _same(what: str, recorded: Any, found: Any, hidden: bool = False) -> Finding:
    difference = 0.0 if recorded == found else math.inf
    if hidden:
        return Finding(what, "as recorded", "another" if difference else "as recorded", difference, 0.0)
    return Finding(what, recorded, found, difference, 0.0)


def _near(what: str, recorded: float, found: float, difference: float, allowed: float) -> Finding:
    return Finding(what, f"{recorded:.6f}", f"{found:.6f}", difference, allowed)
