"""What all scikit-learn estimators of the package share."""

from __future__ import annotations

from sklearn.base import BaseEstimator
from sklearn.utils import Tags


class GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of estimators whose ``X`` is a list of graphs instead of a matrix."""

    def __sklearn_is_fitted__(self) -> bool:
        return any(hasattr(self, name) for name in ("trained_", "finetuned_", "num_graphs_"))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags
