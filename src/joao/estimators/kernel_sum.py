"""Several embeddings and graph kernels in one kernel."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.utils.validation import check_is_fitted

from joao.core.errors import UserError, short_repr
from joao.evaluation.svm import finite_rows, kernel_matrix


class KernelSum(FeatureUnion):  # type: ignore[misc]
    r"""The mean of the kernels of several transformers, for estimators with a precomputed kernel.

    The kernel of a graph kernel, such as :class:`joao.WL`, and of any sparse rows is the cosine; that of embeddings,
    such as :class:`joao.JOAO`, is Gaussian on standardised columns, as in ``joao evaluate``. All weigh the same:

    .. math:: k(G, H) = \frac{1}{m} \sum_{i=1}^m k_i(G, H)

    :meth:`transform` returns the kernel of the given graphs with the graphs of :meth:`fit`. Graphs whose rows have NaN,
    such as SMILES that RDKit cannot parse, get a row of NaN; :meth:`fit` refuses them.

    Args:
        transformer_list: pairs of name and transformer, as in scikit-learn's ``FeatureUnion``; ``"drop"`` instead of a
            transformer leaves it out.

    >>> import joao
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> graphs = joao.read("MUTAG")
    >>> both = joao.KernelSum([("joao", joao.JOAO(epochs=1)), ("wl", joao.WL())])
    >>> classifier = make_pipeline(both, SVC(kernel="precomputed")).fit(graphs, graphs.classes)
    >>> classifier.predict(graphs[:3]).shape
    (3,)
    """

    def __init__(self, transformer_list: Any) -> None:
        super().__init__(transformer_list)

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit all transformers to the graphs ``X``."""
        self._check_transformers()
        super().fit(X, y, **params)
        self.kernels_ = [_Kernel(name, transformer, X) for name, transformer, _ in self._iter()]
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> NDArray[np.float64]:
        """Fit, and compute the kernel ``(G, G)`` of the graphs ``X``."""
        self.fit(X, y, **params)
        kernel: NDArray[np.float64] = np.mean([each.with_fitted(each.fitted) for each in self.kernels_], axis=0)
        return kernel

    def transform(self, X: Any, **params: Any) -> NDArray[np.float64]:
        """Compute the kernel ``(G, H)`` of the graphs ``X`` with those of :meth:`fit`."""
        check_is_fitted(self, "kernels_")
        kernel: NDArray[np.float64] = np.mean([each(X) for each in self.kernels_], axis=0)
        return kernel

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns, one per graph of :meth:`fit`."""
        check_is_fitted(self, "kernels_")
        return np.array([f"kernel{i}" for i in range(self.kernels_[0].fitted.shape[0])], dtype=object)

    def set_output(self, *, transform: Any = None) -> Self:
        """Set the container of the kernel, such as ``pandas``. The transformers keep theirs."""
        super(FeatureUnion, self).set_output(transform=transform)
        return self

    def _check_transformers(self) -> None:
        """Refuse what is no list of pairs, and lists that leave nothing."""
        given = self.transformer_list
        is_list = isinstance(given, list | tuple)
        if not is_list or not all(isinstance(each, list | tuple) and len(each) == 2 for each in given):
            raise UserError(
                f"KernelSum: expected a list of pairs of name and transformer, got {short_repr(given)}. For example "
                '[("joao", joao.JOAO()), ("wl", joao.WL())].'
            )
        kept = [(name, each) for name, each in given if not isinstance(each, str) or each != "drop"]
        if not kept:
            raise UserError(f"KernelSum: needs a transformer, got {short_repr(given)}. Add one, such as joao.WL().")
        for name, each in kept:
            if isinstance(each, str):
                raise UserError(f"KernelSum: {name!r} is {each!r}. Give a transformer of graphs, or 'drop'.")


class _Kernel:
    """The kernel of the rows of one fitted transformer with those of the graphs ``X``."""

    def __init__(self, name: str, transformer: Any, X: Any) -> None:
        self.name, self.transformer = name, transformer
        rows = self._rows(X)
        failed = np.flatnonzero(~finite_rows(rows))
        if len(failed):
            raise UserError(
                f"KernelSum: {name}: {len(failed)} of {rows.shape[0]} graphs have rows with NaN or infinite numbers, "
                f"the first is graph {failed[0]} (from 0). Remove them before fit."
            )
        self.is_linear = getattr(transformer, "kernel", False) is True or issparse(rows)
        self.scaler = None if self.is_linear else StandardScaler().fit(rows)
        self.fitted = self._scale(rows)

    def __call__(self, X: Any) -> NDArray[np.float64]:
        rows = self._rows(X)
        known = finite_rows(rows)
        kernel = np.full((rows.shape[0], self.fitted.shape[0]), np.nan)
        if known.any():
            kernel[known] = self.with_fitted(self._scale(rows[known]))
        return kernel

    def with_fitted(self, rows: Any) -> NDArray[np.float64]:
        """The kernel of scaled rows with those of :meth:`fit`."""
        if self.is_linear:
            products = rows @ self.fitted.T
            return np.asarray(products.toarray() if issparse(products) else products)
        variance = self.fitted.var()
        gamma = 1.0 / (self.fitted.shape[1] * variance) if variance else 1.0
        return kernel_matrix(rows, self.fitted, gamma)

    def _rows(self, X: Any) -> Any:
        rows = self.transformer.transform(X)
        rows = rows.tocsr() if issparse(rows) else np.asarray(rows)
        if rows.ndim != 2 or rows.dtype.kind not in "biuf":
            raise UserError(
                f"KernelSum: {self.name}: expected one row of numbers per graph, got an array of shape {rows.shape} "
                f"and type {rows.dtype}."
            )
        return rows

    def _scale(self, rows: Any) -> Any:
        return normalize(rows) if self.scaler is None else self.scaler.transform(rows.astype(np.float64))
