import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from joao.kernels.svm_dual import SvmProblems, solve_duals

C_VALUES = (1e-3, 0.1, 1.0, 10.0, 1000.0)


def clouds(seed, size, overlap=0.7):
    """Points of two classes that overlap, and their kernel as libsvm keeps it, in 32 bits."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(size, 4))
    classes = (x[:, 0] + overlap * draw.normal(size=size) > 0).astype(int)
    distances = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    return np.exp(-distances / 4).astype(np.float32).astype(np.float64), classes


def problems_of(given, c_values=C_VALUES):
    """A machine for each C and kernel; libsvm takes the rows of the first class first."""
    size = max(len(classes) for _, classes in given)
    kernels, rows = torch.zeros(len(given), size, size), torch.zeros(len(given), size, dtype=torch.long)
    sign = torch.zeros(len(given), size, dtype=torch.float64)
    for number, (kernel, classes) in enumerate(given):
        order, own = np.argsort(classes, kind="stable"), len(classes)
        kernels[number, :own, :own] = torch.from_numpy(kernel)
        rows[number, :own] = torch.from_numpy(order)
        sign[number, :own] = torch.from_numpy(np.where(classes[order] == 0, 1.0, -1.0))
    many = len(c_values)
    return SvmProblems(
        kernels,
        torch.arange(len(given)).repeat_interleave(many),
        rows.repeat_interleave(many, dim=0),
        sign.repeat_interleave(many, dim=0),
        torch.tensor(c_values, dtype=torch.float64).repeat(len(given)),
    )


def test_decisions_match_libsvm():
    given = [clouds(0, 60), clouds(1, 45, overlap=0.1)]
    problems = problems_of(given)
    coefficients, offsets = solve_duals(problems)
    for own, c in enumerate(problems.bound.tolist()):
        kernel, classes = given[problems.matrix[own]]
        rows, found = problems.rows[own, : len(classes)].numpy(), np.zeros(len(classes))
        found[rows] = coefficients[own, : len(classes)].numpy()
        assert not coefficients[own, len(classes) :].any()
        machine = SVC(kernel="precomputed", C=c, tol=1e-6).fit(kernel, classes)
        # There, positive is for the second class. Both stop within a tolerance: ours is 0.001.
        np.testing.assert_allclose(kernel @ found - float(offsets[own]), -machine.decision_function(kernel), atol=3e-3)


def test_solutions_meet_the_conditions_of_optimality():
    given = [clouds(2, 50)]
    problems = problems_of(given)
    coefficients, offsets = solve_duals(problems)
    kernel, classes = given[0]
    rows = problems.rows[0].numpy()
    y = np.where(classes[rows] == 0, 1.0, -1.0)
    for values, offset, c in zip(coefficients.numpy(), offsets.tolist(), problems.bound.tolist(), strict=True):
        alpha = values * y
        assert alpha.min() >= 0
        assert alpha.max() <= c
        assert abs(values.sum()) < 1e-9 * c
        margin = y * (kernel[np.ix_(rows, rows)] @ values - offset)
        assert margin[alpha == 0].min(initial=1.0) > 1 - 2e-3
        assert margin[alpha == c].max(initial=1.0) < 1 + 2e-3
        np.testing.assert_allclose(margin[(alpha > 0) & (alpha < c)], 1.0, atol=2e-3)


def test_offset_is_the_midpoint_if_all_rows_are_at_a_bound():
    kernel, classes = np.eye(4), np.array([0, 0, 1, 1])
    coefficients, offsets = solve_duals(problems_of([(kernel, classes)], (0.5,)))
    assert coefficients.tolist() == [[0.5, 0.5, -0.5, -0.5]]
    assert offsets.tolist() == [0.0]
    coefficients, offsets = solve_duals(problems_of([(kernel[:3, :3], classes[:3])], (0.25,)))
    machine = SVC(kernel="precomputed", C=0.25).fit(kernel[:3, :3], classes[:3])
    assert float(offsets[0]) == pytest.approx(machine.intercept_[0], abs=1e-12)


def test_solver_stops_on_equal_rows_of_both_classes():
    kernel, classes = np.ones((6, 6)), np.array([0, 1, 0, 1, 1, 0])
    coefficients, offsets = solve_duals(problems_of([(kernel, classes)], (1.0, 1000.0)))
    assert coefficients.sum(dim=1).abs().max() < 1e-9
    assert offsets.abs().max() <= 1.0
