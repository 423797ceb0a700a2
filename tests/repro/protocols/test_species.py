"""Human is the test, every graph is in one part, and a centre's vector stands beside the mean."""

import numpy as np
import pytest
import torch

from repro.protocols.transfer.score import HUMAN, species_split, with_centre
from tests.messages import refused

SPECIES = np.array([3702, HUMAN, 6239, HUMAN, 7227, 4932, HUMAN, 10090, 7955, 3702] * 20)


def test_parts_are_disjoint_complete_and_of_the_right_size():
    split = species_split(SPECIES)
    assert sorted(np.concatenate(split).tolist()) == list(range(200))
    assert [len(part) for part in split] == [119, 21, 30, 30]  # 15 % of 140 others, halves of 60
    assert all((np.diff(part) > 0).all() for part in split)
    for part, human in zip(split, (False, False, True, True), strict=True):
        assert ((SPECIES[part] == HUMAN) == human).all()


def test_parts_depend_only_on_the_seed():
    first, again, other = species_split(SPECIES, 3), species_split(SPECIES, 3), species_split(SPECIES, 4)
    for name in ("train", "validation", "test_easy", "test_hard"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))


def test_every_graph_is_drawn_equally_often(assert_law):
    species = np.array([HUMAN, HUMAN, HUMAN, HUMAN, 1, 1, 2, 2])
    splits = [species_split(species, seed, validation_share=0.25) for seed in range(400)]
    assert_law([int(graph) for split in splits for graph in split.validation], {4: 0.25, 5: 0.25, 6: 0.25, 7: 0.25})
    assert_law(
        [tuple(split.test_hard) for split in splits],
        dict.fromkeys([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], 1 / 6),
    )


def test_few_graphs_give_non_empty_parts():
    assert [len(part) for part in species_split(np.array([1, 2, HUMAN, HUMAN, HUMAN]))] == [1, 1, 1, 2]


@pytest.mark.parametrize(("species", "numbers"), [([1, 2, 3], (0, 3)), ([HUMAN] * 3 + [1], (3, 1))])
def test_missing_species_is_rejected(species, numbers):
    with refused("species", HUMAN, *numbers):
        species_split(np.array(species))


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_invalid_share_is_rejected(share):
    with refused("species", "validation_share", share):
        species_split(SPECIES, validation_share=share)


def test_vector_of_the_centre_is_appended_to_the_mean(make_batch, shapes):
    batch = make_batch([*shapes.values()])
    sizes = batch.nodes_per_graph.tolist()
    centre = torch.tensor([size - 1 for size in sizes])
    made = with_centre(batch.x, batch, centre)
    first = 0
    for graph, size in enumerate(sizes):
        nodes = batch.x[first : first + size]
        torch.testing.assert_close(made[graph], torch.cat([nodes.mean(0), nodes[size - 1]]))
        first += size
