from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.inputs import (
    AsJson,
    DataRoot,
    Device,
    Fast,
    IdColumn,
    Quiet,
    SmilesColumn,
    Tasks,
    column_words,
    columns_of,
    open_data,
    open_run_data,
    with_data_help,
)
from joao.cli.output import Output, free_path, quoted
from joao.cli.training import summary, train
from joao.config.methods import method_names, pair_objective_names
from joao.core.errors import UserError
from joao.training.distributed.launch import ProcessLayout, find_process_layout

if TYPE_CHECKING:
    from joao.config.recipe import Recipe
    from joao.data import Dataset, Shards
    from joao.runs.folder import Run
    from joao.runs.trained import TrainedEncoder

FAILURES = "failures.csv"


@with_data_help
def pretrain(
    source: Annotated[str | None, typer.Argument(metavar="DATA", help="Name or path of the graphs.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; must not exist yet.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with an unfinished run.")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"Pre-training method: {', '.join(method_names())}.",
            show_default="joao",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help=f"Loss of methods that compare two views: {', '.join(pair_objective_names())}.",
            show_default="nt_xent",
        ),
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="A recipe in TOML.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: training.epochs=50")
    ] = None,
    smiles: SmilesColumn = None,
    identifiers: IdColumn = None,
    tasks: Tasks = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Short for --set training.seed=N.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Short for --set training.epochs=N.")] = None,
    device: Device = "auto",
    precision: Annotated[
        str | None, typer.Option(help="32-true, tf32, bf16-mixed or 16-mixed.", show_default="32-true")
    ] = None,
    fast: Fast = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Epochs between checkpoints.")] = 5,
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0, help="Minutes between checkpoints, also inside an epoch.")
    ] = 10,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Processes on this machine, one for each GPU or CPU core.", show_default="1"),
    ] = None,
    num_nodes: Annotated[
        int | None, typer.Option(min=1, help="Machines; see docs/scaling.md.", show_default="1")
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            "--logger",  # torchrun takes --log for one of its own
            metavar="KIND",
            help="Log every epoch into the run's folder, too: tensorboard or csv. Behind torchrun: --logger.",
        ),
    ] = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train an encoder on graphs, without labels, and learn which augmentations to use."""
    process = find_process_layout(devices, num_nodes)
    output = _voice(process, quiet, as_json)
    if resume is not None:
        given = (objective, seed, epochs, precision, fast, smiles, identifiers, tasks)
        if source or out or recipe or settings or method or any(each is not None for each in given):
            raise UserError("--resume goes on with the run's own recipe and data: name the run and nothing else.")
        from joao.runs.folder import Run

        run = Run.open(resume)
        run.check_unfinished()
        process = find_process_layout(devices, num_nodes, (run.info.devices, run.info.num_nodes))
        output = _voice(process, quiet, as_json)
        _tell_threads(run, output)
        for newest in run.checkpoints()[:1]:
            output.say(f"Going on after step {int(newest.stem.removeprefix('checkpoint-'))}.")
        folder, made, precision, fast = resume, run.recipe, run.info.precision, run.info.fast
        dataset = open_run_data(resume, made.data, data_root, output, made.columns)
    elif out is None:
        raise UserError("pretrain: say where the run shall be written: --out RUN.")
    else:
        from joao.config.overrides import apply_overrides
        from joao.config.recipe import make_recipe, read_toml
        from joao.runs.folder import check_new_folder
        from joao.runs.logs import check_loggers
        from joao.training.device import check_precision

        check_loggers(logs or (), out)
        if process.rank == 0:  # which may have made it by the time that others look
            check_new_folder(out)
        table = read_toml(recipe) if recipe else {}
        table |= {key: value for key, value in [("data", source), *columns_of(smiles, identifiers).items()] if value}
        short = {"training.seed": seed, "training.epochs": epochs}
        all_settings = [f"method={method}"] if method is not None else []
        all_settings += [f"objective.name={objective}"] if objective is not None else []
        all_settings += [*(settings or []), *(f"{key}={value}" for key, value in short.items() if value is not None)]
        table, place = apply_overrides(table, all_settings), str(recipe) if recipe else "recipe"
        made = _checked(table, place)
        if not made.data:
            raise UserError("pretrain: no data. Name a data set or a path: joao pretrain DATA --out RUN.")
        precision = precision or "32-true"
        check_precision(device, precision)
        columns = {**made.columns, **columns_of(None, None, tasks)}
        then = f"are left out; {out / FAILURES} will list them"
        dataset = open_data(made.data, data_root, output, columns, then)
        folder, made = out, make_recipe(table, place, dataset.kind)
    from joao.runs import pretraining as experiment

    start = partial(
        experiment.pretrain,
        resume=resume is not None,
        device=device,
        precision=precision,
        fast=fast,
        checkpoint_every=checkpoint_every,
        checkpoint_minutes=checkpoint_minutes,
        loggers=logs or (),
    )
    trained = train(start, made, dataset, folder, output, process)
    if process.rank == 0:
        _finish(folder, trained, dataset, column_words(smiles, identifiers), output)


def _voice(process: ProcessLayout, quiet: bool, as_json: bool) -> Output:
    """Of several processes the first one speaks."""
    return Output(quiet, as_json) if process.rank == 0 else Output(quiet=True)


def _checked(table: Mapping[str, Any], place: str) -> Recipe:
    """The recipe for one kind of data, of which there must be one that it is right for, before any are read."""
    from joao.config.recipe import KINDS, make_recipe

    faults = []
    for kind in KINDS:
        try:
            return make_recipe(table, place, kind)
        except UserError as error:
            faults.append(error)
    raise faults[0]


def _tell_threads(run: Run, output: Output) -> None:
    """Training is the same bit for bit only with as many threads as before."""
    import torch

    from joao.training.device import limit_threads

    with limit_threads():
        before, now = run.info.machine.get("threads"), torch.get_num_threads()
    if before != now:
        output.notice(f"{run.folder}: was started with {before} threads and goes on with {now}; rounding may differ.")


def _finish(run: Path, trained: TrainedEncoder, dataset: Dataset | Shards, columns: str, output: Output) -> None:
    from joao.data import Dataset

    output.result(summary(run, trained))
    words = f"{quoted(trained.recipe.data)}{columns}"
    embed = f"joao embed {quoted(run)} {words} --out {free_path(Path('embeddings.npz'))}"
    if not isinstance(dataset, Dataset):  # its failures are listed in the store
        output.say(f"Next: {embed}")
        return
    if dataset.failures:
        from joao.core.files import write_file
        from joao.runs.result_files import failures_csv

        write_file(run / FAILURES, failures_csv(dataset))
        output.say(f"Rows that are no molecules: {run / FAILURES}")
    if dataset.classes is None and dataset.targets is None:
        output.say(f"Next: {embed}")
    elif dataset.classes is None or (dataset.classes < 0).any():
        tuned = free_path(run.with_name(f"{run.name}-finetuned"))
        output.say(f"Next: joao finetune {quoted(run)} {words} --out {quoted(tuned)}, or {embed}")
    else:
        output.say(f"Next: joao evaluate {quoted(run)}, or {embed}")
