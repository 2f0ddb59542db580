"""Residual power by the length of the baseline, against its definition and against noise that was drawn."""

import numpy as np
import pytest

from pfb.kernels.chi_squared import NBIN, expected, octave, power


@pytest.fixture
def drawn(rng):
    """Noise on baselines of 1 m to 10 km, with taper, zero weights, and NaN in what is nowhere used."""
    uvw = rng.standard_normal((3000, 3)) * 10 ** rng.uniform(0, 4, (3000, 1))
    natural = rng.uniform(0.5, 2.0, (3000, 4))
    natural[::7] = 0
    weight = natural * rng.uniform(0.1, 3.0, natural.shape)
    vis = (rng.standard_normal(natural.shape) + 1j * rng.standard_normal(natural.shape)) / np.sqrt(np.maximum(natural, 0.1))
    return uvw, vis, natural, weight


def test_bins_are_octaves_of_the_projected_length():
    lengths = [0, 0.5, 1.9, 2, 3.9, 4, 1000, 1023.9, 1024, 1e12]
    uvw = np.array([[x * 0.6, -x * 0.8, 5e3] for x in lengths])
    assert octave(uvw).tolist() == [0, 0, 0, 1, 1, 2, 9, 9, 10, NBIN - 1]


def test_sums_are_those_of_the_definition(drawn):
    uvw, vis, natural, weight = drawn
    half, taper, square, variance = np.zeros(NBIN), np.zeros(NBIN), np.zeros(NBIN), 0.0
    for row in range(len(uvw)):
        k = int(np.floor(np.log2(max(np.hypot(*uvw[row, :2]), 1))))
        for c in range(4):
            half[k] += weight[row, c] * abs(vis[row, c]) ** 2 / 2
            if natural[row, c]:
                ratio = weight[row, c] / natural[row, c]
                taper[k] += ratio
                square[k] += ratio**2
                variance += weight[row, c] ** 2 / natural[row, c]
    found = expected(uvw, natural, weight)
    np.testing.assert_allclose(power(uvw, vis, weight), half, rtol=1e-12)
    np.testing.assert_allclose(found.taper, taper, rtol=1e-12)
    np.testing.assert_allclose(found.square, square, rtol=1e-12)
    assert found.variance == pytest.approx(variance, rel=1e-12)


def test_noise_has_one_within_what_its_number_allows(drawn):
    uvw, vis, natural, weight = drawn
    found = expected(uvw, natural, weight)
    full = found.square > 0
    deviation = (power(uvw, vis, weight) - found.taper)[full] / np.sqrt(found.square[full])
    assert full.sum() > 10
    assert np.abs(deviation).max() < 4
    assert np.abs(deviation).max() > 0.5


def test_the_variance_is_that_of_a_pixel(rng):
    """Sum W Re(V e) of noise of variance 1 / w."""
    natural, weight = rng.uniform(0.5, 2, (200, 3)), rng.uniform(0, 2, (200, 3))
    draws = rng.standard_normal((4000, 200, 3)) / np.sqrt(natural)
    pixels = (weight * draws).sum(axis=(1, 2))
    assert expected(np.ones((200, 3)), natural, weight).variance == pytest.approx(pixels.var(), rel=0.1)


def test_nothing_is_nothing():
    nothing = np.zeros((0, 3)), np.zeros((0, 2)), np.zeros((0, 2))
    assert expected(*nothing).variance == 0
    assert not power(nothing[0], nothing[1] + 0j, nothing[2]).any()
