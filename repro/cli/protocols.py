from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.inputs import AsJson, DataRoot, Device, Encoders, Precision, Quiet, TwinsTogether
from joao.cli.output import Output
from repro.cli.all import everything
from repro.cli.check import check
from repro.cli.figures import figure_2, figure_3
from repro.cli.tables import Jobs, LabelRate, Methods, Only, Records, follow, names, place, publish, rates, to_do

if TYPE_CHECKING:
    from repro.protocols.cells import Where
    from repro.protocols.unsupervised.run import Cell

UNSUPERVISED = Path("results/unsupervised")
app = typer.Typer(
    name="repro",
    help="Remake the tables and figures of the paper.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command("unsupervised")
def unsupervised(
    only: Annotated[str, typer.Option(help="Data sets, with commas between.", show_default="all eight")] = "",
    methods: Annotated[str, typer.Option(help="Methods, with commas between.", show_default="all")] = "",
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Pre-train on each training part alone (ten times the work).")
    ] = False,
    twins_together: TwinsTogether = False,
    out: Records = UNSUPERVISED,
    jobs: Jobs = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train and score five seeds of every method on every data set, and print the table beside the paper's.

    What has a record is not computed again, so an interrupted run goes on where it was.
    """
    from repro.protocols.unsupervised.run import cells, rows_of, why_not
    from repro.protocols.unsupervised.table import HEADER, cells_of, rows

    output = Output(quiet, as_json)
    wanted = cells(names(only), names(methods), inductive=inductive, twins_together=twins_together)
    for method in names(methods) or rows_of("unsupervised"):
        for dataset in dict.fromkeys(cell.dataset for cell in wanted):
            if reason := why_not(dataset, method):
                output.notice(f"{method} on {dataset} is left out: {reason}")
    lines = [cells_of(row) for row in rows(_frozen(wanted, place(out, data_root, device, jobs), output))]
    publish(output, HEADER, lines, "Unsupervised: accuracy of an SVM, five seeds", "unsupervised", out)
    output.say(f"Table of all records: {out / ('variants.md' if inductive or twins_together else 'table.md')}")
    output.say("Next, with your own graphs: joao compare my_graphs.jsonl")


@app.command("objectives")
def objectives(
    only: Annotated[str, typer.Option(help="Data sets, with commas between.", show_default="all four")] = "",
    methods: Annotated[str, typer.Option(help="Rows, with commas between.", show_default="all")] = "",
    out: Records = UNSUPERVISED,
    jobs: Jobs = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Other objectives of two views, each without JOAO and with it, by the unsupervised protocol.

    What has a record is not computed again, so an interrupted run goes on where it was.
    """
    from repro.protocols.unsupervised.run import cells
    from repro.protocols.unsupervised.variants import OBJECTIVES_HEADER as HEADER
    from repro.protocols.unsupervised.variants import objective_lines

    output = Output(quiet, as_json)
    wanted = cells(names(only), names(methods), table="objectives")
    lines = objective_lines(_frozen(wanted, place(out, data_root, device, jobs), output))
    publish(output, HEADER, lines, "Accuracy of an SVM, five seeds, without and with JOAO", "unsupervised", out)
    output.say(f"Table of all records: {out / 'objectives.md'}")
    output.say("Next, with your own graphs: joao pretrain my_graphs.jsonl --objective barlow_twins --out runs/mine")


def _frozen(wanted: Sequence[Cell], where: Where, output: Output) -> list[dict[str, Any]]:
    """The records of cells of the unsupervised protocol, computed where there are none."""
    from repro.protocols.unsupervised.run import compute_missing, is_done, read_record

    missing = [cell for cell in wanted if not is_done(cell, where.records)]
    output.say(to_do(len(wanted), "cells", len(missing), f"Records: {where.records}"))
    done = compute_missing(missing, where)
    follow(output, "cells", len(missing), done, lambda cell: f"{cell.dataset} {cell.method} seed {cell.seed}")
    return [read_record(cell.path(where.records)) for cell in wanted]


SEMI_SUPERVISED = Path("results/semi-supervised")


@app.command("semi-supervised")
def semi_supervised(
    only: Only = "",
    methods: Methods = "",
    label_rate: LabelRate = "",
    out: Records = SEMI_SUPERVISED,
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train, fine-tune with 1 % or 10 % of the labels, and print the table beside the paper's.

    What has a record is not computed again, so an interrupted run goes on where it was.
    """
    asked, where = rates(label_rate), place(out, data_root, device, jobs, precision)
    _few_labels("semi_supervised", names(only), names(methods), asked, where, Output(quiet, as_json))


ABLATIONS = {
    "strength": "The paper's ablation of strength (Table 2): JOAO against JOAOv2 at 0.2 and 0.25.",
    "prior": "The paper's ablation of the prior: JOAO with gamma = 0.",
    "pairs": "Every pair of augmentations by itself, and how its gain agrees with the share JOAO gave it (Figure 3).",
}


def ablation(table: str) -> Callable[..., None]:
    """The command of one of :data:`ABLATIONS`."""

    def command(
        only: Only = "",
        out: Records = SEMI_SUPERVISED,
        jobs: Jobs = None,
        device: Device = "auto",
        precision: Precision = "32-true",
        data_root: DataRoot = None,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        where = place(out, data_root, device, jobs, precision)
        _few_labels(table, names(only), [], [], where, Output(quiet, as_json))

    return command


for _table, _about in ABLATIONS.items():
    app.command(_table, help=_about)(ablation(_table))


app.command("check")(check)
app.command("figure-2")(figure_2)
app.command("figure-3")(figure_3)
app.command("all")(everything)


def _few_labels(
    table: str, only: list[str], methods: list[str], label_rates: list[int], where: Where, output: Output
) -> None:
    from repro.protocols.semi_supervised.run import (
        at_hand,
        cells,
        compute_missing,
        is_done,
        left_out,
        read_record,
        works,
    )
    from repro.protocols.semi_supervised.table import HEADER, cells_of, rows

    out = where.records
    wanted, absent = at_hand(cells(table, only, methods, label_rates), where.data_root, named=bool(only))
    for column in left_out(table, only, label_rates):
        output.notice(f"{column}: is not in the table and is left out.")
    for name in absent:
        output.notice(f"{name}: is not at hand and is left out. Put it under --data-root.")
    missing = [cell for cell in wanted if not is_done(cell, out)]
    output.say(to_do(len(wanted), "cells", len(missing), f"Records: {out}"))
    done = compute_missing(missing, where)
    follow(output, "encoders", len(works(missing)), done, lambda work: f"{work.dataset} {work.method} seed {work.seed}")
    summary = rows([read_record(cell.path(out)) for cell in wanted], of_strength=table == "strength")
    title = "Accuracy after fine-tuning with few labels, five seeds"
    publish(output, HEADER, [cells_of(row) for row in summary], title, "semi-supervised", out)
    output.say(f"Tables of all records: {out}")
    output.say(
        "Next, with your own graphs: joao pretrain my_graphs.jsonl --out runs/mine, then joao finetune runs/mine ..."
    )


@app.command("transfer")
def transfer(
    only: Only = "",
    methods: Methods = "",
    corpus: Annotated[
        str | None, typer.Option(help="Molecules to pre-train on, such as a file of 'joao pack'.", show_default="ZINC")
    ] = None,
    encoders: Encoders = Path("runs/transfer"),
    pretrain_only: Annotated[bool, typer.Option("--pretrain-only", help="Stop when the encoders are there.")] = False,
    out: Records = Path("results/transfer"),
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train on unlabelled molecules, fine-tune on MoleculeNet, and print the table beside the paper's.

    What is there is not computed again, so an interrupted run goes on where it was. All of it is work for a GPU.
    """
    from repro.protocols.transfer.run import cells, compute_missing, encoder_of, is_done, pretrain_missing, read_record
    from repro.protocols.transfer.table import HEADER, cells_of, rows

    output = Output(quiet, as_json)
    where = place(out, data_root, device, jobs, precision, encoders)
    wanted = cells(names(only), names(methods))
    missing = [cell for cell in wanted if not is_done(cell, out)]
    output.say(to_do(len(wanted), "cells", len(missing), f"Records: {out}, encoders: {encoders}"))
    needed = list(dict.fromkeys(cell.method for cell in missing))
    trained = pretrain_missing(needed, corpus, where)
    number = len({encoder_of(method) for method in needed} - {None})
    follow(output, "pre-trainings", number, trained, str, "pre-trained")
    if pretrain_only:
        output.say("Next: the same command without --pretrain-only.")
        return
    done = compute_missing(missing, where)
    follow(output, "cells", len(missing), done, lambda cell: f"{cell.dataset} {cell.method}")
    lines = [cells_of(row) for row in rows([read_record(cell.path(out)) for cell in wanted])]
    publish(output, HEADER, lines, "Transfer: ROC-AUC after fine-tuning on a scaffold split", "transfer", out)
    output.say(f"Table of all records: {out / 'table.md'}")
    output.say("Next, with your own molecules: joao pretrain molecules.csv --out runs/mine")


@app.command("ogb")
def ogb(
    only: Only = "",
    methods: Methods = "",
    label_rate: LabelRate = "",
    encoders: Encoders = Path("runs/ogb"),
    out: Records = Path("results/ogb"),
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train on OGB's training part, fine-tune with 1 % or 10 % of its labels, and print the table.

    OGB's archives are looked for in ROOT/ogb. What is there is not computed again, so an interrupted run goes on where
    it was.
    """
    from repro.protocols.ogb.run import at_hand, cells, compute_missing, is_done, read_record, works
    from repro.protocols.ogb.table import HEADER, cells_of, rows

    output = Output(quiet, as_json)
    where = place(out, data_root, device, jobs, precision, encoders)
    wanted, absent = at_hand(cells(names(only), names(methods), rates(label_rate)), data_root, named=bool(only))
    for name in absent:
        output.notice(f"{name}: is not at hand and is left out. Put OGB's archive into ROOT/ogb.")
    missing = [cell for cell in wanted if not is_done(cell, out)]
    output.say(to_do(len(wanted), "cells", len(missing), f"Records: {out}, encoders: {encoders}"))
    done = compute_missing(missing, where)
    follow(output, "encoders", len(works(missing)), done, lambda work: f"{work.dataset} {work.method}")
    lines = [cells_of(row) for row in rows([read_record(cell.path(out)) for cell in wanted])]
    publish(output, HEADER, lines, "OGB: few labels of the official training part", "ogb", out)
    output.say(f"Table of all records: {out / 'table.md'}")
    output.say("Next, with your own graphs: joao pretrain my_graphs.jsonl --out runs/mine")
