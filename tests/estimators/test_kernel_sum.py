"""Several kernels in one, as a scikit-learn transformer."""

import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import SVC, LinearSVC

import joao
from joao.evaluation.embeddings import evaluate_embeddings
from tests.messages import refused

GRAPHS = [nx.cycle_graph(size) for size in range(4, 14)] + [nx.path_graph(size) for size in range(4, 14)]
CLASSES = np.array([0] * 10 + [1] * 10)


def members(**options):
    return [("joao", joao.JOAO(epochs=1, device="cpu", **options)), ("wl", joao.WL())]


def test_kernel_is_the_mean_of_a_gaussian_kernel_and_a_cosine():
    both = joao.KernelSum(members())
    kernel = both.fit_transform(GRAPHS)
    (_, encoder), (_, wl) = both.transformer_list
    rows = encoder.transform(GRAPHS).astype(np.float64)
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    distances = np.square(rows[:, None] - rows[None]).sum(axis=2)
    gaussian = np.exp(-distances / (rows.shape[1] * rows.var()))
    counts = wl.transform(GRAPHS).toarray()
    counts /= np.linalg.norm(counts, axis=1, keepdims=True)
    np.testing.assert_allclose(kernel, (gaussian + counts @ counts.T) / 2, atol=1e-6)
    np.testing.assert_allclose(both.transform(GRAPHS[:3]), kernel[:3], atol=1e-12)


def test_scikit_learn_can_clone_search_and_validate():
    pipeline = make_pipeline(joao.KernelSum(members()), SVC(kernel="precomputed"))
    assert clone(pipeline).get_params()["kernelsum__wl__iterations"] == 3
    assert cross_val_score(pipeline, GRAPHS, CLASSES, cv=3).min() > 0.5
    search = GridSearchCV(pipeline, {"kernelsum__wl__iterations": [0, 2]}, cv=2).fit(GRAPHS, CLASSES)
    assert search.best_params_ == {"kernelsum__wl__iterations": 2}  # without refinement all nodes are alike
    with pytest.raises(NotFittedError):
        joao.KernelSum(members()).transform(GRAPHS)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([], []),
        (None, [None]),
        ("wl", ["wl"]),
        ([joao.WL()], ["WL"]),
        ([("wl", "drop"), ("ldp", "drop")], ["wl", "drop"]),
        ([("wl", "passthrough")], ["wl", "passthrough"]),
    ],
)
def test_lists_without_a_transformer_of_graphs_are_refused(given, values):
    with refused("KernelSum", *values):
        joao.KernelSum(given).fit_transform(GRAPHS)


def test_a_dropped_transformer_does_not_count():
    alone = joao.KernelSum([("wl", joao.WL())]).fit_transform(GRAPHS)
    with_dropped = joao.KernelSum([("wl", joao.WL()), ("joao", "drop")]).fit_transform(GRAPHS)
    np.testing.assert_array_equal(alone, with_dropped)


def test_sparse_rows_count_as_a_feature_map():
    weighted = make_pipeline(joao.WL(), TfidfTransformer())
    rows = clone(weighted).fit_transform(GRAPHS).toarray()  # of length 1
    np.testing.assert_allclose(joao.KernelSum([("tf", weighted)]).fit_transform(GRAPHS), rows @ rows.T, atol=1e-12)


def test_kernel_of_graphs_whose_rows_are_missing():
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CCN", "c1ccccc1", "CCCC", "C1CCCCC1", "CC(=O)O"]
    both = joao.KernelSum(members()).fit(smiles)
    kernel = both.transform(smiles)
    with pytest.warns(UserWarning, match="nonsense"):
        mixed = both.transform(["CCN", "nonsense", "CCCC"])
    np.testing.assert_allclose(mixed[[0, 2]], kernel[[1, 3]], atol=1e-6)
    assert np.isnan(mixed[1]).all()
    assert both.transform([]).shape == (0, 6)
    with pytest.warns(UserWarning, match="nonsense"), refused("KernelSum", "joao", 1, 7, 6):
        joao.KernelSum(members()).fit([*smiles, "nonsense"])


def test_pandas_output_is_that_of_the_kernel():
    pytest.importorskip("pandas")
    both = joao.KernelSum(members())
    kernel, table = both.fit_transform(GRAPHS), both.set_output(transform="pandas").fit_transform(GRAPHS)
    np.testing.assert_array_equal(table.to_numpy(), kernel)
    assert list(table.columns) == [f"kernel{i}" for i in range(20)]
    with pytest.raises(NotFittedError):
        joao.KernelSum(members()).get_feature_names_out()


def test_feature_union_of_an_encoder_and_a_kernel():
    union = FeatureUnion(members())
    rows = union.fit_transform(GRAPHS)
    assert rows.shape == (20, 3 * 96 + 65 + 8 + joao.WL().fit_transform(GRAPHS).shape[1])
    assert len(FeatureUnion(members()).fit(GRAPHS).get_feature_names_out()) == rows.shape[1]
    assert cross_val_score(make_pipeline(union, MaxAbsScaler(), LinearSVC()), GRAPHS, CLASSES, cv=3).min() > 0.5


def test_scores_of_one_part_twice_are_those_of_the_part():
    rows = np.random.default_rng(0).normal(size=(40, 3)) + np.repeat([[0], [1]], 20, axis=0)
    classes = np.repeat([0, 1], 20)
    one = evaluate_embeddings(rows, classes, partitions=[0], num_folds=4)
    twice = evaluate_embeddings([(rows, "rbf"), (rows, "rbf")], classes, partitions=[0], num_folds=4, kernel="mean")
    assert twice.accuracies == one.accuracies
    other = evaluate_embeddings([(rows, "rbf"), (rows, "linear")], classes, partitions=[0], num_folds=4, kernel="mean")
    assert (other.kernel, len(other.accuracies[0])) == ("mean", 4)
