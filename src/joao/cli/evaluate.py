from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.inputs import AsJson, DataRoot, Device, Quiet, TwinsTogether, all_cores, open_data, open_run_data, whole
from joao.cli.output import Output, free_path, quoted
from joao.core.errors import UserError

if TYPE_CHECKING:
    from joao.data import Dataset
    from joao.runs.trained import TrainedEncoder


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run, or its export.")],
    source: Annotated[str | None, typer.Argument(metavar="DATA", help="Labelled graphs; the run's own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Record to write.", show_default="RUN/evaluation.json")] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of each partition.")] = 10,
    unscaled: Annotated[bool, typer.Option("--unscaled", help="Do not standardise (as published).")] = False,
    shuffle_labels: Annotated[
        bool, typer.Option("--shuffle-labels", help="Check: with labels in random order the score must be chance.")
    ] = False,
    twins_together: TwinsTogether = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Folds at a time.", show_default="all cores")] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score a run: SVM, ten folds, five partitions, beside chance, a histogram and the untrained encoder."""
    from joao.core.files import check_new_file

    if out is not None:
        check_new_file(out)
    output = Output(quiet, as_json)
    from joao.runs.scoring import check_can_evaluate
    from joao.runs.trained import load_run

    trained = load_run(run, device=device)
    check_can_evaluate(trained)
    beside = run / "evaluation.json" if run.is_dir() else run.with_name(f"{run.stem}-evaluation.json")
    record_path = out or free_path(beside)
    check_new_file(record_path)
    named, source = source, source or trained.recipe.data
    if not source:
        raise UserError(f"{run}: does not say which graphs it was trained on. Name some: joao evaluate {run} DATA.")
    if named is None:
        dataset = whole(open_run_data(run, source, data_root, output, trained.recipe.columns))
    else:
        dataset = whole(open_data(named, data_root, output, {}))
    record = score(
        trained,
        dataset,
        record_path,
        output,
        num_folds=folds,
        standardise=not unscaled,
        shuffle_labels=shuffle_labels,
        twins_together=twins_together,
        device=device,
        jobs=jobs or all_cores(),
    )
    output.result(record)
    output.say(f"Next: joao embed {quoted(run)} {quoted(source)} --out {free_path(Path('embeddings.npz'))}")


def score(
    trained: TrainedEncoder, dataset: Dataset, record_path: Path, output: Output, **options: Any
) -> dict[str, Any]:
    """Scores with a progress bar, writes the record, says its figures and returns it."""
    from joao.config.titles import TITLES
    from joao.core.files import write_json
    from joao.evaluation.tables import with_deviation
    from joao.runs.scoring import REFERENCES, evaluate

    num_folds = options.get("num_folds", 10)
    with output.progress("scoring", (len(REFERENCES) + 1) * 5 * num_folds) as bar:
        record = evaluate(trained, dataset, on_fold=lambda fold, accuracy: bar.advance(), **options)
    write_json(record_path, record)
    lines = [["chance (largest class)", f"{100 * record['chance']:.2f}"]]
    for key in (*REFERENCES, "run"):
        scores = record[key]
        name = TITLES.get(key, "this run")
        lines.append([name, with_deviation(100 * scores["mean"], 100 * scores["std"])])
    labels = " Labels are SHUFFLED." if options.get("shuffle_labels") else ""
    twins = " Twins are in the same fold." if options.get("twins_together") else ""
    output.say(
        f"{dataset.name}: {len(dataset)} graphs, {len(dataset.class_names)} classes. One encoder, scored by an SVM on "
        f"five shared partitions into {num_folds} folds; pre-training was {record['protocol']['pre-training']}."
        f"{labels}{twins}"
    )
    output.table(["", "accuracy %"], lines)
    for baseline in reversed(REFERENCES):
        gain = {key: 100 * record[f"gain over {baseline}"][key] for key in ("mean", "low", "high")}
        output.say(
            f"Gain over {TITLES[baseline]}: {gain['mean']:+.2f} points "
            f"(95 % interval {gain['low']:+.2f} to {gain['high']:+.2f})."
        )
    output.say(f"Record: {record_path}")
    return record
