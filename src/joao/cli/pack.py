from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from joao.cli._shared import (
    AsJson,
    DataRoot,
    IdColumn,
    Output,
    Quiet,
    SmilesColumn,
    Tasks,
    all_cores,
    columns_of,
    quoted,
    read_data,
)
from joao.errors import UserError


def pack(
    sources: Annotated[
        list[str], typer.Argument(metavar="DATA...", help="Names or paths of graphs; several are joined.")
    ],
    out: Annotated[Path, typer.Option(help="File to write, .safetensors or .safetensors.xz; must not exist yet.")],
    name: Annotated[str | None, typer.Option(help="How records call the data.", show_default="that of OUT")] = None,
    no_smiles: Annotated[
        bool, typer.Option("--no-smiles", help="Leave SMILES, identifiers and what did not parse out: less to carry.")
    ] = False,
    scaffolds: Annotated[
        bool, typer.Option("--scaffolds", help="With the scaffolds of molecules, for a split without RDKit.")
    ] = False,
    smiles: SmilesColumn = None,
    identifiers: IdColumn = None,
    tasks: Tasks = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write graphs into one file that is read quickly, and molecules without RDKit."""
    from joao.files import check_new

    if not out.name.endswith((".safetensors", ".safetensors.xz")):
        raise UserError(f"{out}: unknown kind of file '{out.suffix}'. Use .safetensors or .safetensors.xz.")
    check_new(out)
    output = Output(quiet, as_json)
    from joao.data.joining import joined
    from joao.data.packed import without_texts, write_packed

    columns = columns_of(smiles, identifiers, tasks)
    read = [read_data(source, data_root, output, columns) for source in sources]
    dataset = joined(read, name or out.name.split(".safetensors")[0])
    if scaffolds:
        if dataset.kind != "molecules" or not dataset.smiles:
            raise UserError(f"{dataset.name}: --scaffolds needs molecules with their SMILES.")
        from joao.evaluation.scaffolds import scaffold_numbers

        with output.progress("scaffolds", len(dataset)) as bar:
            numbers = scaffold_numbers(
                dataset.smiles, jobs=all_cores(), on_chunk=lambda done: bar.add(done, len(dataset))
            )
        dataset = replace(dataset, groups=numbers)
    elif dataset.groups is None and any(each.groups is not None for each in read):
        output.notice(
            f"{dataset.name}: scaffolds of packed data are not joined; --scaffolds makes them anew of SMILES."
        )
    write_packed(out, without_texts(dataset) if no_smiles else dataset)
    size = out.stat().st_size
    output.result(
        {
            "file": str(out),
            "graphs": len(dataset),
            "kind": dataset.kind,
            "bytes": size,
            "fingerprint": dataset.fingerprint,
        }
    )
    output.say(f"{out}: {len(dataset)} {dataset.kind}, {size / 1e6:.1f} MB, {size / len(dataset):.0f} bytes each.")
    output.say(f"Next: joao pretrain {quoted(out)} --out {quoted(f'runs/{dataset.name}')}")
