import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from scipy.optimize import minimize

from joao.policies.min_max import project_onto_simplex

TABLES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30)


def by_bisection(values):
    """Shift ``mu`` until the positive parts sum to 1."""
    low, high = min(values) - 1, max(values)
    for _ in range(200):
        mu = (low + high) / 2
        low, high = (mu, high) if sum(max(v - mu, 0) for v in values) > 1 else (low, mu)
    return [max(v - (low + high) / 2, 0) for v in values]


@given(TABLES)
def test_agrees_with_bisection(values):
    found = project_onto_simplex(torch.tensor(values, dtype=torch.float64))
    assert found.tolist() == pytest.approx(by_bisection(values), abs=1e-10)


@given(TABLES)
def test_satisfies_the_conditions_of_optimality(values):
    b = torch.tensor(values, dtype=torch.float64)
    p = project_onto_simplex(b)
    assert (p >= 0).all()
    assert p.sum().item() == pytest.approx(1, abs=1e-12)
    # one multiplier for all that are positive, and no other entry would gain by becoming so
    mu = (b - p)[p > 0]
    assert mu.max() - mu.min() <= 1e-10
    assert (b[p == 0] <= mu.max() + 1e-10).all()


def test_agrees_with_a_general_solver(generator):
    for seed in range(5):
        b = torch.randn(9, dtype=torch.float64, generator=generator(seed))
        wanted = b.numpy()
        solved = minimize(
            lambda p, wanted=wanted: ((p - wanted) ** 2).sum(),
            [1 / 9] * 9,
            bounds=[(0, 1)] * 9,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            options={"ftol": 1e-14},
        )
        assert project_onto_simplex(b).tolist() == pytest.approx(solved.x.tolist(), abs=1e-5)


def test_hand_computations():
    def projected(*values):
        return project_onto_simplex(torch.tensor(values, dtype=torch.float64)).tolist()

    assert projected(0.65, 0.25, 0.25, 0.25) == pytest.approx([0.55, 0.15, 0.15, 0.15])
    assert projected(2.0, 0.5, -3.0) == pytest.approx([1, 0, 0])
    assert projected(0.9, 0.5, -0.6) == pytest.approx([0.7, 0.3, 0])
    assert projected(-7.0) == [1]


@given(TABLES)
def test_projecting_twice_is_projecting_once(values):
    once = project_onto_simplex(torch.tensor(values, dtype=torch.float64))
    torch.testing.assert_close(project_onto_simplex(once), once, rtol=0, atol=1e-12)


@pytest.mark.parametrize("largest", [1e6, 1e12, 1e17, 1e300])
def test_huge_entries_leave_a_law(largest):
    found = project_onto_simplex(torch.tensor([[largest, 0.0], [largest, -largest]], dtype=torch.float64))
    assert found.tolist() == [[0.5, 0], [0.5, 0]]
