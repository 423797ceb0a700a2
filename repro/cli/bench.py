from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.inputs import AsJson, DataRoot, Quiet
from joao.cli.output import Output, free_path

if TYPE_CHECKING:
    from collections.abc import Mapping


def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKLOADS]", help="NCI1, DD, REDDIT-BINARY, COLLAB, molecules; default: all."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda; or cpu,cuda.")] = "auto",
    threads: Annotated[str, typer.Option(help="Threads of torch: a number, all, or several: 1,all.")] = "1",
    repeats: Annotated[int | None, typer.Option(help="Number of repeats.", show_default="7; quick: 2")] = None,
    width: Annotated[
        int | None, typer.Option(help="Width of the encoder.", show_default="32; molecules, GPU: 300")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="Layers of the encoder.", show_default="3; molecules, GPU: 5")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Graphs per batch.", show_default="128; molecules, GPU: 256")
    ] = None,
    precision: Annotated[str, typer.Option(help="On a GPU: 32-true, tf32 or bf16-mixed.")] = "32-true",
    scaling: Annotated[bool, typer.Option("--scaling", help="Also measure how time and memory grow.")] = False,
    svm: Annotated[bool, typer.Option("--svm", help="Also measure the SVM protocol.")] = False,
    reading: Annotated[bool, typer.Option("--reading", help="Also measure reading large data.")] = False,
    rivals: Annotated[bool, typer.Option(help="Also measure alternatives.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Small synthetic data, for a first look in seconds.")] = False,
    out: Annotated[Path | None, typer.Option(help="Record to write, .json; must not exist yet.")] = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure the speed of training, compared with its lower bound and with alternatives.

    Everything is measured in turn, in one run, with a fixed number of threads.
    """
    from joao.core.files import check_new_file, write_json
    from repro.benchmarks.plan import Plan, threads_of

    if out is not None:
        check_new_file(out)
    plan = Plan(
        workloads=tuple(workloads or ()),
        devices=tuple(name.strip() for name in device.split(",")),
        threads=threads_of(threads),
        repeats=(2 if quick else 7) if repeats is None else repeats,
        width=width,
        layers=layers,
        batch_size=batch_size,
        precision=precision,
        rivals=rivals,
        scaling=scaling,
        svm=svm,
        reading=reading,
        quick=quick,
        data_root=data_root,
    )
    output = Output(quiet, as_json)
    from repro.benchmarks.measure import measure, num_stages

    with output.progress("measuring", num_stages(plan)) as bar:
        record = measure(plan, on_stage=bar.advance)
    if out is not None:
        write_json(out, record)
    output.result(record)
    _show(record, output)
    if out is not None:
        output.say(f"Record: {out}")
    output.say(
        f"Next: python -m repro bench NCI1 --device cpu --threads 1,all --scaling --out {free_path(Path('bench.json'))}"
    )


def _show(record: Mapping[str, Any], output: Output) -> None:
    from repro.tables import benchmarks as tables

    if record["quick"]:
        output.say("Quick: small synthetic data and few repeats. These figures are not reliable.")
    for setting in record["settings"]:
        output.say(tables.setting_line(setting))
        for workload in setting["workloads"]:
            output.say("")
            output.say(tables.workload_line(workload))
            output.table(tables.ROWS_HEADER, tables.row_lines(workload))
            output.say(*tables.ratio_lines(workload, setting["machine"]))
            output.table(tables.PARTS_HEADER, tables.part_lines(workload))
        for name, axis in setting.get("scaling", {}).items():
            output.say("")
            output.table(*tables.growth_table(axis), title=f"Growth with the {name}")
            output.say(tables.fit_line(axis))
        if "svm" in setting:
            output.say("", *tables.svm_lines(setting["svm"]))
        if "reading" in setting:
            output.say("", *tables.reading_lines(setting["reading"]))
