"""``joao evaluate`` and ``joao compare``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.output import Output, free_path, quantity, shell_quote
from joao.config.methods import CHEAP_BASELINES, COMBINATIONS, COMPARED_METHODS
from joao.core.errors import Interrupted, UserError

HEADER = ["", "accuracy %"]

if TYPE_CHECKING:
    from joao.comparison.molecule_table import TableComparison
    from joao.comparison.molecules import TablePlan
    from joao.comparison.table import Comparison
    from joao.data import Dataset
    from joao.runs.trained import TrainedEncoder


def evaluate(
    run: Path = inputs.MODEL,
    source: str | None = Argument(None, metavar="DATA", help="Labelled graphs (default: the graphs of the run)."),
    out: Path | None = Option(None, show_default="RUN/evaluation.json", help="Record to write."),
    folds: int = Option(10, min=2, help="Folds of each partition."),
    unscaled: bool = inputs.flag("--unscaled", "Do not standardise the embeddings (as published)."),
    shuffle_labels: bool = inputs.flag(
        "--shuffle-labels", "Sanity check: shuffle the labels; accuracy must drop to chance."
    ),
    twins_together: inputs.TwinsTogether = False,
    scorer: inputs.ScorerName = "auto",
    jobs: int | None = Option(None, min=1, show_default="all cores", help="Folds to fit in parallel."),
    device: inputs.Device = "auto",
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Score the embeddings of a run with an SVM, and compare them with cheap baselines and the untrained encoder.

    Accuracy is the mean over five partitions into ten folds. Graphs without a label are not scored. Ctrl-C keeps the
    partitions that are finished.
    """
    from joao.core.files import check_new_file

    if out is not None:
        check_new_file(out)
    output = Output(quiet, as_json)
    from joao.runs.scoring import check_can_evaluate
    from joao.runs.trained import load_run, model_path

    trained = load_run(model_path(run), device=device)
    check_can_evaluate(trained)
    default_path = run / "evaluation.json" if run.is_dir() else run.with_name(f"{run.stem}-evaluation.json")
    record_path = out or free_path(default_path)
    check_new_file(record_path)
    columns = trained.recipe.columns
    if source:
        columns = inputs.column_options(None, None, standardise=trained.info.standardised)
        dataset = inputs.read_data(source, data_root, output, columns)
    elif source := trained.recipe.data:
        dataset = inputs.in_memory(inputs.open_run_data(run, trained.recipe, data_root, output))
    else:
        raise UserError(f"{run}: does not record which graphs it was trained on. Run: joao evaluate {run} DATA.")
    record = score(
        trained,
        dataset,
        record_path,
        output,
        num_folds=folds,
        standardise=not unscaled,
        shuffle_labels=shuffle_labels,
        twins_together=twins_together,
        scorer=scorer,
        device=device,
        jobs=jobs or inputs.all_cores(),
    )
    output.result(record)
    data = inputs.source_words(source, columns, data_root)
    output.suggest(f"embed {shell_quote(run)} {data}", Path("embeddings.npz"))


