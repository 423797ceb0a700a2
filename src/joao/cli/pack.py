"""``joao pack``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.output import Output, check_suffix, continued_if_repeated, quantity, shell_quote
from joao.core.errors import UserError
from joao.core.files import refuse_dash
from joao.data.formats import PACKED_SUFFIXES

if TYPE_CHECKING:
    from joao.data.shards.writer import BlockSource


def pack(
    sources: list[str] = Argument(..., metavar="DATA...", help="Names or paths of graphs; several are joined."),
    out: Path = Option(
        ..., help="File to write (.safetensors or .safetensors.xz) or folder of shards (.joao or no suffix)."
    ),
    name: str | None = Option(None, show_default="the name of OUT", help="Name of the data set."),
    no_smiles: bool = inputs.flag("--no-smiles", "Omit SMILES, identifiers and failed rows, for a smaller file."),
    scaffolds: bool = inputs.flag("--scaffolds", "Add the scaffolds of molecules, for scaffold splits without RDKit."),
    shard_graphs: int | None = Option(None, min=1, show_default="131072", help="Graphs per shard."),
    engine: str = Option("local", help="local, or ray: convert the molecules of tables on a Ray cluster, for shards."),
    workers: int | None = Option(None, min=1, show_default="one per core", help="Number of processes."),
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    tasks: inputs.Tasks = None,
    standardise: inputs.Standardise = None,
    node_label: str | None = Option(
        None, metavar="ATTRIBUTE", show_default="label", help="Node attribute of GraphML that is a category."
    ),
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Pack graphs into one file that loads quickly (molecules without RDKit), or into a folder of shards.

    Shards are for data larger than memory: tables of molecules and .jsonl files are packed while they are read, and
    training loads graphs from shards on demand. If interrupted, run the same command again to continue.
    """
    refuse_dash(out)
    output = Output(quiet, as_json)
    if out.suffix in ("", ".joao"):
        if scaffolds:
            raise UserError(f"{out}: --scaffolds cannot be used with shards. Write to a .safetensors file.")
        from joao.core.engines import check_engine
        from joao.data.formats.smiles import Columns
        from joao.data.molecules import ReadOptions
        from joao.data.shards.writer import BlockSource

        check_engine(engine)
        chosen = Columns(smiles, identifiers, tuple(tasks) if tasks else None)
        jobs = 1 if engine == "ray" else workers or inputs.all_cores()
        options = ReadOptions(jobs, node_label=node_label or "", standardise=bool(standardise))
        pieces = [BlockSource(source, data_root, chosen, options) for source in sources]
        _pack_shards(pieces, out, name or out.stem, shard_graphs, not no_smiles, output, engine, workers)
        return
    check_suffix(out, *PACKED_SUFFIXES, ".joao")
    if engine != "local" or workers is not None:
        raise UserError(f"{out}: --engine and --workers need a folder of shards, and this is one file. Use .joao.")
    if shard_graphs is not None:
        raise UserError(f"{out}: --shard-graphs needs a folder of shards, and this is one file. Use .joao.")
    from joao.core.files import check_new_file
    from joao.data.dataset import concatenate_datasets
    from joao.data.formats.packed import drop_texts, write_packed

    check_new_file(out)
    columns = inputs.column_options(smiles, identifiers, tasks, standardise) | (
        {"node_label": node_label} if node_label else {}
    )
    parts = [inputs.read_data(source, data_root, output, columns) for source in sources]
    dataset = concatenate_datasets(parts, name or out.name.split(".safetensors")[0])
    if scaffolds:
        if dataset.kind != "molecules" or not dataset.smiles:
            raise UserError(f"{dataset.name}: --scaffolds needs molecules with SMILES.")
        from joao.evaluation.splits import scaffold_numbers

        with output.progress("scaffolds", len(dataset)) as bar:
            numbers = scaffold_numbers(
                dataset.smiles, jobs=inputs.all_cores(), on_chunk=lambda done: bar.add(done, len(dataset))
            )
        dataset = replace(dataset, groups=numbers)
    elif dataset.groups is None and any(part.groups is not None for part in parts):
        output.notice(
            f"{dataset.name}: scaffolds are dropped when packed files are joined. Use --scaffolds to compute them."
        )
    write_packed(out, drop_texts(dataset) if no_smiles else dataset)
    size, fingerprint = out.stat().st_size, dataset.fingerprint
    facts = {"file": str(out), "graphs": len(dataset), "kind": dataset.kind, "bytes": size, "fingerprint": fingerprint}
    _print_packed(facts, dataset.name, out, output)


def _pack_shards(
    sources: list[BlockSource],
    out: Path,
    name: str,
    shard_graphs: int | None,
    with_texts: bool,
    output: Output,
    engine: str,
    workers: int | None,
) -> None:
    from joao.core.engines import map_on
    from joao.core.processes import in_order
    from joao.data.shards.index import FAILURES
    from joao.data.shards.writer import SHARD_GRAPHS, pack_shards

    with continued_if_repeated(), output.progress("packing", None, in_lines=False) as bar:

        def on_shard(shards: int, graphs: int) -> None:
            bar.add(1, shards + 1)
            output.log(f"{out}: {quantity(shards, 'shards')}, {quantity(graphs, 'graphs')}")

        def on_cluster(function: Callable[[Any], Any], blocks: Iterable[Any]) -> Iterator[Any]:
            return in_order(map_on(engine, function, blocks, workers))

        shards = pack_shards(
            sources,
            out,
            name,
            shard_graphs=shard_graphs or SHARD_GRAPHS,
            with_texts=with_texts,
            on_shard=on_shard,
            convert=map if engine == "local" else on_cluster,
        )
    for notice in shards.notices:
        output.notice(notice)
    failed = shards.index.num_failures
    if failed:
        listed = f"; they are listed in {out / FAILURES}" if shards.facts.failures else ""
        output.notice(
            f"{shards.name}: {failed} of {len(shards) + failed} rows are not valid molecules and are left out{listed}"
        )
    facts = {
        "folder": str(out),
        "graphs": len(shards),
        "kind": shards.kind,
        "shards": len(shards.index.shards),
        "bytes": shards.num_bytes,
        "failures": failed,
        "fingerprint": shards.fingerprint,
    }
    _print_packed(facts, shards.name, out, output)


def _print_packed(facts: dict[str, Any], name: str, out: Path, output: Output) -> None:
    output.result(facts)
    shards = f" in {quantity(facts['shards'], 'shards')}" if "shards" in facts else ""
    size = f"{facts['bytes'] / 1e6:.1f} MB, {facts['bytes'] / facts['graphs']:.0f} bytes each"
    output.say(f"{out}: {quantity(facts['graphs'], facts['kind'])}{shards}, {size}.")
    output.suggest(f"pretrain {shell_quote(out)}", Path("runs") / name)
