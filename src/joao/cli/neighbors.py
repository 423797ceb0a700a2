"""``joao neighbors``."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.output import Output, check_suffix, quantity
from joao.core.errors import Interrupted

_LINES_AT_ONCE = 1 << 14


def neighbors(
    run: Path = inputs.MODEL,
    library: str = Argument(..., metavar="DATA", help="Graphs to search: the library."),
    out: Path = Option(..., help="New file (.csv or .parquet), one line for each query and neighbour."),
    query: str | None = Option(
        None,
        metavar="DATA",
        show_default="every graph of the library",
        help="Graphs, or one SMILES, whose neighbours are wanted.",
    ),
    k: int = Option(10, "--k", min=1, help="Number of neighbours."),
    by: str = Option(
        "encoder", help="encoder (cosine of the embeddings) or ecfp (Tanimoto of the fingerprints of molecules)."
    ),
    outliers: bool = inputs.flag(
        "--outliers", "Write one line for each query instead: the similarity to its k-th neighbour, the lowest first."
    ),
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    standardise: inputs.Standardise = None,
    device: inputs.Device = "auto",
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Find the graphs of a library that are most similar to each query, with their similarities.

    The library is read in blocks, so it may be larger than the memory. Without --query, every graph is compared with
    every other: exactly up to a million graphs, and with an approximate index (pip install usearch) beyond.
    """
    from joao.core.files import check_new_file, import_parquet, write_file
    from joao.data.sources import source_or_smiles
    from joao.runs.neighbors import SIMILARITIES
    from joao.runs.neighbors import neighbors as search
    from joao.runs.trained import model_path

    check_suffix(out, ".csv", ".parquet")
    check_new_file(out)
    if out.suffix == ".parquet":
        import_parquet(out)
    output = Output(quiet, as_json)
    with output.progress("rows", None) as bar:
        done = 0

        def on_rows(rows: int) -> None:
            nonlocal done
            bar.add(rows - done, rows)
            done = rows

        options: dict[str, Any] = {
            "k": k,
            "by": by,
            "smiles": smiles,
            "identifiers": identifiers,
            "standardise": standardise,
        }
        options |= {"root": data_root, "device": device}
        query_source = None if query is None else source_or_smiles(query, data_root)
        try:
            result = search(library, query_source, run, **options, on_rows=on_rows, on_notice=output.notice)
        except KeyboardInterrupt:
            raise Interrupted("interrupted. Nothing was written.") from None
    write_file(out, _content(out, result.outliers() if outliers else result.lines()), new=True)
    count = result.rows.shape[1]
    facts = {"queries": len(result.queries), "library": result.num_graphs, "k": count, "by": by, "exact": result.exact}
    output.result({"file": str(out), **facts})
    queries, graphs = quantity(len(result.queries), "query_graphs"), quantity(result.num_graphs, "graphs")
    output.say(f"{out}: {queries}, {count} of {graphs} each. Similarity: {SIMILARITIES[by]}.")
    if by == "encoder" and model_path(run) != run:  # the rule is in repro/decision-rules.md
        output.say("On development sets, neighbours by --by ecfp had more similar activities (docs/molecules.md).")


def _content(path: Path, lines: Iterator[dict[str, Any]]) -> Iterable[bytes | memoryview]:
    from joao.core.files import import_parquet
    from joao.core.tables import format_csv

    if path.suffix == ".parquet":
        arrow = import_parquet(path)
        sink = arrow.BufferOutputStream()
        arrow.parquet.write_table(arrow.Table.from_pylist(list(lines)), sink)
        yield memoryview(sink.getvalue())
        return
    first = next(lines)
    yield format_csv([first.keys()]).encode()
    lines = chain([first], lines)
    while piece := list(islice(lines, _LINES_AT_ONCE)):
        yield format_csv(line.values() for line in piece).encode()
