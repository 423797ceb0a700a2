"""Pictures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from joao.files import write_file
from joao.pair_table import PairTable


def draw_policy(table: PairTable, drawn: PairTable, title: str, path: Path) -> None:
    """Draws the learned probabilities of augmentation pairs, and beside them how often each was drawn."""
    draw_tables({"probability at the end": table, "share drawn in the whole training": drawn}, title, path)


def draw_tables(tables: Mapping[str, PairTable], title: str, path: Path, *, differences: Collection[str] = ()) -> None:
    """Draws tables over augmentation pairs side by side, each under its heading.

    Shares get lighter from 0 on; the tables headed by one of ``differences`` get two colours, white at 0.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(tables), 4.8), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(title, parse_math=False)
    panels = figure.subplots(1, len(tables), squeeze=False)[0]
    for axes, (heading, table) in zip(panels, tables.items(), strict=True):
        names = [name.replace("_", " ") for name in table.names]
        most, is_share = float(abs(table.values).max()), heading not in differences
        colours = {"cmap": "cividis", "vmin": 0} if is_share else {"cmap": "PuOr", "vmin": -most, "vmax": most}
        image = axes.imshow(table.values, **colours)
        axes.set_title(heading)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("second view")
        axes.set_ylabel("first view")
        for (i, j), value in zip(_places(len(names)), table.values.ravel(), strict=True):
            red, green, blue, _ = image.cmap(image.norm(value))
            is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5  # as bright as the eye finds it
            text = f"{value:.2f}" if is_share else f"{value:+.2f}"
            axes.text(j, i, text, ha="center", va="center", color="black" if is_light else "white", fontsize=9)
        figure.colorbar(image, ax=axes, shrink=0.8)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box does in a title
        canvas.print_png(buffer)  # type: ignore[no-untyped-call]
    write_file(path, buffer.getvalue())


def _places(size: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(size) for j in range(size)]
