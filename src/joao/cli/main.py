"""The command ``joao``."""

import io
import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from joao.cli.data import data
from joao.cli.embed import embed, export
from joao.cli.evaluate import compare, evaluate
from joao.cli.finetune import finetune, predict
from joao.cli.neighbors import neighbors
from joao.cli.pack import pack
from joao.cli.pretrain import pretrain, quickstart
from joao.cli.report import report
from joao.core.errors import Interrupted, ProcessLost, UserError, escape_control, is_out_of_memory, one_line

# click's base class of errors about wrong arguments; typer does not export it.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
BUG = 70  # the exit code of an unexpected exception
HELP = "Graph contrastive learning that chooses its own augmentations: graphs in, embeddings out."

app = typer.Typer(name="joao", help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for _command in (
    quickstart,
    data,
    compare,
    pack,
    pretrain,
    embed,
    neighbors,
    evaluate,
    report,
    finetune,
    predict,
    export,
):
    app.command()(_command)

# Commands of earlier versions that reproduce the paper. They run from a clone now.
MOVED = {"reproduce": "python -m repro", "results": "python -m repro tables", "bench": "python -m repro bench"}


def _moved(context: typer.Context) -> None:
    raise UserError(f"joao {context.info_name}: moved. Run '{MOVED[context.info_name or '']}' in a clone.")


for _name in MOVED:
    app.command(_name, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(_moved)


def _version(is_requested: bool) -> None:
    if is_requested:
        from joao import __version__
        from joao.kernels.native import describe

        typer.echo(f"joao {__version__}\n{describe()}")
        raise typer.Exit


@app.callback(help=HELP)
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    for package in ("lightning_fabric", "lightning.fabric"):  # silence its remarks on devices
        logging.getLogger(f"{package}.utilities.rank_zero").setLevel(logging.WARNING)


def run(app: typer.Typer = app, name: str = "joao") -> None:
    """Run a command line; wrong input gives a one-line error and exit code 2, a bug one and exit code 70."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may not know all characters of names and tables
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False)
        if code == 130:  # click returns this after Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except UserError as error:
        message = _with_option_names(_with_file_name(str(error), sys.argv[1:]))
        _exit(name, message if _is_first_process() else "", 2)
    except USAGE_ERROR as error:
        message = error.format_message().strip()  # empty if there were no arguments and the help was shown
        _exit(name, f"{message.removesuffix('.')}. Try --help." if message else "", 2)
    except Interrupted as interrupted:
        _exit(name, str(interrupted), interrupted.code)
    except ProcessLost as lost:
        _exit(name, str(lost), 1)
    except (typer.Abort, KeyboardInterrupt):
        _exit(name, "interrupted. Finished work is kept; run the same command again to continue or start over.", 130)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        _exit(name, f"{error.filename or 'file'}: {error.strerror or error}.", 2)
    except Exception as error:
        if is_out_of_memory(error):
            fix = "Use fewer or smaller graphs or a narrower encoder, or pack the graphs into shards (docs/scaling.md)."
            _exit(name, f"out of memory. {fix}", 2)
        _exit(name, f"internal error ({type(error).__name__}: {one_line(error)}). {_store_traceback()}", BUG)


def _store_traceback() -> str:
    """Write the traceback of the current error to a new file; returns a sentence that names the file."""
    try:
        handle, path = tempfile.mkstemp(prefix="joao-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
    except OSError as error:
        return f"Please report it; the traceback cannot be written ({error.strerror})."
    return f"Please report it with the traceback in {path}."


def _with_file_name(message: str, arguments: Sequence[str]) -> str:
    """Replace the name of a data set at the start by the file or folder in ``arguments`` that it was read from."""
    for word in arguments:
        name = Path(word).name.partition(".")[0]
        if name and name not in arguments and message.startswith(f"{name}: ") and os.path.exists(word):
            return word + message.removeprefix(name)
    return message


def _with_option_names(message: str) -> str:
    """Replace Python parameter names by command-line options; keys of recipes and files (in quotes) stay.

    >>> _with_option_names("num_nodes: 2 requested, but SLURM started 4.")
    '--num-nodes: 2 requested, but SLURM started 4.'
    >>> _with_option_names("recipe: training: learning_rate must be positive, got 0.0.")
    'recipe: training: learning_rate must be positive, got 0.0.'
    >>> _with_option_names("a.jsonl:1: unknown key 'edge'. Known: edges, num_nodes.")
    "a.jsonl:1: unknown key 'edge'. Known: edges, num_nodes."
    """
    message, known, keys = message.partition(" Known: ")
    names = r"num_nodes|validation_share|test_share|checkpoint_every"
    if "training: " not in message:
        names += "|learning_rate|batch_size"
    message = re.sub(rf"(?<!['\w])({names})(?!['\w])", lambda name: f"--{name[0].replace('_', '-')}", message)
    message = re.sub(r"\bdevices and (?=--num-nodes)", "--devices and ", message)
    message = re.sub(r"(?<=Leave out )'?fast\b'?", "--fast", message)
    return re.sub(r"^(device|devices|precision|log)(?=: )", r"--\1", message) + known + keys


def _is_first_process() -> bool:
    """Whether this process prints errors: under torchrun, only the first one on each machine does."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"


def _exit(name: str, message: str, code: int) -> None:
    if message:
        typer.echo(escape_control(f"{name}: {message}", kept=""), err=True)
    sys.exit(code)
