"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataRoot = Annotated[
    str | None,
    typer.Option("--data-root", envvar="JOAO_DATA", help="Folder where data sets are looked up by name."),
]
SmilesColumn = Annotated[
    str | None,
    typer.Option("--smiles", metavar="COLUMN", help="Of a table: the column of SMILES, where its name does not tell."),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", metavar="COLUMN", help="Of a table: the column of identifiers, likewise.")
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="COLUMN", help="Of a table: a column of labels, instead of all that hold numbers."),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")]
Encoders = Annotated[Path, typer.Option(help="Folder of the pre-trained encoders.")]
Precision = Annotated[str, typer.Option(help="32-true, tf32, bf16-mixed or 16-mixed.")]
Fast = Annotated[
    bool | None, typer.Option("--fast/--plain", help="Train on padded batches; by default on a GPU, where possible.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
TwinsTogether = Annotated[
    bool, typer.Option("--twins-together", help="Keep graphs that cannot be told apart in the same fold.")
]
