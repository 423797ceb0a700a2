"""How far do records differ when they are made again on another device? The tolerance of ``python -m repro check``.

    OMP_NUM_THREADS=1 python -m repro.studies.remade [KEY ...] [--device cpu]

Makes records again and appends the differences to ``repro/records/remade.jsonl``. A record that was made again on the
same kind of device before is skipped.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from joao.core.provenance import machine
from joao.evaluation.tables import markdown
from joao.training.device import pick_device
from repro.protocols.cells import RunOptions
from repro.protocols.check import (
    FACTOR,
    OTHER_KIND,
    PROTOCOLS,
    SAME,
    SAME_KIND,
    allowed_spread,
    compare_devices,
    find_record,
    measure,
    read_remade,
    remake,
)
from repro.record_files import RECORDS
from repro.studies.common import generated, make_page, write_page

# Records that a CPU makes in minutes, made on a GPU or on another CPU.
KEYS = (
    *(f"MUTAG/{method}-{seed}" for method in ("joao", "joaov2", "graphcl", "uniform") for seed in range(5)),
    *(f"MUTAG/{method}-{seed}" for method in ("infograph", "mvgrl", "wl") for seed in range(2)),
    *(f"IMDB-BINARY/{method}-{seed}" for method in ("joao", "graphcl") for seed in range(3)),
    "bace/ecfp",
    "bbbp/ecfp",
    *(f"PROTEINS/none-10-{seed}" for seed in range(5)),
    *(f"NCI1/none-1-{seed}" for seed in range(3)),
    "PROTEINS/joao-0",
    "ogbg-molbace/none-1",
    "ogbg-molbbbp/none-1",
    "ogbg-molbace/graphcl-1",
    "PROTEINS/identity+identity-10-0",
)


def made_again(key: str, options: RunOptions) -> dict[str, Any]:
    """Make a record of the repository again and return the differences."""
    protocol, record = find_record(RECORDS, key)
    again = remake(protocol, record, options)
    spread = asdict(measure(protocol, record, again))
    names = {"first_loss": "first loss", "later_losses": "later losses", "score": "score"}
    return {
        "record": key,
        "protocol": protocol,
        "devices": compare_devices(record, again),
        **{names[name]: None if math.isnan(value) else value for name, value in spread.items()},
        "recorded": {name: record[name] for name in ("versions", "machine")},
        "again": {name: again[name] for name in ("command", "versions", "machine")},
    }


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the measured differences, by protocol and kind of devices, and what ``check`` allows."""
    rows = []
    for protocol in PROTOCOLS:
        for devices in (SAME, SAME_KIND, OTHER_KIND):
            found = [line for line in lines if line["protocol"] == protocol and line["devices"] == devices]
            allowed = allowed_spread(protocol, devices, lines)
            identical = sum(all(not line[what] for what in ("first loss", "later losses", "score")) for line in found)
            rows.append(
                [
                    protocol,
                    devices,
                    str(len(found)),
                    str(identical),
                    *(_largest(found, what) for what in ("first loss", "later losses", "score")),
                    f"{allowed.first_loss:.2g}",
                    f"{allowed.later_losses:.2g}",
                    f"{allowed.score:.2f}",
                ]
            )
    header = ["protocol", "devices", "records", "identical"]
    header += [f"{what}, {kind}" for kind in ("largest", "allowed") for what in ("first loss", "later losses", "score")]
    listed = [
        [
            line["record"],
            *(_name(line[when]["machine"]) for when in ("recorded", "again")),
            *("" if line[what] is None else f"{line[what]:.2g}" for what in ("first loss", "later losses")),
            f"{line['score']:.2f}",
        ]
        for line in lines
    ]
    return make_page(
        "Records made again on other devices",
        f"{generated('remade')} Differences of losses are shares of the largest loss of the record; of later epochs "
        "the largest difference counts. Differences of scores are in standard errors of a share measured on the scored graphs. "
        f"`python -m repro check` allows {FACTOR:.0f} times the root mean square of the measured differences of a protocol between "
        "different processors; with fewer than ten measurements, the largest of all protocols, and the spread between CPU and GPU where no protocol has a "
        "measurement between devices of the same kind.",
        markdown(header, rows),
        "## All records",
        markdown(["record", "made on", "again on", "first loss", "later losses", "score"], listed),
    )


def _name(machine: Mapping[str, Any]) -> str:
    """Name of the GPU or processor."""
    return str(machine.get("gpu") or machine["processor"])


def _largest(lines: Sequence[Mapping[str, Any]], what: str) -> str:
    values = [line[what] for line in lines if line[what] is not None]
    return f"{max(values):.2g}" if values else ""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="*", default=KEYS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root")
    parser.add_argument("--encoders", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--out", type=Path, default=RECORDS, help="folder of remade.jsonl")
    given = parser.parse_args(arguments)
    options = RunOptions(RECORDS, given.data_root, given.device, encoders=given.encoders)
    here = _name(machine(pick_device(given.device).type))
    done = {(line["record"], _name(line["again"]["machine"])) for line in read_remade(given.out)}
    given.out.mkdir(parents=True, exist_ok=True)
    for key in given.keys:
        if (key, here) not in done:
            line = made_again(key, options)
            with (given.out / "remade.jsonl").open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(line) + "\n")
            print(key, line["devices"], line["first loss"], line["later losses"], line["score"], flush=True)
    if given.out == RECORDS:
        write_page("remade", page(read_remade(RECORDS)))


if __name__ == "__main__":
    main()
