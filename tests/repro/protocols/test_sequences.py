"""Words against OGB's definition written out in loops, and figures worked out by hand."""

import math

import numpy as np
import pytest
import torch

from repro.protocols.ogb.benchmark import Vocabulary
from repro.protocols.stacked_fits import with_unlabelled_graph

NAMES = [["get", "name"], ["set", "name", "name"], ["get"], ["run", "all", "the", "tests", "in", "get"], ["zip"], []]


def logits_of(rows, num_classes):
    """``(1, G, length * classes)`` outputs that predict these classes."""
    outputs = torch.zeros(1, len(rows), len(rows[0]), num_classes)
    for graph, row in enumerate(rows):
        for place, number in enumerate(row):
            outputs[0, graph, place, number] = 5.0
    return outputs.flatten(2)


def f1_by_sets(name, predicted):
    """As OGB's evaluator has it: sets, precision and recall."""
    label, prediction = set(name), set(predicted)
    right = len(label & prediction)
    precision = right / len(prediction) if prediction else 0
    recall = right / len(label) if label else 0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def test_vocabulary_has_the_most_frequent_words_in_stable_order():
    assert Vocabulary.of(NAMES, 3).words == ("get", "name", "set")
    few = Vocabulary.of(NAMES[:3], 10)
    assert few.words == ("name", "get", "set")  # a name has a word twice, and counts twice
    assert (few.unknown, few.end) == (3, 4)


def test_encoded_targets_match_a_hand_computation():
    targets = Vocabulary(("get", "name")).targets(NAMES, 3)
    assert (targets.num_classes, targets.num_outputs) == (4, 12)
    # unknown is 2, the end 3; words that cannot be predicted have other numbers from 4 on
    assert targets.values[:, :3].tolist() == [[0, 1, 3], [2, 1, 1], [0, 3, 3], [2, 2, 2], [2, 3, 3], [3, 3, 3]]
    assert targets.values[1, 3:].tolist() == [4, 1, -1, -1, -1, -1]
    assert [int((row >= 0).sum()) for row in targets.values[:, 3:]] == [2, 2, 1, 6, 1, 0]


def test_f1_matches_a_hand_computation():
    targets = Vocabulary(("get", "name")).targets(NAMES, 3)
    predicted = [[0, 1, 3], [1, 3, 0], [0, 1, 1], [0, 0, 3], [2, 3, 3], [0, 3, 3]]
    # {get, name}: 1. {set, name} by {name}: 2/3. {get} by {get, name}: 2/3. six words by {get}: 2/7. unknown: 0. {}: 0
    expected = [1, 2 / 3, 2 / 3, 2 / 7, 0, 0]
    outputs, settled = logits_of(predicted, 4), targets.training_statistics(torch.arange(2), False).unsqueeze(0)
    for graph, value in enumerate(expected):
        found = targets.scores(outputs[:, graph : graph + 1], torch.tensor([[graph]]), settled)
        assert found.item() == pytest.approx(value)
    together = targets.scores(outputs, torch.arange(6).unsqueeze(0), settled)
    assert together.tolist() == pytest.approx([np.mean(expected)])


def test_f1_compares_sets_of_words():
    draw = np.random.default_rng(0)
    words = [f"w{number}" for number in range(12)]
    names = [list(draw.choice(words, draw.integers(0, 8))) for _ in range(200)]
    vocabulary = Vocabulary.of(names, 8)
    shown = (*vocabulary.words, "__UNK__", None)
    targets = vocabulary.targets(names, 5)
    outputs = torch.from_numpy(draw.normal(size=(2, 100, targets.num_outputs)))
    graphs = torch.from_numpy(draw.permutation(200).reshape(2, 100))
    expected = []
    for part in range(2):
        scores = []
        for row, graph in zip(outputs[part].view(100, 5, 10).argmax(2).tolist(), graphs[part].tolist(), strict=True):
            decoded = [shown[number] for number in row]
            decoded = decoded[: decoded.index(None)] if None in decoded else decoded
            scores.append(f1_by_sets(names[graph], decoded))
        expected.append(np.mean(scores))
    found = targets.scores(outputs, graphs, torch.ones(2, 1))
    assert found.tolist() == pytest.approx(expected)


def test_loss_is_the_mean_over_graphs_and_positions():
    draw = np.random.default_rng(1)
    vocabulary = Vocabulary(("get", "name"))
    targets = vocabulary.targets(NAMES, 3)
    outputs = draw.normal(size=(1, 6, 12))
    total = []
    for graph in range(6):
        for place in range(3):
            logits = outputs[0, graph, 4 * place : 4 * place + 4]
            total.append(math.log(np.exp(logits).sum()) - logits[targets.values[graph, place]])
    found = targets.losses(torch.from_numpy(outputs), torch.arange(6).unsqueeze(0), torch.ones(1, 1))
    assert found.item() == pytest.approx(np.mean(total))


def test_unlabelled_graphs_are_ignored():
    targets = with_unlabelled_graph(Vocabulary(("get", "name")).targets(NAMES, 3))
    outputs = logits_of([[0, 1, 3], [1, 3, 0], [0, 1, 1]], 4)
    graphs, fewer = torch.tensor([[0, 1, 6]]), torch.tensor([[0, 1]])
    for measure in (targets.losses, targets.scores):
        without = measure(outputs[:, :2], fewer, torch.ones(1, 1))
        torch.testing.assert_close(measure(outputs, graphs, torch.ones(1, 1)), without)
