"""Oracle: hand-made rows."""

import dataclasses
import json
import os

import networkx
import numpy as np
import pytest
import torch

from joao.data import Features, batch_of, read
from joao.data.features import return_probabilities
from joao.data.validation import make_dataset
from tests.data.refusals import refused

ROOT = os.environ.get("JOAO_DATA")

STAR = (np.array([0, 0, 0]), np.array([1, 2, 3]))


def star(**data):
    return make_dataset("star", np.array([4]), STAR, report_directed=False, **data)


def test_labels_are_one_hot_in_the_order_of_their_values():
    dataset = star(node_labels=np.array([[7, 0], [3, 1], [7, 1], [5, 0]]))
    columns = Features.from_dataset(dataset, "labels").columns(dataset)
    assert columns.tolist() == [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1], [0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
    assert columns.dtype == torch.uint8


@pytest.mark.parametrize(("known", "later"), [([3, 5, 5, 3], [4, 5, 9, -1]), (list("bddb"), list("cdza"))])
def test_unseen_labels_become_zeros_and_are_counted(known, later):
    features = Features.from_dataset(star(node_labels=np.array(known)))
    other = star(node_labels=np.array(later))
    assert features.columns(other).tolist() == [[0, 0], [0, 1], [0, 0], [0, 0]]
    assert features.unknown_labels(other) == 3


@pytest.mark.parametrize(("rule", "unknown"), [("random_walks", 8), ("with_degree", 8), ("degree", 0), ("constant", 0)])
def test_all_labels_are_unknown_to_features_without_labels(rule, unknown):
    """Features of graphs without labels use no labels of later graphs; rules that never do are not worth a notice."""
    features = Features.from_dataset(star(), rule)
    assert features.unknown_labels(star(node_labels=np.array([[3, 5, 5, 3], [1, 2, 3, 4]]).T)) == unknown
    assert features.unknown_labels(star()) == 0


def test_labels_with_other_columns_are_rejected():
    features = Features.from_dataset(star(node_labels=np.array([3, 5, 5, 3])))
    other = star(node_labels=np.array([[3, 5, 5, 4], [1, 1, 2, 1]]).T)
    assert features.unknown_labels(other) == 0
    with refused("star", "node labels", 2, 1):
        features.columns(other)


def test_attributes_are_standardised_by_the_first_data_set():
    values = np.array([[1.0, 0, 5], [3, 1, 5], [5, 1, 5], [7, 0, 5]])
    features = Features.from_dataset(star(node_attributes=values))
    deviation = 5**0.5  # of 1, 3, 5, 7 around 4
    expected = [[-3 / deviation, 0, 0], [-1 / deviation, 1, 0], [1 / deviation, 1, 0], [3 / deviation, 0, 0]]
    torch.testing.assert_close(features.columns(star(node_attributes=values)), torch.tensor(expected))
    later = features.columns(star(node_attributes=values + 1))
    torch.testing.assert_close(later[0], torch.tensor([-2 / deviation, 1, 1]))


def test_constant_column_stays_small_in_later_graphs():
    features = Features.from_dataset(star(node_attributes=np.full((4, 1), 0.1)))
    assert features.scale == (1.0,)
    later = features.columns(star(node_attributes=np.full((4, 1), 0.6)))
    torch.testing.assert_close(later, torch.full((4, 1), 0.5))


def test_degrees_are_one_hot_and_capped():
    assert Features.from_dataset(star(), "degree", max_degree=4).columns(star()).argmax(1).tolist() == [3, 1, 1, 1]
    capped = Features.from_dataset(star(), "degree", max_degree=2).columns(star())
    assert capped.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("data", "rule", "width"),
    [
        ({}, "degree", 65),
        ({"node_labels": np.arange(4)}, "labels", 4),
        ({"node_attributes": np.eye(4)}, "attributes", 4),
        ({"node_labels": np.arange(4), "node_attributes": np.eye(4)}, "labels_and_attributes", 8),
    ],
)
def test_auto_selects_available_features(data, rule, width):
    features = Features.from_dataset(star(**data))
    assert features.rule == rule
    assert features.columns(star(**data)).shape == (4, width)


def test_constant_is_one():
    assert Features.from_dataset(star(), "constant").columns(star()).tolist() == [[1]] * 4


