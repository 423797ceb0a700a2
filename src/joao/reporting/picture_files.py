"""Pictures for papers: one look, and each as PDF, SVG and PNG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joao.files import write_file

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
