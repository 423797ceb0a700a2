from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joao.cli.inputs import AsJson, DataRoot, Device, Quiet, TwinsTogether, all_cores, open_data, whole
from joao.cli.output import Output, quoted
from joao.core.errors import Interrupted

if TYPE_CHECKING:
    from joao.comparison.methods import Outcome


def compare(
    source: Annotated[str, typer.Argument(metavar="DATA", help="Name or path of labelled graphs.")],
    methods: Annotated[
        str | None,
        typer.Option(
            help="With commas between: whatever 'joao pretrain --method' takes, baselines such as wl and graph2vec, "
            "untrained. What pre-training must beat is always added: untrained, wl, ldp, histogram.",
            show_default="joao,joaov2,graphcl; fewer if graphs are many",
        ),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions into folds, with a seed for each.")] = 5,
    folds: Annotated[int, typer.Option(min=2, help="Folds of each partition.")] = 10,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of pre-training.", show_default="20")] = None,
    twins_together: TwinsTogether = False,
    out: Annotated[
        Path | None, typer.Option(help="Record to write, .json, as methods are done; the same command goes on with it.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cores to use.", show_default="all")] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Does pre-training help on your graphs? Score methods on the same folds, beside what they must beat.

    Prints accuracy, gain, seconds and memory of every method, and a verdict with its interval.
    """
    from joao.comparison.methods import choose_methods
    from joao.comparison.record import Plan, compute, missing_seeds, start_record
    from joao.comparison.table import HEADER, Comparison, closing_lines, heading, table_lines
    from joao.runs.scoring import require_classes

    output = Output(quiet, as_json)
    dataset = whole(open_data(source, data_root, output, {}))
    require_classes(dataset)
    choice = choose_methods(dataset, methods)
    for notice in choice.notices:
        output.notice(notice)
    plan = Plan(choice.names, partitions, folds, epochs, device, jobs or all_cores(), twins_together)
    missing = sum(len(seeds) for seeds in missing_seeds(start_record(dataset, plan, out)).values())
    if missing:
        output.log(f"comparing {', '.join(plan.methods)} on {dataset.name}, each with {partitions} seeds")
    with output.progress("comparing", missing, in_lines=False) as bar:

        def on_done(done: Outcome) -> None:
            if done.score is None:
                output.log(f"failed: {done.method}")
                return
            bar.advance(f"{done.method}, seed {done.score['seed']}: {100 * done.score['mean']:.1f} %")
            output.log(f"done: {done.method}, seed {done.score['seed']}")

        try:
            record = compute(dataset, plan, out, on_done)
        except KeyboardInterrupt:
            kept = f"What was done is in {out}; the same command goes on" if out and out.exists() else "Nothing is kept"
            fix = "" if out else ": --out FILE.json keeps what is done"
            raise Interrupted(f"interrupted. {kept}{fix}.") from None
    output.result(record)
    comparison = Comparison(record)
    output.say(heading(comparison))
    output.table(HEADER, table_lines(comparison))
    for line in closing_lines(comparison):
        output.say(line)
    if out is not None:
        output.say(f"Record: {out}")
    output.say(f"Next: joao pretrain {quoted(source)} --out runs/mine")
