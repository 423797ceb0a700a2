"""What the padded form of every augmentation promises: the same law as its plain form, in tensors of fixed shapes."""

from collections import Counter
from dataclasses import fields, replace
from functools import partial
from itertools import product

import pytest
import torch

from joao.augmentations import AUGMENTATIONS, AttributeMask, EdgePerturb, NodeDrop, Subgraph
from joao.augmentations.base import PaddedAugmentation
from joao.augmentations.subgraph import padded_growth_time

PADDED = {name: kind for name, kind in AUGMENTATIONS.items() if issubclass(kind, PaddedAugmentation)}
OPTIONS = {
    "attribute_mask, mean": partial(AttributeMask, fill="mean"),
    "attribute_mask, token": partial(AttributeMask, fill="token"),
    "edge_perturb, drop only": partial(EdgePerturb, drop_only=True),
    "subgraph, keep": partial(Subgraph, keep=0.3),
}


@pytest.fixture(params=[*PADDED, *OPTIONS])
def make(request):
    return {**PADDED, **OPTIONS}[request.param]


@pytest.fixture(params=["made", "one graph", "one node", "MUTAG"])
def batch(request, make_batch, shapes, mutag, numbered):
    """Nodes can be told by ``x[:, 0]``."""
    if request.param == "MUTAG":
        return numbered(mutag.batch(torch.arange(0, 188, 3)))
    if request.param.startswith("one"):
        return make_batch([shapes["single node" if request.param == "one node" else "disconnected"]])
    return make_batch([*shapes.values()])


STRENGTHS = (0.2, 0.5, 0.95)


@pytest.fixture
def views(make, batch, generator, padded):
    """A padded view for each strength."""
    return {strength: make(strength).padded(padded(batch), generator()) for strength in STRENGTHS}


def test_padded_form_is_pure_and_reproducible(make, batch, views, generator, padded):
    given, same = padded(batch), padded(batch)
    for strength, view in views.items():
        again = make(strength).padded(given, generator())
        for name in (each.name for each in fields(given) if isinstance(getattr(given, each.name), torch.Tensor)):
            value = getattr(same, name)
            assert torch.equal(getattr(given, name), value), name
            assert getattr(view, name).shape == value.shape, name
            assert getattr(view, name).dtype == value.dtype, name
        for name in ("x", "source", "target", "graph_of_node"):
            assert torch.equal(getattr(view.compact(), name), getattr(again.compact(), name)), name


def test_padding_changes_only_the_draws(make, batch, generator, padded):
    for strength, spare in product(STRENGTHS, ((0, 0), (1, 0), (50, 90))):
        view = make(strength).padded(padded(batch, *spare), generator())
        assert not view.keep[batch.num_nodes :].any()
        assert view.first_edge[-1] == batch.num_edges
        assert set(view.compact().graph_of_node.tolist()) == set(range(batch.num_graphs))


def test_edges_stay_inside_graphs_undirected_sorted_and_without_loops_or_repeats(views):
    for view in views.values():
        assert not view.keep[-1]
        targets = torch.repeat_interleave(view.first_edge.diff())
        assert torch.equal(view.target[: len(targets)], targets)
        compact = view.compact()
        graphs = compact.graph_of_node.tolist()
        pairs = list(zip(compact.target.tolist(), compact.source.tolist(), strict=True))
        assert pairs == sorted(set(pairs))
        assert {(s, t) for t, s in pairs} == set(pairs)
        assert all(t != s and graphs[t] == graphs[s] for t, s in pairs)


def test_counts_match_the_plain_form(make, batch, views, generator):
    for strength, padded_view in views.items():
        augmentation, view = make(strength), padded_view.compact()
        plain = augmentation(batch, generator())
        assert view.nodes_per_graph.tolist() == plain.nodes_per_graph.tolist()
        if len(view.x) == len(batch.x):
            masked = [batch.graph_of_node[(each.x != batch.x).any(1)] for each in (view, plain)]
            counts = [torch.bincount(each, minlength=batch.num_graphs) for each in masked]
            assert torch.equal(*counts) or "mean" in str(augmentation)


def test_strength_zero_changes_nothing(make, batch, generator, padded):
    view = make(0.0).padded(padded(batch), generator()).compact()
    for name in ("x", "source", "target", "graph_of_node"):
        assert torch.equal(getattr(view, name), getattr(batch, name)), name


def test_features_follow_their_nodes(batch, views):
    for view in (each.compact() for each in views.values()):
        if view.num_nodes < batch.num_nodes:
            old = view.x[:, 0].long()
            assert torch.equal(view.x, batch.x[old])
            assert torch.equal(view.graph_of_node, batch.graph_of_node[old])


def test_dropped_nodes_are_drawn_uniformly(make_batch, generator, assert_law, padded):
    batch = make_batch([(5, [(0, 1)])] * 6000)
    view = NodeDrop(0.4).padded(padded(batch), generator()).compact()
    kept = (view.x[:, 0].long() % 5).view(6000, 3).tolist()
    sets = {frozenset(each) for each in kept}
    assert_law(map(frozenset, kept), dict.fromkeys(sets, 1 / len(sets)))
    assert len(sets) == 10


