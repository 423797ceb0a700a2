from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from joao.cli.inputs import DataRoot, Device, Precision, Quiet
from joao.cli.output import Output
from joao.core.errors import UserError, suggest
from repro.cli.tables import Jobs, names

# From cheap to dear, so that what was interrupted has left as many whole tables as can be.
PARTS = {
    "unsupervised": ["unsupervised", "objectives"],
    "semi-supervised": ["semi-supervised"],
    "ablations": ["prior", "strength", "pairs"],
    "figures": ["figure-2", "figure-3"],
    "ogb": ["ogb"],
    "transfer": ["transfer"],
}


def everything(
    parts: Annotated[
        str, typer.Option(help=f"Of {', '.join(PARTS)}, with commas between.", show_default="all that suit the device")
    ] = "",
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Compute whatever has no record yet, table after table, the cheap ones first.

    What cannot be done, as where data are absent, is told, and the next table begun. On a CPU, pre-training on millions
    of molecules (the part transfer) is left out unless it is named.
    """
    from joao.training.device import pick_device
    from repro.cli.protocols import app

    output = Output(quiet)
    failed = []
    on_gpu = pick_device(device).type == "cuda"
    chosen = names(parts) or [name for name in PARTS if on_gpu or name != "transfer"]
    for name in chosen:
        if name not in PARTS:
            raise UserError(f"--parts {parts}: unknown part '{name}'. {suggest(name, list(PARTS))}")
    given = {"jobs": jobs, "device": device, "precision": precision, "data_root": data_root, "quiet": quiet}
    commands: dict[str | None, Any] = {command.name: command.callback for command in app.registered_commands}
    for name in [name for part in PARTS if part in chosen for name in PARTS[part]]:
        output.say(f"joao reproduce {name}")
        try:
            taken = inspect.signature(commands[name]).parameters
            commands[name](**{option: value for option, value in given.items() if option in taken})
        except UserError as error:
            output.notice(f"{name}: {error}")
            failed.append(name)
    if failed:
        raise UserError(f"reproduce all: not done, for the reasons above: {', '.join(failed)}.")
    output.say("Next, one page of all tables: joao results --out results.html")
