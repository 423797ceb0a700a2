"""Oracle: sets of pairs, built by a loop."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from joao.data import dataset as base
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset, parse_label
from tests.data.refusals import assert_told, refused


def random_edges(seed, sizes, count):
    random = np.random.default_rng(seed)
    graphs = random.integers(len(sizes), size=count)
    first = np.cumsum(sizes) - sizes
    ends = first[graphs] + (random.random((2, count)) * np.array(sizes)[graphs]).astype(int)
    return graphs, first, ends


@pytest.mark.parametrize("with_attributes", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_edges_are_symmetric_sorted_unique_and_without_self_loops(seed, with_attributes):
    sizes = np.array([1, 5, 2, 7, 1])
    graphs, first, ends = random_edges(seed, sizes, 40)
    attributes = np.arange(40.0)
    dataset = make_dataset("made", sizes, (ends[0], ends[1]), edge_attr=attributes if with_attributes else None)
    expected = {}
    for row, (graph, source, target) in enumerate(zip(graphs, *ends, strict=True)):
        if source != target:
            expected.setdefault((graph, target - first[graph], source - first[graph]), float(row))
    added = {(g, s, t): row for (g, t, s), row in expected.items() if (g, s, t) not in expected}
    expected |= added
    found = list(
        zip(
            np.repeat(np.arange(5), np.diff(dataset.first_edge)).tolist(),
            dataset.target.tolist(),
            dataset.source.tolist(),
            strict=True,
        )
    )
    assert found == sorted(expected)
    if with_attributes:
        assert dataset.edge_attr[:, 0].tolist() == [expected[edge] for edge in found]
    assert len(dataset.notices) == bool(added)
    for notice in dataset.notices:
        assert_told(notice, "made", len(added))


def test_only_directed_edges_give_a_notice():
    both = (np.array([0, 1]), np.array([1, 0]))
    one = (np.array([0]), np.array([1]))
    assert make_dataset("made", np.array([2]), both).notices == ()
    [notice] = make_dataset("made", np.array([2]), one).notices
    assert_told(notice, "made", 1)
    assert make_dataset("made", np.array([2]), one, report_directed=False).notices == ()


def test_degrees_count_neighbours():
    sizes = np.array([3, 4])
    star = (np.array([3, 3, 3, 3]), np.array([4, 5, 6, 6]))
    assert make_dataset("made", sizes, star).degrees.tolist() == [0, 0, 0, 3, 1, 1, 1]


def test_fingerprint_depends_on_graphs_only():
    def made(edges, labels, classes, dtype=np.int64):
        ends = np.array(edges).T
        labels = np.array(labels, dtype=dtype)
        return make_dataset(
            "made", np.array([3]), (ends[0], ends[1]), node_labels=labels, graph_labels=classes
        ).fingerprint

    reference = made([[0, 1], [1, 0], [1, 2]], [1, 2, 3], [1])
    assert made([[2, 1], [0, 1]], [1, 2, 3], [0], np.int8) == reference
    assert made([[0, 1]], [1, 2, 3], [1]) != reference
    assert made([[0, 1], [1, 2]], [1, 2, 4], [1]) != reference


def test_fingerprint_depends_on_node_and_edge_attributes():
    edge = (np.array([0]), np.array([1]))
    parts = [{}, {"edge_attr": [[1.0]]}, {"edge_attr": [[2.0]]}, {"node_attributes": [[1.0], [2.0]]}]
    made = [make_dataset("made", np.array([2]), edge, **part).fingerprint for part in parts]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        ([10, 2, 10], ("2", "10"), [1, 0, 1]),
        (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
        ([1.0, -1.0, 1.0], ("-1", "1"), [1, 0, 1]),
        ([True, False, True], ("0", "1"), [1, 0, 1]),
    ],
)
def test_classes_are_numbered_in_the_order_of_their_values(labels, names, classes):
    dataset = make_dataset("made", np.array([1, 1, 1]), (np.zeros(0), np.zeros(0)), graph_labels=labels)
    assert dataset.class_names == names
    assert dataset.classes.tolist() == classes


def test_missing_label_gives_a_notice_and_keeps_the_others():
    edges = (np.zeros(0), np.zeros(0))
    some = make_dataset("made", np.array([1, 1, 1]), edges, graph_labels=["b", None, "a"])
    assert some.classes.tolist() == [1, -1, 0]
    assert some.labels.tolist() == ["b", "", "a"]
    [notice] = some.notices
    assert_told(notice, "made", 1, 3)
    none = make_dataset("made", np.array([1, 1]), edges, graph_labels=[None, None])
    assert (none.classes, none.notices) == (None, ())
    assert none.labels.tolist() == ["", ""]


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"nodes_per_graph": np.zeros(0)}, ()),
        ({"nodes_per_graph": np.array([2, 0])}, (1,)),
        ({"edges": (np.array([0]), np.array([4]))}, (0, 4, 0, 3)),
        ({"edges": (np.array([-1]), np.array([0]))}, (0, -1)),
        ({"edges": (np.array([0, 1]), np.array([1, 2]))}, (1, 1, 2)),
        ({"node_labels": np.zeros(3, int)}, ("node labels", 3, 4)),
        ({"node_attributes": np.array([0, 1, np.nan, 0])}, ("node attribute", 0, 2, "nan")),
        ({"node_attributes": np.array([0, 1, 1e300, 0])}, ("node attribute", 0, 2, "inf")),
        ({"edge_attr": np.zeros((2, 1))}, ("edge attributes", 2, 1)),
        ({"graph_labels": [1]}, (1, 2)),
        ({"graph_labels": [1, [2, 3]]}, (1, "[2, 3]")),
    ],
)
def test_invalid_values_are_rejected(changes, values):
    given = {"nodes_per_graph": np.array([2, 2]), "edges": (np.array([0]), np.array([1]))} | changes
    with refused("made", *values):
        make_dataset("made", **given)


@pytest.mark.parametrize(
    ("value", "label"),
    [(np.int8(3), 3), (np.float32(2.0), 2), (np.True_, 1), (10**400, None), (float("nan"), None), (b"a", None)],
)
def test_plain_labels(value, label):
    assert parse_label(value) == label


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (1, [1]),
        (-1, [4]),
        (np.int64(2), [2]),
        (slice(1, None, 2), [1, 3]),
        ([3, 0, 3], [3, 0, 3]),
        (np.array([False, True, False, False, True]), [1, 4]),
        ([], []),
    ],
)
def test_graphs_are_indexed_like_a_list(which, expected):
    whole = random_graphs(5, mean_nodes=4)
    single = [*whole]
    picked = whole[which]
    assert [each.fingerprint for each in picked] == [single[number].fingerprint for number in expected]
    assert picked.classes.tolist() == whole.classes[expected].tolist()


@pytest.mark.parametrize("which", [5, -6, [5]])
def test_index_beyond_the_last_graph_is_rejected(which):
    with pytest.raises(IndexError):
        random_graphs(5, mean_nodes=4)[which]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
def test_fingerprint_does_not_depend_on_the_integer_type(dtype, monkeypatch):
    """It is kept in records: that of the graphs themselves must never change."""
    dataset = random_graphs(7, mean_nodes=5)
    digest = hashlib.sha256()
    for array in (dataset.first_node, dataset.first_edge, dataset.source, dataset.target, dataset.node_labels):
        digest.update(array.tobytes())
    expected = (digest.update(b"none" * 2), digest.hexdigest()[:16])[1]
    other = replace(dataset, source=dataset.source.astype(dtype), target=dataset.target.astype(dtype))
    assert dataset.source.dtype == np.int32
    assert other.fingerprint == expected
    monkeypatch.setattr(base, "_EDGES_PER_CHUNK", 5)
    assert replace(other).fingerprint == expected
    assert replace(other, source=dataset.target).fingerprint != expected


def test_degrees_match_a_plain_count(monkeypatch):
    dataset = random_graphs(7, mean_nodes=5)
    counted = [0] * dataset.num_nodes
    for graph in range(7):
        for edge in range(dataset.first_edge[graph], dataset.first_edge[graph + 1]):
            counted[dataset.first_node[graph] + dataset.target[edge]] += 1
    assert dataset.degrees.tolist() == counted
    monkeypatch.setattr(base, "GRAPHS_PER_CHUNK", 3)
    assert replace(dataset).degrees.tolist() == counted


def test_without_labels_keeps_graphs_and_removes_all_labels():
    labelled = make_dataset("pair", np.array([2, 1]), (np.array([0]), np.array([1])), graph_labels=["a", "b"])
    labelled = replace(labelled, targets=np.ones((2, 1), np.float32), target_names=("t",))
    bare = labelled.without_labels()
    assert bare.fingerprint == labelled.fingerprint
    assert (bare.classes, bare.class_names, bare.targets, bare.target_names) == (None, (), None, ())
