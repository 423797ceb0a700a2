"""Few labels of an official training part: which ones, and that the test part is looked at once."""

import numpy as np
import pytest

from joao.data.formats.ogb import OfficialSplit
from joao.training.metrics import Fit, FitEpoch
from repro.protocols.ogb.benchmark import labelled_part, score_seed, strata_of
from tests.messages import refused

SPLIT = OfficialSplit("scaffold", np.arange(100, 300), np.arange(50), np.arange(50, 100))
CLASSES = np.arange(300) % 4 // 3  # three of 0 for each 1


def test_labelled_graphs_are_a_stratified_part_of_the_training_set():
    part = labelled_part(SPLIT, 0.1, 0, CLASSES)
    assert len(part.train) == 20
    assert set(part.train) <= set(SPLIT.train)
    assert np.bincount(CLASSES[part.train]).tolist() == [15, 5]
    assert part.validation is SPLIT.validation
    assert part.test is SPLIT.test
    assert len(labelled_part(SPLIT, 0.019, 0, None).train) == 3  # rounded down, as published
    assert labelled_part(SPLIT, 1.0, 0, None).train.tolist() == SPLIT.train.tolist()


@pytest.mark.parametrize("classes", [None, CLASSES])
def test_labelled_graphs_depend_only_on_seed_and_rate(classes):
    first, again, other = (labelled_part(SPLIT, 0.1, seed, classes).train.tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_every_training_graph_can_be_labelled():
    drawn = np.concatenate([labelled_part(SPLIT, 0.1, seed, None).train for seed in range(200)])
    counts = np.bincount(drawn, minlength=300)[100:]
    assert counts.min() > 0
    assert abs(counts.mean() - 20) < 1e-9


@pytest.mark.parametrize(
    ("rate", "values"), [(0.0, ["rate", 0.0]), (1.5, ["rate", 1.5]), (0.005, ["0.5 %", 200, 1, 2])]
)
def test_too_few_labels_are_rejected(rate, values):
    with refused("labels", *values):
        labelled_part(SPLIT, rate, 0, CLASSES)


def test_sampling_is_stratified_by_one_complete_task():
    assert strata_of(np.array([[0], [1], [1]], dtype=np.float32)).tolist() == [0, 1, 1]
    assert strata_of(np.array([[0], [np.nan]], dtype=np.float32)) is None
    assert strata_of(np.array([[0, 1]], dtype=np.float32)) is None


class Watched:
    """Stands in for a fine-tuning: remembers what it was shown."""

    def __init__(self):
        self.shown = []

    def fit(self, train, validation, seed):
        self.shown.append(("fit", train.tolist(), validation.tolist()))
        return Fit((FitEpoch(1.0, 1.0, 0.4), FitEpoch(1.0, 1.0, 0.8), FitEpoch(1.0, 1.0, 0.7)), 2)

    def score(self, graphs):
        self.shown.append(("score", graphs.tolist()))
        return 0.6


def test_validation_selects_and_the_test_part_is_evaluated_once():
    watched, part = Watched(), labelled_part(SPLIT, 0.1, 3, CLASSES)
    score = score_seed(watched, part, 3)
    assert (score.seed, score.epoch, score.validation, score.test) == (3, 2, 0.8, 0.6)
    assert watched.shown == [("fit", part.train.tolist(), SPLIT.validation.tolist()), ("score", SPLIT.test.tolist())]
