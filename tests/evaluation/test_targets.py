"""Losses and scores against scikit-learn, numpy and loops; missing labels have no effect on them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight

from joao.evaluation.targets import KINDS, BinaryTargets, ClassTargets, NumberTargets, Targets, roc_auc

NAN, INF = float("nan"), float("inf")
F, G, T = 3, 12, 4


def make(kind, seed=0, num_graphs=40):
    """Targets of 40 graphs, some without any label, and outputs for three parts of twelve graphs each."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, T, num_graphs)
    if kind == "classes":
        targets = ClassTargets(torch.from_numpy(classes), T)
    else:
        values = random.integers(0, 2, (num_graphs, T)).astype(np.float32)
        values[random.random(values.shape) < 0.3] = NAN
        values[::9] = NAN
        if kind == "numbers":
            values += random.normal(size=values.shape) * [1, 100, 0.01, 1] + [0, 500, 0, -3]
        targets = KINDS[kind](torch.from_numpy(values.astype(np.float32)))
    outputs = torch.from_numpy(random.normal(size=(F, G, T)).astype(np.float32))
    graphs = torch.from_numpy(random.permutation(num_graphs)[: F * G].reshape(F, G))
    return targets, outputs, graphs


def statistics_of(targets, graphs, balanced=False):
    """By other graphs than are looked at, another one for each part."""
    return torch.stack([targets.training_statistics((row + 1) % len(targets.values), balanced) for row in graphs])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balanced", [False, True])
def test_stacked_folds_equal_single_folds(kind, balanced):
    targets, outputs, graphs = make(kind)
    terms = statistics_of(targets, graphs, balanced)
    for measure in (targets.losses, targets.scores):
        together = measure(outputs, graphs, terms)
        assert together.shape == (F,)
        alone = [measure(outputs[n : n + 1], graphs[n : n + 1], terms[n : n + 1]) for n in range(F)]
        torch.testing.assert_close(together, torch.cat(alone))


def add_unlabelled_graph(targets):
    return replace(targets, values=torch.cat([targets.values, torch.full_like(targets.values[:1], targets.missing)]))


@pytest.mark.parametrize("kind", KINDS)
def test_unlabelled_padding_graphs_have_no_effect(kind):
    """Room left over is filled with a graph without labels, whatever the model says of it."""
    targets, outputs, graphs = make(kind)
    terms, with_unlabelled_graph = statistics_of(targets, graphs, True), add_unlabelled_graph(targets)
    room = torch.full((F, 2), len(targets.values))
    more = torch.cat([outputs, 100 * torch.randn(F, 2, T)], dim=1).requires_grad_()
    losses = with_unlabelled_graph.losses(more, torch.cat([graphs, room], dim=1), terms)
    torch.testing.assert_close(losses, targets.losses(outputs, graphs, terms))
    torch.testing.assert_close(
        with_unlabelled_graph.scores(more.detach(), torch.cat([graphs, room], dim=1), terms),
        targets.scores(outputs, graphs, terms),
    )
    losses.sum().backward()
    assert not more.grad[:, -2:].any()
    assert more.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["binary", "numbers"])
def test_missing_labels_have_no_gradient(kind):
    targets, outputs, graphs = make(kind)
    outputs.requires_grad_()
    targets.losses(outputs, graphs, statistics_of(targets, graphs)).sum().backward()
    assert torch.equal(outputs.grad != 0, ~targets.values[graphs].isnan())


@pytest.mark.parametrize("kind", KINDS)
def test_without_labels_the_loss_is_zero_and_the_score_nan(kind):
    targets, outputs, graphs = make(kind)
    nobody = torch.full_like(graphs, len(targets.values))
    terms = statistics_of(targets, graphs)
    outputs.requires_grad_()
    losses = add_unlabelled_graph(targets).losses(outputs, nobody, terms)
    assert losses.tolist() == [0, 0, 0]
    losses.sum().backward()
    assert not outputs.grad.any()
    assert add_unlabelled_graph(targets).scores(outputs, nobody, terms).isnan().all()


