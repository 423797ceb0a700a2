r"""Makes a record of any protocol again and says what differs.

On the machine and with the versions of a record, everything is the same bit for bit. On another processor sums round
differently, and training amplifies that; a GPU also draws other random numbers than a CPU. How far results then differ
was measured: :mod:`repro.studies.remade` made records again and wrote the differences to ``remade.jsonl``. Allowed are

- no difference of settings, graphs and splits;
- :data:`FACTOR` times the root mean square of the measured differences of the loss of the first epoch, of the largest
  difference of later losses (as shares of the largest loss), and of the score. Scores are measured in standard errors
  :math:`\sqrt{p (1 - p) / n}` of the score :math:`p` on the :math:`n` graphs that it is measured on, so that a
  difference on a small data set speaks for larger ones.

Differences between two devices of the same kind and between a CPU and a GPU are measured and allowed separately. A
protocol with fewer than :data:`ENOUGH` measurements is allowed the largest spread of all. Repetitions on the processor
of the record are ignored: they hardly ever differ, and processors of the same name may be different ones.
"""

import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from joao.core.errors import UserError
from joao.training.device import pick_device
from repro.protocols.cells import RunOptions
from repro.protocols.ogb import run as ogb
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.transfer import run as transfer
from repro.protocols.unsupervised import run as unsupervised
from repro.record_files import RECORDS, Record, RecordFile

PROTOCOLS: dict[str, ModuleType] = {
    "unsupervised": unsupervised,
    "semi-supervised": semi_supervised,
    "transfer": transfer,
    "ogb": ogb,
}
FACTOR = 3.0
ENOUGH = 10  # measurements of a protocol that count alone
ROUNDING = 1e-5  # shares of the largest loss that are always allowed, whatever was measured
SETTINGS = ("protocol", "recipe", "custom", "baseline", "finetuning")


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


@dataclass(frozen=True)
class Spread:
    """Differences between a record and its repetition: shares of the largest loss, and standard errors of the score."""

    first_loss: float
    later_losses: float
    score: float


def find_record(records: Path, key: str) -> tuple[str, Record]:
    """Return the protocol of a key, such as ``MUTAG/joao-0`` or ``NCI1/joao-10-0``, and its record."""
    for protocol, module in PROTOCOLS.items():
        record = module.record_file(records).get(key)
        if record is not None:
            return protocol, record
    raise UserError(
        f"{records}: no record of {key}. Keys are DATA/METHOD-SEED (unsupervised), DATA/METHOD-LABELS-SEED "
        "(semi-supervised), DATA/METHOD (transfer) or DATA/METHOD-LABELS (OGB), as in its files."
    )


def remake(protocol: str, record: Record, options: RunOptions) -> Record:
    """Compute the cell of a record again. On a CPU the precision is that of a CPU.

    Rows of transfer with a pre-training take the encoder in ``options.encoders``, or pre-train one there.
    """
    module = PROTOCOLS[protocol]
    cell = module.Cell(**record["cell"])
    on_gpu = pick_device(options.device).type == "cuda"
    options = replace(options, precision=record.get("precision", "32-true") if on_gpu else "32-true")
    with tempfile.TemporaryDirectory() as folder:
        options = replace(options, records=Path(folder))
        if protocol == "ogb":  # its encoders are small, and an older one would not be made again
            options = replace(options, encoders=Path(folder) / "encoders")
        if protocol == "transfer":
            corpus = record["corpus"]  # older records have one with test molecules
            whole = corpus is not None and not corpus["data"].endswith(module.WITHOUT)
            list(module.pretrain_missing([cell.method], None, options, whole=whole))
        list(module.compute_missing([cell], options))
        file: RecordFile = module.record_file(options.records)
        return file[cell.key]


def check_record(records: Path, key: str, options: RunOptions) -> list[Finding]:
    """Compute the cell of a record again and compare.

    Args:
        records: folder of the records.
        key: of a record of any protocol, see :func:`find_record`.
        options: device, data and encoders. Nothing is written to its records.
    """
    protocol, record = find_record(records, key)
    again = remake(protocol, record, options)
    return list(compared(protocol, record, again, allowed_spread(protocol, compare_devices(record, again))))


def compared(protocol: str, record: Mapping[str, Any], again: Mapping[str, Any], allowed: Spread) -> Iterator[Finding]:
    """What two records of one cell have in common, or not."""
    again = json.loads(json.dumps(again))
    for key in SETTINGS:
        if record.get(key) or again.get(key):
            yield _same(key, record.get(key), again.get(key), hidden=True)
    yield _same("graphs", record["data"]["fingerprint"], again["data"]["fingerprint"])
    yield _same("splits", _splits(protocol, record), _splits(protocol, again))
    corpus, corpus_again = (each.get("corpus") or {} for each in (record, again))
    if corpus or corpus_again:
        yield _same("corpus", corpus.get("fingerprint", ""), corpus_again.get("fingerprint", ""))
    losses, losses_again = _losses(record), _losses(again)
    if losses or losses_again:
        yield _same("epochs", str(len(losses)), str(len(losses_again)))
        yield from _compared_losses(losses, losses_again, allowed)
    score, again_score = _score(record), _score(again)
    unit = _standard_error(protocol, record)
    yield _near("score", score, again_score, abs(score - again_score), allowed.score * unit)