DEGREES = [[3, 0, 0, 1], [1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 0]]  # the number; then one-hot, capped at 2
LABELS = np.array([[7, 0], [3, 1], [7, 1], [5, 0]])
ONE_HOT = [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1], [0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
ATTRIBUTES = np.array([[0.0], [2], [2], [0]])
STANDARDISED = [[-1], [1], [1], [-1]]


@pytest.mark.parametrize(
    ("data", "before"),
    [
        ({}, [[1]] * 4),
        ({"node_labels": LABELS}, ONE_HOT),
        ({"node_attributes": ATTRIBUTES}, STANDARDISED),
        (
            {"node_labels": LABELS, "node_attributes": ATTRIBUTES},
            [one + other for one, other in zip(ONE_HOT, STANDARDISED, strict=True)],
        ),
    ],
    ids=["neither", "labels", "attributes", "both"],
)
def test_degrees_are_appended_as_number_and_one_hot(data, before):
    features = Features.from_dataset(star(**data), "with_degree", max_degree=2)
    assert features.rule == "with_degree"
    columns = features.columns(star(**data))
    assert columns.dtype == torch.float32
    assert columns.tolist() == [one + other for one, other in zip(before, DEGREES, strict=True)]


def test_degrees_are_appended_to_zeros_for_unseen_labels():
    features = Features.from_dataset(star(node_labels=np.array([3, 5, 5, 3])), "with_degree", max_degree=2)
    later = star(node_labels=np.array([4, 5, 9, 3]))
    expected = [[0, 0], [0, 1], [0, 0], [1, 0]]
    assert features.columns(later).tolist() == [one + other for one, other in zip(expected, DEGREES, strict=True)]
    assert features.unknown_labels(later) == 2


def test_degrees_are_appended_to_ones_even_if_later_graphs_have_labels():
    features = Features.from_dataset(star(), "with_degree", max_degree=2)
    later = star(node_labels=LABELS, node_attributes=ATTRIBUTES)
    assert features.columns(later).tolist() == [[1, *row] for row in DEGREES]
    assert features.unknown_labels(later) == 8


def test_numeric_degree_is_not_capped():
    edges = np.zeros(30, dtype=np.int64), np.arange(1, 31)
    dataset = make_dataset("star", np.array([31]), edges, report_directed=False)
    columns = Features.from_dataset(dataset, "with_degree", max_degree=10).columns(dataset)
    assert columns[0].tolist() == [1, 30] + [0] * 10 + [1]


# Published: attributes and labels, or 1; the degree; and one more column than the cap.
@pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
@pytest.mark.parametrize(
    ("name", "max_degree", "width"),
    [
        ("NCI1", 100, 139),
        ("PROTEINS", 100, 106),
        pytest.param("COLLAB", 100, 103, marks=pytest.mark.slow),
        ("REDDIT-BINARY", 10, 13),
    ],
)
def test_number_of_columns_with_degrees_matches_the_published_code(name, max_degree, width):
    dataset = read(name, root=ROOT)
    columns = Features.from_dataset(dataset, "with_degree", max_degree=max_degree).columns(dataset)
    assert columns.shape == (dataset.num_nodes, width)
    assert (columns[:, -max_degree - 1 :].sum(1) == 1).all()
    assert columns[:, -max_degree - 2].sum(dtype=torch.float64) == len(dataset.source)  # every edge has two ends


def random_graphs(sizes, seed=0):
    """Graphs with random edges, some of them with isolated nodes, and the adjacency matrix of each."""
    random = np.random.default_rng(seed)
    matrices = [np.triu(random.random((size, size)) < 2 / size, 1) for size in sizes]
    edges = [np.argwhere(matrix).T + first for matrix, first in zip(matrices, np.cumsum([0, *sizes]), strict=False)]
    dataset = make_dataset("random", np.array(sizes), tuple(np.concatenate(edges, axis=1)), report_directed=False)
    return dataset, [(matrix | matrix.T).astype(float) for matrix in matrices]


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_return_probabilities_equal_the_diagonal_of_matrix_powers(monkeypatch, block):
    monkeypatch.setattr("joao.data.features._WALK_BLOCK", block)
    dataset, matrices = random_graphs([7, 1, 12, 7, 2, 30, 1])
    expected = []
    for matrix in matrices:
        transition = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
        expected.append(np.stack([np.diag(np.linalg.matrix_power(transition, k)) for k in range(2, 10)], axis=1))
    np.testing.assert_allclose(return_probabilities(dataset), np.concatenate(expected), atol=1e-6)


@pytest.mark.parametrize(
    ("data", "before"),
    [
        ({}, [[0, 0, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0]]),
        ({"node_labels": LABELS}, ONE_HOT),
        ({"node_attributes": ATTRIBUTES}, STANDARDISED),
    ],
    ids=["degrees", "labels", "attributes"],
)
def test_standardised_walks_are_appended(data, before):
    features = Features.from_dataset(star(**data), "random_walks", max_degree=2)
    # From the centre a walk is back after every second step, from a leaf in one of three cases.
    even = np.array([1, 1 / 3, 1 / 3, 1 / 3])
    standardised = (even - even.mean()) / even.std()
    walks = np.stack([standardised, np.zeros(4)] * 4, axis=1)
    np.testing.assert_allclose(features.columns(star(**data)), np.concatenate([before, walks], axis=1), atol=1e-5)
    assert features.width == len(before[0]) + 8


def test_walks_of_equivalent_nodes_are_not_scaled_by_rounding_errors():
    edges = np.array(networkx.circulant_graph(13, [1, 3, 4]).edges).T
    circulant = make_dataset("circulant", np.array([13]), tuple(edges), report_directed=False)
    walks = return_probabilities(circulant)
    assert len(np.unique(walks[:, -1])) > 1  # thirteen equal probabilities, rounded differently
    assert Features.from_dataset(circulant, "random_walks").columns(circulant)[:, -8:].abs().max() < 1e-5


@pytest.mark.parametrize("rule", ["auto", "with_degree", "random_walks"])
def test_features_round_trip_through_json(rule):
    dataset = star(node_labels=np.array(list("abca")), node_attributes=np.arange(8.0).reshape(4, 2))
    features = Features.from_dataset(dataset, rule, max_degree=9)
    assert Features.from_json(json.loads(json.dumps(dataclasses.asdict(features)))) == features


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("label", ("'label'", "'labels'")),
        ("labels", ("star", "'labels'", "'auto'")),
        ("attributes", ("star", "'attributes'", "'auto'")),
    ],
)
def test_rule_without_its_data_is_rejected(rule, values):
    with refused(*values):
        Features.from_dataset(star(), rule)


