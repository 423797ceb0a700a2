"""Pictures for papers: one look, and each as PDF, SVG and PNG.

Pictures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.files import write_file
from joao.core.pair_table import PairTable

KINDS = ("pdf", "svg", "png")
# Of Okabe and Ito, which readers who see few colours can tell apart; lines and marks differ in form as well.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
DASHES = ("-", "--", ":", "-.")
MARKS = ("o", "s", "^", "D", "v", "P")
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,  # fonts are in the file, as letters
    "svg.fonttype": "path",  # letters are outlines: no font is needed
    "svg.hashsalt": "joao",
    "savefig.dpi": 200,
}
_NO_DATE: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Any]:
    """A figure of ``width`` x ``height`` inches in the look of all; it must be drawn and written inside."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box does
        yield Figure(figsize=(width, height), layout="constrained")


def write_picture(figure: Any, stem: Path) -> list[Path]:
    """Writes a figure as ``stem.pdf``, ``stem.svg`` and ``stem.png``; the same figure gives the same bytes."""
    paths = []
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # places are found once, not once a file
    for kind in KINDS:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=_NO_DATE[kind])
        path = stem.with_name(f"{stem.name}.{kind}")
        write_file(path, buffer.getvalue())
        paths.append(path)
    return paths


@dataclass(frozen=True, eq=False)
class Panel:
    """Numbers to be shown as colours; where one is NaN, nothing is.

    Shares get lighter from 0 on, other numbers from ``low`` on or, without one, have two colours with white at 0.
    """

    heading: str
    values: NDArray[np.float64]
    rows: Sequence[str]
    columns: Sequence[str]
    row_label: str = "first view"
    column_label: str = "second view"
    is_share: bool = True
    low: float | None = None


def draw_policy(table: PairTable, drawn: PairTable, title: str, path: Path) -> None:
    """Draws the learned probabilities of augmentation pairs, and beside them how often each was drawn.

    Of a pool with strengths, pairs are summed over strengths, and a third panel has the share of views at each.
    """
    tables = {"probability at the end": table, "share drawn in the whole training": drawn}
    panels = [pairs_panel(heading, each.over_strengths()) for heading, each in tables.items()]
    if drawn.has_strengths:
        panels.append(strengths_panel("share of all views drawn", drawn))
    _draw(panels, title, path)


def draw_tables(tables: Mapping[str, PairTable], title: str, path: Path, *, differences: Collection[str] = ()) -> None:
    """Draws tables over augmentation pairs side by side, each under its heading.

    Shares get lighter from 0 on; the tables headed by one of ``differences`` get two colours, white at 0.
    """
    _draw([pairs_panel(heading, each, heading not in differences) for heading, each in tables.items()], title, path)


def pairs_panel(heading: str, table: PairTable, is_share: bool = True) -> Panel:
    """A table over pairs."""
    return Panel(heading, table.values, table.names, table.names, is_share=is_share)


def strengths_panel(heading: str, table: PairTable) -> Panel:
    """The share of views at each strength."""
    shares = table.by_strength()
    columns = sorted({strength for each in shares.values() for strength in each})
    values = np.array([[each.get(strength, np.nan) for strength in columns] for each in shares.values()])
    return Panel(heading, values, list(shares), columns, "augmentation", "strength")


def _draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(panels), 4.8), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(title, parse_math=False)
    draw_panels(figure, panels)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box does in a title
        canvas.print_png(buffer)  # type: ignore[no-untyped-call]
    write_file(path, buffer.getvalue())


def draw_panels(figure: Any, panels: Sequence[Panel], *, same_rows: bool = False) -> None:
    """Draws panels side by side; where all have the ``same_rows``, the first alone names them."""
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for number, (axes, panel) in enumerate(zip(row, panels, strict=True)):
        draw_panel(figure, axes, panel, has_rows=number == 0 or not same_rows)


def draw_panel(figure: Any, axes: Any, panel: Panel, *, has_rows: bool) -> None:
    """Draws a panel, with its scale beside it and, where it ``has_rows`` of its own, their names."""
    most = float(np.nanmax(abs(panel.values)))
    low = 0.0 if panel.is_share else panel.low
    colours = {"cmap": "PuOr", "vmin": -most, "vmax": most} if low is None else {"cmap": "cividis", "vmin": low}
    borders = (np.arange(count + 1) - 0.5 for count in panel.values.T.shape)
    # Cells of their own, not pixels: sharp at any size where a picture is written as lines and areas.
    image = axes.pcolormesh(*borders, np.ma.masked_invalid(panel.values), edgecolors="face", lw=0.1, **colours)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.spines[:].set_visible(True)
    axes.set_title(panel.heading)
    across = [name.replace("_", " ") for name in panel.columns]
    axes.set_xticks(range(len(across)), across, rotation=30, ha="right")
    rows = [name.replace("_", " ") for name in panel.rows]
    axes.set_yticks(range(len(rows)), rows if has_rows else [])
    axes.set_xlabel(panel.column_label)
    axes.set_ylabel(panel.row_label if has_rows else "")
    for (i, j), value in np.ndenumerate(panel.values):
        if np.isnan(value):
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5  # as bright as the eye finds it
        text = f"{value:+.2f}" if low is None else f"{value:.2f}"
        axes.text(j, i, text, ha="center", va="center", color="black" if is_light else "white", fontsize=9)
    scale = figure.colorbar(image, ax=axes, shrink=0.8)
    scale.solids.set(rasterized=False, edgecolor="face")
