"""The command ``joao``."""

from __future__ import annotations

import sys

import typer

from joao.cli import data, embed, evaluate, pretrain, quickstart, reproduce
from joao.errors import UserError

app = typer.Typer(
    name="joao",
    help="Graph contrastive learning that chooses its own augmentations: graphs in, embeddings out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(quickstart.quickstart)
app.command()(data.data)
app.command()(pretrain.pretrain)
app.command()(embed.embed)
app.command()(evaluate.evaluate)
app.add_typer(reproduce.app, name="reproduce")


def _version(wanted: bool) -> None:
    if wanted:
        from joao import __version__

        typer.echo(f"joao {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say the version."),
) -> None:
    """Graph contrastive learning that chooses its own augmentations: graphs in, embeddings out."""


def run() -> None:
    """Runs the command line; wrong input ends in one line and exit code 2."""
    try:
        app()
    except UserError as error:
        typer.echo(f"joao: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("joao: interrupted.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        typer.echo(f"joao: {error.filename or 'file'}: {error.strerror or error}.", err=True)
        sys.exit(2)