def score(
    trained: TrainedEncoder, dataset: Dataset, record_path: Path, output: Output, **options: Any
) -> dict[str, Any]:
    """Score an encoder with a progress bar, print the result, write the record and return it."""
    from joao.config.methods import titles
    from joao.core.files import write_json
    from joao.evaluation.tables import with_deviation
    from joao.report.scores import bars
    from joao.runs.scoring import REFERENCES, evaluate

    num_folds, records, names = options.get("num_folds", 10), list[dict[str, Any]](), {**titles(), "run": "run"}

    def lines(record: dict[str, Any]) -> list[list[str]]:
        return [[bar.name, with_deviation(bar.mean, bar.std)] for bar in bars(record, "", dataset.name)]

    with output.progress("scoring", (len(REFERENCES) + 1) * 5 * num_folds) as bar:

        def on_partition(record: dict[str, Any]) -> None:
            records.append(record)
            bar.show(f"After {len(records)} of 5 partitions", HEADER, lines(record))

        def on_fold(name: str, partition: int, accuracy: float) -> None:
            bar.advance(f"{names[name]}, partition {partition + 1}")

        try:
            record = evaluate(
                trained,
                dataset,
                on_rows=lambda name: bar.note(f"embedding: {names[name]}"),
                on_fold=on_fold,
                on_partition=on_partition,
                **options,
            )
        except KeyboardInterrupt:
            if not records:
                raise Interrupted("interrupted before the first partition was finished. Nothing is kept.") from None
            record = records[-1] | {"interrupted": f"after {len(records)} of 5 partitions"}
    write_json(record_path, record)
    data = record["data"]
    labelled = f" ({data['labelled']} with a label)" if "labelled" in data else ""
    notes = " Labels are SHUFFLED." if options.get("shuffle_labels") else ""
    notes += " Twins are in the same fold." if options.get("twins_together") else ""
    output.say(
        f"{dataset.name}: {quantity(len(dataset), 'graphs')}{labelled}, "
        f"{quantity(len(dataset.class_names), 'classes')}. One encoder, scored with "
        f"{'an SVM' if 'scorer' not in record['protocol'] else 'the ' + record['protocol']['scorer']} on "
        f"{quantity(len(records), 'partitions')} into {num_folds} folds; pre-training was "
        f"{record['protocol']['pre-training']}.{notes}"
    )
    output.table(HEADER, lines(record))
    for baseline in reversed(REFERENCES):
        gain = {key: 100 * record[f"gain over {baseline}"][key] for key in ("mean", "low", "high")}
        output.say(
            f"Gain over {titles()[baseline]}: {gain['mean']:+.2f} points "
            f"(95 % interval {gain['low']:+.2f} to {gain['high']:+.2f})."
        )
    output.say(f"Record: {record_path}")
    if "interrupted" in record:
        raise Interrupted(f"interrupted {record['interrupted']}. Their scores are in {record_path}.")
    return record


