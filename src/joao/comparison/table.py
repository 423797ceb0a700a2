""":func:`joao.compare`, and its result as text."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from joao.comparison.methods import Outcome, Step, choose_methods
from joao.comparison.molecule_table import TableComparison
from joao.comparison.molecules import TablePlan, compare_table, has_tasks_only
from joao.comparison.own import make_sendable
from joao.comparison.record import Plan, compute, missing_seeds, start_record
from joao.comparison.summary import KINDS, Row, accuracies_of, record_verdict, rows
from joao.core.errors import UserError, escape_control, quantity, short_repr, suggest
from joao.core.files import as_path, check_new_file, write_file
from joao.core.progress import Progress
from joao.core.tables import Tabular, html_page, text_table
from joao.data.dataset import Dataset
from joao.data.sources import read_graphs, warn_user
from joao.evaluation.embeddings import Scorer
from joao.evaluation.statistics import Gain, Verdict, paired_gain
from joao.evaluation.tables import with_deviation, with_interval
from joao.evaluation.targets import select_tasks
from joao.runs.scoring import labelled_graphs

HEADER = ["method", "accuracy %", "gain over untrained (95 % CI)", "seconds", "MB"]


@final
class Comparison(Tabular):
    """The result of :func:`joao.compare`. It prints as a table with a verdict.

    Attributes:
        record: all results, as written by ``joao compare --out``.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record

    @property
    def rows(self) -> list[Row]:
        """One row per method, including methods that failed."""
        return rows(self.record)

    @property
    def verdict(self) -> Verdict | None:
        """Whether pre-training helps; ``str()`` gives a sentence. None if no pre-trained method was compared."""
        return record_verdict(self.record)

    def to_json(self) -> Mapping[str, Any]:
        """Return the record, which has JSON types only."""
        return self.record

    def gain(self, method: str, baseline: str) -> Gain:
        """Compute the paired gain of one method over another, between -1 and 1, with its 95 % interval."""
        scores = []
        for name in (method, baseline):
            if name not in self.record["compared"]:
                raise UserError(f"comparison: no method {short_repr(name)}. {suggest(name, self.record['compared'])}")
            if (accuracies := accuracies_of(self.record, name)) is None:
                raise UserError(f"comparison: {name} has no scores.")
            scores.append(accuracies)
        return paired_gain(*scores)

    def plot(self) -> Any:
        """Draw the accuracies, and the gains over the untrained encoder; returns a matplotlib figure."""
        from joao.core.plots import COLOURS, MARKS, new_figure

        scored = [row for row in self.rows if row.accuracy is not None]
        kinds = [kind for kind in KINDS if kind in {row.kind for row in scored}]
        with new_figure(8.0, 1.7 + 0.32 * len(scored)) as figure:
            left, right = figure.subplots(1, 2, sharey=True)
            left.axvline(100 * self.record["chance"], color="#999999", linestyle=":", label="chance")
            right.axvline(0, color="#999999", linestyle=":")
            for number, row in enumerate(scored):
                assert row.accuracy is not None
                look = {"color": COLOURS[kinds.index(row.kind)], "fmt": MARKS[kinds.index(row.kind)], "capsize": 2}
                is_first = row.kind not in {each.kind for each in scored[:number]}
                label = {"label": row.kind} if is_first else {}
                left.errorbar(100 * row.accuracy, number, xerr=100 * (row.deviation or 0.0), **look, **label)
                if (gain := row.gain) is not None:
                    ends = [[100 * (gain.mean - gain.low)], [100 * (gain.high - gain.mean)]]
                    right.errorbar(100 * gain.mean, number, xerr=ends, **look)
            names = [escape_control(row.method) for row in scored]
            left.set_yticks(range(len(scored)), names, parse_math=False)
            left.invert_yaxis()
            left.set_xlabel("accuracy %" + (" ± standard deviation" if self.record["partitions"] > 1 else ""))
            right.set_xlabel("gain over untrained, points (95 % CI)")
            title = f"{self.record['data']['name']}: {quantity(self.record['partitions'], 'partitions')}"
            figure.suptitle(escape_control(title), parse_math=False, fontsize=10)
            figure.legend(loc="outside lower center", ncols=len(kinds) + 1)
            figure.draw_without_rendering()  # inside the style
        return figure

    def cells(self) -> tuple[list[str], list[list[str]]]:
        return HEADER, table_lines(self)

    def _numbers(self) -> tuple[list[str], list[list[Any]]]:
        header = ["method", "kind", "accuracy", "deviation", "gain", "gain_low", "gain_high", "seconds", "peak_bytes"]
        lines: list[list[Any]] = []
        for row in self.rows:
            gain = [None] * 3 if row.gain is None else [row.gain.mean, row.gain.low, row.gain.high]
            costs = [row.seconds, row.peak_bytes, row.failure or None]
            lines.append([row.method, row.kind, row.accuracy, row.deviation, *gain, *costs])
        return [*header, "failure"], lines

    def _text(self) -> tuple[str, list[str]]:
        return heading(self), [line for line in closing_lines(self) if not line.startswith(("  ", "Gain of"))]

    def __repr__(self) -> str:
        return "\n".join([heading(self), "", text_table(*self.cells()), "", *closing_lines(self)])


