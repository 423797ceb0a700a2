"""The changes that augmentations make to a graph."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from joao.augmentations import AUGMENTATIONS, AttributeMask, EdgePerturb, Identity, NodeDrop, Subgraph
from joao.data.synthetic import random_graphs
from joao.report.graphs import choose_examples, examples, find_change


@pytest.mark.parametrize("shape", ["complete", "disconnected", "star", "cycle", "path"])
def test_kinds_of_change(make_batch, shapes, generator, shape):
    graph = make_batch([shapes[shape]])
    nodes, edges = shapes[shape][0], {(min(e), max(e)) for e in shapes[shape][1]}
    for augmentation in (NodeDrop(0.3), Subgraph(0.3)):
        found = find_change(graph, augmentation, generator(1))
        assert len(found.lost) == int(0.3 * nodes)
        assert (found.masked, found.cut, found.added) == ((), (), ())
    found = find_change(graph, EdgePerturb(0.4), generator(1))
    assert (found.lost, found.masked) == ((), ())
    assert set(found.cut) <= edges
    assert not set(found.added) & edges
    assert len(found.cut) <= int(0.4 * len(edges))
    assert find_change(graph, Identity(), generator(1)) == find_change(graph, NodeDrop(0), generator(1))


@pytest.mark.parametrize("fill", ["noise", "mean", "token"])
@pytest.mark.parametrize("features", ["own", "constant"])
def test_masked_nodes_are_found_whatever_fills_them(make_batch, shapes, generator, fill, features):
    graph = make_batch([shapes["disconnected"]])
    if features == "constant":
        graph = replace(graph, x=torch.ones(graph.num_nodes, 1))
    for seed in range(20):
        found = find_change(graph, AttributeMask(0.5, fill=fill), generator(seed))
        assert len(found.masked) == 4
        assert (found.lost, found.cut, found.added) == ((), (), ())
    assert set(found.masked) <= set(range(9))


def test_lost_nodes_are_the_missing_ones(make_batch, shapes, generator):
    graph = make_batch([shapes["cycle"]])
    found = find_change(graph, NodeDrop(0.4), generator(3))
    after = NodeDrop(0.4)(graph, generator(3))
    assert set(after.x[:, 0].long().tolist()) == set(range(10)) - set(found.lost)


def test_examples_contain_every_augmentation(scored_run, open_run, mutag_data):
    run = open_run(scored_run)
    found = examples(run)
    assert [mutag_data.classes[each["graph"]] for each in found] == [0, 1]
    for example in found:
        assert [member["name"] for member in example["members"]] == list(run.run.info.pool)
        assert all(len(member["draws"]) == 3 for member in example["members"])
    assert examples(run) == found  # no chance in it


def test_choice_of_examples():
    dataset = random_graphs(50, mean_nodes=12, num_classes=7)
    found = choose_examples(dataset)
    assert dataset.classes[found].tolist() == [0, 1, 2, 3]
    sizes = np.diff(dataset.first_node)
    assert all(4 <= sizes[each] <= 40 for each in found)
    unlabelled = choose_examples(random_graphs(50, mean_nodes=12, num_classes=0))
    assert len(unlabelled) == 3
    assert choose_examples(random_graphs(3, mean_nodes=900)[1:]) == []
    assert len(choose_examples(random_graphs(1))) == 1


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_augmentation_changes_something(make_batch, shapes, generator, name):
    options = {} if name == "identity" else {"strength": 0.5}
    found = find_change(make_batch([shapes["star"]]), AUGMENTATIONS[name](**options), generator())
    assert any(vars(found).values()) == (name != "identity")
