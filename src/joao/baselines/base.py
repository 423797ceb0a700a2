"""The base class of baselines."""

import inspect
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from joao.core.errors import UserError
from joao.core.estimator import GraphEstimator
from joao.core.registry import snake_case
from joao.data.dataset import Dataset
from joao.data.sources import read_graphs

Rows: TypeAlias = NDArray[np.float64] | csr_array


class Baseline(TransformerMixin, GraphEstimator, ABC):  # type: ignore[misc]
    r"""Turns every graph into a row of numbers, without an encoder and without labels: a scikit-learn transformer.

    Graphs are anything that :func:`joao.read` accepts. A subclass stores its options under their own names and
    implements :meth:`rows` and, if it learns something, :meth:`learn`.

    Attributes:
        title: display name in tables.
        kernel: whether the rows are the feature map of a graph kernel, :math:`k(G, H) = \phi(G) \cdot \phi(H)`, for
            a linear support vector machine; otherwise they are embeddings.
        needs: the optional package it requires.

    >>> import joao
    >>> joao.WL(iterations=1).fit_transform("MUTAG").shape
    (188, 40)
    """

    title: ClassVar[str]
    kernel: ClassVar[bool] = False
    needs: ClassVar[str | None] = None
    compared_as = "baseline"

    @classmethod
    def missing_package(cls) -> str | None:
        """The required package, if it is not installed."""
        return cls.needs if cls.needs is not None and find_spec(cls.needs) is None else None

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """The options of the constructor, with their defaults."""
        return {each.name: each.default for each in inspect.signature(cls).parameters.values()}

    def learn(self, graphs: Dataset) -> None:
        """Learn from ``graphs``, by default nothing."""

    @abstractmethod
    def rows(self, graphs: Dataset) -> Rows:
        """Compute ``(G, d)`` rows, one per graph."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the graphs ``X``. ``y`` is ignored."""
        clone(self)  # the constructor checks options, also those of set_params
        graphs = X if isinstance(X, Dataset) else read_graphs(X)
        self.learn(graphs)
        self.num_graphs_ = len(graphs)
        return self

    def transform(self, X: Any) -> Rows:
        """Compute ``(G, d)`` rows. SMILES that RDKit cannot parse get a row of NaN, with a warning."""
        check_is_fitted(self)
        graphs = X if isinstance(X, Dataset) else read_graphs(X, may_be_empty=True)
        if not len(graphs):
            raise UserError(f"{type(self).__name__}: no graphs to transform.")
        rows: Any = self.rows(graphs)
        self._num_columns = rows.shape[1]
        if X is graphs or not graphs.failures:
            return cast(Rows, rows)
        return cast(Rows, graphs.in_rows(rows.toarray() if issparse(rows) else rows))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns of the last :meth:`transform`, for ``set_output``."""
        return np.array([f"{snake_case(type(self).__name__)}{i}" for i in range(self._num_columns)], dtype=object)
