"""Growth rates: the exponent of a power law."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """An exponent, and the sizes it was fitted on."""

    exponent: float
    smallest: float
    largest: float


def fit_power_law(sizes: Sequence[float], values: Sequence[float]) -> Fit:
    r"""The least-squares slope of :math:`\log v` on :math:`\log s` over the larger half of the sizes, three at least.

    In the smaller half what every call costs, whatever its size, would hide the growth. Which sizes are left out
    does not depend on the values.

    >>> fit = fit_power_law([1, 10, 100, 1000], [0.5, 10, 100, 1000])
    >>> round(fit.exponent, 6), fit.smallest, fit.largest
    (1.0, 10, 1000)
    """
    kept = max(3, -(-len(sizes) // 2))
    x, y = np.log(sizes[-kept:]), np.log(np.maximum(values[-kept:], 1e-12))
    centred = x - x.mean()
    return Fit(float(centred @ y / (centred @ centred)), sizes[-kept:][0], sizes[-1])
