"""``joao pretrain`` and ``joao quickstart``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.evaluate import score
from joao.cli.output import Output, free_path, quantity, shell_quote
from joao.config.methods import method_names, pair_objective_names
from joao.core.errors import Interrupted, JoaoNotice, ProcessLost, UserError, suggest
from joao.core.signals import StopRequest, catch_stop_signals
from joao.training.distributed.launch import ProcessLayout, find_process_layout

if TYPE_CHECKING:
    from joao.config.recipe import Recipe
    from joao.data import Dataset, Shards
    from joao.runs.folder import Run
    from joao.runs.trained import TrainedEncoder

FAILURES = "failures.csv"


@inputs.with_data_help
def pretrain(
    source: str | None = Argument(None, metavar="DATA", help="Name or path of the graphs."),
    out: Path | None = Option(None, help="Folder of the run; must not exist yet."),
    resume: Path | None = Option(None, metavar="RUN", help="Continue an unfinished run."),
    method: str | None = Option(
        None,
        show_default="joao",
        help=f"Pre-training method: {', '.join(method_names())}. attr_masking needs molecules.",
    ),
    objective: str | None = Option(
        None,
        show_default="nt_xent",
        help=f"Contrastive loss for methods that compare two views: {', '.join(pair_objective_names())}.",
    ),
    targets: str | None = Option(
        None,
        metavar="NAMES",
        help="For molecules: also predict descriptors, ecfp or both, with weights if given (descriptors,ecfp=0.5). "
        "contrastive=0 turns the contrastive loss off.",
    ),
    recipe: Path | None = Option(None, help="Recipe file (TOML)."),
    settings: list[str] | None = Option(
        None, "--set", metavar="KEY=VALUE", help="Change a setting of the recipe, e.g. training.epochs=50."
    ),
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    tasks: inputs.Tasks = None,
    standardise: inputs.Standardise = None,
    seed: int | None = Option(None, min=0, help="Same as --set training.seed=N."),
    epochs: int | None = Option(None, min=1, help="Same as --set training.epochs=N."),
    device: inputs.Device = "auto",
    precision: str | None = Option(None, show_default="32-true", help=inputs.PRECISION_HELP),
    fast: inputs.Fast = None,
    checkpoint_every: int = Option(5, min=1, help="Epochs between checkpoints."),
    checkpoint_minutes: float = Option(10, min=0, help="Minutes between checkpoints, also within an epoch."),
    devices: int | None = Option(
        None, min=1, show_default="1", help="Processes on this machine, one per GPU or CPU core."
    ),
    num_nodes: int | None = Option(None, min=1, show_default="1", help="Number of machines; see docs/several-gpus.md."),
    logs: list[str] | None = Option(
        None,
        "--log",
        "--logger",  # torchrun has an option --log of its own
        metavar="KIND",
        help="Also log every epoch to the run folder: tensorboard or csv. With torchrun, write --logger.",
    ),
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Pre-train an encoder on graphs without labels, and learn which augmentations to use."""
    process = find_process_layout(devices, num_nodes)
    output = _make_output(process, quiet, as_json)
    if resume is not None:
        fixed = (objective, targets, seed, epochs, precision, fast, smiles, identifiers, tasks, standardise)
        if source or out or recipe or settings or method or any(each is not None for each in fixed):
            raise UserError("--resume: uses the recipe and data of the run. Remove DATA and the options that set them.")
        from joao.runs.folder import Run

        run = Run.open(resume)
        run.check_unfinished()
        process = find_process_layout(devices, num_nodes, (run.info.devices, run.info.num_nodes))
        output = _make_output(process, quiet, as_json)
        _warn_thread_count(run, output)
        for newest in run.checkpoints()[:1]:
            output.say(f"Continuing after step {newest.stem.removeprefix('checkpoint-').lstrip('0') or 0}.")
        folder, complete_recipe, precision, fast = resume, run.recipe, run.info.precision, run.info.fast
        dataset = inputs.open_run_data(resume, complete_recipe, data_root, output)
    elif out is None:
        raise UserError("pretrain: missing option --out RUN, the folder to write.")
    else:
        from joao.config.overrides import apply_overrides
        from joao.config.recipe import make_recipe, read_toml
        from joao.runs.folder import check_new_folder
        from joao.runs.logs import check_loggers
        from joao.training.device import check_precision

        check_loggers(logs or (), out)
        if process.rank == 0:  # the others may start after the first process has made the folder
            check_new_folder(out)
        table = read_toml(recipe) if recipe else {}
        data_options = {"data": source, "targets": targets, **inputs.column_options(smiles, identifiers)}
        table |= {key: value for key, value in data_options.items() if value}
        table |= {} if standardise is None else {"standardise": standardise}
        short = {"training.seed": seed, "training.epochs": epochs}
        all_settings = [f"method={method}"] if method is not None else []
        if objective is not None:
            _check_objective(objective)
            all_settings.append(f"objective.name={objective}")
        all_settings += [*(settings or []), *(f"{key}={value}" for key, value in short.items() if value is not None)]
        table, place = apply_overrides(table, all_settings), str(recipe) if recipe else "recipe"
        complete_recipe = _check_recipe(table, place)
        if not complete_recipe.data:
            raise UserError("pretrain: missing argument DATA. Run: joao pretrain DATA --out RUN.")
        precision = precision or "32-true"
        check_precision(device, precision)
        columns = {**complete_recipe.columns, **inputs.column_options(None, None, tasks)}
        then = f"are left out; they will be listed in {out / FAILURES}"
        dataset = inputs.open_data(complete_recipe.data, data_root, output, columns, then)
        folder, complete_recipe = out, make_recipe(table, place, dataset.kind)
    trained = train(
        complete_recipe,
        dataset,
        folder,
        output,
        process,
        resume=resume is not None,
        device=device,
        precision=precision,
        fast=fast,
        checkpoint_every=checkpoint_every,
        checkpoint_minutes=checkpoint_minutes,
        loggers=logs or (),
    )
    if process.rank == 0:
        _finish(folder, trained, dataset, data_root, output)


