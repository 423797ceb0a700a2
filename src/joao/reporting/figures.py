"""Pictures."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from joao.files import write_file
from joao.pair_table import PairTable


def draw_policy(table: PairTable, drawn: PairTable, title: str, path: Path) -> None:
    """Draws the learned probabilities of augmentation pairs, and beside them how often each was drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(title, parse_math=False)
    panels = figure.subplots(1, 2)
    names = [name.replace("_", " ") for name in table.names]
    for axes, shown, heading in (
        (panels[0], table, "probability at the end"),
        (panels[1], drawn, "share drawn in the whole training"),
    ):
        image = axes.imshow(shown.values, cmap="cividis", vmin=0)
        axes.set_title(heading)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("second view")
        axes.set_ylabel("first view")
        middle = float(shown.values.max()) / 2
        for (i, j), value in zip(_places(len(names)), shown.values.ravel(), strict=True):
            colour = "black" if value > middle else "white"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=9)
        figure.colorbar(image, ax=axes, shrink=0.8)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box does in a title
        canvas.print_png(buffer)  # type: ignore[no-untyped-call]
    write_file(path, buffer.getvalue())


def _places(size: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(size) for j in range(size)]
