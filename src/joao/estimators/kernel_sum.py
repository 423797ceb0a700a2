"""Several embeddings and graph kernels in one kernel."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.utils.validation import check_is_fitted

from joao.evaluation.svm import kernel_matrix


class KernelSum(FeatureUnion):  # type: ignore[misc]
    r"""The mean of the kernels of several transformers, for estimators with a precomputed kernel.

    The kernel of a graph kernel, such as :class:`joao.WL`, is the cosine of its rows; that of embeddings, such as
    :class:`joao.JOAO`, is Gaussian on standardised columns, as in ``joao evaluate``. All weigh the same:

    .. math:: k(G, H) = \frac{1}{m} \sum_{i=1}^m k_i(G, H)

    :meth:`transform` returns the kernel of the given graphs with the graphs of :meth:`fit`.

    Args:
        transformer_list: pairs of name and transformer, as in scikit-learn's ``FeatureUnion``.

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
        super().fit(X, y, **params)
        self.kernels_ = [_Kernel(transformer, X) for _, transformer, _ in self._iter()]
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> NDArray[np.float64]:
        """Fit, and compute the kernel ``(G, G)`` of the graphs ``X``."""
        return self.fit(X, y, **params).transform(X)

    def transform(self, X: Any, **params: Any) -> NDArray[np.float64]:
        """Compute the kernel ``(G, H)`` of the graphs ``X`` with those of :meth:`fit`."""
        check_is_fitted(self, "kernels_")
        kernel: NDArray[np.float64] = np.mean([each(X) for each in self.kernels_], axis=0)
        return kernel

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns, one per graph of :meth:`fit`."""
        return np.array([f"kernel{i}" for i in range(self.kernels_[0].fitted.shape[0])], dtype=object)


class _Kernel:
    def __init__(self, transformer: Any, X: Any) -> None:
        self.transformer, self.is_linear = transformer, getattr(transformer, "kernel", False) is True
        rows = transformer.transform(X)
        self.scaler = None if self.is_linear else StandardScaler().fit(rows)
        self.fitted = self._scale(rows)

    def _scale(self, rows: Any) -> Any:
        return normalize(rows) if self.scaler is None else self.scaler.transform(rows.astype(np.float64))

    def __call__(self, X: Any) -> NDArray[np.float64]:
        rows = self._scale(self.transformer.transform(X))
        if self.is_linear:
            products = rows @ self.fitted.T
            return np.asarray(products.toarray() if hasattr(products, "toarray") else products)
        variance = self.fitted.var()
        gamma = 1.0 / (self.fitted.shape[1] * variance) if variance else 1.0
        return kernel_matrix(rows, self.fitted, gamma)
