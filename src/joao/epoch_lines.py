"""Epochs as lines of JSON; what is read is believed only where its numbers are numbers."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from joao.training.pretrain import EpochMetrics


def line_of(metrics: EpochMetrics) -> str:
    """What an epoch showed, with the end of the line."""
    return json.dumps(dataclasses.asdict(metrics)) + "\n"


def epoch_of(line: str, size: int) -> EpochMetrics:
    """The reverse of :func:`line_of`; the tables must have ``size`` rows and columns.

    Raises:
        ValueError, TypeError, RecursionError: where the line is none.
    """
    metrics = EpochMetrics(**json.loads(line))
    tables = [metrics.probabilities, metrics.drawn]
    if metrics.pair_losses is not None:
        tables.append(metrics.pair_losses)
    if not all(are_numbers(table, (size, size)) for table in tables):
        raise ValueError(f"a table is not {size} rows of {size} numbers")
    if not are_numbers([metrics.epoch, metrics.loss, metrics.seconds, metrics.graphs_per_second], (4,)):
        raise ValueError("a number is none")
    return metrics


def are_numbers(values: Any, shape: tuple[int, ...]) -> bool:
    """Whether ``values`` are finite numbers, nested in this shape."""
    array = np.array(values)
    return array.shape == shape and array.dtype.kind in "if" and bool(np.isfinite(array).all())
