"""What a baseline is."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from joao.core.errors import UserError
from joao.data.dataset import Dataset

Rows: TypeAlias = NDArray[np.float64] | csr_array


def check_minimum(method: str, least: int, **options: int) -> None:
    """Refuses options that are below ``least``."""
    for name, value in options.items():
        if value < least:
            raise UserError(f"{method}: {name} must be at least {least}, got {value}.")


class Baseline(ABC):
    r"""Makes a row of numbers of every graph, without an encoder and without labels.

    As in scikit-learn: options are given to the constructor, :meth:`fit` looks at graphs, :meth:`transform` makes rows
    of the same or of others.

    Attributes:
        kernel: whether the rows are the feature map of a graph kernel, :math:`k(G, H) = \phi(G) \cdot \phi(H)`,
            which a support vector machine takes as it is; else they are embeddings like any other.
        needs: the package that it is made with, if it is one of the optional ones.
    """

    title: ClassVar[str]
    kernel: ClassVar[bool] = False
    needs: ClassVar[str | None] = None

    @classmethod
    def missing_package(cls) -> str | None:
        """The package that it needs and this computer does not have."""
        return cls.needs if cls.needs is not None and find_spec(cls.needs) is None else None

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """What its constructor takes, with the defaults."""
        return {each.name: each.default for each in inspect.signature(cls).parameters.values()}

    @abstractmethod
    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        """Learns from ``graphs`` what is to be learned; ``y`` is there for scikit-learn and not looked at."""

    @abstractmethod
    def transform(self, graphs: Dataset) -> Rows:
        """``(G, d)`` a row for each of ``graphs``, in their order."""

    def fit_transform(self, graphs: Dataset, y: Any = None) -> Rows:
        """Both, on the same graphs."""
        return self.fit(graphs).transform(graphs)
