"""Heat maps of augmentation pairs, and figures as files."""

import matplotlib
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from joao.core.pair_table import PairTable
from joao.core.plots import STYLE, draw_policy, draw_tables, new_figure, write_picture
from tests.messages import refused

NAMES = ["node_drop", "identity"]
TABLE = PairTable.of(NAMES, [[0.7, 0.1], [0.1, 0.1]])
OTHER = PairTable.of(NAMES, [[0.1, 0.1], [0.1, 0.7]])


def test_two_panels_show_their_own_tables(tmp_path):
    path = tmp_path / "picture.png"
    halves = []
    for table, drawn in ((TABLE, OTHER), (OTHER, OTHER), (TABLE, TABLE)):
        draw_policy(table, drawn, "Title", path)
        picture = imread(path)
        assert picture.shape == (480, 1100, 4)
        halves.append((picture[:, :500], picture[:, 600:]))
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert 5_000 < path.stat().st_size < 300_000
    (left, right), (other_left, same_right), (same_left, other_right) = halves
    assert np.array_equal(left, same_left)
    assert np.array_equal(right, same_right)
    assert not np.array_equal(left, other_left)
    assert not np.array_equal(right, other_right)


@pytest.mark.parametrize("title", ["costs $5 or $x_$", "図 😀", "a\nb", ""])
def test_titles_with_special_characters(title, tmp_path):
    draw_policy(TABLE, TABLE, title, tmp_path / "picture.png")
    assert imread(tmp_path / "picture.png").shape == (480, 1100, 4)


def test_a_table_of_zeros_is_drawn(tmp_path):
    nothing = PairTable.of(NAMES, np.zeros((2, 2)))
    draw_policy(nothing, nothing, "Nothing", tmp_path / "zeros.png")
    assert imread(tmp_path / "zeros.png").shape == (480, 1100, 4)


def has_colour(picture, *colour):
    return bool((np.abs(picture[..., :3] - colour).max(-1) < 0.02).any())


def test_colours_of_differences_and_shares(tmp_path):
    path = tmp_path / "picture.png"
    purple, brown = (45 / 255, 0, 75 / 255), (127 / 255, 59 / 255, 8 / 255)  # the ends of the scale
    for values in ([[1, 0], [0, -1]], [[1, 0], [0, 1]]):  # differences may all be positive
        for differences, shown in ((["one"], True), ([], False)):
            draw_tables({"one": PairTable.of(NAMES, values)}, "Title", path, differences=differences)
            picture = imread(path)
            assert picture.shape == (480, 550, 4)
            assert has_colour(picture, *purple) == has_colour(picture, *brown) == shown


def contrast(one, other):
    """How well two colours can be told apart, from 1 to 21 (Web Content Accessibility Guidelines 2.1)."""
    lights = []
    for colour in (one, other):
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in to_rgb(colour)]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize(("scale", "lowest"), [("PuOr", -1), ("cividis", 0)])
def test_numbers_have_contrast(scale, lowest, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(Axes, "text", lambda self, x, y, text, **how: written.append((x, y, text, how["color"])))
    values = np.linspace(lowest, 1, 49).reshape(7, 7)
    table = PairTable.of([f"a{i}" for i in range(7)], values)
    draw_tables({"one": table}, "Title", tmp_path / "picture.png", differences=["one"] if lowest else [])
    assert len(written) == 49
    for x, y, text, colour in written:
        assert float(text) == pytest.approx(values[y, x], abs=0.0051)
        assert text.startswith(("+", "-")) == (lowest < 0)
        behind = colormaps[scale]((values[y, x] - lowest) / (1 - lowest))
        assert contrast(colour, behind) > 3.5


def test_several_tables_are_side_by_side(tmp_path):
    draw_tables({"one": TABLE, "two": OTHER, "three": TABLE}, "Title", tmp_path / "picture.png")
    assert imread(tmp_path / "picture.png").shape == (480, 1650, 4)


def test_unwritable_path(tmp_path):
    with refused(tmp_path / "nowhere" / "picture.png"):
        draw_policy(TABLE, TABLE, "Title", tmp_path / "nowhere" / "picture.png")


def test_a_pool_with_strengths_is_summed_and_has_a_third_panel(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(Axes, "text", lambda self, x, y, text, **how: written.append((self.get_title(), x, y, text)))
    names = ["node_drop(strength=0.1)", "node_drop(strength=0.3)", "identity"]
    table = PairTable.of(names, [[0.1, 0.2, 0.0], [0.3, 0.1, 0.0], [0.0, 0.0, 0.3]])
    draw_policy(table, table, "Title", tmp_path / "picture.png")
    assert imread(tmp_path / "picture.png").shape == (480, 1650, 4)
    pairs, third = ([each[1:] for each in written if ("views" in each[0]) == is_third] for is_third in (False, True))
    assert pairs == [(0, 0, "0.70"), (1, 0, "0.00"), (0, 1, "0.00"), (1, 1, "0.30")] * 2
    # Columns are "-", 0.1 and 0.3; node_drop has nothing in the first, identity nothing in the others.
    assert third == [(1, 0, "0.35"), (2, 0, "0.35"), (0, 1, "0.30")]


def draw(stem):
    with new_figure(3, 2) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [1, 0], label="図 γ")
        axes.legend()
        return write_picture(figure, stem)


def test_figures_are_reproducible_and_leave_settings_unchanged(tmp_path):
    before = dict(matplotlib.rcParams)
    one, other = draw(tmp_path / "a.b"), draw(tmp_path / "other")
    assert dict(matplotlib.rcParams) == before
    assert [path.name for path in one] == ["a.b.pdf", "a.b.svg", "a.b.png"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert imread(one[2]).shape == (2 * STYLE["savefig.dpi"], 3 * STYLE["savefig.dpi"], 4)
    pdf = one[0].read_bytes()
    assert b"/FontFile2" in pdf
    assert b"CreationDate" not in pdf