def _compared_losses(recorded: Sequence[float], found: Sequence[float], allowed: Spread) -> Iterator[Finding]:
    shares = _loss_shares(recorded, found)
    if shares:
        yield _near("loss, epoch 1", recorded[0], found[0], shares[0], allowed.first_loss)
    if len(shares) > 1:
        worst = max(range(1, len(shares)), key=lambda epoch: math.inf if math.isnan(shares[epoch]) else shares[epoch])
        name = f"loss, epoch {worst + 1} (worst)"
        yield _near(name, recorded[worst], found[worst], shares[worst], allowed.later_losses)


def measure(protocol: str, record: Mapping[str, Any], again: Mapping[str, Any]) -> Spread:
    """Return by how much two records of one cell differ. Without losses, these differences are nan."""
    shares = _loss_shares(_losses(record), _losses(again))
    difference = abs(_score(record) - _score(again))
    return Spread(
        shares[0] if shares else math.nan,
        max(shares[1:], default=math.nan),
        difference / _standard_error(protocol, record),
    )


SAME, SAME_KIND, OTHER_KIND = "same processor", "same kind", "CPU and GPU"


def compare_devices(record: Mapping[str, Any], again: Mapping[str, Any]) -> str:
    """Return whether two records were made on the :data:`SAME` processor, devices of :data:`SAME_KIND` or not."""
    kinds, names = ([each.get("machine", {}).get(key) for each in (record, again)] for key in ("device", "processor"))
    if kinds[0] != kinds[1]:
        return OTHER_KIND
    gpus = [each.get("machine", {}).get("gpu") for each in (record, again)]
    return SAME if names[0] == names[1] and gpus[0] == gpus[1] else SAME_KIND


def allowed_spread(protocol: str, devices: str, remade: Iterable[Mapping[str, Any]] | None = None) -> Spread:
    """Return what may differ, from the measurements of :mod:`repro.studies.remade`.

    Args:
        protocol: of the record.
        devices: see :func:`compare_devices`.
        remade: the measurements; None: those of the repository.
    """
    lines = read_remade(RECORDS) if remade is None else list(remade)
    wanted = OTHER_KIND if devices == OTHER_KIND else SAME_KIND

    def allowed(what: str) -> float:
        measured = [line for line in lines if line["devices"] != SAME and line[what] is not None]
        by_protocol: dict[str, list[float]] = {}
        for line in [line for line in measured if line["devices"] == wanted] or measured:
            by_protocol.setdefault(line["protocol"], []).append(line[what])
        spreads = {name: math.sqrt(math.fsum(x * x for x in each) / len(each)) for name, each in by_protocol.items()}
        if len(by_protocol.get(protocol, ())) >= ENOUGH:
            return FACTOR * spreads[protocol]
        return FACTOR * max(spreads.values(), default=0.0)

    first, later = (max(ROUNDING, allowed(what)) for what in ("first loss", "later losses"))
    return Spread(first, later, allowed("score"))


def read_remade(folder: Path) -> list[dict[str, Any]]:
    """Return the measured differences."""
    path = folder / "remade.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _splits(protocol: str, record: Mapping[str, Any]) -> str:
    if protocol == "unsupervised":
        return " ".join(part["fold_hash"] for part in record["scores"]["partitions"])
    return str(record["split_hash"])


def _losses(record: Mapping[str, Any]) -> list[float]:
    """Losses of the pre-training; empty if there is none."""
    place = record.get("corpus") or record.get("pre-training") or record
    return list(place.get("losses", []))


def _loss_shares(recorded: Sequence[float], found: Sequence[float]) -> list[float]:
    largest = max(map(abs, recorded), default=0.0)
    return [abs(one - other) / largest for one, other in zip(recorded, found, strict=False)]


def _score(record: Mapping[str, Any]) -> float:
    scores = record["scores"]
    if "mean" in scores:
        return float(scores["mean"])
    return math.fsum(scores["test"]) / len(scores["test"])


def _standard_error(protocol: str, record: Mapping[str, Any]) -> float:
    """Standard error of a score that is a share of the graphs it is measured on; at least 1 / n."""
    sizes = {"transfer": "molecules", "ogb": "split"}
    number: int = record[sizes[protocol]]["test"] if protocol in sizes else record["data"]["graphs"]
    score = _score(record)
    return max(math.sqrt(max(score * (1 - score), 0.0) / number), 1.0 / number)


def _same(what: str, recorded: Any, found: Any, hidden: bool = False) -> Finding:
    difference = 0.0 if recorded == found else math.inf
    if hidden:
        return Finding(what, "as recorded", "another" if difference else "as recorded", difference, 0.0)
    return Finding(what, recorded, found, difference, 0.0)


def _near(what: str, recorded: float, found: float, difference: float, allowed: float) -> Finding:
    return Finding(what, f"{recorded:.6f}", f"{found:.6f}", difference, allowed)
