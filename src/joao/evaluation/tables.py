"""Format scores as text."""

from joao.core.tables import markdown as markdown
from joao.core.tables import plain_text as plain_text
from joao.evaluation.statistics import Gain


def with_deviation(mean: float, std: float | None) -> str:
    """
    >>> with_deviation(87.346, 1.02)
    '87.35 ± 1.02'
    """
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def with_interval(gain: Gain | None, times: float = 1, digits: int = 2) -> str:
    """
    >>> with_interval(Gain(2.77, -1.66, 7.21)), with_interval(Gain(0.0277, -0.0166, 0.0721), times=100)
    ('+2.77 (-1.66 to +7.21)', '+2.77 (-1.66 to +7.21)')
    """
    if gain is None:
        return ""
    mean, low, high = (f"{times * each:+.{digits}f}" for each in (gain.mean, gain.low, gain.high))
    return f"{mean} ({low} to {high})"
