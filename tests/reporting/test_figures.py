"""The picture of a learned table."""

import numpy as np
import pytest
from matplotlib.image import imread

from joao.errors import UserError
from joao.pair_table import PairTable
from joao.reporting.figures import draw_policy

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
def test_any_title(title, tmp_path):
    draw_policy(TABLE, TABLE, title, tmp_path / "picture.png")
    assert imread(tmp_path / "picture.png").shape == (480, 1100, 4)


def test_a_table_of_zeros_is_drawn(tmp_path):
    nothing = PairTable.of(NAMES, np.zeros((2, 2)))
    draw_policy(nothing, nothing, "Nothing", tmp_path / "zeros.png")
    assert imread(tmp_path / "zeros.png").shape == (480, 1100, 4)


def test_a_place_that_cannot_be_written_to(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        draw_policy(TABLE, TABLE, "Title", tmp_path / "nowhere" / "picture.png")
