import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from joao.baselines.forests import FOREST
from joao.evaluation.splits import Split
from repro.protocols.transfer.run import forest_score

SPLIT = Split(np.arange(0, 60), np.arange(60, 70), np.arange(70, 100))


@pytest.fixture
def given():
    """Columns, and labels of four tasks: two to learn, one that has a single label in training, one in the test."""
    draw = np.random.default_rng(0)
    columns = draw.normal(size=(100, 6))
    labels = (columns[:, :4] + draw.normal(size=(100, 4)) > 0).astype(np.float32)
    labels[draw.random((100, 4)) < 0.2] = np.nan
    labels[:60, 2] = 1
    labels[70:, 3] = 0
    return columns, labels


@pytest.mark.slow
def test_score_is_the_mean_over_separate_forests(given):
    columns, labels = given
    scores = []
    for task in (0, 1):
        train = [graph for graph in range(60) if labels[graph, task] in (0, 1)]
        test = [graph for graph in range(70, 100) if labels[graph, task] in (0, 1)]
        forest = RandomForestClassifier(**FOREST["binary"], random_state=3).fit(columns[train], labels[train, task])
        scores.append(roc_auc_score(labels[test, task], forest.predict_proba(columns[test])[:, 1]))
    # The third task tells nothing and counts as a half; the fourth cannot be scored.
    assert forest_score(columns, labels, SPLIT, seed=3) == pytest.approx((sum(scores) + 0.5) / 3)


def test_validation_graphs_have_no_effect(given):
    columns, labels = given
    before = forest_score(columns, labels, SPLIT, seed=0)
    columns[60:70], labels[60:70] = 9, 1
    assert forest_score(columns, labels, SPLIT, seed=0) == before
