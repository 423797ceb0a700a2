"""What the user is told when input is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """Wrong input, in one line for the reader: place, what, value, fix.

    The command line prints it behind ``joao:`` and exits with code 2.

    >>> from joao.augmentations import NodeDrop
    >>> NodeDrop(strength=1.5)
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: NodeDrop: strength must be in [0, 1), got 1.5.
    """


class WriteError(UserError):
    """A file could not be written: disk full, a quota, or no permission."""


class Interrupted(Exception):
    """The user stopped it; what is kept, in one line. The command line prints it and exits with ``code``.

    Attributes:
        code: 130 after Ctrl-C, 143 after SIGTERM, as shells have it.
    """

    def __init__(self, message: str = "", code: int = 130) -> None:
        super().__init__(message)
        self.code = code


class ProcessLost(Exception):
    """A process of several is gone; what is kept, in one line. The command line prints it and exits with code 1."""


class JoaoNotice(UserWarning):
    """Something was done to the input that its owner should know, such as making edges undirected.

    >>> import joao, networkx, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", joao.JoaoNotice)  # for those who would rather have an error
    ...     joao.JOAO().fit([networkx.DiGraph([(0, 1)]), networkx.DiGraph([(0, 1), (1, 2)])])
    Traceback (most recent call last):
        ...
    joao.core.errors.JoaoNotice: graphs: edges were directed; 3 missing reverse directions were added.
    """


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "bad_alloc", "alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, of Python, numpy or torch, on any device, says that there is no memory left.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory.")), is_out_of_memory(RuntimeError("shared memory"))
    (True, False)
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


@contextmanager
def user_error_on_failure(problem: str, fix: str = "") -> Iterator[None]:
    """Inside, sense is made of what anybody may have written; that there is none in it is told in one line.

    >>> with user_error_on_failure("run.json: is damaged", "Copy it again."):
    ...     int("seven")
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: run.json: is damaged (invalid literal for int() with base 10: 'seven'). Copy it again.
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{problem} ({one_line(error)}). {fix}".rstrip()) from error


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, and all of them.

    >>> suggest("nodedrop", ["node_drop", "subgraph"])
    "Did you mean 'node_drop'? Known: node_drop, subgraph."
    """
    names = list(known)
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    guess = f"Did you mean '{by_lower[close[0]]}'? " if close else ""
    return f"{guess}Known: {', '.join(names)}."


def escape_control(text: str) -> str:
    r"""Text without what a terminal would obey: names and cells come from files.

    >>> print(escape_control("MUTAG\x1b[2J ± 1"))
    MUTAG\x1b[2J ± 1
    """
    is_shown = text.isprintable()
    return text if is_shown else "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def short_repr(value: object) -> str:
    """A value for a message: on one line, and short."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_line(error: object) -> str:
    """What another program says of an error, likewise."""
    return " ".join(str(error).split())[:200] or type(error).__name__
