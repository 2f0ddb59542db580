"""Flux brought to other pixels: its sum and centre, and what stays as it was."""

import numpy as np
import pytest

from pfb.kernels.regridding import deposit, split


@pytest.mark.parametrize("shape", [(20, 31), (17, 8)], ids=str)
def test_sum_and_centre_are_conserved(shape, rng):
    x, y = rng.uniform(0, shape[0] - 1, 40), rng.uniform(0, shape[1] - 1, 40)
    flux = rng.standard_normal(40)
    image = deposit(flux, x, y, shape)
    i, j = np.indices(shape)
    for found, expected in ((image.sum(), flux.sum()), ((image * i).sum(), flux @ x), ((image * j).sum(), flux @ y)):
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_one_place_is_divided_by_distance():
    image = deposit(np.array([2.0]), np.array([3.25]), np.array([1.5]), (6, 4))
    expected = np.zeros((6, 4))
    expected[3:5, 1:3] = 2 * np.outer([0.75, 0.25], [0.5, 0.5])
    np.testing.assert_allclose(image, expected)


def test_what_is_aligned_stays_in_one_pixel_and_what_is_off_is_lost():
    at = np.array([2.0 + 1e-6, 5.0 - 1e-9, np.nan, 9.0, -1.0, -0.25, 5.5])
    image = deposit(np.ones(7), at, np.full(7, 1.0), (6, 3))
    expected = np.zeros((6, 3))
    expected[[2, 5], 1] = 1
    # A quarter and a half beyond the middles of the outermost pixels.
    expected[0, 1] = 0.75
    expected[5, 1] += 0.5
    np.testing.assert_allclose(image, expected, atol=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 0.6, 0.75, 1.3, 3.7])
def test_an_even_image_stays_even(ratio):
    parts = split(ratio)
    assert (parts == 1) == (ratio == 1.0)
    steps = (np.arange(parts) + 0.5) / parts - 0.5
    places = (np.arange(-60, 61)[:, None] + steps).ravel() * ratio + 30.2
    x, y = (axis.ravel() for axis in np.meshgrid(places, places))
    image = deposit(np.full(x.size, ratio**2 / parts**2), x, y, (61, 61))[15:45, 15:45]
    np.testing.assert_allclose(image, 1, atol=0.04)
