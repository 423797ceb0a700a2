"""Contract of policies: valid probabilities over pairs, before and after any update."""

import inspect
import re

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from joao.augmentations import AUGMENTATIONS
from joao.policies import POLICIES, MinMax
from tests.messages import refused

POOL = list(AUGMENTATIONS)
SIZE = len(POOL)


@pytest.fixture(params=POLICIES)
def make(request):
    return POLICIES[request.param]


def assert_is_law(p):
    assert p.shape == (SIZE, SIZE)
    assert p.dtype == torch.float64
    assert (p >= 0).all()
    assert p.sum().item() == pytest.approx(1, abs=1e-12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tables=st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=SIZE**2, max_size=SIZE**2), min_size=1, max_size=4
    )
)
def test_probabilities_are_valid_before_and_after_updates(make, tables):
    policy = make(POOL)
    assert_is_law(policy.probabilities)
    for table in tables:
        policy.update(torch.tensor(table).view(SIZE, SIZE))
        assert_is_law(policy.probabilities)


def test_only_differences_of_losses_matter(make, generator):
    losses = torch.rand(SIZE, SIZE, dtype=torch.float64, generator=generator())
    one, other = make(POOL), make(POOL)
    one.update(losses)
    other.update(losses + 1000)
    torch.testing.assert_close(one.probabilities, other.probabilities, rtol=0, atol=1e-11)


def test_probabilities_change_only_if_the_policy_learns(make, generator):
    policy = make(POOL)
    before = policy.probabilities.clone()
    losses = torch.rand(SIZE, SIZE, generator=generator(), requires_grad=True)
    given = losses.detach().clone()
    policy.update(losses)
    assert torch.equal(policy.probabilities, before) != policy.learns
    assert torch.equal(losses, given)
    assert not policy.probabilities.requires_grad


def test_update_does_not_modify_the_previous_table(make, generator):
    policy = make(POOL)
    handed_out = policy.probabilities
    before = handed_out.clone()
    policy.update(torch.rand(SIZE, SIZE, generator=generator()))
    assert torch.equal(handed_out, before)


def test_equal_losses_change_nothing(make):
    policy = make(POOL)
    before = policy.probabilities.clone()
    policy.update(torch.full((SIZE, SIZE), 3.7))
    torch.testing.assert_close(policy.probabilities, before, rtol=0, atol=1e-12)


def test_pairs_are_drawn_with_their_probabilities(make, generator, assert_law):
    policy = make(POOL)
    policy.update(0.01 * torch.rand(SIZE, SIZE, generator=generator(1)))
    pairs = policy.sample(20_000, generator(2))
    assert pairs.shape == (20_000, 2)
    p = policy.probabilities
    law = {(i, j): p[i, j].item() for i in range(SIZE) for j in range(SIZE)}
    assert_law(map(tuple, pairs.tolist()), law)


def test_equal_generators_draw_equal_pairs(make, generator):
    drawn = [make(POOL).sample(50, generator(seed)).tolist() for seed in (3, 3)]
    assert drawn[0] == drawn[1]


def test_sample_without_count_returns_names(make, generator):
    policy = make(dict.fromkeys(POOL))  # a dictionary by name is a pool
    policy.update(torch.rand(SIZE, SIZE, generator=generator()))
    for seed in range(20):
        numbers = policy.sample(1, generator(seed))[0].tolist()
        assert policy.sample(generator=generator(seed)) == tuple(POOL[number] for number in numbers)


def test_sample_without_generator_uses_torchs_global_one(make):
    policy, drawn = make(POOL), []
    for _ in range(2):
        torch.manual_seed(4)
        drawn.append([policy.sample() for _ in range(30)])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 1 or (policy.probabilities == 1).any()


LEARNING = [name for name, policy in POLICIES.items() if policy.learns]
WITH_PRIOR = [name for name in POLICIES if "prior" in inspect.signature(POLICIES[name]).parameters]


@pytest.mark.parametrize("name", LEARNING)
def test_losses_may_be_nested_lists(name, generator):
    losses = torch.rand(SIZE, SIZE, dtype=torch.float64, generator=generator())
    one, other = POLICIES[name](POOL), POLICIES[name](POOL)
    one.update(losses)
    other.update(losses.tolist())
    assert torch.equal(one.probabilities, other.probabilities)


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize(
    ("losses", "values"),
    [
        (torch.zeros(SIZE**2), [SIZE, f"({SIZE**2},)"]),
        (torch.tensor(1.0), [SIZE, "()"]),
        (torch.full((SIZE, SIZE), torch.nan), ["finite"]),
        (torch.full((SIZE, SIZE), torch.inf), ["finite"]),
        ([[1.0], [2.0, 3.0]], [f"{SIZE} x {SIZE}"]),
    ],
)
def test_invalid_losses_are_rejected_and_change_nothing(name, losses, values):
    policy = POLICIES[name](POOL)
    before = policy.probabilities.clone()
    with refused("policy", "losses", *values):
        policy.update(losses)
    assert torch.equal(policy.probabilities, before)


@pytest.mark.parametrize("name", WITH_PRIOR)
def test_prior_of_one_view_is_applied_to_both(name):
    law = [(number + 1) / (SIZE * (SIZE + 1) / 2) for number in range(SIZE)]
    table = [[one * other for other in law] for one in law]
    one, other = POLICIES[name](POOL, prior=law), POLICIES[name](POOL, prior=table)
    torch.testing.assert_close(one.probabilities, other.probabilities, rtol=0, atol=1e-15)
    with refused("policy", "prior"):
        POLICIES[name](POOL, prior=[-0.5, 1.5, *[0.0] * (SIZE - 2)])
    with refused("policy", "prior", SIZE, "(2,)"):
        POLICIES[name](POOL, prior=[0.5, 0.5])


def test_errors_name_the_table_that_is_wrong():
    for error, name in ((lambda: MinMax(POOL, prior=["a"]), "prior"), (lambda: MinMax(POOL).update("a"), "losses")):
        with refused("policy") as info:
            error()
        assert name in re.findall(r"\w+", str(info.value))


def test_empty_pool_is_rejected(make):
    with refused("augmentations", "pool"):
        make([])


def test_names_that_are_not_in_the_pool_are_rejected(make):
    with refused("'nodedrop'", "'node_drop'"):
        make(POOL).indices(["nodedrop"])
    assert make(POOL).indices(POOL[::-1]) == list(range(SIZE))[::-1]
