"""Predicting, weighing and gridding as convolutions, against the samples themselves."""

import numpy as np
import pytest

from pfb.kernels import toeplitz
from pfb.kernels.sampling import sampling
from pfb.kernels.toeplitz import Toeplitz
from pfb.kernels.transform import Transform

CELL = 6e-3
EPSILON = 1e-4
SHAPES = [(24, 24), (20, 31), (13, 17), (1, 19), (23, 1), (1, 1), (300, 190)]


def samples(shape, rng, w_accuracy=0.3, n=200):
    """Short baselines with long w, and what they weigh."""
    size = CELL if max(shape) < 100 else CELL / 8
    uvw = rng.uniform(-20, 20, (3, n)) * CELL / size
    uvw[2] = rng.uniform(0, 400, n)
    weight = rng.uniform(0.1, 1, n).astype("f4") / n
    return sampling(uvw, shape, size, EPSILON, w_accuracy), weight


@pytest.mark.parametrize("w_accuracy", [None, 0.3, 1e-3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_gridding_after_weighing_after_predicting(shape, w_accuracy, rng):
    """The same approximation of the w-term, and the same resampling, on both ways."""
    seen, weight = samples(shape, rng, w_accuracy)
    op, transform = Toeplitz(seen, weight, EPSILON, 1), Transform(seen, EPSILON, 1)
    corner = np.eye(1, shape[0] * shape[1], shape[1] - 1, dtype="f4").reshape(shape)
    for x in (rng.standard_normal(shape).astype("f4"), corner):
        before = x.copy()
        found, expected = op.dot(x), transform.grid(transform.predict(x) * weight)
        assert found.dtype == np.float32
        assert np.linalg.norm(found - expected) < 10 * EPSILON * np.linalg.norm(expected)
        assert (x == before).all()


def test_some_of_these_have_coarser_pixels_and_several_screens(rng):
    assert samples(SHAPES[-1], rng)[0].decimation.shape[0] < 0.7 * SHAPES[-1][0]
    assert samples(SHAPES[0], rng)[0].term.npair > 1


@pytest.mark.parametrize("shape", [(24, 24), (13, 17)], ids=str)
def test_no_eigenvalue_is_negative(shape, rng):
    """Although the matrices at single frequencies are, where a PSF is cut off at its edge."""
    seen, weight = samples(shape, rng)
    op = Toeplitz(seen, weight, 1e-5, 1)
    matrix = np.stack([op.dot(x.reshape(shape)).ravel() for x in np.eye(shape[0] * shape[1], dtype="f4")])
    largest = np.abs(matrix).max()
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-6 * largest)
    values = np.linalg.eigvalsh(matrix.astype("f8") / 2 + matrix.T / 2)
    assert values[0] > -1e-6 * values[-1]


def test_threads_do_not_change_it(rng):
    seen, weight = samples((40, 50), rng)
    x = rng.standard_normal((40, 50)).astype("f4")
    np.testing.assert_allclose(Toeplitz(seen, weight, 1e-5, 2).dot(x), Toeplitz(seen, weight, 1e-5, 1).dot(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_grid_holds_a_linear_convolution(shape):
    grid = toeplitz.padded(shape)
    assert all(2 * n - 1 <= m <= 2.5 * n + 8 for n, m in zip(shape, grid, strict=True))


def test_its_size_is_known_before(rng):
    seen, weight = samples((60, 50), rng)
    op = Toeplitz(seen, weight, EPSILON, 1)
    kept = op._couplings.nbytes + op._screens.nbytes
    assert kept <= toeplitz.size(seen) < 1.5 * kept
