"""What the user is told when input is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Wrong input, in one line for the reader: place, what, value, cure.

    The command line prints it behind ``joao:`` and exits with code 2.
    """


class Interrupted(Exception):
    """The user stopped it; what is kept, in one line. The command line prints it and exits with code 130."""


class ProcessLost(Exception):
    """A process of several is gone; what is kept, in one line. The command line prints it and exits with code 1."""


class JoaoNotice(UserWarning):
    """Something was done to the input that its owner should know, such as making edges undirected."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, and all of them.

    >>> nearest("nodedrop", ["node_drop", "subgraph"])
    "Did you mean 'node_drop'? Known: node_drop, subgraph."
    """
    names = list(known)
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    guess = f"Did you mean '{by_lower[close[0]]}'? " if close else ""
    return f"{guess}Known: {', '.join(names)}."
