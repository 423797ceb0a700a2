"""The gain of the preset large: differences of means over seeds, on sets that are finished."""

import pytest

from repro.studies import preset_large as study
from repro.studies.sweep import SETS


def records(shift, sets=SETS, seeds=5, nested=False):
    for number, name in enumerate(sets):
        for seed in range(seeds):
            accuracies = [0.5 + 0.01 * number + shift, 0.7 + 0.01 * number + shift]
            shown = {"joao": accuracies, "joao+wl": [0.0, 0.0]} if nested else accuracies
            yield {"cell": {"dataset": name, "seed": seed}, "accuracies": shown}


@pytest.mark.parametrize(("shift", "verdict"), [(0.02, "+2.00"), (-0.01, "-1.00")])
def test_the_mean_is_that_of_the_differences(shift, verdict):
    text = study.page(list(records(shift)), list(records(0, nested=True)))
    assert f"| COX2 | 60.00 | {60 + 100 * shift:.2f} | {100 * shift:.2f} |" in text
    assert verdict in text