def test_dropped_and_new_edges_are_drawn_uniformly(make_batch, generator, assert_law, padded):
    copies = 6000
    path = make_batch([(4, [(0, 1), (1, 2), (2, 3)])] * copies)
    given = {(0, 1), (1, 2), (2, 3)}
    view = EdgePerturb(0.34).padded(padded(path), generator(3)).compact()  # one edge goes, one pair is drawn
    found = [set() for _ in range(copies)]
    for source, target in zip(view.source.tolist(), view.target.tolist(), strict=True):
        if source < target:
            found[source // 4].add((source % 4, target % 4))
    law = Counter()
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    for dropped in given:
        for new in pairs:
            law[frozenset((given - {dropped}) | {new})] += 1 / 18
    assert_law(map(frozenset, found), law)


def test_masked_features_are_noise_or_the_mean(make_batch, generator, padded):
    batch = make_batch([(10, [])] * 50)
    for fill in ("noise", "mean", "token"):
        view = AttributeMask(0.3, fill=fill).padded(padded(batch), generator()).compact()
        masked = (view.x[:, 0] != batch.x[:, 0]).view(50, 10)
        assert (masked.sum(1) == 3).all()
        values = view.x.view(50, 10, 3)
        if fill == "mean":
            mean = batch.x.view(50, 10, 3).mean(1, keepdim=True).expand_as(values)
            torch.testing.assert_close(values[masked], mean[masked])
        elif fill == "token":
            assert (values[masked] == -1).all()
        else:
            assert values[masked].mean() == pytest.approx(0.5, abs=0.08)
            assert values[masked].std() == pytest.approx(0.5, abs=0.06)


def attributes(batch):
    """Edge to attribute."""
    ends = zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    return dict(zip(ends, batch.edge_attr[:, 0].tolist(), strict=True))


@pytest.mark.parametrize("strength", STRENGTHS)
def test_padded_edge_attributes_stay_in_their_graph_and_symmetric(
    make, make_batch, shapes, strength, generator, padded
):
    batch = make_batch([*shapes.values()] * 3, with_attributes=True)
    before, graph_of_node = attributes(batch), batch.graph_of_node.tolist()
    of_graph = {}
    for (_, v), value in before.items():
        of_graph.setdefault(graph_of_node[v], set()).add(value)
    view = make(strength).padded(padded(batch), generator())
    view = replace(view, x=torch.arange(view.num_nodes).unsqueeze(1)).compact()  # nodes are told by their places
    names = view.x[:, 0].tolist()
    found = {(names[u], names[v]): value for (u, v), value in attributes(view).items()}
    for (u, v), value in found.items():
        assert value == found[v, u]
        assert value in of_graph[graph_of_node[v]]
    if make in (EdgePerturb, OPTIONS["edge_perturb, drop only"]):
        return  # a dropped edge may be drawn again
    assert all(value == before.get(edge, value) for edge, value in found.items())


def test_new_edges_get_the_attributes_of_uniform_edges(make_batch, generator, assert_law, padded):
    copies = 3000
    batch = make_batch([(12, [(0, 1), (1, 2), (2, 3)])] * copies, with_attributes=True)
    given = {(0, 1), (1, 2), (2, 3)}
    view = EdgePerturb(0.34).padded(padded(batch), generator(5)).compact()
    new = [int(value) % 3 for (u, v), value in attributes(view).items() if u < v and (u % 12, v % 12) not in given]
    assert len(new) > 0.9 * copies
    assert_law(new, dict.fromkeys(range(3), 1 / 3))
    kept = {(u % 12, v % 12, value % 3) for (u, v), value in attributes(view).items() if (u % 12, v % 12) in given}
    assert kept >= {(0, 1, 0.0), (1, 2, 1.0), (2, 3, 2.0)}


def test_redrawn_existing_edge_keeps_its_attribute(make_batch, generator, padded):
    # A complete graph: every pair that is drawn is there already, or was just dropped.
    edges = [(u, v) for v in range(5) for u in range(v)]
    batch = make_batch([(5, edges)] * 300, with_attributes=True)
    before = attributes(batch)
    for seed in range(3):
        found = attributes(EdgePerturb(0.2).padded(padded(batch), generator(seed)).compact())  # two of ten edges
        changed = Counter(u // 5 for (u, v), value in found.items() if u < v and value != before[u, v])
        assert changed  # a dropped edge was drawn again
        assert max(changed.values()) <= 2
        thinned = EdgePerturb(0.2, drop_only=True).padded(padded(batch), generator(seed))  # the same draws
        assert all(found[edge] == value for edge, value in attributes(thinned.compact()).items())


def test_edges_are_perturbed_without_padding(make_batch, generator, assert_law, padded):
    """The first and the last edge of all are no exception, nor a graph at the end that has none."""
    graphs, donors = [(3, [(0, 1), (1, 2)]), (3, [(0, 2), (1, 2)]), (4, [(1, 3), (2, 3)])], []
    for seed in range(480):
        batch = padded(make_batch([graphs[seed % 3], (1, [])][: 1 + seed % 2], with_attributes=True), 0, 0)
        kept = attributes(EdgePerturb(0.5, drop_only=True).padded(batch, generator(seed)).compact())
        assert len(kept) == 2
        found = attributes(EdgePerturb(0.5).padded(batch, generator(seed)).compact())
        assert list(found) == sorted(found, key=lambda ends: (ends[1], ends[0]))
        assert all(found[edge] == value for edge, value in kept.items())
        assert {(v, u): value for (u, v), value in found.items()} == found
        donors += [int(value) for (u, v), value in found.items() if (u, v) not in kept and u < v]
    assert_law(donors, {0: 1 / 2, 1: 1 / 2})


def test_growth_exhausts_a_component_before_the_next(make_batch, generator, padded):
    batch = padded(make_batch([(3, [(0, 1)])]), 0, 0)
    for seed in range(300):
        first, second, alone = padded_growth_time(batch, generator(seed))[:3].tolist()
        assert not min(first, second) <= alone <= max(first, second)
