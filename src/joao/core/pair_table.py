"""A table of numbers for ordered pairs of augmentations."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.core.errors import UserError, suggest
from joao.core.tables import Tabular, text_table


@dataclass(frozen=True, eq=False)
class PairTable(Tabular):
    """Numbers for ordered pairs: rows are augmentations of the first view, columns of the second.

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
        """Make a table from names and ``(K, K)`` numbers: nested lists, an array or a tensor on the CPU."""
        return cls(tuple(names), np.asarray(values, dtype=np.float64))

    def __getitem__(self, pair: tuple[str, str]) -> float:
        for name in pair:
            if name not in self.names:
                raise UserError(f"pairs: '{name}' is not in the table. {suggest(name, self.names)}")
        first, second = (self.names.index(name) for name in pair)
        return float(self.values[first, second])

    def top(self, count: int) -> list[tuple[str, str, float]]:
        """Return the ``count`` pairs with the largest numbers, largest first."""
        order = np.argsort(-self.values, axis=None, kind="stable")[:count]
        pairs = zip(*np.unravel_index(order, self.values.shape), strict=True)
        return [(self.names[i], self.names[j], float(self.values[i, j])) for i, j in pairs]

    def by_augmentation(self) -> dict[str, float]:
        """Share of views made by each augmentation, over both views."""
        shares = (self.values.sum(0) + self.values.sum(1)) / (2 * self.values.sum())
        return dict(zip(self.names, shares.tolist(), strict=True))

    @property
    def has_strengths(self) -> bool:
        """Whether an augmentation occurs several times, with different strengths."""
        return len(set(map(augmentation_name, self.names))) < len(self.names)

    def over_strengths(self) -> PairTable:
        """Sum over the strengths of each augmentation."""
        groups = [augmentation_name(name) for name in self.names]
        names = tuple(dict.fromkeys(groups))
        belongs = np.array([[group == name for group in groups] for name in names], dtype=np.float64)
        return PairTable(names, belongs @ self.values @ belongs.T)

    def by_strength(self) -> dict[str, dict[str, float]]:
        """Share of views of each augmentation at each strength ("-" for one without strengths); they sum to 1."""
        shares: dict[str, dict[str, float]] = {}
        for name, share in self.by_augmentation().items():
            shares.setdefault(augmentation_name(name), {})[strength_label(name)] = share
        return shares

    def _numbers(self) -> tuple[list[str], list[list[Any]]]:
        rows = zip(self.names, self.values.tolist(), strict=True)
        return ["", *self.names], [[name, *row] for name, row in rows]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header, lines = self._numbers()
        return header, [[line[0], *(f"{value:.3f}" for value in line[1:])] for line in lines]

    def plot(self, title: str = "") -> Any:
        """Draw a heat map; returns a matplotlib figure, which notebooks show."""
        from joao.core.plots import draw_panels, new_figure, pairs_panel

        with new_figure(1.6 + 0.7 * len(self.names), 1.2 + 0.6 * len(self.names)) as figure:
            draw_panels(figure, [pairs_panel(title, self, is_share=bool((self.values >= 0).all()))])
            figure.draw_without_rendering()  # inside the style
        return figure

    def _repr_html_(self) -> str:
        """Heat map for notebooks."""
        names = [html.escape(name.replace("_", " ")) for name in self.names]
        most = float(self.values.max()) or 1.0
        head = "".join(f"<th>{name}</th>" for name in ["first \\ second", *names])
        rows = [
            f"<tr><th>{name}</th>"
            + "".join(f'<td style="{_cell_style(value / most)}">{value:.3f}</td>' for value in row)
            + "</tr>"
            for name, row in zip(names, self.values.tolist(), strict=True)
        ]
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def __str__(self) -> str:
        return text_table(*self.cells())


# Colours of the scale "cividis", which is readable with colour blindness.
_STOPS = np.array([[0, 34, 78], [59, 73, 108], [112, 113, 115], [165, 156, 116], [254, 232, 56]], dtype=np.float64)


def _cell_style(share: float) -> str:
    """Background and text colour of a cell, for a share of the largest number."""
    position = min(max(share, 0.0), 1.0) * (len(_STOPS) - 1)
    red, green, blue = (np.interp(position, range(len(_STOPS)), column) for column in _STOPS.T)
    letters = "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#fff"
    return f"background:rgb({red:.0f},{green:.0f},{blue:.0f});color:{letters};text-align:center"


def augmentation_name(name: str) -> str:
    """Augmentation of a pool member.

    >>> augmentation_name("node_drop(strength=0.1)")
    'node_drop'
    """
    return name.partition("(")[0]


def strength_label(name: str) -> str:
    """Strength of a pool member, as text.

    >>> [strength_label(name) for name in ("node_drop(strength=0.1)", "identity")]
    ['0.1', '-']
    """
    inside = name.partition("(")[2].removesuffix(")")
    return inside.removeprefix("strength=") or "-"
