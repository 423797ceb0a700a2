"""Errors and notices for the user, and helpers for their messages."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class _OneLine(Exception):
    """An exception with a message of one line without control characters, whatever names and values it quotes."""

    def __init__(self, message: str = "") -> None:
        super().__init__(escape_control(str(message), kept=""))


class UserError(_OneLine, ValueError):
    """Invalid input. The message is one line: place, problem, value, fix.

    The command line prints it after ``joao:`` and exits with code 2.

    >>> from joao.augmentations import NodeDrop
    >>> NodeDrop(strength=1.5)
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: NodeDrop: strength must be in [0, 1), got 1.5.
    """


class WriteError(UserError):
    """A file could not be written, for example because the disk is full."""


class Interrupted(Exception):
    """The user interrupted the program. The message says what is kept.

    The command line exits with ``code``: 130 after Ctrl-C, 143 after SIGTERM, as in shells.
    """

    def __init__(self, message: str = "", code: int = 130) -> None:
        super().__init__(message)
        self.code = code


class ProcessLost(Exception):
    """One of several processes died. The message says what is kept; the command line exits with code 1."""


class JoaoNotice(_OneLine, UserWarning):
    """A change to the input that the user should know about, such as making edges undirected.

    >>> import joao, networkx, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", joao.JoaoNotice)  # turn notices into errors
    ...     joao.JOAO().fit([networkx.DiGraph([(0, 1)]), networkx.DiGraph([(0, 1), (1, 2)])])
    Traceback (most recent call last):
        ...
    joao.core.errors.JoaoNotice: graphs: edges were directed; 3 missing reverse directions were added.
    """


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "bad_alloc", "alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, numpy or torch means that memory is exhausted, on any device.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory.")), is_out_of_memory(RuntimeError("shared memory"))
    (True, False)
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


@contextmanager
def user_error_on_failure(problem: str, fix: str = "") -> Iterator[None]:
    """Convert errors raised while parsing untrusted content to a :class:`UserError`.

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
    """Suggest the most similar known name, and list all of them, for a message about an unknown name.

    >>> suggest("nodedrop", ["node_drop", "subgraph"])
    "Did you mean 'node_drop'? Known: node_drop, subgraph."
    """
    name, names = str(name), list(known)
    by_lower = {each.lower(): each for each in names[:1000]}  # a table may have a million columns
    close = difflib.get_close_matches(name[:100].lower(), by_lower, n=1)
    guess = f"Did you mean '{by_lower[close[0]]}'? " if close else ""
    return f"{guess}Known: {join_names(names, 100)}."


def quantity(count: int, things: str) -> str:
    """A count with its noun, which is given in the plural.

    >>> quantity(1, "graphs"), quantity(2, "classes"), quantity(1, "classes"), quantity(3, "syntax_trees")
    ('1 graph', '2 classes', '1 class', '3 syntax trees')
    """
    noun = things.replace("_", " ")
    if count == 1:
        noun = noun.removesuffix("es" if noun.endswith("sses") else "s")
    return f"{count} {noun}"


def join_names(names: Sequence[str], most: int = 5) -> str:
    """Join the first names, and count the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def escape_control(text: str, kept: str = "\n\t") -> str:
    r"""Escape control characters, which a terminal would interpret: names and cells come from files.

    >>> print(escape_control("MUTAG\x1b[2J ± 1"))
    MUTAG\x1b[2J ± 1
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def short_repr(value: object) -> str:
    """``repr`` of a value on one line, at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_line(error: object) -> str:
    """Message of an error on one line, at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__
