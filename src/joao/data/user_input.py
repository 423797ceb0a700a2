"""Graphs as callers of the Python API pass them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import JoaoNotice, UserError, short_repr
from joao.data import list_datasets, read, read_whole
from joao.data.dataset import Dataset, sizes_to_offsets
from joao.data.features import Features
from joao.data.molecules.featurise import featurise, featuriser_version
from joao.data.molecules.smiles import SMILES_NAMES
from joao.data.shards.index import is_shard_store
from joao.data.shards.shards import Shards
from joao.data.sources import TU_DATASETS

_NOTHING = np.zeros(0, dtype=np.int64)


_NO_GRAPHS = Dataset("graphs", sizes_to_offsets(_NOTHING), sizes_to_offsets(_NOTHING), source=_NOTHING, target=_NOTHING)


_NOT_THE_USERS = ("joao", "sklearn", "joblib")


def read_graphs(X: Any, *, may_be_empty: bool = False) -> Dataset:
    """The graphs that a method of an estimator was given, anything that :func:`joao.read` takes.

    Where they ``may_be_empty``, an empty list is none, and what cannot be read has a row all the same.
    """
    _refuse_tables_and_single_smiles(X)
    if may_be_empty and isinstance(X, Sized) and not isinstance(X, str | bytes | Mapping) and not len(X):
        return X if isinstance(X, Dataset) else _NO_GRAPHS
    dataset = read_whole(X)
    first = "; ".join(
        f"row {each.row} (from 0), {short_repr(each.text)}: {each.reason}" for each in dataset.failures[:1]
    )
    if not len(dataset) and not first:
        raise UserError(f"{dataset.name}: no graphs in it.")
    if not len(dataset) and not may_be_empty:
        fix = "Give SMILES, or a name or path by itself, not in a list."
        raise UserError(f"{dataset.name}: none of {len(dataset.failures)} texts is a molecule; {first}. {fix}")
    for notice in dataset.notices:
        warn_user(notice)
    if first and X is not dataset:
        what = "have rows of NaN" if may_be_empty else "are left out"
        warn_user(f"{dataset.failure_notice} and {what}; the first: {first}.")
    return dataset


def as_shards(X: Any) -> Shards | None:
    """The store that ``X`` is, or is the path of."""
    is_store = isinstance(X, str | os.PathLike) and is_shard_store(Path(X))
    found = read(X) if is_store else X
    return found if isinstance(found, Shards) else None


def warn_about_unknown_labels(dataset: Dataset, features: Features) -> None:
    """Tells the caller of a method of an estimator about labels of nodes that were not there in training."""
    unknown = features.unknown_labels(dataset)
    if unknown:
        warn_user(f"{dataset.name}: {unknown} node labels were not seen in training.")


def warn_user(notice: str) -> None:
    """Warns, at the line outside of this package and scikit-learn that everything began with."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS:
        level, frame = level + 1, frame.f_back
    warnings.warn(notice, JoaoNotice, stacklevel=level)


def _refuse_tables_and_single_smiles(X: Any) -> None:
    """Tells of two things that look like graphs to who gives them, and of which no reader would say so."""
    columns = [str(name) for name in getattr(X, "columns", ())]
    if columns:
        named = next((name for name in columns if name.casefold() in SMILES_NAMES), columns[0])
        raise UserError(f"a table ({type(X).__name__}) is not a list of graphs. Of a table df give df[{named!r}].")
    if not isinstance(X, str) or X in TU_DATASETS or os.path.exists(os.path.expanduser(X)) or X in list_datasets():
        return
    if featuriser_version() is not None and not featurise([X]).failures:
        raise UserError(
            f"{short_repr(X)} is a molecule, and no data set or file has this name. Give a list: [{short_repr(X)}]."
        )