def compare(
    data: Any,
    methods: Any = None,
    *,
    partitions: int | None = None,
    folds: int | None = None,
    epochs: int | None = None,
    device: str = "auto",
    jobs: int | None = None,
    twins_together: bool = False,
    scorer: Scorer = "auto",
    tasks: Sequence[str] = (),
    split: str | Sequence[str] = "scaffold",
    model: str | Path = "molecules",
    out: str | Path | None = None,
    verbose: int = 0,
) -> Comparison | TableComparison:
    """Score methods on the same folds of graphs and decide whether pre-training helps.

    Args:
        data: anything that :func:`joao.read` accepts. Methods see all graphs, without labels; those with a class are
            scored.
        methods: a list of names, own methods and dictionaries of own methods by name; None: default. Names are
            pre-training methods such as ``joao``, baselines such as ``wl``, ``untrained``, and combinations such as
            ``joao+wl``, which are scored with the mean of their kernels. An own method is an estimator with ``fit`` and
            ``transform``, or a function from a :class:`joao.Dataset` to one row per graph
            (:mod:`joao.comparison.own`). The baselines in :data:`joao.config.methods.CHEAP_BASELINES` are always added.
        partitions: number of partitions into folds; seed s of a method is scored on partition s; None: 5, or 1 for
            tasks.
        folds: folds per partition; None: 10, or 5 for tasks.
        epochs: epochs of pre-training of named methods, or of fine-tuning for tasks; None: default.
        device: device of pre-training: ``auto``, ``cpu``, ``cuda`` or one GPU such as ``cuda:1``.
        jobs: cores to use, with one process per method; None: compute everything in this process. A script that sets it
            must guard its code by ``if __name__ == "__main__":``.
        twins_together: whether indistinguishable graphs stay in the same fold, see
            :func:`joao.data.refinement.find_twins`.
        scorer: ``exact``, ``compiled``, ``linear`` or ``auto``, see
            :func:`joao.evaluation.embeddings.evaluate_embeddings`.
        tasks: molecules with tasks instead of classes are compared by other methods, which predict the tasks: forests
            on fingerprints and descriptors, and an encoder, see :data:`joao.comparison.molecule_table.METHODS`. These
            are the tasks; empty: all.
        split: for tasks: ``scaffold`` or ``random`` folds, or ``train``, ``validation`` or ``test`` for each molecule.
        model: for tasks: the encoder, a run, an export or the name of a bundled model.
        out: file to write, of a type in :data:`FILE_TYPES`. JSON is the record, written after every seed (for tasks,
            after every fit); what it already contains is skipped.
        verbose: 1 shows progress, and the table after each partition. Ctrl-C returns the finished partitions, which may
            be none.

    >>> import joao
    >>> def sizes(graphs):  # number of nodes and edges of each graph
    ...     return [[graph.num_nodes, graph.num_edges] for graph in graphs]
    >>> comparison = joao.compare("MUTAG", ["untrained", "wl", "ldp", "histogram", sizes], partitions=1, folds=2)
    >>> print(comparison.verdict)  # no pre-trained method was compared
    None
    >>> max(row.accuracy for row in comparison.rows) > comparison.record["chance"]
    True
    """
    shown = Progress.from_verbose(verbose, "compare")
    path = None if out is None else as_path(out, "out")
    check_out(path)
    dataset = read_graphs(data)
    if has_tasks_only(dataset):
        if methods is not None:
            raise UserError("compare: methods cannot be chosen for tasks of molecules; all are compared.")
        if not isinstance(split, Iterable):
            raise UserError(f"compare: split must be a name or a part for each molecule, got {short_repr(split)}.")
        parts = None if isinstance(split, str) else list(split)
        numbers = {"folds": folds, "partitions": partitions, "epochs": epochs, "jobs": jobs}
        given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
        plan_ = TablePlan(model, split if isinstance(split, str) else "scaffold", device=device, **given)
        return run_table(select_tasks(dataset, tasks), plan_, path, shown, parts, warn_user)
    labelled_graphs(dataset)
    choice = choose_methods(dataset, methods)
    for notice in choice.notices:
        warn_user(notice)
    for name, method in choice.own.items() if jobs is not None else ():
        if make_sendable(method) is None:
            warn_user(f"compare: {name} cannot be pickled; it runs in this process.")
    sizes = 5 if partitions is None else partitions, 10 if folds is None else folds
    plan = Plan(choice.names, *sizes, epochs, device, jobs, twins_together, scorer, choice.own)
    comparison = run(dataset, plan, path, shown)
    if "interrupted" in comparison.record:
        warn_user(f"compare: interrupted {comparison.record['interrupted']}.")
    return comparison


