"""A line of an epoch is read back as it was, and what is none is refused before anybody computes with it."""

import json
import math

import pytest

from joao.runs.folder import format_epoch, parse_epoch
from joao.training.metrics import EpochMetrics

EPOCH = EpochMetrics(
    epoch=3,
    loss=0.1,
    probabilities=[[1 / 3, 2 / 3], [0.0, 0.0]],
    pair_losses=[[1.0, 2.0], [3.0, 1e-17]],
    drawn=[[7, 0], [0, 0]],
    seconds=0.5,
    graphs_per_second=14,
)
NO_NUMBERS = (None, "1", [], {}, [1.0], math.nan, -math.inf, 10**30)
NO_TABLES = (0.5, [], [[]], [[1.0, 2.0]], [[1, 2], [3]], [[1, 2, 3]] * 2, [["1", "2"]] * 2, [[None, 1]] * 2, {})


@pytest.mark.parametrize("pair_losses", [EPOCH.pair_losses, None])
def test_what_was_written_is_read(pair_losses):
    epoch = EpochMetrics(**{**vars(EPOCH), "pair_losses": pair_losses})
    assert format_epoch(epoch).count("\n") == 1
    assert parse_epoch(format_epoch(epoch), 2) == epoch


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name in ("epoch", "loss", "seconds", "graphs_per_second") for wrong in NO_NUMBERS]
    + [(name, wrong) for name in ("probabilities", "pair_losses", "drawn") for wrong in NO_TABLES]
    + [("probabilities", [[math.nan, 1.0]] * 2), ("drawn", None)],
)
def test_what_is_no_number_or_table_is_refused(name, wrong):
    with pytest.raises((ValueError, TypeError)):
        parse_epoch(json.dumps({**vars(EPOCH), name: wrong}), 2)


def test_tables_are_of_the_pool():
    with pytest.raises(ValueError, match="3"):
        parse_epoch(format_epoch(EPOCH), 3)
