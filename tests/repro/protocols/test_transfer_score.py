from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from joao.core.randomness import derive_seed
from joao.data.features import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import MoleculeGin
from joao.evaluation.splits import Split
from joao.evaluation.targets import BinaryTargets, roc_auc
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.transfer.score import score_seeds

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
            make_store(molecules, Features.from_dataset(molecules)),
            BinaryTargets(torch.from_numpy(molecules.targets)),
            MoleculeGin(width=8, layers=2),
            Finetune(batch_size=16, **how),
            fast=fast,
        )

    return make


def test_scores_match_fits_stopped_at_the_selected_and_last_epoch(make, molecules):
    finetuning = make(epochs=4, learning_rate=0.01)
    starts = {seed: finetuning.initial_weights(seed) for seed in range(6)}
    found = score_seeds(finetuning, SPLIT, starts)
    assert found == score_seeds(finetuning, SPLIT, starts)
    assert [score.seed for score in found] == [*range(6)]
    early = [score for score in found if score.epoch < 4]
    assert any(score.test != score.last_test for score in early)
    train, validation, test = (torch.from_numpy(part) for part in (SPLIT.train, SPLIT.validation, SPLIT.test))
    labels = torch.from_numpy(molecules.targets[SPLIT.test])
    for score in early[:3]:
        for epochs, expected in ((score.epoch, score.test), (4, score.last_test)):
            one = make(epochs=epochs, learning_rate=0.01)  # without validation the last epoch is kept
            one.fit(train, validation[:0], derive_seed(score.seed, "transfer"), start=one.initial_weights(score.seed))
            with torch.no_grad():
                assert expected == pytest.approx(float(roc_auc(one.logits(test), labels).mean()))
        assert score.validation is not None
        assert 0 <= score.validation <= 1


def test_every_seed_has_its_own_batches(make):
    finetuning = make(epochs=2, learning_rate=0.01)
    same = finetuning.initial_weights(0)
    first, second = score_seeds(finetuning, SPLIT, {0: same, 1: same})
    assert replace(first, seed=1) != second


def test_test_labels_do_not_affect_selection(make, molecules):
    finetuning = make(epochs=3, learning_rate=0.01)
    (before,) = score_seeds(finetuning, SPLIT, {0: finetuning.initial_weights(0)})
    finetuning.targets.values[52:] = 1 - finetuning.targets.values[52:]
    (after,) = score_seeds(finetuning, SPLIT, {0: finetuning.initial_weights(0)})
    assert (after.epoch, after.validation) == (before.epoch, before.validation)
    assert after.test == pytest.approx(1 - before.test)


def test_parallel_seeds_equal_sequential_seeds(make):
    scores = []
    for fast in (True, False):
        finetuning = make(fast=fast, epochs=2, learning_rate=1e-5)  # small steps, as rounding grows with them
        scores.append(score_seeds(finetuning, SPLIT, {seed: finetuning.initial_weights(seed) for seed in (0, 1, 2)}))
    assert finetuning.is_fast is False
    assert len({score.test for score in scores[0]}) == 3
    for one, other in zip(*scores, strict=True):
        assert astuple(one) == pytest.approx(astuple(other))
