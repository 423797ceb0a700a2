"""A table over ordered pairs of augmentations, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.errors import UserError, nearest


@dataclass(frozen=True, eq=False)
class PairTable:
    """Numbers for ordered pairs; row: augmentation of the first view, column: of the second.

    >>> table = PairTable.of(["node_drop", "identity"], [[0.5, 0.25], [0.25, 0.0]])
    >>> table["node_drop", "identity"]
    0.25
    >>> table.top(1)
    [('node_drop', 'node_drop', 0.5)]
    >>> print(table)
               node_drop  identity
    node_drop      0.500     0.250
    identity       0.250     0.000
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, names: Sequence[str], values: ArrayLike) -> PairTable:
        return cls(tuple(names), np.asarray(values, dtype=np.float64))

    def __getitem__(self, pair: tuple[str, str]) -> float:
        for name in pair:
            if name not in self.names:
                raise UserError(f"pairs: '{name}' is not in the table. {nearest(name, self.names)}")
        first, second = (self.names.index(name) for name in pair)
        return float(self.values[first, second])

    def top(self, count: int) -> list[tuple[str, str, float]]:
        """The ``count`` pairs with the largest numbers, largest first."""
        order = np.argsort(-self.values, axis=None, kind="stable")[:count]
        places = zip(*np.unravel_index(order, self.values.shape), strict=True)
        return [(self.names[i], self.names[j], float(self.values[i, j])) for i, j in places]

    def by_augmentation(self) -> dict[str, float]:
        """The share of views made by each augmentation, over both sides."""
        shares = (self.values.sum(0) + self.values.sum(1)) / (2 * self.values.sum())
        return dict(zip(self.names, shares.tolist(), strict=True))

    def to_pandas(self) -> Any:
        """As a pandas data frame."""
        import pandas

        return pandas.DataFrame(self.values, index=list(self.names), columns=list(self.names))

    def __str__(self) -> str:
        first = max(len(name) for name in self.names)
        widths = [max(len(name), 5) for name in self.names]
        lines = [" " * first + "".join(f"  {n:>{w}}" for n, w in zip(self.names, widths, strict=True))]
        for name, row in zip(self.names, self.values, strict=True):
            cells = "".join(f"  {value:>{w}.3f}" for value, w in zip(row, widths, strict=True))
            lines.append(f"{name:<{first}}{cells}")
        return "\n".join(lines)
