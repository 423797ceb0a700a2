"""The base class of baselines."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from joao.data.dataset import Dataset

Rows: TypeAlias = NDArray[np.float64] | csr_array


class Baseline(ABC):
    r"""Turns every graph into a row of numbers, without an encoder and without labels.

    The interface is that of scikit-learn: options go to the constructor, :meth:`fit` learns from graphs,
    :meth:`transform` computes the rows of the same or other graphs.

    Attributes:
        title: display name in tables.
        kernel: whether the rows are the feature map of a graph kernel, :math:`k(G, H) = \phi(G) \cdot \phi(H)`, for
            a linear support vector machine; otherwise they are embeddings.
        needs: the optional package it requires.
    """

    title: ClassVar[str]
    kernel: ClassVar[bool] = False
    needs: ClassVar[str | None] = None

    @classmethod
    def missing_package(cls) -> str | None:
        """The required package, if it is not installed."""
        return cls.needs if cls.needs is not None and find_spec(cls.needs) is None else None

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """The options of the constructor, with their defaults."""
        return {each.name: each.default for each in inspect.signature(cls).parameters.values()}

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        """Learn from ``graphs``, by default nothing. ``y`` is ignored; scikit-learn passes it."""
        return self

    @abstractmethod
    def transform(self, graphs: Dataset) -> Rows:
        """Compute ``(G, d)`` rows, one per graph."""

    def fit_transform(self, graphs: Dataset, y: Any = None) -> Rows:
        return self.fit(graphs).transform(graphs)
