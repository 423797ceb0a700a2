"""The pages beside the unsupervised table, against figures worked out by hand."""

from joao.evaluation.statistics import paired_gain
from repro.intervals import estimate_difference
from repro.protocols.unsupervised.run import record_file
from repro.protocols.unsupervised.variants import (
    COSTS_HEADER,
    OBJECTIVES_HEADER,
    STRENGTHS_HEADER,
    cost_lines,
    objective_lines,
    strength_lines,
    variants_markdown,
)
from repro.tables.names import NAMES
from repro.tables.pages import unsupervised_pages
from repro.tables.rows import VARIANTS

CPU = {"processor": "a processor", "device": "cpu"}
GPU = {**CPU, "device": "cuda", "gpu": "a card"}


def record(method, seed, accuracies, folds="usual", **variant):
    scores = {"mean": sum(accuracies) / 2, "partitions": [{"fold_hash": f"{folds} {seed}", "accuracies": accuracies}]}
    made = {"cell": {"dataset": "MUTAG", "method": method, "seed": seed, "inductive": False, **variant}}
    made |= {"scores": scores, "machine": CPU, "seconds of pre-training": 1.0}
    if "twins_together" in variant:
        made |= {"data": {"name": "MUTAG", "graphs": 200}}
        made["twins"] = {"with_twin": 24, "with_twin_of_another_class": 3}
    return made


USUAL = [
    *(record("untrained", 0, [0.80, 0.90]), record("untrained", 1, [0.70, 0.80])),
    *(record("joao", 0, [0.90, 1.00]), record("joao", 1, [0.70, 0.90]), record("wl", 0, [0.9, 0.9])),
]
TWINS = {"folds": "other", "twins_together": True}
OTHERS = [
    *(record("untrained", 0, [0.6, 0.8], **TWINS), record("untrained", 1, [0.6, 0.6], **TWINS)),
    *(record("joao", 0, [0.7, 0.7], **TWINS), record("joao", 1, [0.6, 0.8], **TWINS)),
    record("joao", 0, [0.8, 0.9], inductive=True),
]


def tables(text):
    """By heading, the cells of every line of its table."""
    found = {}
    for line in text.splitlines():
        if line.startswith("## "):
            lines = found.setdefault(line[3:], [])
        elif line.startswith("| "):
            lines.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def interval(gain):
    return f"{gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def test_page_of_variants_matches_a_hand_computation():
    accuracy, gain, twins = tables(variants_markdown([*USUAL, *OTHERS])).values()
    # Other folds: the variances of both sides add up. JOAO's 95 and 80 become 70 and 70, the untrained 85 and 75 become
    # 70 and 60. The inductive encoder has one seed and no interval.
    joao = estimate_difference([[70, 70], [60, 80]], [[90, 100], [70, 90]]).interval()
    untrained = estimate_difference([[60, 80], [60, 60]], [[80, 90], [70, 80]]).interval()
    assert (joao.mean, untrained.mean) == (-17.5, -15)
    assert (accuracy[0][3], accuracy[0][5]) == (VARIANTS["twins"], VARIANTS["inductive"])
    assert accuracy[2:] == [
        ["MUTAG", NAMES["untrained"], "80.00 ± 7.07 [2]", "65.00 ± 7.07 [2]", interval(untrained), "", ""],
        [*("MUTAG", "JOAO", "87.50 ± 10.61 [2]", "70.00 ± 0.00 [2]", interval(joao)), *("85.00 [1]", "-10.00")],
    ]
    over = [
        paired_gain([[90, 100], [70, 90]], [[80, 90], [70, 80]]),
        paired_gain([[70, 70], [60, 80]], [[60, 80], [60, 60]]),  # on folds with twins together, both
    ]
    assert gain[2:] == [["MUTAG", "JOAO", *map(interval, over), ""]]
    assert twins[2:] == [["MUTAG", "200", "24 (12.0 %)", "3 (1.5 %)"]]


def test_one_seed_on_different_folds_has_no_interval():
    accuracy = next(iter(tables(variants_markdown([*USUAL, OTHERS[2]])).values()))
    assert accuracy[2][3:] == ["70.00 [1]", "-25.00"]


