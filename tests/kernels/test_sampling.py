"""What samples see of an image."""

import numpy as np
import pytest

from pfb.kernels.decimation import REACH
from pfb.kernels.sampling import highest_frequencies, sampling


def test_the_w_term_moves_frequencies():
    u, v = highest_frequencies(np.array([[1.0, -3.0], [2.0, 1.0]]), np.array([0.0, 2.0]), (10, 20), 1e-2)
    x, y = 0.05 * (1 + REACH), 0.1 * (1 + REACH)
    n = np.sqrt(1 - x**2 - y**2)
    assert (u, v) == pytest.approx(((3 + 2 * x / n) * 1e-2, max(2, 1 + 2 * y / n) * 1e-2))


def test_beyond_the_horizon_nothing_is_left_out():
    assert highest_frequencies(np.zeros((2, 3)), np.ones(3), (400, 400), 5e-3) == (0.5, 0.5)


def test_coordinates_are_cycles_per_coarse_pixel(rng):
    """x runs against l; the second half is opposite to the first."""
    uvw = rng.uniform(-20, 20, (3, 9)) * 8
    uvw[2] = np.abs(uvw[2])
    seen = sampling(uvw, (600, 500), 1e-4, 1e-3, 0.3)
    assert seen.decimation.ratio[0] > 2
    assert seen.cell == pytest.approx(tuple(1e-4 * r for r in seen.decimation.ratio))
    np.testing.assert_allclose(seen.coord[0].T, [uvw[0] * seen.cell[0], -uvw[1] * seen.cell[1]], rtol=1e-6)
    np.testing.assert_array_equal(seen.coord[1], -seen.coord[0])


def test_without_the_w_term_there_is_one_pair_of_screens(rng):
    uvw = rng.uniform(0, 1e4, (3, 9))
    assert sampling(uvw, (60, 50), 1e-3, 1e-3, None).term.npair == 1
    assert sampling(uvw, (60, 50), 1e-3, 1e-3, 0.3).term.npair > 1
