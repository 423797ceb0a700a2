"""The figures of a report as files."""

import numpy as np
import pytest

from joao.report.figures import graph_layout, write_figures


def kinds(folder):
    found = {}
    for path in folder.iterdir():
        found.setdefault(path.stem, set()).add(path.suffix)
    return found


def test_every_figure_in_three_formats(scored_run, open_run, tmp_path):
    written = write_figures([open_run(scored_run)], tmp_path / "figures")
    assert written == ["scores", "pairs", "map", "changes", "training"]
    assert kinds(tmp_path / "figures") == {name: {".pdf", ".svg", ".png"} for name in written}
    for name in written:
        svg = (tmp_path / "figures" / f"{name}.svg").read_text()
        assert "<image" not in svg  # lines and areas alone
        assert "<text" not in svg  # letters are outlines
        pdf = (tmp_path / "figures" / f"{name}.pdf").read_bytes()
        assert pdf.count(b"/FontFile2") >= 1  # TrueType, inside
        assert b"/Type3" not in pdf
        assert b"/Subtype /Image" not in pdf


@pytest.mark.slow
def test_figures_of_several_runs(new_run, open_run, mutag_data, tmp_path):
    infomax = new_run(mutag_data, "infomax", method="infomax")
    strengths = new_run(mutag_data, "strengths", method="joao_strengths", training={"epochs": 1})
    runs = [open_run(infomax, name="in fo/max"), open_run(strengths)]
    written = write_figures(runs, tmp_path / "figures")
    assert written == ["in-fo-max-map", "strengths-pairs", "strengths-map", "strengths-changes", "training"]
    assert set(kinds(tmp_path / "figures")) == set(written)


@pytest.mark.parametrize("size", [3, 6, 8])
def test_a_ring_is_a_regular_polygon(size):
    places = graph_layout(size, [(i, (i + 1) % size) for i in range(size)])
    sides = np.linalg.norm(places - np.roll(places, -1, axis=0), axis=1)
    np.testing.assert_allclose(sides, sides.mean(), rtol=1e-2)


def test_components_do_not_overlap():
    places = graph_layout(7, [(0, 1), (1, 2), (3, 4)])
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(7)
    assert gaps.min() > 0.05 * gaps.max()
    assert graph_layout(1, []).tolist() == [[0, 0]]
    assert np.ptp(graph_layout(5, [(0, 1), (1, 2), (2, 3), (3, 4)]), axis=0).argmax() == 0  # across
