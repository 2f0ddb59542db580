"""The projections onto the dual balls against brute force and against their definition."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

from pfb.kernels.prox import (
    inside,
    l21_factor,
    l21_statistic,
    mean21_factor,
    mean21_statistic,
    project,
    split,
)

NBANDS = [1, 2, 4, 5]
PRIORS = ["l21", "mean21"]
STATISTICS = {"l21": l21_statistic, "mean21": mean21_statistic}


def factor(name, statistic, radius, nband):
    return l21_factor(statistic, radius) if name == "l21" else mean21_factor(statistic, radius, nband)


def statistic(name, v):
    """Of (nbasis, nband, ncoefficient)."""
    return STATISTICS[name](v.swapaxes(0, 1))


def projection(name, v, radius):
    """Of (nbasis, nband, ncoefficient), all bands at once."""
    return project(v, factor(name, statistic(name, v), radius, v.shape[1]))


def rotation(n):
    """An orthonormal matrix whose first row is 1 / sqrt(n)."""
    columns = np.eye(n)
    columns[:, 0] = 1
    q = np.linalg.qr(columns)[0].T
    return q * np.sign(q[0, 0])


def norm(name, a):
    """g of one set of bands, by the definition: rotate, then the first component apart from the others."""
    if name == "l21":
        return np.sqrt(sum(x**2 for x in a))
    first, *others = rotation(len(a)) @ a
    return abs(first) + np.sqrt(sum(x**2 for x in others))


def dual_norms(name, u):
    """What the dual ball bounds, by the definition."""
    if name == "l21":
        return [np.linalg.norm(u)]
    first, *others = rotation(len(u)) @ u
    return [abs(first), np.linalg.norm(others)]


@pytest.mark.parametrize("radius", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("nband", NBANDS)
@pytest.mark.parametrize("name", PRIORS)
def test_what_the_projection_leaves_minimises_the_definition(name, nband, radius, rng):
    v = rng.standard_normal(nband)
    cost = lambda a: radius * norm(name, a) + 0.5 * np.sum((a - v) ** 2)
    ours = cost(v - projection(name, v[None, :, None], radius)[0, :, 0])
    starts = [v, np.zeros(nband), np.full(nband, v.mean())]
    options = dict(maxiter=20_000, xatol=1e-10, fatol=1e-12)
    brute = min(minimize(cost, start, method="Nelder-Mead", options=options).fun for start in starts)
    assert ours <= brute + 1e-9


@pytest.mark.parametrize("radius", [0.3, 2.0])
@pytest.mark.parametrize("nband", NBANDS)
@pytest.mark.parametrize("name", PRIORS)
def test_projection_is_the_nearest_point_of_the_dual_ball(name, nband, radius, rng):
    v = 2 * rng.standard_normal((2, nband, 5))
    u = projection(name, v, radius)
    for basis in range(2):
        for c in range(5):
            here, there = u[basis, :, c], v[basis, :, c]
            assert max(dual_norms(name, here)) <= radius * (1 + 1e-12)
            for _ in range(20):  # the ball lies on the far side of the plane through u, at right angles to v - u
                z = rng.standard_normal(nband)
                z *= radius / max(dual_norms(name, z))
                assert (there - here) @ (z - here) <= 1e-12


@pytest.mark.parametrize("name", PRIORS)
def test_a_point_of_the_ball_stays(name, rng):
    v = rng.standard_normal((1, 4, 6))
    v *= 0.999 / max(max(dual_norms(name, v[0, :, c])) for c in range(6))
    np.testing.assert_allclose(projection(name, v, 1.0), v, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", PRIORS)
def test_projecting_twice_changes_nothing_more(name, rng):
    u = projection(name, 3 * rng.standard_normal((2, 5, 7)), 0.7)
    np.testing.assert_allclose(projection(name, u, 0.7), u, rtol=0, atol=1e-14)


@pytest.mark.parametrize("nband", NBANDS)
@pytest.mark.parametrize("name", PRIORS)
def test_the_proximal_map_is_firmly_nonexpansive(name, nband, rng):
    """Hence no step is longer than that of its input: the map of |sum| stretches steps up to 15 times."""
    steps = 10 ** rng.uniform(-3, 1, (400, 1)) * rng.standard_normal((400, nband))
    x = rng.standard_normal((400, nband))
    y = x + steps
    p, q = (v - projection(name, v.T[None], 0.8)[0].T for v in (x, y))
    inner, squared = ((p - q) * (x - y)).sum(axis=1), ((p - q) ** 2).sum(axis=1)
    rounding = 1e-14 * np.sqrt((steps**2).sum(axis=1))
    assert (squared <= inner + rounding).all()
    assert (squared <= (steps**2).sum(axis=1) + rounding).all()


@pytest.mark.parametrize("name", PRIORS)
def test_emission_and_absorption_of_equal_strength_survive(name):
    """Their sum is below the threshold; a map of |sum| would set both bands to zero."""
    v = np.array([5, -4.9, 0, 0])
    p = v - projection(name, v[None, :, None], 1.0)[0, :, 0]
    assert p[0] > 4
    assert p[1] < -4


def test_equal_bands_are_thresholded_as_their_sum_by_mean21():
    """Flat emission s in each of n bands has |m| = sqrt(n) s, and l21 shrinks the same."""
    v = np.full((1, 4, 1), 1.5)
    for name in PRIORS:
        np.testing.assert_allclose(v - projection(name, v, 1.0), 1.5 * (1 - 1 / 3), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PRIORS)
class TestRadius:
    def test_zero(self, name, dtype, rng):
        v = rng.standard_normal((2, 4, 5)).astype(dtype)
        np.testing.assert_array_equal(projection(name, v, 0.0), 0)

    @pytest.mark.parametrize("radius", [1e3, np.inf])
    def test_large(self, name, dtype, radius, rng):
        v = rng.standard_normal((2, 4, 5)).astype(dtype)
        v[:, :, 0] = 0  # of norm zero: radius over norm overflows
        np.testing.assert_array_equal(projection(name, v, radius), v)

    def test_one_per_coefficient(self, name, dtype, rng):
        v = 3 * rng.standard_normal((2, 4, 5)).astype(dtype)
        radius = rng.uniform(0, 2, (2, 5)).astype(dtype)
        radius[0, 0] = 0
        u = projection(name, v, radius)
        assert u.dtype == v.dtype
        for basis in range(2):
            for c in range(5):
                one = projection(name, v[basis : basis + 1, :, c : c + 1], float(radius[basis, c]))
                np.testing.assert_allclose(u[basis, :, c], one[0, :, 0], rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", PRIORS)
def test_nothing_stays_nothing(name):
    u = projection(name, np.zeros((2, 3, 4)), 1.0)
    np.testing.assert_array_equal(u, 0)


# The statistic


@pytest.mark.parametrize("nband", NBANDS)
def test_statistics_are_sums_over_the_bands(nband, rng):
    v = rng.standard_normal((2, nband, 3))
    np.testing.assert_allclose(statistic("l21", v), [(v**2).sum(axis=1)], rtol=1e-14)
    np.testing.assert_allclose(statistic("mean21", v), [v.sum(axis=1), (v**2).sum(axis=1)], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("n", range(2, 40))
def test_the_tree_divides_at_the_largest_power_of_two_below(n):
    powers = [2**k for k in range(7)]
    assert any(a == split(n) and a < n <= b for a, b in pairwise(powers))


@pytest.mark.parametrize("nband", [2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize("name", PRIORS)
def test_bands_may_be_grouped_anyhow_along_the_tree(name, nband, rng):
    v = rng.standard_normal((2, nband, 50)) * 10 ** rng.uniform(-3, 3, (2, nband, 50))
    whole = statistic(name, v)

    def scattered(part):
        """Each branch either in one place, or its two halves elsewhere, added."""
        n = part.shape[1]
        if n == 1 or rng.random() < 0.3:
            return statistic(name, part)
        return scattered(part[:, : split(n)]) + scattered(part[:, split(n) :])

    for _ in range(10):
        np.testing.assert_array_equal(scattered(v), whole)


@pytest.mark.parametrize("name", PRIORS)
def test_a_band_alone_needs_only_the_factor_of_all(name, rng):
    v = rng.standard_normal((2, 5, 6))
    shared = factor(name, statistic(name, v), 0.5, 5)
    apart = np.concatenate([project(v[:, b : b + 1], shared) for b in range(5)], axis=1)
    np.testing.assert_array_equal(apart, projection(name, v, 0.5))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("radius", [0.5, np.linspace(0.4, 0.6, 12).reshape(2, 6)], ids=["one", "each"])
def test_what_is_inside_of_the_ball_is_projected_onto_itself(radius, name, dtype, rng):
    """As soon as one coefficient is beyond, or so near that rounding might matter, the answer is no."""
    limit = np.broadcast_to(radius, (2, 6))
    v = rng.standard_normal((2, 5, 6))
    v *= 0.99 * (limit / np.linalg.norm(v, axis=1))[:, None]
    v = v.astype(dtype)
    assert inside(statistic(name, v), radius)
    np.testing.assert_array_equal(projection(name, v, radius), v)
    for scale in (1 / 0.99, 1.2, 20):
        other = v.copy()
        other[1, :, 4] *= scale
        assert not inside(statistic(name, other), radius)


@pytest.mark.parametrize("name", PRIORS)
def test_a_projection_may_take_the_place_of_its_argument(name, rng):
    v = rng.standard_normal((2, 5, 6))
    expected = projection(name, v, 0.5)
    assert project(v, factor(name, statistic(name, v), 0.5, 5), out=v) is v
    np.testing.assert_array_equal(v, expected)


@pytest.mark.parametrize("name", PRIORS)
def test_inputs_are_not_changed(name, rng):
    v = rng.standard_normal((2, 5, 6))
    before, sums = v.copy(), statistic(name, v)
    kept = sums.copy()
    project(v, factor(name, sums, 0.5, 5))
    np.testing.assert_array_equal(v, before)
    np.testing.assert_array_equal(sums, kept)


def test_rounding_below_zero_of_equal_bands_is_harmless():
    v = np.full((1, 5, 3), 0.1) * np.array([1, 1e3, 1e-3])
    total, squares = statistic("mean21", v)
    assert (squares - total**2 / 5 < 1e-12).all()
    u = projection("mean21", v, 0.01)
    assert np.isfinite(u).all()
    np.testing.assert_allclose(u, np.minimum(v, 0.01 / np.sqrt(5)), rtol=1e-12)
