"""Merge molecules that have the same structure after standardisation, where labels are learned or compared."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import quantity
from joao.data.dataset import Dataset
from joao.data.molecules import is_standardised


def merge_duplicates(
    dataset: Dataset, parts: Sequence[str] | None = None
) -> tuple[Dataset, NDArray[np.int64], str | None]:
    """Merge standardised molecules with the same SMILES into the first of them; other data sets stay as they are.

    A label of several rows is their mean or, in a column of 0 and 1, missing if they contradict each other, as is a
    class. Missing labels are ignored.

    Args:
        dataset: molecules with classes or tasks.
        parts: a given split, one entry per molecule; molecules of different parts are not merged.

    Returns:
        The data set, the numbers of the molecules that are left, and a notice, or None if nothing was merged.
    """
    all_rows = np.arange(len(dataset))
    if not is_standardised(dataset.featuriser) or len({*dataset.smiles}) == len(dataset.smiles):
        return dataset, all_rows, None
    group_of: dict[tuple[str, str], int] = {}
    keys = zip(dataset.smiles, parts or ("",) * len(dataset), strict=True)
    group = np.array([group_of.setdefault(key, len(group_of)) for key in keys])
    first = np.unique(group, return_index=True)[1]
    merged, sentences = dataset.subset(first), list[str]()
    if dataset.targets is not None:
        targets, sentences = _merge_targets(dataset.targets, group)
        merged = replace(merged, targets=targets)
    if dataset.classes is not None:
        known = dataset.classes >= 0
        count, least, most = _extremes(dataset.classes[known], group[known], len(merged))
        merged = replace(merged, classes=np.where((count > 0) & (least == most), least, -1).astype(np.int64))
        if contradicting := int((least < most).sum()):
            sentences.append(f"{quantity(contradicting, 'molecules')} with several classes have none")
    if parts is not None and (shared := len(group_of) - len({*dataset.smiles})):
        sentences.append(f"{quantity(shared, 'molecules')} are in several parts of the split")
    repeats = quantity(len(dataset) - len(merged), "rows")
    details = f" ({'; '.join(sentences)})" if sentences else ""
    return merged, first, f"{dataset.name}: {repeats} repeat a standardised structure and are merged{details}."


def _merge_targets(targets: NDArray[np.float32], group: NDArray[np.int64]) -> tuple[NDArray[np.float32], list[str]]:
    """Labels ``(groups, T)``, and what happened to labels that differ."""
    merged = np.full((int(group.max()) + 1, targets.shape[1]), np.nan, dtype=np.float32)
    contradicting, ranges = 0, list[float]()
    for task, column in enumerate(targets.T):
        known = ~np.isnan(column)
        values, group_of_value = column[known].astype(np.float64), group[known]
        count, least, most = _extremes(values, group_of_value, len(merged))
        differ = least < most
        value = np.where(count > 0, least, np.nan)
        if np.isin(values, (0, 1)).all():
            value[differ] = np.nan
            contradicting += int(differ.sum())
        else:
            value[differ] = (np.bincount(group_of_value, values, len(merged))[differ]) / count[differ]
            ranges += (most - least)[differ].tolist()
        merged[:, task] = value
    sentences = []
    if ranges:
        sentences.append(f"{quantity(len(ranges), 'labels')} averaged, whose values differ by up to {max(ranges):.3g}")
    if contradicting:
        sentences.append(f"{quantity(contradicting, 'labels')} with both 0 and 1 now missing")
    return merged, sentences


def _extremes(
    values: NDArray[Any], group: NDArray[np.int64], num_groups: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Number of values of each group, and the smallest and the largest; infinity and minus infinity without values."""
    least, most = np.full(num_groups, np.inf), np.full(num_groups, -np.inf)
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return np.bincount(group, minlength=num_groups), least, most
