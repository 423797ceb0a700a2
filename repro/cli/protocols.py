"""Commands that compute the tables of the paper, and Figure 2."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.inputs import AsJson, DataRoot, Device, Precision, Quiet, TwinsTogether
from joao.cli.output import Output
from joao.core.errors import UserError, suggest
from repro.cli.options import (
    DEFAULT_FIGURES,
    DEFAULT_RECORDS,
    Encoders,
    Engine,
    Jobs,
    LabelRates,
    Methods,
    Only,
    Pictures,
    Records,
    pages_folder,
    parse_label_rates,
    progress_summary,
    run_options,
    show_progress,
    show_table,
    split_names,
)
from repro.cli.pages import show_figures

if TYPE_CHECKING:
    from repro.protocols.cells import RunOptions
    from repro.protocols.unsupervised.run import Cell

app = typer.Typer(
    name="repro",
    help="Reproduce the tables, figures and benchmarks of the paper. Cells that already have a record are skipped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Cheap parts first, so that an interrupted run leaves as many complete tables as possible.
PARTS = {
    "unsupervised": ["unsupervised", "objectives"],
    "semi-supervised": ["semi-supervised"],
    "ablations": ["prior", "strength", "pairs"],
    "figures": ["figure-2", "figure-3"],
    "ogb": ["ogb"],
    "transfer": ["transfer"],
}


@app.command("unsupervised")
def unsupervised(
    only: Only = "",
    methods: Methods = "",
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Pre-train on each training part alone (ten times the work).")
    ] = False,
    twins_together: TwinsTogether = False,
    out: Records = DEFAULT_RECORDS,
    jobs: Jobs = None,
    engine: Engine = "local",
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Unsupervised table: an SVM on frozen embeddings, five seeds, next to the paper's figures."""
    from repro.protocols.unsupervised.run import cells, rows_of, why_not
    from repro.protocols.unsupervised.table import HEADER, cells_of, rows

    output = Output(quiet, as_json)
    wanted = cells(split_names(only), split_names(methods), inductive=inductive, twins_together=twins_together)
    for method in split_names(methods) or rows_of("unsupervised"):
        for dataset in dict.fromkeys(cell.dataset for cell in wanted):
            if reason := why_not(dataset, method):
                output.notice(f"{method} on {dataset} is skipped: {reason}")
    lines = [
        cells_of(row)
        for row in rows(_unsupervised_records(wanted, run_options(out, data_root, device, jobs, engine=engine), output))
    ]
    pages = show_table(output, HEADER, lines, "Unsupervised: accuracy of an SVM, five seeds", "unsupervised", out)
    output.say(f"Table of all records: {pages / ('variants.md' if inductive or twins_together else 'table.md')}")
    output.say("Next, with your own graphs: joao compare my_graphs.jsonl")


