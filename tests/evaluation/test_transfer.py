from dataclasses import replace

import numpy as np
import pytest
import torch

from joao.data.features import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import MoleculeGin
from joao.evaluation.labels import Split
from joao.evaluation.transfer import score_seeds
from joao.training.finetune import Finetune, Finetuning
from joao.training.targets import BinaryTargets, roc_auc

SPLIT = Split(np.arange(0, 40), np.arange(40, 52), np.arange(52, 70))


@pytest.fixture(scope="module")
def molecules():
    """Seventy made molecules with two tasks: one that a ring of elements tells, one by the number of atoms."""
    graphs = random_graphs(70, mean_nodes=7, seed=2)
    draw = np.random.default_rng(1)
    atoms = np.stack([draw.integers(5, 8, graphs.num_nodes), np.zeros(graphs.num_nodes)], axis=1).astype(np.uint8)
    bonds = np.stack([(graphs.source + graphs.target) % 4, 0 * graphs.source], axis=1).astype(np.uint8)
    sizes = np.diff(graphs.first_node)
    nitrogens = np.add.reduceat(atoms[:, 0] == 6, graphs.first_node[:-1])
    targets = np.stack([nitrogens * 3 > sizes, sizes > np.median(sizes)], axis=1).astype(np.float32)
    targets[::9, 0] = np.nan
    return replace(graphs, kind="molecules", node_labels=atoms, edge_attr=bonds, targets=targets)


@pytest.fixture
def make(molecules):
    def make(fast=False, **how):
        torch.manual_seed(0)
        return Finetuning(
            make_store(molecules, Features.fixed_on(molecules)),
            BinaryTargets(torch.from_numpy(molecules.targets)),
            MoleculeGin(width=8, layers=2),
            Finetune(batch_size=16, **how),
            fast=fast,
        )

    return make


def test_scores_are_those_of_fits_one_by_one_at_the_chosen_and_at_the_last_epoch(make, molecules):
    finetuning = make(epochs=4, learning_rate=0.01)
    starts = {seed: finetuning.start_of(seed) for seed in (3, 8)}
    found = score_seeds(finetuning, SPLIT, starts)
    again = score_seeds(finetuning, SPLIT, starts)
    assert found == again
    assert [score.seed for score in found] == [3, 8]
    assert found[0] != replace(found[1], seed=3)
    labels = torch.from_numpy(molecules.targets[SPLIT.test])
    for score in found:
        one = make(epochs=score.epoch, learning_rate=0.01)  # stopped there, the chosen epoch is the last one
        (alone,) = score_seeds(one, SPLIT, {score.seed: one.start_of(score.seed)})
        assert alone.last_test == score.test
        with torch.no_grad():
            logits = one.logits(torch.from_numpy(SPLIT.test))
        assert score.test == pytest.approx(float(roc_auc(logits, labels).mean()))
        assert 0 <= score.validation <= 1


def test_test_labels_choose_nothing(make, molecules):
    finetuning = make(epochs=3, learning_rate=0.01)
    (before,) = score_seeds(finetuning, SPLIT, {0: finetuning.start_of(0)})
    finetuning.targets.values[52:] = 1 - finetuning.targets.values[52:]
    (after,) = score_seeds(finetuning, SPLIT, {0: finetuning.start_of(0)})
    assert (after.epoch, after.validation) == (before.epoch, before.validation)
    assert after.test == pytest.approx(1 - before.test)


def test_seeds_side_by_side_give_what_they_give_one_after_another(make):
    scores = []
    for fast in (True, False):
        finetuning = make(fast=fast, epochs=2, learning_rate=1e-5)  # small steps, as rounding grows with them
        scores.append(score_seeds(finetuning, SPLIT, {seed: finetuning.start_of(seed) for seed in (0, 1, 2)}))
    assert finetuning.is_fast is False
    for one, other in zip(*scores, strict=True):
        assert (one.seed, one.test, one.last_test) == pytest.approx((other.seed, other.test, other.last_test))
