from itertools import combinations, permutations

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from joao.core.randomness import (
    derive_seed,
    numpy_generator,
    order_within_groups,
    random_choice,
    random_rank,
    temporary_seed,
    torch_generator,
)

PURPOSES = ["weights", "batches", "views", "policy", "pairs", "evaluation views"]


def test_every_seed_and_purpose_has_a_seed_of_its_own():
    seeds = {derive_seed(seed, purpose) for seed in range(200) for purpose in PURPOSES}
    assert len(seeds) == 200 * len(PURPOSES)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_derived_seeds_never_change():
    # First seven bytes of SHA-256 of "0/views" and "3/weights", worked out with a shell.
    assert derive_seed(0, "views") == int("2358c0023a0b02", 16)
    assert derive_seed(3, "weights") == int("604182e17d9052", 16)


def test_generators_are_functions_of_seed_and_purpose():
    def draws(seed, purpose):
        return torch.rand(4, generator=torch_generator(seed, purpose)).tolist()

    assert draws(1, "views") == draws(1, "views")
    assert len({tuple(draws(seed, purpose)) for seed in (1, 2) for purpose in PURPOSES}) == 2 * len(PURPOSES)
    assert numpy_generator(1, "labels").random() == numpy_generator(1, "labels").random()
    assert numpy_generator(1, "labels").random() != numpy_generator(1, "folds").random()


def test_a_rank_is_a_permutation_inside_each_group(generator):
    sizes = torch.tensor([3, 1, 0, 5, 0, 40])
    groups = torch.repeat_interleave(sizes)
    rank = random_rank(groups, sizes, generator())
    for group, size in enumerate(sizes.tolist()):
        assert sorted(rank[groups == group].tolist()) == list(range(size))
    assert random_rank(groups[:0], sizes[:0], generator()).tolist() == []


def test_every_permutation_is_equally_likely(generator, assert_law):
    copies = 4000
    sizes = torch.full((copies,), 4)
    rank = random_rank(torch.repeat_interleave(sizes), sizes, generator(1)).view(copies, 4)
    assert_law(map(tuple, rank.tolist()), dict.fromkeys(permutations(range(4)), 1 / 24))


@pytest.mark.parametrize("sizes", [[3, 1, 0, 5, 0, 40], [0, 2, 0], [4], []])
def test_a_choice_has_the_wanted_number_of_items_of_each_group(sizes, generator):
    sizes = torch.tensor(sizes, dtype=torch.long)
    groups = torch.repeat_interleave(sizes)
    for wanted in (sizes * 0, sizes // 2, (sizes - 1).clamp(min=0), sizes):
        chosen = random_choice(groups, sizes, wanted, generator())
        assert torch.bincount(groups[chosen], minlength=len(sizes)).tolist() == wanted.tolist()


def test_every_choice_is_equally_likely(generator, assert_law):
    copies = 6000
    sizes = torch.tensor([5, 2]).repeat(copies)
    chosen = random_choice(torch.repeat_interleave(sizes), sizes, torch.tensor([2, 1]).repeat(copies), generator(1))
    outcomes = [tuple(row.nonzero().flatten().tolist()) for row in chosen.view(copies, 7)]
    pairs = combinations(range(5), 2)
    assert_law(outcomes, {(*pair, one): 1 / 20 for pair in pairs for one in (5, 6)})


def test_equal_numbers_are_drawn_again(generator, monkeypatch):
    draws = [torch.tensor([0.5, 0.25, 0.25, 0.75]), torch.tensor([0.5, 0.25, 0.125, 0.75])]
    monkeypatch.setattr(torch, "rand", lambda *_, **__: draws.pop(0).double())
    chosen = random_choice(torch.zeros(4, dtype=torch.long), torch.tensor([4]), torch.tensor([1]), generator())
    assert chosen.tolist() == [False, False, True, False]
    assert not draws


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(-1e6, 1e6)), max_size=40, unique_by=lambda item: item[1]))
def test_order_is_that_of_sorting_by_group_and_value(items):
    items = sorted(items, key=lambda item: item[0])
    groups = torch.tensor([group for group, _ in items], dtype=torch.long)
    values = torch.tensor([value for _, value in items], dtype=torch.float64)
    expected = sorted(range(len(items)), key=lambda place: items[place])
    assert order_within_groups(values, groups).tolist() == expected


def test_order_is_right_with_more_groups_than_a_short_integer_counts(generator):
    groups = torch.arange(2**16 + 10).repeat_interleave(2)
    values = torch.rand(groups.numel(), generator=generator())
    order = order_within_groups(values, groups)
    assert torch.equal(order, torch.from_numpy(np.lexsort((values.numpy(), groups.numpy()))))


def test_seeded_draws_from_a_named_generator_and_leaves_the_global_one_alone(monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", told.append)
    before = torch.get_rng_state()
    with temporary_seed(5, "weights"):
        drawn = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(drawn, torch.rand(3, generator=torch_generator(5, "weights")))
    assert told == []  # generators of GPUs, which are not restored


def test_the_global_generator_is_restored_after_an_error():
    before = torch.get_rng_state()
    try:
        with temporary_seed(5, "weights"):
            torch.rand(3)
            raise KeyError
    except KeyError:
        pass
    assert torch.equal(torch.get_rng_state(), before)
