"""Random walks against the probabilities that node2vec's rule gives by hand."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from joao.data.validation import make_dataset
from repro.baselines import NO_NODE, find_neighbours, random_walks

EDGES = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4), (4, 5), (3, 5), (5, 6)]


def dataset(shapes):
    sizes = np.array([size for size, _ in shapes])
    first = np.cumsum(sizes) - sizes
    ends = np.array([(u + f, v + f) for f, (_, edges) in zip(first, shapes, strict=True) for u, v in edges]).reshape(
        -1, 2
    )
    return make_dataset("made", sizes, (ends[:, 0], ends[:, 1]), report_directed=False)


def sets_of_neighbours(shapes):
    near, first = {}, 0
    for size, edges in shapes:
        near |= {first + node: set() for node in range(size)}
        for u, v in edges:
            near[first + u].add(first + v)
            near[first + v].add(first + u)
        first += size
    return near


def test_neighbours_are_those_of_the_edge_list(shapes):
    made = [*shapes.values()]
    found = find_neighbours(dataset(made))
    for node, expected in sets_of_neighbours(made).items():
        assert found.nodes[found.first[node] : found.first[node + 1]].tolist() == sorted(expected)


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.25, 4), (5, 0.5)])
def test_steps_follow_edges_and_isolated_nodes_stay(shapes, p, q):
    made = [*shapes.values()]
    graphs, near = dataset(made), sets_of_neighbours(made)
    starts = np.repeat(np.arange(graphs.num_nodes), 3)[::-1]
    walks = random_walks(find_neighbours(graphs), starts, 9, np.random.default_rng(0), p=p, q=q)
    assert walks.shape == (len(starts), 9)
    for start, walk in zip(starts.tolist(), walks.tolist(), strict=True):
        assert walk[0] == start
        if near[start]:
            assert all(v in near[u] for u, v in pairwise(walk))
        else:
            assert walk[1:] == [NO_NODE] * 8


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.25, 4), (4, 0.5), (2, 2)])
def test_steps_follow_the_second_order_law(p, q, assert_law):
    shape = (7, EDGES)
    near = sets_of_neighbours([shape])
    starts = np.repeat(np.arange(7), 4000)
    walks = random_walks(find_neighbours(dataset([shape])), starts, 6, np.random.default_rng(1), p=p, q=q)
    steps = {}
    for last in range(2, 6):
        for came_from, at, to in walks[:, last - 2 : last + 1].tolist():
            steps.setdefault((came_from, at), []).append(to)
    assert len(steps) == 2 * len(EDGES)
    for (came_from, at), outcomes in steps.items():
        weights = {to: 1 / p if to == came_from else 1.0 if to in near[came_from] else 1 / q for to in near[at]}
        assert_law(outcomes, {to: weight / sum(weights.values()) for to, weight in weights.items()})


def test_first_steps_are_uniform(assert_law):
    shape = (7, EDGES)
    walks = random_walks(find_neighbours(dataset([shape])), np.full(8000, 2), 2, np.random.default_rng(2), p=0.1, q=0.1)
    assert_law(walks[:, 1].tolist(), dict.fromkeys((0, 1, 3, 4), 0.25))
    assert Counter(walks[:, 0].tolist()) == {2: 8000}
