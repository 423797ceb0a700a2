"""Pictures as files of three kinds."""

import matplotlib
from matplotlib.image import imread

from joao.report.plots import STYLE, new_figure, write_picture


def draw(stem):
    with new_figure(3, 2) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [1, 0], label="図 γ")
        axes.legend()
        return write_picture(figure, stem)


def test_the_same_figure_gives_the_same_bytes_and_leaves_the_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    one, other = draw(tmp_path / "a.b"), draw(tmp_path / "other")
    assert dict(matplotlib.rcParams) == before
    assert [path.name for path in one] == ["a.b.pdf", "a.b.svg", "a.b.png"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert imread(one[2]).shape == (2 * STYLE["savefig.dpi"], 3 * STYLE["savefig.dpi"], 4)
    pdf = one[0].read_bytes()
    assert b"/FontFile2" in pdf
    assert b"CreationDate" not in pdf
