"""Maps of embeddings."""

import importlib.util

import numpy as np
import pytest
from sklearn.decomposition import PCA

from joao.report.graphs import ALPHABET, encode_numbers
from joao.report.rendering import to_integers
from joao.report.reported_run import check_map_kind, embedding_map
from tests.messages import assert_mentions, refused


def test_pca_equals_scikit_learn_up_to_signs(numbers):
    embeddings = (numbers.standard_normal((50, 6)) * [1, 5, 2, 1, 1, 9] + 3).astype(np.float32)
    found = embedding_map(embeddings, "pca")
    standard = (embeddings - embeddings.mean(0)) / embeddings.std(0)
    other = PCA(2).fit(standard)
    np.testing.assert_allclose(abs(found.points), abs(other.transform(standard)), atol=1e-3)
    assert_mentions(found.axes, "PCA", f"{100 * other.explained_variance_ratio_.sum():.0f} %")


@pytest.mark.parametrize("kind", ["pca", "tsne"])
@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (6, 3), (5, 1)])
def test_few_or_equal_embeddings(kind, shape, numbers):
    for embeddings in (np.ones(shape, np.float32), numbers.standard_normal(shape).astype(np.float32)):
        places = embedding_map(embeddings, kind).points
        assert places.shape == (shape[0], 2)
        assert np.isfinite(places).all()


def test_clusters_stay_apart_with_tsne(numbers):
    embeddings = np.repeat([[0.0] * 5, [9.0] * 5], 20, axis=0) + numbers.standard_normal((40, 5))
    found = embedding_map(embeddings.astype(np.float32), "tsne")
    assert found.axes == "t-SNE, perplexity 13"
    gaps = np.linalg.norm(found.points[:, None] - found.points[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert ((gaps.argmin(1) < 20) == (np.arange(40) < 20)).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(6, 3), (5, 1), (40, 5)])
def test_umap_of_few_or_equal_embeddings(shape, numbers):
    pytest.importorskip("umap")
    for embeddings in (np.ones(shape, np.float32), numbers.standard_normal(shape).astype(np.float32)):
        found = embedding_map(embeddings, "umap")
        assert found.points.shape == (shape[0], 2)
        assert np.isfinite(found.points).all()
        assert found.axes == f"UMAP, {min(15, shape[0] - 1)} neighbours"


def test_outliers_are_drawn_at_the_edge(numbers):
    embeddings = numbers.uniform(-1, 1, (400, 2)).astype(np.float32)
    assert ";" not in embedding_map(embeddings, "pca").axes
    embeddings[7] = [1000, 0]
    found = embedding_map(embeddings, "pca")
    assert "; 1 " in found.axes
    middle = np.delete(found.points, 7, axis=0)
    extent = np.ptp(middle, axis=0).max()
    reached = abs(found.points[7] - middle.mean(0)).max()
    assert reached == pytest.approx(extent, rel=0.1)  # half of it to the edge of the others, and half of it behind
    few = embedding_map(embeddings[:100], "pca")
    assert abs(few.points).max() > 5 * np.quantile(abs(few.points), 0.9)


def test_outliers_are_far_from_their_neighbours(numbers):
    embeddings = numbers.standard_normal((60, 3)).astype(np.float32)
    embeddings[[4, 9]] += [[20], [-30]]
    found = embedding_map(embeddings, "pca").outliers
    assert found[:2] == (9, 4)
    standard = (embeddings - embeddings.mean(0)) / embeddings.std(0)
    gaps = np.sort(np.linalg.norm(standard[:, None] - standard[None], axis=2), axis=1)[:, 1:6].mean(axis=1)
    assert sorted(found) == sorted(np.argsort(-gaps)[:8].tolist())
    assert embedding_map(embeddings[:15], "pca").outliers == ()


@pytest.mark.parametrize("count", [1, 2, 4, 60])
def test_neighbours_are_those_of_all_distances(count, numbers):
    embeddings = (numbers.standard_normal((count, 3)) * [1, 5, 100]).astype(np.float32)
    found = embedding_map(embeddings, "pca").neighbours
    deviation = embeddings.std(0)
    standard = (embeddings - embeddings.mean(0)) / np.where(deviation > 0, deviation, 1)
    gaps = np.linalg.norm(standard[:, None] - standard[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    np.testing.assert_array_equal(found, np.argsort(gaps, axis=1)[:, : min(5, count - 1)])


@pytest.mark.parametrize("total", [2, 64, 65, 4096, 4097])
def test_encoded_numbers_are_read_digit_by_digit(total):
    numbers = np.array([[0, total - 1], [1, total // 2]])
    text = encode_numbers(numbers, total)
    width = len(text) // 4
    assert total <= 64**width
    assert width == 1 or total > 64 ** (width - 1)
    digits = np.array([ALPHABET.index(each) for each in text]).reshape(4, width)
    np.testing.assert_array_equal(digits @ 64.0 ** np.arange(width)[::-1], numbers.ravel())


def test_integer_points_keep_one_scale():
    found = to_integers(np.array([[0.0, 1.0], [2.0, 1.5], [1.0, 1.0]]))
    assert found == {"x": [0, 1000, 500], "y": [0, 250, 0]}
    assert to_integers(np.zeros((3, 2))) == {"x": [0, 0, 0], "y": [0, 0, 0]}


def test_unknown_projections_and_missing_packages(monkeypatch):
    check_map_kind("tsne")
    with refused("--map tnse", "'tsne'"):
        check_map_kind("tnse")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused("--map umap", "pip install umap-learn", "tsne"):
        check_map_kind("umap")
