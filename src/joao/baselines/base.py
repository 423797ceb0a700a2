"""The base class of baselines."""

import inspect
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.base import TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from joao.core.errors import UserError
from joao.core.estimator import GraphEstimator
from joao.core.registry import check_options, snake_case
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
        uses_labels: whether node labels matter, so that new graphs must have as many columns of them.
        needs: the optional package it requires.

    >>> import joao
    >>> joao.WL(iterations=1).fit_transform("MUTAG").shape
    (188, 40)
    """

    title: ClassVar[str]
    kernel: ClassVar[bool] = False
    uses_labels: ClassVar[bool] = False
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
        check_options(type(self), self.get_params(), type(self).__name__)
        graphs = X if isinstance(X, Dataset) else read_graphs(X)
        self.learn(graphs)
        self.num_graphs_ = len(graphs)
        self._fitted_with = self.get_params()
        self._num_labels = _num_labels(graphs)
        self._no_rows: Any = self.rows(graphs[:1])[:0]  # the columns, which get_feature_names_out needs
        return self

    def transform(self, X: Any) -> Rows:
        """Compute ``(G, d)`` rows. SMILES that RDKit cannot parse get a row of NaN, with a warning."""
        check_is_fitted(self)
        name = type(self).__name__
        for option, value in self.get_params().items():
            if value != (before := self._fitted_with[option]):
                raise UserError(f"{name}: was fitted with {option}={before!r}, which is {value!r} now. Call fit again.")
        graphs = X if isinstance(X, Dataset) else read_graphs(X, may_be_empty=True)
        if len(graphs) and self.uses_labels and _num_labels(graphs) != self._num_labels:
            raise UserError(
                f"{graphs.name}: {_num_labels(graphs)} columns of node labels, expected {self._num_labels}. Use graphs "
                f"like those of fit, or fit {name} to these."
            )
        rows = self.rows(graphs) if len(graphs) else self._no_rows
        return rows if X is graphs else _in_rows(rows, graphs)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns, for ``set_output``."""
        check_is_fitted(self)
        names = [f"{snake_case(type(self).__name__)}{i}" for i in range(self._no_rows.shape[1])]
        return np.array(names, dtype=object)


def _num_labels(graphs: Dataset) -> int:
    return 0 if graphs.node_labels is None else graphs.node_labels.shape[1]


def _in_rows(rows: Any, graphs: Dataset) -> Rows:
    """One row per row of the source, NaN for failures; sparse rows stay sparse."""
    if not graphs.failures or not issparse(rows):
        return cast(Rows, graphs.in_rows(rows))
    failed = np.full((len(graphs.failures), rows.shape[1]), np.nan)
    places = np.concatenate([graphs.rows, [failure.row for failure in graphs.failures]])
    return csr_array(vstack([rows, csr_array(failed)], format="csr")[np.argsort(places)])
