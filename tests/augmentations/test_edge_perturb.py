from collections import Counter
from itertools import combinations, product

import pytest
import torch

from joao.augmentations import EdgePerturb

PATH = (5, [(0, 1), (1, 2), (2, 3), (3, 4)])
COMPLETE = (5, list(combinations(range(5), 2)))


def undirected(view, graph_size):
    """The set of undirected edges of each graph, all of ``graph_size`` nodes, numbered inside it."""
    sets = [set() for _ in range(view.num_graphs)]
    for u, v in zip(view.source.tolist(), view.target.tolist(), strict=True):
        if u < v:
            sets[u // graph_size].add((u % graph_size, v % graph_size))
    return map(frozenset, sets)


@pytest.mark.parametrize(("strength", "share"), [(0.2, lambda m: m // 5), (0.5, lambda m: m // 2)])
def test_floor_of_the_share_is_removed_from_each_graph(strength, share, mutag, generator, numbered, edges_of):
    batch = numbered(mutag.batch(torch.arange(188)))
    view = EdgePerturb(strength, drop_only=True)(batch, generator())
    assert set(edges_of(view)) < set(edges_of(batch))
    before, after = (Counter(each.graph_of_node[each.source].tolist()) for each in (batch, view))
    assert all(after[graph] == 2 * (m // 2 - share(m // 2)) for graph, m in before.items())
    assert torch.equal(view.x, batch.x)


def test_every_set_of_edges_is_equally_likely_to_be_removed(make_batch, generator, assert_law):
    view = EdgePerturb(0.5, drop_only=True)(make_batch([PATH] * 3000), generator(2))
    assert_law(undirected(view, 5), {frozenset(kept): 1 / 6 for kept in combinations(PATH[1], 2)})


@pytest.mark.parametrize(
    ("graph", "strength", "changed"), [(PATH, 0.25, 1), (COMPLETE, 0.2, 2)], ids=["path", "complete"]
)
def test_outcomes_follow_the_enumerated_distribution(graph, strength, changed, make_batch, generator, assert_law):
    size, edges = graph
    law = Counter()
    outcomes = list(product(combinations(edges, changed), product(combinations(range(size), 2), repeat=changed)))
    for dropped, added in outcomes:
        law[frozenset(set(edges) - set(dropped) | set(added))] += 1 / len(outcomes)
    view = EdgePerturb(strength)(make_batch([graph] * 15_000), generator(3))
    assert_law(undirected(view, size), law)


def test_new_edges_get_attributes_of_an_edge_of_their_graph(make_batch, generator, edges_of, assert_law):
    copies = 3000
    batch = make_batch([PATH, (3, [(0, 1)])] * copies, with_attributes=True)
    thinned = dict(edges_of(EdgePerturb(0.25, drop_only=True)(batch, generator(4))))
    view = dict(edges_of(EdgePerturb(0.25)(batch, generator(4))))
    assert all(view[edge] == attr for edge, attr in thinned.items())
    added = {edge: attr for edge, attr in view.items() if edge not in thinned}
    assert all(added[v, u] == attr for (u, v), attr in added.items())
    donors = [(u // 8, int(attr[0])) for (u, v), attr in added.items() if u < v]
    assert all(number // 5 == copy for copy, number in donors)  # five edges a copy: four of the path, and one
    assert_law([number % 5 for _, number in donors], dict.fromkeys(range(4), 1 / 4))


def test_directions_keep_their_own_attributes(make_batch, generator, edges_of):
    batch = make_batch([PATH] * 50, with_attributes=True)
    batch.edge_attr[:] = torch.arange(batch.num_edges)[:, None]
    given = dict(edges_of(batch))
    for drop_only in (False, True):
        view = EdgePerturb(0.5, drop_only=drop_only)(batch, generator(7))
        kept = [attr == given[edge] for edge, attr in edges_of(view) if edge in given]
        assert sum(kept) >= batch.num_edges / 2
        assert not drop_only or all(kept)


def test_added_edges_differ_between_graphs(make_batch, generator):
    added = []
    for seed in (5, 6):
        view = EdgePerturb(0.25)(make_batch([PATH] * 200), generator(seed))
        added.append([edges - set(PATH[1]) for edges in undirected(view, 5)])
    assert len({frozenset(edges) for edges in added[0]}) == 1 + 6  # nothing new, or one of the six pairs not joined
    assert added[0] != added[1]


LOOPS = (4, [(0, 0), (0, 1), (1, 2), (2, 2), (2, 3), (0, 3), (3, 3)])


@pytest.mark.parametrize("with_attributes", [False, True])
@pytest.mark.parametrize("form", ["plain", "padded"])
def test_self_loops_stay_and_are_not_counted(form, with_attributes, make_batch, generator, padded, assert_same):
    batch = make_batch([LOOPS, (3, [(1, 1)]), LOOPS], with_attributes)

    def view(augmentation):
        return (
            augmentation(batch, generator(1))
            if form == "plain"
            else augmentation.padded(padded(batch), generator(1)).compact()
        )

    assert_same(view(EdgePerturb(0.0)), batch)
    for drop_only in (False, True):
        found = view(EdgePerturb(0.5, drop_only=drop_only))
        loops = found.source == found.target
        assert found.source[loops].tolist() == [0, 2, 3, 5, 7, 9, 10]
        if drop_only:  # two of the four edges of each graph, both ways
            assert torch.bincount(found.graph_of_node[found.source[~loops]], minlength=3).tolist() == [4, 0, 4]
        if with_attributes:
            assert torch.equal(found.edge_attr[loops], batch.edge_attr[batch.source == batch.target])