def run(dataset: Dataset, plan: Plan, out: Path | None, shown: Progress) -> Comparison:
    """Compute a comparison, show its progress and write ``out``."""
    is_record = out is not None and out.suffix == ".json"
    record_path = out if is_record else None
    missing = sum(len(seeds) for seeds in missing_seeds(start_record(dataset, plan, record_path)).values())
    if missing:
        shown.line(f"comparing {', '.join(plan.methods)} on {dataset.name}, {quantity(plan.partitions, 'seeds')} each")
    steps: dict[str, Step] = {}  # of the methods that are being computed
    finished = 0
    with shown.bar("comparing", missing, in_lines=False) as bar:

        def show(note: str) -> None:
            bar.note(note, finished + sum(step.share for step in steps.values()))

        def on_step(step: Step) -> None:
            steps[step.method] = step
            show("; ".join(map(str, steps.values())))

        def on_done(done: Outcome) -> None:
            nonlocal finished
            steps.pop(done.method, None)
            if done.score is None:
                shown.line(f"failed: {done.method}: {done.failure}")
                return
            finished += 1
            show(f"{done.method}, seed {done.score['seed']}: {100 * done.score['mean']:.1f} %")
            shown.line(f"done: {done.method}, seed {done.score['seed']}")

        def on_partition(record: Mapping[str, Any]) -> None:
            title = f"After {record['partitions']} of {quantity(plan.partitions, 'partitions')}"
            bar.show(title, HEADER, table_lines(Comparison(record)))

        comparison = Comparison(compute(dataset, plan, record_path, on_done, on_partition, on_step))
    if out is not None and not is_record and comparison.record["partitions"]:
        write_file(out, FILE_TYPES[out.suffix](comparison))
    return comparison


def run_table(
    dataset: Dataset,
    plan: TablePlan,
    out: Path | None,
    shown: Progress,
    split: Sequence[str] | None,
    notify: Callable[[str], None],
) -> TableComparison:
    """Compare methods on tasks of molecules, show the progress and write ``out``."""
    is_record = out is not None and out.suffix == ".json"
    with shown.bar("comparing", None) as bar:
        comparison = compare_table(dataset, plan, split, bar.note, notify, out if is_record else None)
    if out is not None and not is_record:
        write_file(out, FILE_TYPES[out.suffix](comparison))
    return comparison


