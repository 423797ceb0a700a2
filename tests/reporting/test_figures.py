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
    draw_policy(TABLE, OTHER, "Title", tmp_path / "one.png")
    draw_policy(OTHER, TABLE, "Title", tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    one, two = (imread(tmp_path / name) for name in ("one.png", "two.png"))
    assert one.shape == two.shape == (480, 1100, 4)
    assert 5_000 < (tmp_path / "one.png").stat().st_size < 300_000
    # Exchanged tables change both halves.
    assert not np.array_equal(one[:, :500], two[:, :500])
    assert not np.array_equal(one[:, 600:], two[:, 600:])


def test_a_table_of_zeros_is_drawn(tmp_path):
    nothing = PairTable.of(NAMES, np.zeros((2, 2)))
    draw_policy(nothing, nothing, "Nothing", tmp_path / "zeros.png")
    assert imread(tmp_path / "zeros.png").shape == (480, 1100, 4)


def test_a_place_that_cannot_be_written_to(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        draw_policy(TABLE, TABLE, "Title", tmp_path / "nowhere" / "picture.png")
