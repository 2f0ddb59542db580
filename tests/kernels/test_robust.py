"""The t distribution of residual visibilities against brute force, and its weights against their formula."""

import numpy as np
import pytest
from scipy.stats import multivariate_t

from pfb.kernels import robust
from pfb.kernels.robust import MOST_NU, StudentT, factor, fit, squares


def draw(rng, nu, scale, n=20_000):
    """q of residuals of a t distribution of two dimensions: normal ones over the root of a chi-squared one."""
    normal = rng.standard_normal((n, 2)) * np.sqrt(scale)
    return (normal**2).sum(axis=1) / (rng.chisquare(nu, n) / nu)


def likelihood(q, nu, scale):
    """The mean logarithm of the density, of residuals of unit weight along the real axis."""
    return multivariate_t([0, 0], np.eye(2) * scale, df=nu).logpdf(np.stack([np.sqrt(q), 0 * q], axis=1)).mean()


def test_squares_are_normalised_by_the_natural_weights(rng):
    r, w = rng.standard_normal((4, 3)) + 1j * rng.standard_normal((4, 3)), rng.uniform(0, 2, (4, 3))
    expected = [[w[i, j] * abs(r[i, j]) ** 2 for j in range(3)] for i in range(4)]
    np.testing.assert_allclose(squares(r, w), expected, rtol=1e-14)


def test_the_factor_is_its_formula():
    found = factor(np.array([[0.0, 2.0, 1e9]]), StudentT(3.0, 4.0))
    np.testing.assert_allclose(found, [[5 / 3, 5 / 3.5, 5 / (3 + 0.25e9)]], rtol=1e-14)


def test_the_factor_is_the_pull_of_the_likelihood(rng):
    """The slope of the log density along r is - w factor r / s^2: that of a Gaussian with the weight w factor."""
    nu, scale, step = 2.5, 1.7, 1e-5
    for r in rng.uniform(0.1, 30, 5):
        above, below = (likelihood(np.array([at**2]), nu, scale) for at in (r + step, r - step))
        slope = (above - below) / (2 * step)
        assert slope == pytest.approx(-float(factor(np.array([r**2]), StudentT(nu, scale))[0]) * r / scale, rel=1e-6)


@pytest.mark.parametrize(("nu", "scale"), [(1.0, 1.0), (3.0, 0.2), (8.0, 40.0)])
def test_the_fit_is_the_likeliest_of_a_grid(nu, scale, rng):
    q = draw(rng, nu, scale)
    found = fit([q[:7000], q[7000:]])
    assert (found.nu, found.scale) == (pytest.approx(nu, rel=0.1), pytest.approx(scale, rel=0.05))
    best = likelihood(q, *found)
    for a in (0.8, 0.99, 1.01, 1.25):
        for b in (0.8, 0.99, 1, 1.01, 1.25):
            assert likelihood(q, found.nu * a, found.scale * b) < best
            assert likelihood(q, found.nu * b, found.scale * a) < best


def test_the_scale_for_a_given_nu_is_the_likeliest(rng):
    q = draw(rng, 3.0, 2.0)
    found = fit([q], nu=10.0)
    assert found.nu == 10
    best = likelihood(q, *found)
    assert all(likelihood(q, 10.0, found.scale * b) < best for b in (0.5, 0.99, 1.01, 2))


def test_factors_have_a_mean_of_one(rng):
    q = draw(rng, 2.0, 5.0)
    for nu in (None, 1.0, 30.0):
        assert factor(q, fit([q], nu)).mean() == pytest.approx(1, abs=1e-8)


def test_gaussian_noise_keeps_its_weights(rng):
    q = 1.4 * rng.exponential(2, 20_000)
    found = fit([q])
    assert found.nu > 50
    assert found.scale == pytest.approx(1.4, rel=0.05)
    assert fit([np.full(100, 2.0)]).nu == MOST_NU  # lighter tails than any
    assert np.abs(factor(q, found) - 1).std() < 0.05


def test_outliers_lose_their_weight(rng):
    q = rng.exponential(2, 20_000)
    q[:200] = 10 ** rng.uniform(2.5, 9, 200)
    found = fit([q])
    assert 1.5 < found.nu < 5
    assert factor(q, found)[:200].max() < 0.1
    assert factor(q, found)[200:].mean() > 0.9


def test_many_samples_are_looked_at_in_part(rng, monkeypatch):
    q = draw(rng, 2.0, 5.0)
    whole = fit([q])
    monkeypatch.setattr(robust, "ENOUGH", 5000)
    part = fit([q])
    assert part != whole
    assert part == fit([q])
    assert part == (pytest.approx(whole.nu, rel=0.2), pytest.approx(whole.scale, rel=0.2))


@pytest.mark.parametrize("nu", [None, 2.0])
def test_residuals_that_are_zero_keep_their_weights(nu):
    for samples in ([], [np.zeros(0)], [np.zeros(5)]):
        found = fit(samples, nu)
        assert found.scale == 0
        np.testing.assert_array_equal(factor(np.zeros((2, 3)), found), 1)
    # Mostly zero: what is not is an outlier.
    found = fit([np.array([0.0, 0, 0, 0, 0, 0, 0, 1.0, 2.0])], nu)
    assert np.isfinite(found).all()
    assert found.scale > 0