def compare(
    source: str = Argument(..., metavar="DATA", help="Name or path of labelled graphs."),
    methods: str | None = Option(
        None,
        show_default=f"{','.join((*COMPARED_METHODS, *COMBINATIONS))}; only {COMPARED_METHODS[0]} for large data sets",
        help="Methods, separated by commas: those of 'joao pretrain --method', baselines such as wl and graph2vec, "
        f"combinations such as joao+wl, or untrained. The baselines {', '.join(CHEAP_BASELINES)} are always added.",
    ),
    partitions: int | None = Option(
        None, min=1, show_default="5, or 1 for tasks", help="Number of partitions into folds; each has a seed."
    ),
    folds: int | None = Option(None, min=2, show_default="10, or 5 for tasks", help="Folds of each partition."),
    epochs: int | None = Option(
        None, min=1, show_default="20", help="Epochs of pre-training, or of fine-tuning for tasks."
    ),
    twins_together: inputs.TwinsTogether = False,
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    tasks: inputs.Tasks = None,
    standardise: inputs.Standardise = None,
    split: str = Option(
        "scaffold",
        help="For tasks: scaffold or random folds, or the name of a column of train, validation and test.",
    ),
    model: Path = Option(Path("molecules"), help="For tasks: the encoder, a run, an export or 'molecules'."),
    precision: inputs.Precision = "32-true",
    scorer: inputs.ScorerName = "auto",
    out: Path | None = Option(
        None,
        help="File to write: .json (the record, updated as methods finish; the same command continues it), .csv, .tex, "
        ".md or .html (the table).",
    ),
    jobs: int | None = Option(None, min=1, show_default="all cores", help="Cores to use."),
    device: inputs.Device = "auto",
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Find out whether pre-training helps on your graphs: score methods and baselines on the same folds.

    Tasks in a table of molecules are predicted by forests on fingerprints and descriptors, by an encoder, and by both
    together, to find out which to use.

    Prints accuracy, gain, time and memory of every method, and a verdict with a confidence interval. Ctrl-C keeps and
    prints the partitions that are finished; for tasks it keeps what is finished in a --out that ends in .json.
    """
    from joao.comparison.methods import choose_methods
    from joao.comparison.molecules import TablePlan, has_tasks_only
    from joao.comparison.record import Plan
    from joao.comparison.table import check_out, closing_lines, heading, run
    from joao.data.sources import is_table
    from joao.runs.folder import Run
    from joao.runs.scoring import labelled_graphs
    from joao.runs.trained import model_path

    output = Output(quiet, as_json)
    check_out(out)
    if is_table(source, data_root):
        standardise = inputs.standardise_as(Run.open(model_path(model)).info, standardise, output)
    columns = inputs.column_options(smiles, identifiers, tasks, standardise)
    dataset = inputs.read_data(source, data_root, output, columns)
    cores = jobs or inputs.all_cores()
    if has_tasks_only(dataset):
        if methods is not None:
            raise UserError("compare: --methods cannot be chosen for tasks of molecules; all are compared.")
        _check_unused("classes", {"--twins-together": twins_together, "--scorer": scorer != "auto"})
        parts = inputs.split_column(dataset, split, source, data_root)
        kind = split if parts is None else "scaffold"
        table_plan = TablePlan(model, kind, folds or 5, partitions or 1, epochs or 20, cores, device, precision)
        data = inputs.source_words(source, columns, data_root)
        _compare_tasks(dataset, table_plan, parts, out, data, output)
        return
    labelled_graphs(dataset)
    given_for_tasks = {"--split": split != "scaffold", "--model": model != Path("molecules")}
    _check_unused("tasks of molecules", given_for_tasks | {"--precision": precision != "32-true"})
    choice = choose_methods(dataset, methods)
    for notice in choice.notices:
        output.notice(notice)
    plan = Plan(choice.names, partitions or 5, folds or 10, epochs, device, cores, twins_together, cast(Any, scorer))
    comparison = run(dataset, plan, out, output.shown)
    if not comparison.record["partitions"]:
        raise Interrupted(f"interrupted before the first partition was finished. {_what_is_kept(out)}.")
    _print_table(comparison, heading(comparison), closing_lines(comparison), output)
    _print_path(out, output)
    if "interrupted" in comparison.record:
        kept = f"They are in {out}" if out else "Use --out FILE.json to keep and continue them"
        more = "; run the same command again to continue" if out and out.suffix == ".json" else ""
        raise Interrupted(f"interrupted {comparison.record['interrupted']}. {kept}{more}.")
    output.suggest(f"pretrain {inputs.source_words(source, {}, data_root)}", Path("runs/mine"))


def _compare_tasks(
    dataset: Dataset, plan: TablePlan, parts: list[str] | None, out: Path | None, data: str, output: Output
) -> None:
    """Compare methods on tasks of molecules: ``parts`` is a given split, ``data`` the source for the next command."""
    from joao.comparison.table import run_table

    try:
        table = run_table(dataset, plan, out, output.shown, parts, output.notice)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted. {_what_is_kept(out)}.") from None
    _print_table(table, table.heading, table.closing_lines, output)
    _print_path(out, output)
    tasks = "".join(f" --task {shell_quote(task)}" for task in table.record["tasks"])
    ensemble = " --ensemble" if table.best_with_encoder == "ensemble" else ""
    output.suggest(f"finetune {shell_quote(plan.model)} {data}{tasks}{ensemble}", Path("runs/mine"))


def _what_is_kept(out: Path | None) -> str:
    """Describe what an interrupted comparison without a result has written to ``out``."""
    if out and out.exists():
        return f"Finished work, if there is any, is in {out}; run the same command again to continue"
    return (
        "Nothing is kept" if out and out.suffix == ".json" else "Nothing is kept; --out FILE.json keeps finished work"
    )


def _check_unused(needs: str, options: Mapping[str, bool]) -> None:
    """Raise an error for the first option that would have no effect on these labels."""
    for option, is_given in options.items():
        if is_given:
            raise UserError(f"compare: {option} is for {needs}, which the data do not have. Leave it out.")


def _print_table(comparison: Comparison | TableComparison, above: str, below: list[str], output: Output) -> None:
    output.result(dict(comparison.record))
    output.say(above)
    output.table(*comparison.cells())
    for line in below:
        output.say(line)


def _print_path(out: Path | None, output: Output) -> None:
    if out is not None:
        output.say(f"{'Record' if out.suffix == '.json' else 'Table'}: {out}")
