"""The figures of the report as files."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from joao.core.files import make_folder
from joao.core.pair_table import PairTable
from joao.core.plots import (
    COLOURS,
    DASHES,
    MARKS,
    MISSING,
    Panel,
    draw_panels,
    new_figure,
    pairs_panel,
    strengths_panel,
    write_picture,
)
from joao.report.graphs import GraphCodec, colourings, examples
from joao.report.reported_run import ReportedRun
from joao.report.scores import OURS, PAPER, Record, chart, effective_pairs, same_folds


def write_figures(runs: Sequence[ReportedRun], folder: Path) -> list[str]:
    """Write every available figure of ``runs`` as PDF, SVG and PNG; returns their names."""
    make_folder(folder)
    figures = {"pairs": _pairs, "map": _map, "changes": _changes}
    written = []
    display = {run.name: run.name if len(runs) > 1 else OURS for run in runs}
    for number, records in enumerate(same_folds({display[run.name]: run.score for run in runs}), start=1):
        written.append("scores" if number == 1 else f"scores-{number}")
        _scores(records, {display[run.name]: run.method for run in runs}, folder / written[-1])
    for run in runs:
        file_name = re.sub(r"[^\w.-]+", "-", run.name).strip("-.") or "run"
        prefix = f"{file_name}-" if len(runs) > 1 else ""
        for name, draw in figures.items():
            if draw(run, folder / f"{prefix}{name}"):
                written.append(f"{prefix}{name}")
    if _curves(runs, folder / "training"):
        written.append("training")
    return written


def _scores(records: Mapping[str, Record], methods: Mapping[str, str], stem: Path) -> None:
    data = next(iter(records.values()))["data"]["name"]
    bars = chart(records, {name: methods[name] for name in records}, data)
    with new_figure(5.2, 0.5 + 0.32 * len(bars)) as figure:
        axes = figure.subplots()
        for row, bar in enumerate(reversed(bars)):
            colour = COLOURS[4] if bar.name.startswith(PAPER) else COLOURS[7]
            colour = colour if bar.run is None else COLOURS[bar.run % len(COLOURS)]
            axes.barh(row, bar.mean, xerr=bar.std, color=colour, height=0.65, error_kw={"capsize": 2, "lw": 1})
            axes.text(1, row, f"{bar.mean:.1f}", va="center", color="white", fontweight="bold")
        axes.set_yticks(range(len(bars)), [bar.name for bar in reversed(bars)], parse_math=False)
        axes.set_xlim(0, 100)
        axes.set_xlabel(f"accuracy on {data} (%)", parse_math=False)
        write_picture(figure, stem)


def _pairs(run: ReportedRun, stem: Path) -> bool:
    pool, metrics = run.run.info.pool, run.metrics
    if len(pool) < 2 or not metrics:
        return False
    last = metrics[-1]
    drawn = np.sum([epoch.drawn for epoch in metrics], axis=0)
    shares = PairTable.of(pool, drawn / drawn.sum())
    panels = [pairs_panel("probability at the end", PairTable.of(pool, last.probabilities).over_strengths())]
    if last.pair_losses is not None and not shares.has_strengths:
        losses = np.array(last.pair_losses)
        panels.append(Panel("pair loss at the end", losses, pool, pool, is_share=False, low=float(losses.min())))
    panels.append(pairs_panel("share drawn in the whole training", shares.over_strengths()))
    if shares.has_strengths:
        panels.append(strengths_panel("share of all views drawn", shares))
    with new_figure(3.9 * len(panels), 3.6) as figure:
        draw_panels(figure, panels)
        write_picture(figure, stem)
    return True


def _map(run: ReportedRun, stem: Path) -> bool:
    if run.map is None or run.graphs is None:
        return False
    points = run.map.points
    colour_scales = colourings(run.graphs.sample)
    with new_figure(5, 4.4) as figure:
        axes = figure.subplots()
        size = 14 if len(points) < 600 else 5
        if colour_scales and "codes" in colour_scales[0]:
            codes, names = np.array(colour_scales[0]["codes"]), colour_scales[0]["classes"]
            for code in np.unique(codes).tolist():
                own = points[codes == code]
                name, colour, mark = "no label", MISSING, "."
                if code >= 0:
                    name, colour, mark = names[code], COLOURS[code % len(COLOURS)], MARKS[code % len(MARKS)]
                axes.scatter(*own.T, s=size, label=name, alpha=0.8, linewidths=0, color=colour, marker=mark)
            legend = axes.legend(title=colour_scales[0]["name"], loc="best", markerscale=1.5)
            for text in (*legend.get_texts(), legend.get_title()):
                text.set_parse_math(False)
        else:
            values = np.array(colour_scales[0]["values"] if colour_scales else [0.0] * len(points), dtype=np.float64)
            known = ~np.isnan(values)
            colours = {"c": values[known], "cmap": "cividis"} if colour_scales else {"c": COLOURS[0]}
            dots = axes.scatter(*points[known].T, s=size, linewidths=0, **colours)
            if not known.all():  # a ring in a colour that the scale does not have
                axes.scatter(*points[~known].T, s=size, c="none", edgecolors=MISSING, linewidths=0.8, label="no label")
                axes.legend(loc="best")
            if colour_scales:
                figure.colorbar(dots, ax=axes, shrink=0.8).set_label(colour_scales[0]["name"], parse_math=False)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xticks=[], yticks=[], xlabel=run.map.axes)
        write_picture(figure, stem)
    return True


def _changes(run: ReportedRun, stem: Path) -> bool:
    drawn = examples(run)
    if not drawn or run.graphs is None:
        return False
    dataset = run.graphs.sample
    example, codec = drawn[0], GraphCodec.of(dataset)
    edges = codec.edges(example["graph"])
    points = graph_layout(example["nodes"], edges)
    first = int(dataset.first_node[example["graph"]])
    codes = codec.codes[first : first + example["nodes"]]
    panels = {"before": {"lost": (), "masked": (), "cut": (), "added": ()}}
    panels |= {member["name"]: member["draws"][0] for member in example["members"]}
    columns = min(len(panels), 6)
    rows = math.ceil(len(panels) / columns)
    with new_figure(1.9 * columns, 1.7 * rows) as figure:
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid:
            axes.set_axis_off()
            axes.set_aspect("equal")
        for axes, (name, change) in zip(grid, panels.items(), strict=False):
            _draw_graph(axes, points, edges, change, codes, codec.labels)
            axes.set_title(name.replace("_", " ").replace("(strength=", " ").replace(")", ""), fontsize=9)
        write_picture(figure, stem)
    return True


def _draw_graph(
    axes: Any,
    points: NDArray[np.float64],
    edges: Sequence[tuple[int, int]],
    change: Mapping[str, Any],
    codes: NDArray[np.int64],
    labels: Sequence[str],
) -> None:
    from matplotlib.collections import LineCollection

    lost, masked, cut = set(change["lost"]), set(change["masked"]), set(change["cut"])
    gone = [edge for edge in edges if lost & set(edge) or edge in cut]
    remaining = [edge for edge in edges if edge not in set(gone)]
    for pairs, look in (
        (gone, {"colors": "#aaaaaa", "linewidths": 0.8, "linestyles": ":"}),
        (remaining, {"colors": "#666666", "linewidths": 1.2}),
        (change["added"], {"colors": COLOURS[1], "linewidths": 1.8}),
    ):
        axes.add_collection(LineCollection([points[list(pair)] for pair in pairs], zorder=1, **look))
    faces = [COLOURS[(code - 1) % 6] if len(labels) and code else "#777777" for code in codes]
    faces = ["white" if node in lost else "black" if node in masked else face for node, face in enumerate(faces)]
    borders = ["#999999" if node in lost else face for node, face in enumerate(faces)]
    styles = [":" if node in lost else "-" for node in range(len(points))]
    axes.scatter(*points.T, s=60, c=faces, edgecolors=borders, linestyles=styles, zorder=2)
    for node, (x, y) in enumerate(points):
        text = "?" if node in masked else labels[codes[node]] if len(labels) else ""
        if text and len(text) < 3 and node not in lost and len(points) <= 60:
            axes.text(x, y, text, ha="center", va="center_baseline", color="white", fontsize=5.5, zorder=3)


def graph_layout(num_nodes: int, edges: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """``(n, 2)`` positions whose distances approximate those in the graph (Kamada and Kawai)."""
    if num_nodes == 1:
        return np.zeros((1, 2))
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    steps = shortest_path(csr_array((np.ones(len(ends)), ends.T), shape=(num_nodes, num_nodes)), directed=False)
    steps[np.isinf(steps)] = max(2.0, 0.9 * num_nodes**0.5)  # so that unconnected parts are placed side by side
    graph = nx.empty_graph(num_nodes)
    graph.add_edges_from(edges)
    positions = nx.kamada_kawai_layout(graph, dist={i: dict(enumerate(row)) for i, row in enumerate(steps.tolist())})
    points = np.array([positions[node] for node in range(num_nodes)])
    centred = points - points.mean(axis=0)
    turned: NDArray[np.float64] = centred @ np.linalg.svd(centred)[2].T  # the longest extent is horizontal
    return turned


def _curves(runs: Sequence[ReportedRun], stem: Path) -> bool:
    trained = [each for each in runs if each.metrics]
    if not trained:
        return False
    choosing = [each for each in trained if len(each.run.info.pool) > 1]
    with new_figure(7.4 if choosing else 3.7, 2.7) as figure:
        panels = figure.subplots(1, 2 if choosing else 1, squeeze=False)[0]
        _lines(panels[0], "loss", trained, [[epoch.loss for epoch in each.metrics] for each in trained])
        if choosing:
            pairs = [[effective_pairs(epoch.probabilities) for epoch in each.metrics] for each in choosing]
            _lines(panels[1], "effective number of pairs", choosing, pairs)
        write_picture(figure, stem)
    return True


def _lines(axes: Any, label: str, runs: Sequence[ReportedRun], series: Sequence[Sequence[float]]) -> None:
    for number, (run, values) in enumerate(zip(runs, series, strict=True)):
        look = {"color": COLOURS[number % len(COLOURS)], "ls": DASHES[number % len(DASHES)]}
        epochs = [epoch.epoch for epoch in run.metrics]
        axes.plot(epochs, values, label=run.name, marker="o" if len(epochs) == 1 else None, **look)
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if len(runs) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)
