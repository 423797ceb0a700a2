"""The command ``joao``."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import typer

from joao.cli.compare import compare
from joao.cli.data import data
from joao.cli.embed import embed
from joao.cli.evaluate import evaluate
from joao.cli.export import export
from joao.cli.finetune import finetune
from joao.cli.pack import pack
from joao.cli.predict import predict
from joao.cli.pretrain import pretrain
from joao.cli.quickstart import quickstart
from joao.cli.report import report
from joao.core.errors import Interrupted, ProcessLost, UserError, escape_control, is_out_of_memory

# The parser's error about wrong arguments, which typer itself does not name.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="joao",
    help="Graph contrastive learning that chooses its own augmentations: graphs in, embeddings out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in (quickstart, data, compare, pack, pretrain, embed, evaluate, report, finetune, predict, export):
    app.command()(_command)

# Commands of earlier versions that remade the paper: they run from a clone now.
MOVED = {"reproduce": "python -m repro", "results": "python -m repro tables", "bench": "python -m repro bench"}


def _moved(context: typer.Context) -> None:
    raise UserError(
        f"joao {context.info_name}: moved. Run '{MOVED[context.info_name or '']}' in a clone of the repository."
    )


for _name in MOVED:
    app.command(_name, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(_moved)


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
    for package in ("lightning_fabric", "lightning.fabric"):  # whose remarks on devices are nobody's output
        logging.getLogger(f"{package}.utilities.rank_zero").setLevel(logging.WARNING)


def run(app: typer.Typer = app, name: str = "joao") -> None:
    """Run a command line; invalid input ends in one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
        if code == 130:  # the parser's way to tell of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except UserError as error:
        _end(name, str(error) if _speaks() else "", 2)
    except USAGE_ERROR as error:
        message = error.format_message().strip()
        _end(
            name, f"{message.removesuffix('.')}. Try --help." if message else "", 2
        )  # without arguments, help was shown
    except Interrupted as interrupted:
        _end(name, str(interrupted), interrupted.code)
    except ProcessLost as lost:
        _end(name, str(lost), 1)
    except (typer.Abort, KeyboardInterrupt):
        _end(name, "interrupted. What was finished is kept; the same command goes on or starts again.", 130)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        _end(name, f"{error.filename or 'file'}: {error.strerror or error}.", 2)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        fix = "Give fewer or smaller graphs, or a narrower encoder, or pack them (docs/scaling.md)."
        _end(name, f"out of memory. {fix}", 2)


def _speaks() -> bool:
    """Whether this process tells of wrong input: of several that torchrun has started, the first of each machine."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("LOCAL_RANK") == "0"


def _end(name: str, message: str, code: int) -> None:
    if message:
        typer.echo(escape_control(f"{name}: {message}"), err=True)
    sys.exit(code)