def test_degree_cap_below_one_is_rejected():
    with refused("max_degree", 1, 10000, 0):
        Features.from_dataset(star(), "degree", max_degree=0)


@pytest.mark.parametrize(
    ("fixed", "later", "values"),
    [
        ({"node_labels": np.arange(4)}, {}, ("node labels", 0, 1)),
        ({"node_labels": np.arange(4)}, {"node_labels": np.array(list("abcd"))}, ("'a'", "'0'")),
        ({"node_attributes": np.eye(4)}, {"node_attributes": np.ones((4, 2))}, ("node attributes", 2, 4)),
    ],
)
def test_incompatible_graphs_are_rejected(fixed, later, values):
    features = Features.from_dataset(star(**fixed))
    with refused("star", *values):
        features.columns(star(**later))


LABELS, ATTRIBUTES = np.array([[7, 0], [3, 1], [7, 1], [5, 0]]), np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ("labels", {"node_labels": LABELS}),
        ("attributes", {"node_attributes": ATTRIBUTES}),
        ("labels_and_attributes", {"node_labels": LABELS, "node_attributes": ATTRIBUTES}),
        ("with_degree", {"node_labels": LABELS, "node_attributes": ATTRIBUTES}),
        ("with_degree", {}),
        ("random_walks", {"node_labels": LABELS, "node_attributes": ATTRIBUTES}),
        ("random_walks", {}),
        ("degree", {}),
        ("constant", {}),
    ],
)
def test_width_equals_the_number_of_columns(rule, given):
    dataset = star(**given)
    features = Features.from_dataset(dataset, rule, max_degree=5)
    assert features.width == features.columns(dataset).shape[1]


@pytest.mark.parametrize(
    "features",
    [
        Features("labels"),
        Features("labels_and_attributes", vocabulary=((1, 2),)),
        Features("labels_and_attributes", shift=(0.0,), scale=(1.0,)),
        Features("attributes"),
        Features("random_walks", shift=(0.0,) * 7, scale=(1.0,) * 7),
    ],
)
def test_rules_without_their_columns_are_rejected(features):
    with pytest.raises(ValueError, match="rule"):
        Features.from_json(json.loads(json.dumps(dataclasses.asdict(features))))


def test_batch_of_keeps_order_and_encodes_labels_one_hot():
    graphs = [networkx.Graph([("a", "b"), ("b", "c")]), networkx.Graph([("d", "e")])]
    for graph, labels in zip(graphs, ["COC", "NC"], strict=True):
        networkx.set_node_attributes(graph, dict(zip(graph.nodes, labels, strict=True)), "label")
    batch = batch_of(graphs)
    assert batch.num_graphs == 2
    assert batch.graph_of_node.tolist() == [0, 0, 0, 1, 1]
    assert batch.edge_index.T.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2], [4, 3], [3, 4]]
    assert batch.x.tolist() == [[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 0]]  # C, N, O
