from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joao.cli.inputs import AsJson, Quiet
from joao.cli.output import Output, free_path, quoted


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run, or its export.")],
    out: Annotated[Path, typer.Option(help="File to write, .safetensors; must not exist yet.")],
    half: Annotated[
        bool, typer.Option("--half", help="Keep the encoder's matrices in half precision: half the size.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make one file of a run, to be passed on: weights, recipe and what is needed to use them; and a model card.

    A model of molecules comes with joao: see 'joao embed --pretrained molecules'.
    """
    from joao.runs.export import export

    output = Output(quiet, as_json)
    exported = export(run, out, half=half)
    output.result(
        {
            "file": str(exported.file),
            "card": str(exported.card),
            "bytes": exported.num_bytes,
            "half_change": exported.half_change,
        }
    )
    kilobytes = exported.num_bytes / 1000
    size = f"{kilobytes / 1000:.1f} MB" if kilobytes >= 1000 else f"{kilobytes:.1f} kB"
    output.say(f"{exported.file}: {size}. Model card: {exported.card}")
    if exported.half_change is not None:
        output.say(f"Half precision changes embeddings by up to {exported.half_change:.2g} of their length.")
    trained = exported.trained
    command, made = ("predict", "predictions.csv") if trained.info.finetuned_on else ("embed", "embeddings.csv")
    data = quoted(trained.recipe.data) if trained.recipe.data else "DATA"
    output.say(f"Next: joao {command} {quoted(out)} {data} --out {free_path(Path(made))}")
