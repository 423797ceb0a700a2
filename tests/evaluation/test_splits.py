"""Every labelled graph is in one part; classes and scaffolds are heeded."""

import dataclasses
import os
import re
from collections import Counter

import numpy as np
import pytest

from joao.core.errors import UserError
from joao.core.randomness import numpy_generator
from joao.data import read
from joao.data.synthetic import random_graphs
from joao.evaluation.splits import (
    SHARES,
    default_split,
    hold_out,
    scaffolds,
    split_by_scaffold,
    split_graphs,
    split_notice,
)
from tests.messages import assert_mentions, refused

ROOT = os.environ.get("JOAO_DATA")
GRAPHS = random_graphs(60, mean_nodes=5, num_classes=3, seed=1)
UNCLASSED = dataclasses.replace(GRAPHS, classes=None, class_names=())
# Rings of 3 to 7 atoms with chains of carbon on them: 5 scaffolds of 8 molecules each.
RINGS = [f"C1{'C' * size}C1{'C' * tail}O" for size in range(1, 6) for tail in range(8)]


def parts(split):
    return [split.train, split.validation, split.test]


@pytest.mark.parametrize("dataset", [GRAPHS, UNCLASSED], ids=["classes", "tasks"])
def test_parts_have_their_shares_and_every_graph_is_in_one(dataset):
    split = split_graphs(dataset, "random", 0.2, 0.3, seed=4)
    assert [len(part) for part in parts(split)] == [30, 12, 18]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts(split))), np.arange(60))
    assert all((np.diff(part) > 0).all() for part in parts(split))
    other = split_graphs(dataset, "random", 0.2, 0.3, seed=5)
    assert not np.array_equal(split.test, other.test)


