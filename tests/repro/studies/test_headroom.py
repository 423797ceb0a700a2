"""Studies of the headroom and of the default embedding: what their pages conclude from records."""

from dataclasses import asdict

import numpy as np
import pytest

from repro.studies import embedding, headroom
from repro.studies.sweep import SETS


def headroom_records(arm_gain, seeds=5):
    """Every arm scores 0.5 on all folds; one scores ``arm_gain`` points more on each set."""
    best = headroom.PAIRS[3], 0.2
    for cell in headroom.cells(SETS, seeds):
        is_best = (cell.arm, cell.strength) == ("+".join(best[0]), best[1])
        noise = np.random.default_rng([cell.seed, SETS.index(cell.dataset)]).normal(0, 1e-3)
        rank = 0.0 if is_best else 10.0
        accuracy = 0.5 + noise + (arm_gain / 100 if is_best else 0)
        yield {"cell": asdict(cell), "accuracies": [accuracy] * 10, "effective rank": rank}


def test_oracle_finds_the_best_arm_of_every_set():
    lines, gains = headroom.results(list(headroom_records(2.0)))
    assert [line[0] for line in lines] == list(SETS)
    np.testing.assert_allclose(gains["oracle (labels)"], 2.0)
    np.testing.assert_allclose(gains["largest effective rank"], 0.0, atol=1e-9)
    assert 0 < gains["random arm"][0] < 0.1


def planted(first, second):
    """Scores of two arms ``(seeds, folds)``, and of uniform pairs, which are 0."""
    first, second = np.array(first, dtype=float), np.array(second, dtype=float)
    return {("a+b", 0.1): first, ("b+c", 0.2): second, ("uniform", 0.2): np.zeros_like(first)}


def test_stricter_oracles_are_scored_on_what_did_not_choose():
    halves = [[10] * 5 + [-10] * 5] * 3
    by_graphs, by_seeds = headroom.stricter_gains(planted(halves, np.negative(halves)))
    assert (by_graphs, by_seeds) == (-10, 0)  # each half chooses the arm that is worse on the other; seeds see a tie
    lucky, other = [[3] * 10, [-1] * 10], [[-1] * 10, [3] * 10]
    assert headroom.stricter_gains(planted(lucky, other)) == (3, -1)
    assert headroom.stricter_gains(planted([[2] * 10] * 2, [[1] * 10] * 2)) == (2, 2)


def embedding_records(gains, seeds=5):
    """Scores of 50 %, and ``gains`` points more by training and readout."""
    for cell in embedding.cells(SETS, seeds):
        if cell.training in embedding.TIMES:
            continue
        kinds = ["degree"] if cell.dataset == "reddit10k" else ["own", "degree", "constant"]
        readouts = [embedding.PRESENT, *embedding.READOUTS]
        names = readouts + [f"two_encoders {each}" for each in readouts] if cell.training == "present" else readouts
        score = {name: [0.5 + gains.get((cell.training, name), 0) / 100] * 10 for name in names}
        yield {"cell": asdict(cell), "accuracies": dict.fromkeys(kinds, score)}


def test_gain_of_a_readout_and_of_a_size():
    log = embedding.READOUTS[0]
    scores = embedding.scores_of(list(embedding_records({("present", log): 1.0, ("large", log): 3.0})))
    present, new = (embedding.Choice("present", readout) for readout in (embedding.PRESENT, log))
    for dataset in SETS:
        assert embedding.gain(scores, dataset, new, present) == pytest.approx(1.0)
        assert embedding.gain(scores, dataset, embedding.Choice("large", log), new) == pytest.approx(2.0)


def test_time_is_the_ratio_of_medians_of_five_repetitions():
    cells = [cell for cell in embedding.cells(SETS, 5) if cell.training == "cpu_time"]
    measured = zip(cells, [10.0, 20, 30, 40, 90], [33.0, 90, 11, 12, 40], strict=True)
    records = [{"cell": asdict(cell), "CPU seconds": {"present": a, "random_walks": b}} for cell, a, b in measured]
    assert "1.10 times" in embedding.relative_time(records)  # 33 and 30
    assert embedding.relative_time(records[:4]) == ""


def test_time_of_the_preset_is_that_of_three_repetitions():
    cells = [cell for cell in embedding.cells(SETS, 5) if cell.training == "cpu_time_large"]
    measured = zip(cells, [10.0, 2, 30], [50.0, 90, 33], strict=True)
    records = [{"cell": asdict(cell), "CPU seconds": {"default": a, "large": b}} for cell, a, b in measured]
    assert "5.0 times" in embedding.relative_time(records)  # 50 and 10
    assert embedding.relative_time(records[:2]) == ""
