"""A table of the paper, remade: our figures beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean


@dataclass(frozen=True)
class Figure:
    """What a cell shows, in percent; ``mean`` is None where we have none and the paper has."""

    mean: float | None
    std: float | None = None
    num_seeds: int = 0
    paper: float | None = None


@dataclass(frozen=True)
class Overview:
    """A line for each method, a column for each data set.

    Attributes:
        title: what it is of.
        unit: what the figures are.
        columns: the data sets.
        lines: by method, a figure or None for each column.
        usual_seeds: the number of seeds that a cell need not say.
        last: further columns, by heading; of each, its text by method.
        notes: in what the setting differs from the paper's, and other things to know.
        left_open: why cells are empty.
        paragraphs: to stand after the table.
    """

    title: str
    unit: str
    columns: Sequence[str]
    lines: Mapping[str, Sequence[Figure | None]]
    usual_seeds: int
    last: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: str = ""
    left_open: Sequence[str] = ()
    paragraphs: Sequence[str] = ()

    def is_among_best(self, figure: Figure | None, column: int) -> bool:
        """Whether a figure is the highest of its column or at most that one's standard deviation below."""
        found = [line[column] for line in self.lines.values()]
        best = max((each for each in found if each and each.mean is not None), key=_mean, default=None)
        return figure is not None and best is not None and _mean(figure) >= _mean(best) - (best.std or 0.0)

    def about(self) -> str:
        """How to read it."""
        return (
            f"{self.notes} Mean over {self.usual_seeds} seeds, or as many as square brackets say, and standard "
            "deviation. In round brackets: the paper's mean, and ours less it. Bold: the highest of a column, and what "
            "is at most its standard deviation below."
        )

    def header(self) -> list[str]:
        """The headings of all columns."""
        return [self.unit, *self.columns, *self.last]

    def cells(self) -> list[list[str]]:
        """The text of every line; what is among the best stands between ``**``."""
        return [
            [
                method,
                *(self._text(figure, column) for column, figure in enumerate(line)),
                *(texts.get(method, "") for texts in self.last.values()),
            ]
            for method, line in self.lines.items()
        ]

    def _text(self, figure: Figure | None, column: int) -> str:
        if figure is None:
            return ""
        if figure.mean is None:
            return f"({figure.paper:.1f})"
        own = f"{figure.mean:.1f}"
        if self.is_among_best(figure, column):
            own = f"**{own}**"
        deviation = "" if figure.std is None else f" ± {figure.std:.1f}"
        paper = "" if figure.paper is None else f" ({figure.paper:.1f}, {figure.mean - figure.paper:+.1f})"
        seeds = "" if figure.num_seeds == self.usual_seeds else f" [{figure.num_seeds}]"
        return own + deviation + paper + seeds


def average(line: Sequence[Figure | None]) -> str:
    """The mean of the figures of a line that has all of them, beside the paper's, if it has all; else nothing."""
    found = [figure for figure in line if figure is not None and figure.mean is not None]
    if len(found) < len(line):
        return ""
    own, papers = mean([_mean(figure) for figure in found]), [each.paper for each in found if each.paper is not None]
    if len(papers) < len(line):
        return f"{own:.1f}"
    return f"{own:.1f} ({mean(papers):.1f}, {own - mean(papers):+.1f})"


def _mean(figure: Figure) -> float:
    return float("-inf") if figure.mean is None else figure.mean