def test_single_variant_has_no_difference():
    accuracy = next(iter(tables(variants_markdown(OTHERS[:1])).values()))
    assert accuracy[2:] == [["MUTAG", NAMES["untrained"], "", "70.00 [1]", ""]]


def test_both_variants_are_compared_with_the_untrained_encoder():
    both = [record("joao", seed, [0.8, 0.8], inductive=True, **TWINS) for seed in (0, 1)]
    gain = list(tables(variants_markdown([*USUAL, *OTHERS[:2], *both])).values())[1]
    assert gain[0][3:] == [VARIANTS["twins"], VARIANTS["twins-inductive"]]
    assert gain[2][3:] == ["", interval(paired_gain([[80, 80], [80, 80]], [[60, 80], [60, 60]]))]


def test_other_pages_exclude_variants(tmp_path):
    def pages(name, records):
        record_file(tmp_path / name).write(*records)
        return unsupervised_pages(tmp_path / name).texts

    without, with_them = pages("without", USUAL), pages("with", [*USUAL, *OTHERS])
    assert "variants.md" not in without
    assert variants_markdown([*USUAL, *OTHERS]) in with_them.pop("variants.md")
    assert with_them == without


def test_costs_match_a_hand_computation():
    found = [record("wl", seed, [0.8 + seed / 100] * 2) for seed in range(5)]
    found[0] |= {"peak bytes": 3_000_000}
    found[1] |= {"seconds of pre-training": 2.0, "peak bytes": 9_000_000}
    found[2] |= {"seconds of pre-training": 9.0, "peak bytes": None}
    found[3] |= {"seconds of pre-training": 0.5, "machine": GPU}
    del found[4]["seconds of pre-training"]
    on_cpu, on_gpu = cost_lines(found)
    assert on_cpu[:5] == ["MUTAG", NAMES["wl"], "81.0", "2.0", "9"]
    assert CPU["processor"] in on_cpu[5]
    assert on_gpu == ["MUTAG", NAMES["wl"], "83.0", "0.5", "", "a card"]
    assert len(COSTS_HEADER) == 6


def test_objectives_with_and_without_joao_match_a_hand_computation():
    found = [
        *(record("uniform", 0, [0.5, 0.5]), record("uniform", 1, [0.6, 0.6])),
        *(record("joao", 0, [0.6, 0.6]), record("joao", 1, [0.7, 0.7])),
        *(record("barlow_twins_uniform", 0, [0.5, 0.7]), record("barlow_twins_joao", 1, [0.5, 0.5])),
        record("bootstrap_joao", 0, [0.5, 0.5]),
    ]
    assert objective_lines(found) == [
        ["MUTAG", "NT-Xent", "55.00 ± 7.07", "65.00 ± 7.07", "+10.00 (+10.00 to +10.00)", "2"],
        ["MUTAG", "Barlow Twins", "60.00", "50.00", "", "1"],  # no seed in common
    ]
    assert len(OBJECTIVES_HEADER) == 6


def test_learned_strengths_match_a_hand_computation():
    nci1, alone = {"dataset": "NCI1"}, record("joao", 0, [0.1, 0.1], dataset="DD")
    found = [
        *(record("joao", 0, [0.5, 0.5]), record("joao", 1, [0.6, 0.6])),
        *(record("joao_strengths", 0, [0.6, 0.6]), record("joao_strengths", 1, [0.7, 0.7])),
        *(record("joao", 0, [0.8, 0.9], **nci1), record("joao_strengths", 1, [0.8, 0.8], **nci1), alone),
    ]
    of_mutag, of_nci1, average = strength_lines(found)
    assert of_mutag == ["MUTAG", "55.00 ± 7.07", "65.00 ± 7.07", "+10.00 (+10.00 to +10.00)", "2"]
    assert of_nci1 == ["NCI1", "85.00", "80.00", "", "1"]  # no seed in common
    assert average[1:] == ["70.00", "72.50", "+2.50", ""]
    assert "2" in average[0]
    assert len(STRENGTHS_HEADER) == 5
    assert strength_lines([alone]) == []