@pytest.mark.parametrize("balanced", [False, True])
def test_class_targets_agree_with_scikit_learn(balanced):
    targets, outputs, graphs = make("classes")
    terms = statistics_of(targets, graphs, balanced)
    for n in range(F):
        train = targets.values[(graphs[n] + 1) % 40].numpy()
        present = np.unique(train)
        expected = compute_class_weight("balanced" if balanced else None, classes=present, y=train)
        np.testing.assert_allclose(terms[n][present], expected, rtol=1e-6)
        labels, weights = targets.values[graphs[n]].numpy(), terms[n][targets.values[graphs[n]]].numpy()
        probabilities = outputs[n].double().softmax(1).numpy()
        loss = log_loss(labels, probabilities, labels=range(T), sample_weight=weights)
        assert targets.losses(outputs, graphs, terms)[n].item() == pytest.approx(loss, rel=1e-5)
        right = np.average(probabilities.argmax(1) == labels, weights=weights)
        assert targets.scores(outputs, graphs, terms)[n].item() == pytest.approx(right, rel=1e-6)


def test_score_depends_only_on_counts_per_class():
    targets = ClassTargets(torch.tensor([0] * 7 + [1] * 3), 2)
    weights, graphs = targets.training_statistics(torch.arange(10), True).unsqueeze(0), torch.arange(10).unsqueeze(0)
    scores = set()
    for wrong in range(7):
        outputs = torch.stack([targets.values == 0, targets.values == 1], dim=1).float()
        outputs[wrong] = outputs[wrong].flip(0)
        scores.add(targets.scores(outputs.unsqueeze(0), graphs, weights).item())
    assert len(scores) == 1


# Few different outputs, so that many are equal.
columns = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 0.25, 2.0]), st.sampled_from([0.0, 1.0, NAN])), min_size=1, max_size=25
)


@given(columns)
def test_roc_auc_agrees_with_scikit_learn(column):
    outputs, labels = (torch.tensor(each).unsqueeze(1) for each in zip(*column, strict=True))
    found = roc_auc(outputs, labels).item()
    measured = ~labels.isnan()
    if len(set(labels[measured].tolist())) < 2:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(labels[measured], outputs[measured]), abs=1e-12)


def test_roc_auc_by_hand():
    # Ones at 1 and 2, zeros at 0, 1 and 3: the one at 1 beats one zero and ties with one, the one at 2 beats two.
    outputs, labels = torch.tensor([[1.0, 2, 0, 1, 3, 9]]).T, torch.tensor([[1.0, 1, 0, 0, 0, NAN]]).T
    assert roc_auc(outputs, labels).tolist() == [(1.5 + 2) / 6]


def test_infinite_outputs_are_ordinary_values():
    """By the definition, pair by pair; graphs without a label stand between."""
    values = [-INF, -INF, -1.0, 0.0, INF, INF]
    for labels in itertools.product([0.0, 1.0, NAN], repeat=len(values)):
        ones, zeros = ([s for s, y in zip(values, labels, strict=True) if y == label] for label in (1, 0))
        if ones and zeros:
            wins = sum((one > zero) + (one == zero) / 2 for one in ones for zero in zeros)
            found = roc_auc(torch.tensor([values]).T, torch.tensor([labels]).T)
            assert found.tolist() == [pytest.approx(wins / (len(ones) * len(zeros)), abs=1e-12)]