FILE_TYPES: dict[str, Callable[[Comparison | TableComparison], str]] = {
    ".json": lambda comparison: json.dumps(comparison.record),
    ".csv": Tabular.to_csv,
    ".tex": Tabular.to_latex,
    ".md": Tabular.to_markdown,
    ".html": lambda comparison: html_page(f"joao compare {comparison.record['data']['name']}", comparison.to_html()),
}


def check_out(path: Path | None) -> None:
    """Raise an error if an output has no known type or, unless it is a record, which is continued, exists."""
    if path is None:
        return
    if path.suffix not in FILE_TYPES:
        raise UserError(f"{path}: unknown file type '{path.suffix}'. Use {', '.join(FILE_TYPES)}.")
    if path.suffix != ".json":
        check_new_file(path)


def heading(comparison: Comparison) -> str:
    """Describe the data and the protocol in one line."""
    record, data, number = comparison.record, comparison.record["data"], comparison.record["partitions"]
    labelled = f" ({data['labelled']} with a label, which are scored)" if "labelled" in data else ""
    scorer = record["protocol"].get("scorer", "SVM")
    return (
        f"{data['name']}: {quantity(data['graphs'], 'graphs')}{labelled}, {quantity(data['classes'], 'classes')}. "
        f"{scorer[0].upper()}{scorer[1:]} on {quantity(number, 'shared partitions')} into {record['folds']} folds, "
        "one seed per partition. Pre-training uses all graphs without labels."
        + (" Twins stay in the same fold." if "folds" in record["protocol"] else "")
        + (f" Interrupted {record['interrupted']}." if "interrupted" in record else "")
    )


def table_lines(comparison: Comparison) -> list[list[str]]:
    """Format the rows of the table under :data:`HEADER`, and chance level."""
    chance = ["chance", f"{100 * comparison.record['chance']:.2f}", "", "", ""]
    return [*(_row_cells(row) for row in comparison.rows if comparison.record["partitions"]), chance]


def closing_lines(comparison: Comparison) -> list[str]:
    """Format failures, the meaning of the columns, the gains of the best pre-trained method, and the verdict."""
    if not comparison.record["partitions"]:
        return ["Verdict: none, because no partition was finished."]
    lines = [f"{row.method} failed: {row.failure}" for row in comparison.rows if row.failure]
    on_gpu = comparison.record["machine"]["device"] == "cuda"
    memory = "peak memory (of the GPU for encoders)" if on_gpu else "peak memory"
    lines.append(f"Seconds and {memory} are for the embeddings of one seed, with training and without scoring.")
    verdict = comparison.verdict
    if verdict is None:
        return [*lines, "Verdict: none, because no pre-trained method was compared with a cheap baseline."]
    lines.append(f"Gain of {verdict.method} in points (95 % CI) over:")
    width = max(map(len, verdict.over))
    lines += [f"  {name:{width}}  {with_interval(gain, times=100)}" for name, gain in verdict.over.items()]
    sentence = str(verdict)
    lines.append(f"Verdict: {sentence[0].lower()}{sentence[1:]}")
    if verdict.tried != (1, 1):
        lines.append("The interval of the verdict is corrected for choosing the best methods; those above are not.")
    return lines


def _row_cells(row: Row) -> list[str]:
    if row.accuracy is None or row.seconds is None:
        return [row.method, "failed", "", "", ""]
    accuracy = with_deviation(100 * row.accuracy, None if row.deviation is None else 100 * row.deviation)
    memory = "" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:,.0f}"
    return [row.method, accuracy, with_interval(row.gain, times=100), _seconds(row.seconds), memory]


def _seconds(value: float) -> str:
    """
    >>> [_seconds(value) for value in (0.003, 0.25, 4.56, 1234.5)]
    ['<0.01', '0.25', '4.6', '1,234']
    """
    if value < 1:
        return f"{value:.2f}" if value >= 0.01 else "<0.01"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
