"""The power method against eigenvalues."""

import numpy as np
import pytest

from pfb.solvers.power import spectral_norm, start_vector

SHAPE = (5, 6)


def operator(matrix):
    return lambda x: (matrix.astype(x.dtype) @ x.ravel()).reshape(x.shape)


@pytest.fixture
def matrix(rng):
    factor = rng.standard_normal((30, 30))
    return factor @ factor.T


def test_estimate_is_the_largest_eigenvalue(matrix):
    largest = np.linalg.eigvalsh(matrix)[-1]
    estimate = spectral_norm(operator(matrix), start_vector(SHAPE), tol=1e-9, maxit=2000)
    assert estimate == pytest.approx(largest, rel=1e-6)


def test_default_estimate_is_within_its_tolerance_and_never_above(matrix):
    largest = np.linalg.eigvalsh(matrix)[-1]
    estimate = spectral_norm(operator(matrix), start_vector(SHAPE))
    assert 0.9 * largest < estimate <= largest * (1 + 1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_a_convolution_is_not_mistaken_for_its_mean(seed):
    """The largest eigenvalues of a Hessian often belong to a few frequencies, and the mean has one of middling size."""
    transfer = np.random.default_rng(seed).uniform(0, 0.1, (64, 33))
    transfer[0, 0], transfer[3, 5] = 0.7, 1.0

    def convolve(x):
        return np.fft.irfft2(transfer * np.fft.rfft2(x), x.shape)

    assert spectral_norm(convolve, start_vector((64, 64))) > 0.98


@pytest.mark.parametrize("maxit", [1, 2, 5, 20])
def test_no_iteration_exceeds_the_norm_and_each_comes_closer(maxit, matrix):
    largest = np.linalg.eigvalsh(matrix)[-1]
    few, more = (spectral_norm(operator(matrix), start_vector(SHAPE), tol=0.0, maxit=n) for n in (maxit, maxit + 1))
    assert few <= more <= largest * (1 + 1e-14)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_estimate_scales_with_the_operator(scale, matrix):
    estimate = spectral_norm(operator(scale * matrix), start_vector(SHAPE))
    assert estimate == pytest.approx(scale * spectral_norm(operator(matrix), start_vector(SHAPE)), rel=1e-10)


def test_diagonal_and_identity_are_exact():
    assert spectral_norm(lambda x: 3 * x, start_vector(SHAPE)) == pytest.approx(3, rel=1e-15)
    diagonal = np.ones(SHAPE)
    diagonal[2, 3] = 7
    assert spectral_norm(lambda x: diagonal * x, start_vector(SHAPE), tol=1e-12) == pytest.approx(7, rel=1e-10)


def test_the_zero_operator_has_norm_zero():
    assert spectral_norm(lambda x: 0 * x, start_vector(SHAPE)) == 0


def test_runs_repeat_to_the_bit(matrix):
    np.random.seed(1)
    first = spectral_norm(operator(matrix), start_vector(SHAPE))
    np.random.seed(2)
    assert spectral_norm(operator(matrix), start_vector(SHAPE)) == first


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_start_is_fixed_and_has_all_frequencies_alike(dtype):
    x = start_vector((40, 30), np.dtype(dtype))
    assert x.dtype == dtype
    np.testing.assert_array_equal(x, start_vector((40, 30), np.dtype(dtype)))
    power = np.abs(np.fft.fft2(x)) ** 2
    assert power[0, 0] < 10 * power.mean()  # a positive vector's is as large as all others together
    assert power.min() > 0


def test_start_is_not_changed(matrix):
    start = start_vector(SHAPE)
    before = start.copy()
    spectral_norm(operator(matrix), start)
    assert (start == before).all()


def test_single_precision(matrix):
    estimate = spectral_norm(operator(matrix), start_vector(SHAPE, np.float32))
    assert estimate == pytest.approx(spectral_norm(operator(matrix), start_vector(SHAPE)), rel=1e-4)
