"""Figures 2 and 3 from records."""

import numpy as np
from matplotlib.axes import Axes

from joao.core import plots as figures
from repro.protocols import gamma
from repro.tables.learned import draw_figure_3, read_policies
from tests.messages import refused


def curve(dataset, gamma, seed, losses):
    return {"cell": {"dataset": dataset, "gamma": gamma, "seed": seed}, "losses": losses}


def test_curves_are_means_over_seeds_ordered_by_gamma(tmp_path, monkeypatch):
    drawn, bands = [], []
    plot, fill = Axes.plot, Axes.fill_between

    def keep_plot(self, x, y, *rest, **options):
        drawn.append((options["label"], list(x), list(y)))
        return plot(self, x, y, *rest, **options)

    def keep_fill(self, x, low, high, **options):
        bands.append((list(low), list(high)))
        return fill(self, x, low, high, **options)

    monkeypatch.setattr(Axes, "plot", keep_plot)
    monkeypatch.setattr(Axes, "fill_between", keep_fill)
    records = [
        curve("A", 1.0, 0, [4, 2]),
        curve("A", 0.1, 0, [3, 1]),
        curve("A", 1.0, 1, [6, 3]),
        curve("B", 0.1, 0, [9, 8]),
    ]
    paths = gamma.draw_figure_2(records, tmp_path / "figure-2")
    assert [path.name for path in paths] == ["figure-2.pdf", "figure-2.svg", "figure-2.png"]
    assert drawn == [("γ = 0.1", [1, 2], [3, 1]), ("γ = 1", [1, 2], [5, 2.5]), ("γ = 0.1", [1, 2], [9, 8])]
    assert bands[1] == ([4, 2], [6, 3])


def test_change_of_a_table_matches_a_hand_computation():
    there, back = [[0.5, 0.5], [0, 0]], [[0, 0], [0.5, 0.5]]
    records = [
        curve("A", 10.0, 0, [4, 2, 1]) | {"probabilities": [there, back, there]},
        curve("A", 10.0, 1, [4, 2, 2]) | {"probabilities": [there, there, there]},
    ]
    # One of the two moves wholly in every epoch and is back after two; the last losses are 1 and 2.
    assert gamma.page(records).splitlines()[-1] == "| A | 10 | 2 | 1.500 | 2.0 | 0.50 | 0.00 |"


def record(dataset, method, drawn):
    return {
        "cell": {"dataset": dataset, "method": method, "seed": 0},
        "policy": {"augmentations": ["node_drop", "identity"], "drawn": drawn},
    }


def test_tables_are_in_the_order_of_the_paper(tmp_path, monkeypatch):
    panels = []
    monkeypatch.setattr(figures, "draw_panel", lambda figure, axes, panel, **options: panels.append((panel, options)))
    records = [
        record("COLLAB", "joao", [[1, 1], [1, 1]]),
        record("NCI1", "joao", [[3, 1], [0, 0]]),
        record("NCI1", "joaov2", [[0, 0], [0, 9]]),
    ]
    draw_figure_3(records, "joao", tmp_path / "figure-3")
    assert [(panel.heading, options) for panel, options in panels] == [
        ("NCI1", {"has_rows": True}),
        ("COLLAB", {"has_rows": False}),
    ]
    np.testing.assert_allclose(panels[0][0].values, [[0.75, 0.25], [0, 0]])
    with refused("graphcl"):
        draw_figure_3(records, "graphcl", tmp_path / "figure-3")


def test_missing_records_are_named(tmp_path):
    with refused(tmp_path, "NCI1", "joao", "python -m repro"):
        read_policies(tmp_path, ["NCI1"], "joao")
