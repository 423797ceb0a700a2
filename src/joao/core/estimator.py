"""What all scikit-learn estimators of the package share."""

import secrets
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from joao.core.signals import StopRequest, catch_stop_signals


class GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of estimators whose ``X`` is a list of graphs instead of a matrix.

    Attributes:
        compared_as: kind of method in :func:`joao.compare`.
    """

    compared_as: ClassVar[str] = "own"

    def __sklearn_is_fitted__(self) -> bool:
        return any(hasattr(self, name) for name in ("trained_", "finetuned_", "num_graphs_"))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags


def draw_seed(random_state: Any) -> Any:
    """Draw the seed of a fit from a numpy generator or, if it is None, from the system; anything else is returned.

    >>> draw_seed(7), draw_seed(np.random.RandomState(0)) == draw_seed(np.random.RandomState(0))
    (7, True)
    """
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    return secrets.randbelow(2**31) if random_state is None else random_state


def stop_on_interrupt(notify: Callable[[str], None]) -> AbstractContextManager[StopRequest]:
    """Turn the first Ctrl-C into a :class:`StopRequest`; a handler of SIGINT that is not Python's own is left alone."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return catch_stop_signals(notify, enabled=is_default, signals=[signal.SIGINT])
