from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joao.cli.inputs import AsJson, DataRoot, Device, Quiet
from joao.cli.output import Output

VERDICTS = {True: "holds", False: "DIFFERS"}


def check(
    record: Annotated[
        Path, typer.Argument(metavar="RECORD", help="A record, such as results/unsupervised/MUTAG/joao-0.json.")
    ],
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a record of the unsupervised table again, and compare: exit code 1 where more differs than is allowed.

    Allowed are the rounding of another processor and what training makes of it: 1e-5 of the largest loss in the first
    epoch, a tenth of it later, and two standard errors of the mean accuracy. With the same processor and versions
    nothing differs.
    """
    from repro.protocols.check import check_record

    output = Output(quiet, as_json)
    findings = check_record(record, data_root=data_root, device=device)
    lines = [
        [each.what, each.recorded, each.found, f"{each.difference:.2g}", f"{each.allowed:.2g}", VERDICTS[each.holds]]
        for each in findings
    ]
    output.table(["", "recorded", "found", "difference", "allowed", ""], lines, title=str(record))
    holds = all(each.holds for each in findings)
    told = [
        {"what": each.what, "recorded": each.recorded, "found": each.found, "holds": each.holds} for each in findings
    ]
    output.result({"record": str(record), "holds": holds, "findings": told})
    if not holds:
        raise typer.Exit(1)
    exactly = all(each.difference == 0 for each in findings)
    output.say(f"The record holds{', bit for bit' if exactly else ''}.")