@pytest.mark.parametrize("place", range(6))
def test_nan_output_gives_no_roc_auc(place):
    labels = torch.tensor([[0.0, 1, 0, 1, NAN, NAN], [1, 0, 0, 1, 1, NAN]]).T.contiguous()
    outputs = torch.tensor([[0.0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]).T.contiguous()
    whole = roc_auc(outputs, labels)
    outputs[place, 0] = NAN
    found = roc_auc(outputs, labels)
    measured = place < 4
    assert found[0].isnan() if measured else found[0] == whole[0]
    assert found[1] == whole[1]
    targets, graphs = BinaryTargets(labels), torch.arange(6).unsqueeze(0)
    score = targets.scores(outputs.unsqueeze(0), graphs, statistics_of(targets, graphs, False)).item()
    assert math.isnan(score) if measured else score == whole.mean()


@pytest.mark.parametrize("balanced", [False, True])
def test_binary_targets_agree_with_loops(balanced):
    targets, outputs, graphs = make("binary")
    targets.values[:, 3] = 0 * targets.values[:, 3]  # one class only: no curve
    terms = statistics_of(targets, graphs, balanced)
    for n in range(F):
        cost = weight = 0.0
        areas = []
        for task in range(T):
            train = targets.values[(graphs[n] + 1) % 40, task]
            train = train[~train.isnan()].numpy()
            present = np.unique(train)
            kind = "balanced" if balanced else None
            weights = dict(zip(present, compute_class_weight(kind, classes=present, y=train), strict=True))
            given = [
                (float(outputs[n, place, task]), float(targets.values[graph, task]))
                for place, graph in enumerate(graphs[n])
                if not math.isnan(targets.values[graph, task])
            ]
            for output, label in given:
                p = 1 / (1 + math.exp(-output))
                cost -= weights[label] * math.log(p if label else 1 - p)
                weight += weights[label]
            if {label for _, label in given} == {0, 1}:
                areas.append(roc_auc_score([label for _, label in given], [output for output, _ in given]))
        assert 0 < len(areas) < T
        assert targets.losses(outputs, graphs, terms)[n].item() == pytest.approx(cost / weight, rel=1e-5)
        assert targets.scores(outputs, graphs, terms)[n].item() == pytest.approx(np.mean(areas))


def test_unbalanced_is_the_plain_mean_over_all_labels():
    """Not the mean of the tasks' means: a task with few labels has little to say."""
    targets = BinaryTargets(torch.tensor([[1.0, NAN], [0.0, NAN], [1.0, 1.0]]))
    outputs = torch.tensor([[[0.0, 7.0], [0.0, 7.0], [0.0, math.log(3)]]])
    loss = targets.losses(
        outputs, torch.arange(3).unsqueeze(0), targets.training_statistics(torch.arange(3), False).unsqueeze(0)
    )
    assert loss.item() == pytest.approx((3 * math.log(2) + math.log(4 / 3)) / 4)


def test_number_targets_agree_with_numpy():
    targets, outputs, graphs = make("numbers")
    terms, values = statistics_of(targets, graphs), targets.values.double().numpy()
    for n in range(F):
        train = values[(graphs[n].numpy() + 1) % 40]
        np.testing.assert_allclose(terms[n], [np.nanmean(train, 0), np.nanstd(train, 0)], rtol=1e-5, atol=1e-6)
        labels = (values[graphs[n]] - np.nanmean(train, 0)) / np.nanstd(train, 0)
        loss = np.nanmean((outputs[n].numpy() - labels) ** 2)
        assert targets.losses(outputs, graphs, terms)[n].item() == pytest.approx(loss, rel=1e-4)
        errors = []
        for task in range(T):
            measured = ~np.isnan(labels[:, task])
            errors.append(mean_squared_error(labels[measured, task], outputs[n, measured, task]) ** 0.5)
        assert targets.scores(outputs, graphs, terms)[n].item() == pytest.approx(-np.mean(errors), rel=1e-4)


def test_losses_and_scores_do_not_depend_on_units():
    targets, outputs, graphs = make("numbers")
    other = NumberTargets(targets.values * torch.tensor([1000.0, 1, 0.01, 1]) - 7)
    for name in ("losses", "scores"):
        found = [getattr(each, name)(outputs, graphs, statistics_of(each, graphs)) for each in (targets, other)]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1, -3e-8])
def test_constant_labels_are_shifted_but_not_scaled(value):
    targets = NumberTargets(torch.tensor([[value, 1.0], [value, 2.0], [NAN, 3.0], [value, NAN]]))
    mean, deviation = targets.training_statistics(torch.arange(4), False)
    torch.testing.assert_close(mean, torch.tensor([value, 2.0]))
    torch.testing.assert_close(deviation, torch.tensor([1.0, (2 / 3) ** 0.5]))


def test_task_without_labels_has_mean_0_and_deviation_1():
    targets = NumberTargets(torch.tensor([[NAN, 1.0], [NAN, 3.0]]))
    assert targets.training_statistics(torch.arange(2), False).tolist() == [[0, 2], [1, 1]]
    task = BinaryTargets(torch.tensor([[NAN, 1.0], [NAN, 0.0]]))
    assert task.training_statistics(torch.arange(2), True).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_use_training_labels_only(kind):
    targets, _, _ = make(kind)
    before = targets.training_statistics(torch.arange(20), True)
    targets.values[20:] = targets.values[20:].flip(0)
    assert torch.equal(targets.training_statistics(torch.arange(20), True), before)


def test_every_kind_has_a_name():
    """Those of this module: words of programs are of one protocol, and of no run folder."""
    assert set(KINDS.values()) == {each for each in Targets.__subclasses__() if each.__module__ == Targets.__module__}
