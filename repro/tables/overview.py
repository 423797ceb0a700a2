"""A table with one row per method and one column per data set: our figures next to the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean


@dataclass(frozen=True)
class Figure:
    """The content of a cell, in percent.

    ``mean`` is None if only the paper has a figure. ``tied``: whether the difference from the best of the column is
    inconclusive.
    """

    mean: float | None
    std: float | None = None
    num_seeds: int = 0
    paper: float | None = None
    tied: bool = False


@dataclass(frozen=True)
class Overview:
    """One line per method, one column per data set.

    Attributes:
        title: heading of the table.
        unit: of the figures.
        columns: the data sets.
        lines: for each method, a figure or None for each column.
        groups: for lines of methods that are shown in several ways, the way. The best figures are found within a way;
            a line without one is compared with all.
        usual_seeds: the number of seeds that cells do not state.
        last: further columns: heading to text by method.
        notes: differences from the paper's setting, and other remarks.
        empty_cells: reasons why cells are empty.
        paragraphs: text after the table.
        bold: what is bold besides the highest mean.
    """

    title: str
    unit: str
    columns: Sequence[str]
    lines: Mapping[str, Sequence[Figure | None]]
    usual_seeds: int
    groups: Mapping[str, str] = field(default_factory=dict)
    last: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: str = ""
    empty_cells: Sequence[str] = ()
    paragraphs: Sequence[str] = ()
    bold: str = ""

    def is_among_best(self, figure: Figure | None, column: int, group: str | None = None) -> bool:
        """Return whether a figure is the best of its column and group, or tied with the best of its column."""
        lines = self.lines.items()
        found = [line[column] for name, line in lines if group is None or self.groups.get(name, group) == group]
        best = max((_mean(each) for each in found if each and each.mean is not None), default=None)
        return figure is not None and best is not None and (figure.tied or _mean(figure) == best)

    def about(self) -> str:
        """Return how to read the table."""
        return (
            f"{self.notes} Mean and standard deviation over {self.usual_seeds} seeds (other numbers of seeds in square "
            "brackets). In round brackets: the paper's mean, and the difference (ours - paper). Bold: the highest mean "
            f"of each column{self.bold}."
        )

    def header(self) -> list[str]:
        """Return the headings of all columns."""
        return [self.unit, *self.columns, *self.last]

    def cells(self) -> list[list[str]]:
        """Return the text of every line. The best figures are bold (``**``)."""
        return [
            [
                method,
                *(self._text(figure, column, self.groups.get(method)) for column, figure in enumerate(line)),
                *(texts.get(method, "") for texts in self.last.values()),
            ]
            for method, line in self.lines.items()
        ]

    def _text(self, figure: Figure | None, column: int, group: str | None) -> str:
        if figure is None:
            return ""
        if figure.mean is None:
            return f"({figure.paper:.1f})"
        own = f"{figure.mean:.1f}"
        if self.is_among_best(figure, column, group):
            own = f"**{own}**"
        deviation = "" if figure.std is None else f" ± {figure.std:.1f}"
        paper = "" if figure.paper is None else f" ({figure.paper:.1f}, {figure.mean - figure.paper:+.1f})"
        seeds = "" if figure.num_seeds == self.usual_seeds else f" [{figure.num_seeds}]"
        return own + deviation + paper + seeds


def average(line: Sequence[Figure | None]) -> str:
    """Return the mean of a complete line, next to the paper's if that is complete; otherwise an empty text."""
    found = [figure for figure in line if figure is not None and figure.mean is not None]
    if len(found) < len(line):
        return ""
    own, papers = mean([_mean(figure) for figure in found]), [each.paper for each in found if each.paper is not None]
    if len(papers) < len(line):
        return f"{own:.1f}"
    return f"{own:.1f} ({mean(papers):.1f}, {own - mean(papers):+.1f})"


def _mean(figure: Figure) -> float:
    return float("-inf") if figure.mean is None else figure.mean
