"""Heat maps of augmentation pairs, and figures in one style, each as PDF, SVG and PNG."""

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
# The palette of Okabe and Ito, safe for colour-blind readers; lines and markers differ in shape as well.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
DASHES = ("-", "--", ":", "-.")
MISSING = "#d01c8b"  # in neither the palette nor the colour map cividis
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
    "pdf.fonttype": 42,  # embed fonts, so that text stays text
    "svg.fonttype": "path",  # outlines: no font is needed
    "svg.hashsalt": "joao",
    "savefig.dpi": 200,
}
_NO_DATE: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Any]:
    """A figure of ``width`` x ``height`` inches in the common style; draw and write it inside the block."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn instead
        yield Figure(figsize=(width, height), layout="constrained")


def write_picture(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as ``stem.pdf``, ``stem.svg`` and ``stem.png``; the same figure gives the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # compute the layout once, not for each file
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in KINDS]
    for kind, path in zip(KINDS, paths, strict=True):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=_NO_DATE[kind])
        write_file(path, buffer.getvalue())
    return paths


@dataclass(frozen=True, eq=False)
class Panel:
    """A heat map; NaN cells stay empty.

    Colours of shares start at 0, those of other numbers at ``low``; without ``low`` they diverge, with white at 0.
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
    """Draw the learned probabilities of augmentation pairs, and how often each pair was drawn.

    If the pool has strengths, pairs are summed over them, and a third panel shows the share of views at each strength.
    """
    tables = {"probability at the end": table, "share drawn in the whole training": drawn}
    panels = [pairs_panel(heading, each.over_strengths()) for heading, each in tables.items()]
    if drawn.has_strengths:
        panels.append(strengths_panel("share of all views drawn", drawn))
    _draw(panels, title, path)


def draw_tables(tables: Mapping[str, PairTable], title: str, path: Path, *, differences: Collection[str] = ()) -> None:
    """Draw tables over augmentation pairs side by side; ``differences`` are the headings of diverging heat maps."""
    _draw([pairs_panel(heading, each, heading not in differences) for heading, each in tables.items()], title, path)


def pairs_panel(heading: str, table: PairTable, is_share: bool = True) -> Panel:
    """A heat map of a table over pairs."""
    return Panel(heading, table.values, table.names, table.names, is_share=is_share)


def strengths_panel(heading: str, table: PairTable) -> Panel:
    """A heat map of the share of views at each strength."""
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
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn instead
        canvas.print_png(buffer)  # type: ignore[no-untyped-call]
    write_file(path, buffer.getvalue())


def draw_panels(figure: Any, panels: Sequence[Panel], *, same_rows: bool = False) -> None:
    """Draw panels side by side; with ``same_rows``, only the first has row labels."""
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for number, (axes, panel) in enumerate(zip(row, panels, strict=True)):
        draw_panel(figure, axes, panel, has_rows=number == 0 or not same_rows)


def draw_panel(figure: Any, axes: Any, panel: Panel, *, has_rows: bool) -> None:
    """Draw a panel with its colour bar and, if it ``has_rows``, row labels."""
    limit = float(np.nanmax(abs(panel.values)))
    low = 0.0 if panel.is_share else panel.low
    colours = {"cmap": "PuOr", "vmin": -limit, "vmax": limit} if low is None else {"cmap": "cividis", "vmin": low}
    borders = (np.arange(count + 1) - 0.5 for count in panel.values.T.shape)
    # Vector cells rather than an image: sharp at any size in PDF and SVG.
    image = axes.pcolormesh(*borders, np.ma.masked_invalid(panel.values), edgecolors="face", lw=0.1, **colours)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.spines[:].set_visible(True)
    axes.set_title(panel.heading)
    columns = [name.replace("_", " ") for name in panel.columns]
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="right")
    rows = [name.replace("_", " ") for name in panel.rows]
    axes.set_yticks(range(len(rows)), rows if has_rows else [])
    axes.set_xlabel(panel.column_label)
    axes.set_ylabel(panel.row_label if has_rows else "")
    for (i, j), value in np.ndenumerate(panel.values):
        if np.isnan(value):
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5  # perceived brightness
        text = f"{value:+.2f}" if low is None else f"{value:.2f}"
        axes.text(j, i, text, ha="center", va="center", color="black" if is_light else "white", fontsize=9)
    scale = figure.colorbar(image, ax=axes, shrink=0.8)
    scale.solids.set(rasterized=False, edgecolor="face")
