from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from joao.cli.inputs import (
    AsJson,
    DataRoot,
    IdColumn,
    Quiet,
    SmilesColumn,
    Tasks,
    all_cores,
    columns_of,
    open_data,
    whole,
)
from joao.cli.output import Output, quoted
from joao.core.errors import Interrupted, UserError
from joao.data.formats import PACKED_SUFFIXES

FOLDER_SUFFIXES = ("", ".joao")


def pack(
    sources: Annotated[
        list[str], typer.Argument(metavar="DATA...", help="Names or paths of graphs; several are joined.")
    ],
    out: Annotated[
        Path,
        typer.Option(help="File to write, .safetensors or .safetensors.xz, or a folder of shards, .joao or no suffix."),
    ],
    name: Annotated[str | None, typer.Option(help="How records call the data.", show_default="that of OUT")] = None,
    no_smiles: Annotated[
        bool, typer.Option("--no-smiles", help="Leave SMILES, identifiers and what did not parse out: less to carry.")
    ] = False,
    scaffolds: Annotated[
        bool, typer.Option("--scaffolds", help="With the scaffolds of molecules, for a split without RDKit.")
    ] = False,
    shard_graphs: Annotated[
        int | None, typer.Option(min=1, help="Of shards: graphs in each.", show_default="131072")
    ] = None,
    smiles: SmilesColumn = None,
    identifiers: IdColumn = None,
    tasks: Tasks = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write graphs into one file that is read quickly, and molecules without RDKit, or into a folder of shards.

    Shards are for data larger than memory: tables of molecules and .jsonl are packed as they are read, and training
    takes graphs from shards as it needs them. Given again after an interruption, the command goes on where it was.
    """
    from joao.core.files import check_new_file

    output = Output(quiet, as_json)
    columns = columns_of(smiles, identifiers, tasks)
    if out.suffix in FOLDER_SUFFIXES:
        if scaffolds:
            raise UserError(f"{out}: --scaffolds is for one file, .safetensors; shards have none.")
        _pack_shards(sources, out, name or out.stem, shard_graphs, not no_smiles, columns, data_root, output)
        return
    if not out.name.endswith(PACKED_SUFFIXES):
        raise UserError(
            f"{out}: unknown kind of file '{out.suffix}'. Use .safetensors or .safetensors.xz, or .joao for a folder."
        )
    if shard_graphs is not None:
        raise UserError(f"{out}: --shard-graphs is for a folder of shards; this is one file.")
    check_new_file(out)
    from joao.data.dataset import concatenate_datasets
    from joao.data.formats.packed import drop_texts, write_packed

    read = [whole(open_data(source, data_root, output, columns)) for source in sources]
    dataset = concatenate_datasets(read, name or out.name.split(".safetensors")[0])
    if scaffolds:
        if dataset.kind != "molecules" or not dataset.smiles:
            raise UserError(f"{dataset.name}: --scaffolds needs molecules with their SMILES.")
        from joao.evaluation.splits import scaffold_numbers

        with output.progress("scaffolds", len(dataset)) as bar:
            numbers = scaffold_numbers(
                dataset.smiles, jobs=all_cores(), on_chunk=lambda done: bar.add(done, len(dataset))
            )
        dataset = replace(dataset, groups=numbers)
    elif dataset.groups is None and any(each.groups is not None for each in read):
        output.notice(
            f"{dataset.name}: scaffolds of packed data are not joined; --scaffolds makes them anew of SMILES."
        )
    write_packed(out, drop_texts(dataset) if no_smiles else dataset)
    size, fingerprint = out.stat().st_size, dataset.fingerprint
    facts = {"file": str(out), "graphs": len(dataset), "kind": dataset.kind, "bytes": size, "fingerprint": fingerprint}
    _tell(facts, f"{out}: {len(dataset)} {dataset.kind}", dataset.name, out, output)


def _pack_shards(
    sources: list[str],
    out: Path,
    name: str,
    shard_graphs: int | None,
    with_texts: bool,
    columns: dict[str, Any],
    data_root: str | None,
    output: Output,
) -> None:
    from joao.data.formats.smiles import Columns
    from joao.data.molecules import ReadOptions
    from joao.data.shards.index import FAILURES
    from joao.data.shards.writer import SHARD_GRAPHS, PackSource, pack_shards

    named = Columns(columns.get("smiles"), columns.get("identifiers"), _tuple(columns.get("tasks")))
    pieces = [PackSource(source, data_root, named, ReadOptions(all_cores())) for source in sources]
    try:
        with output.progress("packing", None, in_lines=False) as bar:

            def on_shard(shards: int, graphs: int) -> None:
                bar.add(1, shards + 1)
                output.log(f"{out}: {shards} shards, {graphs} graphs")

            shards = pack_shards(
                pieces,
                out,
                name,
                shard_graphs=shard_graphs or SHARD_GRAPHS,
                with_texts=with_texts,
                on_shard=on_shard,
            )
    except KeyboardInterrupt:
        raise Interrupted("interrupted. Go on: give the same command again.") from None
    for notice in shards.notices:
        output.notice(notice)
    failed = shards.index.num_failures
    if failed:
        where = f"; {out / FAILURES} lists them" if shards.facts.failures else ""
        output.notice(
            f"{shards.name}: {failed} of {len(shards) + failed} rows are no molecules and are left out{where}"
        )
    number = len(shards.index.shards)
    facts = {
        "folder": str(out),
        "graphs": len(shards),
        "kind": shards.kind,
        "shards": number,
        "bytes": shards.num_bytes,
        "failures": failed,
        "fingerprint": shards.fingerprint,
    }
    _tell(facts, f"{out}: {len(shards)} {shards.kind} in {number} shards", shards.name, out, output)


def _tell(facts: dict[str, Any], what: str, name: str, out: Path, output: Output) -> None:
    """What was packed."""
    output.result(facts)
    output.say(f"{what}, {facts['bytes'] / 1e6:.1f} MB, {facts['bytes'] / facts['graphs']:.0f} bytes each.")
    output.say(f"Next: joao pretrain {quoted(out)} --out {quoted(f'runs/{name}')}")


def _tuple(tasks: list[str] | None) -> tuple[str, ...] | None:
    return None if tasks is None else tuple(tasks)