@app.command("objectives")
def objectives(
    only: Only = "",
    methods: Methods = "",
    out: Records = DEFAULT_RECORDS,
    jobs: Jobs = None,
    engine: Engine = "local",
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Other contrastive losses, each with uniform pairs and with JOAO, by the unsupervised protocol."""
    from repro.protocols.unsupervised.run import cells
    from repro.protocols.unsupervised.variants import OBJECTIVES_HEADER as HEADER
    from repro.protocols.unsupervised.variants import objective_lines

    output = Output(quiet, as_json)
    wanted = cells(split_names(only), split_names(methods), table="objectives")
    lines = objective_lines(
        _unsupervised_records(wanted, run_options(out, data_root, device, jobs, engine=engine), output)
    )
    title = "Accuracy of an SVM, five seeds, with uniform pairs and with JOAO"
    pages = show_table(output, HEADER, lines, title, "unsupervised", out)
    output.say(f"Table of all records: {pages / 'objectives.md'}")
    output.say("Next, with your own graphs: joao pretrain my_graphs.jsonl --objective barlow_twins --out runs/mine")


def _unsupervised_records(wanted: Sequence[Cell], options: RunOptions, output: Output) -> list[dict[str, Any]]:
    """Return the records of cells, computed if missing."""
    from repro.protocols.unsupervised.run import compute_missing, is_done, record_file

    missing = [cell for cell in wanted if not is_done(cell, options.records)]
    output.say(progress_summary(len(wanted), "cells", len(missing), f"Records: {options.records}"))
    done = compute_missing(missing, options)
    show_progress(output, "cells", len(missing), done, lambda cell: f"{cell.dataset} {cell.method} seed {cell.seed}")
    return [record_file(options.records)[cell.key] for cell in wanted]


@app.command("semi-supervised")
def semi_supervised(
    only: Only = "",
    methods: Methods = "",
    label_rate: LabelRates = "",
    out: Records = DEFAULT_RECORDS,
    jobs: Jobs = None,
    engine: Engine = "local",
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Semi-supervised table: fine-tuning with 1 % or 10 % of the labels, next to the paper's figures."""
    rates = parse_label_rates(label_rate)
    options = run_options(out, data_root, device, jobs, precision, engine=engine)
    _few_labels("semi_supervised", split_names(only), split_names(methods), rates, options, Output(quiet, as_json))


ABLATIONS = {
    "strength": "Ablation of the strength (the paper's Table 2): JOAO and JOAOv2 at 0.2 and 0.25.",
    "prior": "Ablation of the prior: JOAO with gamma = 0.",
    "last-epoch": "Fine-tuning on all labelled graphs to the last epoch (not in the paper), beside the table.",
    "pairs": "Every pair of augmentations alone, and how its gain agrees with the probability JOAO gave it (Figure 3).",
}


def _ablation(table: str) -> Callable[..., None]:
    """Return the command of one of :data:`ABLATIONS`."""

    def command(
        only: Only = "",
        out: Records = DEFAULT_RECORDS,
        jobs: Jobs = None,
        device: Device = "auto",
        precision: Precision = "32-true",
        data_root: DataRoot = None,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        options = run_options(out, data_root, device, jobs, precision)
        _few_labels(table.replace("-", "_"), split_names(only), [], [], options, Output(quiet, as_json))

    return command


for _table, _help in ABLATIONS.items():
    app.command(_table, help=_help)(_ablation(_table))


def _few_labels(
    table: str, only: list[str], methods: list[str], label_rates: list[int], options: RunOptions, output: Output
) -> None:
    """Compute and show one of the tables of the semi-supervised protocol."""
    from repro.protocols.semi_supervised import run
    from repro.protocols.semi_supervised.table import HEADER, cells_of, rows

    out = options.records
    wanted, absent = run.split_available(
        run.cells(table, only, methods, label_rates), options.data_root, named=bool(only)
    )
    for column in run.missing_columns(table, only, label_rates):
        output.notice(f"{column}: not in the table, skipped.")
    for name in absent:
        output.notice(f"{name}: not found, skipped. Put it under --data-root.")
    missing = [cell for cell in wanted if not run.is_done(cell, out)]
    output.say(progress_summary(len(wanted), "cells", len(missing), f"Records: {out}"))
    works = run.works(missing)
    done = run.compute_missing(missing, options)
    show_progress(output, "encoders", len(works), done, lambda work: f"{work.dataset} {work.method} seed {work.seed}")
    summary = rows([run.record_file(out)[cell.key] for cell in wanted], of_strength=table == "strength")
    title = "Accuracy after fine-tuning with few labels, five seeds"
    pages = show_table(output, HEADER, [cells_of(row) for row in summary], title, "semi-supervised", out)
    output.say(f"Tables of all records: {pages}")
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
    pretrain_only: Annotated[bool, typer.Option("--pretrain-only", help="Stop after pre-training.")] = False,
    out: Records = DEFAULT_RECORDS,
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Transfer table: pre-training on molecules, fine-tuning on MoleculeNet. Needs a GPU to finish in hours."""
    from repro.protocols.transfer import run
    from repro.protocols.transfer.overlap import read_count
    from repro.protocols.transfer.table import HEADER, cells_of, rows

    output = Output(quiet, as_json)
    options = run_options(out, data_root, device, jobs, precision, encoders)
    wanted = run.cells(split_names(only), split_names(methods))
    missing = [cell for cell in wanted if not run.is_done(cell, out)]
    output.say(progress_summary(len(wanted), "cells", len(missing), f"Records: {out}, encoders: {encoders}"))
    needed = list(dict.fromkeys(cell.method for cell in missing))
    number = len({run.encoder_of(method) for method in needed} - {None})
    trained = run.pretrain_missing(needed, corpus, options)
    show_progress(output, "pre-trainings", number, trained, str, "pre-trained")
    if pretrain_only:
        output.say("Next: the same command without --pretrain-only.")
        return
    done = run.compute_missing(missing, options)
    show_progress(output, "cells", len(missing), done, lambda cell: f"{cell.dataset} {cell.method}")
    found = rows([run.record_file(out)[cell.key] for cell in wanted], read_count(out))
    lines = [cells_of(row) for row in found]
    title = "Transfer: ROC-AUC after fine-tuning on a scaffold split"
    pages = show_table(output, HEADER, lines, title, "transfer", out)
    output.say(f"Table of all records: {pages / 'table.md'}")
    output.say("Next, with your own molecules: joao pretrain molecules.csv --out runs/mine")


@app.command("ogb")
def ogb(
    only: Only = "",
    methods: Methods = "",
    label_rate: LabelRates = "",
    encoders: Encoders = Path("runs/ogb"),
    out: Records = DEFAULT_RECORDS,
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """OGB table: official splits, fine-tuning with 1 % or 10 % of the training labels.

    OGB's archives are expected in the folder ogb under --data-root.
    """
    from repro.protocols.ogb import run
    from repro.protocols.ogb.table import HEADER, cells_of, rows

    output = Output(quiet, as_json)
    options = run_options(out, data_root, device, jobs, precision, encoders)
    asked = run.cells(split_names(only), split_names(methods), parse_label_rates(label_rate))
    wanted, absent = run.split_available(asked, data_root, named=bool(only))
    for name in absent:
        output.notice(f"{name}: not found, skipped. Put OGB's archive into ROOT/ogb, where ROOT is --data-root.")
    missing = [cell for cell in wanted if not run.is_done(cell, out)]
    output.say(progress_summary(len(wanted), "cells", len(missing), f"Records: {out}, encoders: {encoders}"))
    done = run.compute_missing(missing, options)
    show_progress(output, "encoders", len(run.works(missing)), done, lambda work: f"{work.dataset} {work.method}")
    lines = [cells_of(row) for row in rows([run.record_file(out)[cell.key] for cell in wanted])]
    pages = show_table(output, HEADER, lines, "OGB: few labels of the official training part", "ogb", out)
    output.say(f"Table of all records: {pages / 'table.md'}")
    output.say("Next, with your own graphs: joao pretrain my_graphs.jsonl --out runs/mine")


@app.command("figure-2")
def figure_2(
    only: Annotated[
        str, typer.Option(help="Data sets, separated by commas.", show_default="those of the paper's figure")
    ] = "",
    out: Records = DEFAULT_RECORDS,
    figures: Pictures = DEFAULT_FIGURES,
    jobs: Jobs = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Figure 2: training curves of JOAO for gamma 0.01, 0.1, 1 and 10, three seeds each. Nothing is scored."""
    from joao.core.files import make_folder, write_file
    from repro.protocols import gamma

    output = Output(quiet, as_json)
    wanted = gamma.cells(split_names(only))
    missing = [cell for cell in wanted if not gamma.is_done(cell, out)]
    output.say(progress_summary(len(wanted), "pre-trainings", len(missing), f"Records: {out}"))
    done = gamma.compute_missing(missing, run_options(out, data_root, device, jobs))
    show_progress(output, "pre-trainings", len(missing), done, str)
    records = [gamma.record_file(out)[cell.key] for cell in wanted]
    for folder in (pages_folder(out) / "gamma", figures):
        make_folder(folder)
    write_file(pages_folder(out) / "gamma/table.md", gamma.page(records))
    show_figures(gamma.draw_figure_2(records, figures / "figure-2"), output)


def everything(
    parts: Annotated[
        str,
        typer.Option(help=f"Some of {', '.join(PARTS)}, separated by commas.", show_default="all that suit the device"),
    ] = "",
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = "32-true",
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Compute all missing cells, table by table, cheap ones first.

    A table that cannot be computed, for example because its data are missing, is reported, and the next one follows.
    On a CPU the part transfer, which pre-trains on millions of molecules, is skipped unless you name it.
    """
    from joao.training.device import pick_device

    output = Output(quiet)
    failed = []
    on_gpu = pick_device(device).type == "cuda"
    chosen = split_names(parts) or [name for name in PARTS if on_gpu or name != "transfer"]
    for name in chosen:
        if name not in PARTS:
            raise UserError(f"--parts {parts}: unknown part '{name}'. {suggest(name, list(PARTS))}")
    values = {"jobs": jobs, "device": device, "precision": precision, "data_root": data_root, "quiet": quiet}
    commands: dict[str | None, Any] = {command.name: command.callback for command in app.registered_commands}
    for name in [name for part in PARTS if part in chosen for name in PARTS[part]]:
        output.say(f"python -m repro {name}")
        try:
            accepted = inspect.signature(commands[name]).parameters
            commands[name](**{option: value for option, value in values.items() if option in accepted})
        except UserError as error:
            output.notice(f"{name}: {error}")
            failed.append(name)
    if failed:
        raise UserError(f"all: failed for the reasons above: {', '.join(failed)}.")
    output.say("Next, one page with all tables: python -m repro tables --out tables.html")