def test_every_class_has_its_share_in_all_parts():
    for part in parts(split_graphs(GRAPHS, "random", 0.2, 0.3, seed=4)):
        assert set(Counter(GRAPHS.classes[part].tolist()).values()) == {len(part) // 3}


def test_split_without_test_part_equals_hold_out():
    split = split_graphs(GRAPHS, "random", 0.2, 0.0, seed=4)
    learn, choose = hold_out(GRAPHS.classes, 0.2, numpy_generator(4, "validation"))
    np.testing.assert_array_equal(split.train, learn)
    np.testing.assert_array_equal(split.validation, choose)
    assert not len(split.test)


def test_the_test_part_is_held_out_first():
    split = split_graphs(GRAPHS, "random", 0.2, 0.3, seed=4)
    rest, test = hold_out(GRAPHS.classes, 0.3, numpy_generator(4, "test"))
    np.testing.assert_array_equal(split.test, test)
    np.testing.assert_array_equal(np.union1d(split.train, split.validation), rest)


def test_two_training_graphs_suffice():
    assert [len(part) for part in parts(split_graphs(UNCLASSED.subset(np.arange(4)), "random", 0.25, 0.25, 0))] == [
        2,
        1,
        1,
    ]


def test_molecules_with_one_scaffold_are_in_one_part():
    pytest.importorskip("rdkit")
    rings = read(RINGS)
    split = split_graphs(rings, "scaffold", 0.2, 0.2, seed=0)
    assert [len(part) for part in parts(split)] == [24, 8, 8]
    ring_of = np.arange(40) // 8
    rings_of_parts = [set(ring_of[part]) for part in parts(split)]
    assert sum(map(len, rings_of_parts)) == 5
    for first, second in zip(parts(split), parts(split_graphs(rings, "scaffold", 0.2, 0.2, seed=9)), strict=True):
        np.testing.assert_array_equal(first, second)  # no chance in it
    assert not len(split_graphs(rings, "scaffold", 0.2, 0.0, seed=0).test)


@pytest.mark.skipif(not ROOT, reason="JOAO_DATA is not set")
def test_default_shares_are_those_of_the_protocol():
    pytest.importorskip("rdkit")
    dataset = read("bace", ROOT)
    split = split_graphs(dataset, "scaffold", *SHARES["scaffold"], seed=0)
    for part, expected in zip(parts(split), split_by_scaffold(scaffolds(dataset.smiles)), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_default_shares():
    rings = dataclasses.replace(UNCLASSED, kind="molecules", groups=np.arange(60))
    shares = [
        split_graphs(each, kind, *SHARES[kind], seed=0) for each, kind in ((GRAPHS, "random"), (rings, "scaffold"))
    ]
    assert [[len(part) for part in parts(split)] for split in shares] == [[48, 12, 0], [48, 6, 6]]


def test_default_split():
    molecules = dataclasses.replace(UNCLASSED, kind="molecules", smiles=("C",) * 60)
    packed = dataclasses.replace(molecules, smiles=())
    grouped = dataclasses.replace(packed, groups=np.arange(60) // 3)
    kinds = [default_split(each) for each in (GRAPHS, UNCLASSED, molecules, packed, grouped)]
    assert kinds == ["random", "random", "scaffold", "random", "scaffold"]
    notices = [split_notice(each, None) for each in (GRAPHS, UNCLASSED, molecules, packed, grouped)]
    name = packed.name
    assert [each is None for each in notices] == [True, True, True, False, True]
    with_test = split_notice(packed, 0.1)
    for each in (notices[3], with_test):
        assert_mentions(each, name, "SMILES", "random", "--scaffolds")
    assert "test" in notices[3]
    assert "test" not in with_test
    assert re.search(r"\brandom\b", with_test)
    assert set(with_test.replace(".", "").split()) < set(notices[3].replace(".", "").split())


@pytest.mark.parametrize("kind", ["molecules", "ogb_molecules"])
def test_stored_groups_replace_scaffolds(kind):
    groups = np.arange(60) % 20
    split = split_graphs(dataclasses.replace(UNCLASSED, kind=kind, groups=groups), "scaffold", 0.1, 0.1, seed=0)
    parts = [set(groups[part]) for part in (split.train, split.validation, split.test)]
    assert [len(part) for part in parts] == [16, 2, 2]
    assert set.union(*parts) == set(range(20))


@pytest.mark.parametrize(
    ("dataset", "given", "values"),
    [
        (GRAPHS, ("scafold", 0.1, 0.1), ["'scafold'", "'scaffold'"]),
        (GRAPHS, ("scaffold", 0.1, 0.1), [GRAPHS.name, "scaffold", "molecules", "random"]),
        (
            dataclasses.replace(GRAPHS, kind="molecules"),
            ("scaffold", 0.1, 0.1),
            [GRAPHS.name, "scaffold", "SMILES", "random"],
        ),
        (GRAPHS, ("random", 0.4, 0.6), ["test", 0.6, 0.4]),
        (GRAPHS, ("random", 0.4, -0.1), ["test", -0.1]),
        (UNCLASSED.subset(np.arange(2)), ("random", 0.2, 0.0), [UNCLASSED.name, "labelled", 3, 2]),
        (UNCLASSED.subset(np.arange(3)), ("random", 0.3, 0.3), [UNCLASSED.name, "labelled", 3, 1]),
    ],
)
def test_impossible_splits_are_rejected(dataset, given, values):
    with refused(*values):
        split_graphs(dataset, *given, seed=0)


@pytest.mark.parametrize("kind", ["random", "scaffold"])
@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -0.1, float("nan")])
def test_invalid_validation_share_of_a_split_is_rejected(kind, share):
    molecules = dataclasses.replace(UNCLASSED, kind="molecules", groups=np.arange(60))
    with refused("split", "validation_share", share) as info:
        split_graphs(molecules, kind, share, 0.0, seed=0)
    assert "test_share" not in str(info.value)


def test_too_few_scaffolds_are_rejected():
    pytest.importorskip("rdkit")
    with refused(8, "labelled", "scaffold", 0, "random"):
        split_graphs(read(RINGS[:8]), "scaffold", 0.1, 0.1, seed=0)


@pytest.mark.parametrize("text", ["c1" + "c" * 41_998 + "1", "[#119]", ""])
def test_scaffolds_of_molecules_that_rdkit_cannot_process(text):
    """The SMILES of a packed file are not those of its graphs; RDKit crashes on the first of these."""
    pytest.importorskip("rdkit")
    with pytest.raises(UserError, match="molecule 1"):
        scaffolds(["c1ccccc1", text])
