"""Oracle: power laws with known exponents."""

from dataclasses import asdict

import pytest

from repro.benchmarks.scaling import fit_power_law

SIZES = [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.37, 2.0])
def test_exponent_of_a_power_law(exponent):
    assert fit_power_law(SIZES, [3e-4 * size**exponent for size in SIZES]).exponent == pytest.approx(
        exponent, abs=1e-12
    )


def test_smaller_half_is_ignored():
    values = [1e3, 1e-3, 7.0] + [size**1.5 for size in SIZES[3:]]
    fit = fit_power_law(SIZES, values)
    assert fit.exponent == pytest.approx(1.5)
    assert (fit.smallest, fit.largest) == (8, 64)


def test_three_sizes_are_all_used():
    # logarithms 0, 1, 2 of the sizes and 0, 1, 5 of the values: slope (5 - 0) / 2
    fit = fit_power_law([1, 10, 100], [1, 10, 10**5])
    assert fit.exponent == pytest.approx(2.5)
    assert asdict(fit) == {"exponent": pytest.approx(2.5), "smallest": 1, "largest": 100}


def test_constant_cost_matters_less_at_larger_sizes():
    small, large = ([size * times for size in SIZES] for times in (1, 1000))
    exponents = [fit_power_law(sizes, [100 + size for size in sizes]).exponent for sizes in (small, large)]
    assert exponents[0] < 0.5 < 0.98 < exponents[1] < 1
