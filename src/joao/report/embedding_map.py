"""Embeddings in two dimensions."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, suggest
from joao.core.randomness import derive_seed

KINDS = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
SIZE = 1000
ENOUGH_FOR_OUTLIERS = 200


def check_kind(kind: str) -> None:
    """Refuses a kind of map that is not known, or whose package is not there."""
    if kind not in KINDS:
        raise UserError(f"--map {kind}: unknown kind of map. {suggest(kind, KINDS)}")
    if kind == "umap" and importlib.util.find_spec("umap") is None:
        raise UserError("--map umap: needs the package umap-learn. Install it (pip install umap-learn) or use tsne.")


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Embeddings in the plane.

    Attributes:
        places: ``(G, 2)``.
        axes: what they are, in words.
    """

    places: NDArray[np.float64]
    axes: str


def embedding_map(embeddings: NDArray[np.float32], kind: str) -> EmbeddingMap:
    """The map of ``(G, d)`` embeddings.

    Columns are standardised first, as they are for scoring. PCA is exact; the others begin with it and are drawn from
    a fixed seed. Of many graphs, the few that lie far out are drawn at the edge.
    """
    return _without_outliers(_whole_map(embeddings, kind))


def _without_outliers(found: EmbeddingMap) -> EmbeddingMap:
    """Moves places to the edge that lie further out than half of the extent of 99 % of all, and says how many."""
    if len(found.places) < ENOUGH_FOR_OUTLIERS:
        return found
    low, high = np.quantile(found.places, [0.005, 0.995], axis=0)
    reach = (high - low).max() / 2
    places = found.places.clip(low - reach, high + reach)
    count = int((places != found.places).any(axis=1).sum())
    told = f"; {count} further out, drawn at the edge" if count else ""
    return EmbeddingMap(places, found.axes + told)


def _whole_map(embeddings: NDArray[np.float32], kind: str) -> EmbeddingMap:
    deviation = embeddings.std(axis=0, dtype=np.float64)
    centred = (embeddings - embeddings.mean(axis=0, dtype=np.float64)) / np.where(deviation > 1e-12, deviation, 1)
    if kind == "pca" or len(embeddings) < 5:
        return EmbeddingMap(*principal_components(centred))
    seed = derive_seed(0, "map") % 2**32
    start = principal_components(centred, 50)[0]
    if kind == "tsne":
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (len(start) - 1) / 3)
        spread = start.std(axis=0).any()
        places = TSNE(
            2, perplexity=perplexity, init="pca" if spread and start.shape[1] > 1 else "random", random_state=seed
        ).fit_transform(start)
        return EmbeddingMap(places.astype(np.float64), f"t-SNE, perplexity {perplexity:.0f}")
    neighbours = min(15, len(start) - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed means one thread, and what else of it could be installed
        import umap

        places = umap.UMAP(n_neighbors=neighbours, random_state=seed).fit_transform(start)
    return EmbeddingMap(np.asarray(places, dtype=np.float64), f"UMAP, {neighbours} neighbours")


def principal_components(centred: NDArray[np.float64], count: int = 2) -> tuple[NDArray[np.float64], str]:
    """The first ``count`` principal components of columns with mean 0, and how much of the variance they have.

    A component points to where its largest entry is positive, so that equal embeddings give equal maps.
    """
    _, scale, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]
    largest = abs(directions).argmax(axis=1)
    directions = directions * np.where(directions[np.arange(len(directions)), largest] < 0, -1, 1)[:, None]
    places = centred @ directions.T
    places = np.pad(places, ((0, 0), (0, max(0, 2 - places.shape[1]))))
    total = float((scale**2).sum())
    share = 100 * (scale[:2] ** 2).sum() / total if total else 100.0
    return places, f"PCA, {share:.0f} % of the variance"


def whole_places(places: NDArray[np.float64]) -> NDArray[np.int64]:
    """``(G, 2)`` places as whole numbers from 0 to :data:`SIZE`, both axes on one scale."""
    moved = places - places.min(axis=0)
    extent = float(moved.max()) or 1.0
    whole: NDArray[np.int64] = np.round(moved / extent * SIZE).astype(np.int64)
    return whole