def _make_output(process: ProcessLayout, quiet: bool, as_json: bool) -> Output:
    """Only the first of several processes prints."""
    return Output(quiet, as_json) if process.rank == 0 else Output(quiet=True)


def _check_objective(name: str) -> None:
    """Raise an error for an unknown name; it suggests objectives that compare two views, as ``--objective`` does."""
    from joao.objectives import OBJECTIVES

    if name not in OBJECTIVES:
        raise UserError(f"--objective {name}: unknown. {suggest(name, pair_objective_names())}")


def _check_recipe(table: Mapping[str, Any], place: str) -> Recipe:
    """Check a recipe before the data are read: it must be valid for at least one kind of data."""
    from joao.config.recipe import KINDS, make_recipe

    errors = []
    for kind in KINDS:
        try:
            return make_recipe(table, place, kind)
        except UserError as error:
            errors.append(error)
    raise errors[0]


def _warn_thread_count(run: Run, output: Output) -> None:
    """Print a notice if resuming with another number of threads, which may change the rounding."""
    import torch

    from joao.training.device import limit_threads

    with limit_threads():
        before, now = run.info.machine.get("threads"), torch.get_num_threads()
    if before != now:
        output.notice(f"{run.folder}: was started with {before} threads and continues with {now}; rounding may differ.")


def _finish(
    run: Path, trained: TrainedEncoder, dataset: Dataset | Shards, data_root: str | None, output: Output
) -> None:
    """Print the result and the next commands, and list the rows that RDKit could not parse."""
    from joao.data import Dataset

    output.result(summary(run, trained))
    data = inputs.source_words(trained.recipe.data, trained.recipe.columns, data_root)
    commands = [f"joao embed {shell_quote(run)} {data} --out {free_path(Path('embeddings.npz'))}"]
    if isinstance(dataset, Dataset):  # shards list their failures themselves
        if dataset.failures:
            from joao.core.files import write_file
            from joao.runs.result_files import failures_csv

            write_file(run / FAILURES, failures_csv(dataset))
            output.say(f"Rows that RDKit cannot parse: {run / FAILURES}")
        if inputs.can_evaluate(dataset):
            commands.insert(0, f"joao evaluate {shell_quote(run)}{inputs.data_root_words(data_root)}")
        elif dataset.targets is not None or (dataset.classes is not None and (dataset.classes < 0).any()):
            tuned = free_path(run.with_name(f"{run.name}-finetuned"))
            commands.insert(0, f"joao finetune {shell_quote(run)} {data} --out {shell_quote(tuned)}")
    for word, command in zip(("Next:", "Or:"), commands, strict=False):
        output.say(f"{word} {command}")


def train(
    recipe: Recipe, dataset: Dataset | Shards, folder: Path, output: Output, process: ProcessLayout, **options: Any
) -> TrainedEncoder:
    """Pre-train with a live view, then print a summary and draw the learned pairs (in the first process only).

    ``options`` are those of :func:`joao.runs.pretraining.pretrain`.
    """
    from joao.core.plots import draw_policy
    from joao.runs import pretraining
    from joao.runs.logs import show_training

    several = f" in {process.world_size} processes" if process.world_size > 1 else ""
    epochs = recipe.training.epochs
    amount = f"{quantity(len(dataset), dataset.kind)}, {quantity(epochs, 'epochs')}"
    intro = f"Pre-training on {dataset.name}{several}: {amount}, without labels."
    showing = show_training(output.shown, recipe, dataset.kind, intro=lambda: output.say(intro))
    with showing as callbacks, _notices_and_signals(process, output) as stop:
        try:
            trained = pretraining.pretrain(
                recipe,
                dataset,
                folder=folder,
                devices=process.devices,
                num_nodes=process.num_nodes,
                on_notice=output.notice,
                should_stop=lambda: bool(stop),
                **callbacks,
                **options,
            )
        except Interrupted as stopped:
            raise Interrupted(str(stopped), stop.code) from None
        except KeyboardInterrupt:
            message = f"interrupted. {_how_to_continue(folder)}" if process.rank == 0 else ""
            raise Interrupted(message, stop.code) from None
        except ProcessLost as lost:
            if process.rank > 0:
                time.sleep(1)  # the first process, if it is alive, prints the message and ends the others
            raise ProcessLost(f"{lost} {_how_to_continue(folder)}") from None
    if process.rank > 0:
        return trained
    facts, policy = summary(folder, trained), trained.policy
    output.say(f"Loss {facts['loss']:.4f} after {quantity(facts['epochs'], 'epochs')}, {facts['seconds']:.1f} s.")
    if len(policy.names) > 1:
        picture = folder / "policy.png"
        draw_policy(policy, trained.drawn, f"Augmentation pairs learned on {dataset.name}", picture)
        leading = ", ".join(f"{first} + {second} {share:.2f}" for first, second, share in policy.top(3))
        output.say(f"Most probable pairs: {leading}. Figure: {picture}")
    return trained


def summary(run: Path, trained: TrainedEncoder) -> dict[str, Any]:
    """The JSON output of a pre-training."""
    last = trained.metrics[-1]
    return {
        "run": str(run),
        "loss": last.loss,
        "epochs": last.epoch,
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        "augmentations": list(trained.info.pool),
        "probabilities": last.probabilities,
    }


def _how_to_continue(folder: Path) -> str:
    from joao.runs.folder import Run

    if (folder / "run.json").exists():
        return Run.open(folder).resume_hint()
    return "There was no checkpoint yet; nothing is kept."


@contextmanager
def _notices_and_signals(process: ProcessLayout, output: Output) -> Iterator[StopRequest]:
    """Print the library's notices, and turn signals into a stop request.

    The parent of several processes stops them at the first signal. Under torchrun and SLURM, which handle signals
    themselves, no handler is installed.
    """
    with warnings.catch_warnings():
        show_warning = warnings.showwarning

        def print_notice(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, JoaoNotice):
                output.notice(str(message))
            else:
                show_warning(message, category, *place)

        warnings.showwarning = print_notice  # type: ignore[assignment]
        warnings.simplefilter("always", JoaoNotice)
        several = process.world_size > 1
        with catch_stop_signals(output.notice, at_once=several, enabled=not (several and process.is_worker)) as stop:
            yield stop


def quickstart(
    out: Path = Option(Path("runs/quickstart"), help="Folder of the run; a number is appended if it exists."),
    device: inputs.Device = "auto",
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Pre-train, evaluate, embed and plot on a small data set that comes with joao.

    The data set is MUTAG (188 graphs). Nothing is downloaded. Takes less than a minute on two cores.
    """
    from joao.config.recipe import make_recipe
    from joao.core.files import write_file
    from joao.data.names import BUNDLED
    from joao.runs.folder import check_new_folder
    from joao.runs.result_files import embeddings_npz

    output = Output(quiet, as_json)
    folder = free_path(out)
    check_new_folder(folder)
    dataset = inputs.read_data(str(BUNDLED / "MUTAG.zip"), None, output, {})
    trained = train(make_recipe({"data": "MUTAG"}), dataset, folder, output, ProcessLayout(), device=device)
    record = score(trained, dataset, folder / "evaluation.json", output, device=device, jobs=inputs.all_cores())
    write_file(folder / "embeddings.npz", embeddings_npz(trained.embed(dataset).numpy(), dataset))
    output.say(f"Embeddings: {folder / 'embeddings.npz'}. Learned augmentations: {folder / 'policy.png'}")
    output.result({**summary(folder, trained), "evaluation": record})
    output.suggest(f"report {shell_quote(folder)}")
    output.say("With your own graphs: joao pretrain my_graphs.jsonl --out runs/mine")
