"""The operator that replaces the primal step: its bound, and what it inverts."""

import numpy as np
import pytest

from pfb.operators.hessian import PsfHessian
from pfb.operators.preconditioner import Preconditioner


def matrix_of(op):
    units = np.eye(int(np.prod(op.domain))).reshape(-1, *op.domain)
    return np.stack([op.dot(unit).ravel() for unit in units], axis=1)


def hessian(shape, oversize, rng):
    """Of a PSF with a main lobe and sidelobes, on a grid of `oversize` times the image."""
    padded = tuple(int(oversize * n) for n in shape)
    u, v = (np.fft.fftfreq(n)[:, None] for n in padded)
    density = np.exp(-((u / 0.1) ** 2) - (v.T / 0.2) ** 2) * rng.uniform(0, 1, padded)
    return PsfHessian(np.fft.fftshift(np.fft.fft2(density).real), shape, 2.0, eta=1e-3)


@pytest.mark.parametrize("shift", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
@pytest.mark.parametrize("oversize", [1.0, 1.5, 2.0])
def test_the_bound_of_the_iteration_holds_strictly(oversize, gamma, shift, rng):
    """T^-1 - s > H / (2 gamma): every eigenvalue of T (H / (2 gamma) + s) is below one (Condat 2013)."""
    h = hessian((10, 9), oversize, rng)
    t = Preconditioner(h, gamma, shift)
    matrix = matrix_of(t) @ (matrix_of(h) / (2 * gamma) + shift * np.eye(90))
    largest = np.linalg.eigvals(matrix).real.max()
    assert 0.9 < largest < 1.0


def test_it_is_positive(rng):
    t = Preconditioner(hessian((8, 7), 1.4, rng), 1.0, 0.2)
    assert np.linalg.eigvalsh(matrix_of(t)).min() > 0


def test_a_large_shift_makes_it_a_plain_step(rng):
    t = Preconditioner(hessian((6, 5), 2.0, rng), 1.0, 1e9)
    np.testing.assert_allclose(matrix_of(t), np.eye(30) / (t.scale * 1e9), rtol=0, atol=1e-6 / 1e9)
    assert t.scale == pytest.approx(1.05, rel=1e-6)


def test_it_is_the_same_every_time(rng):
    h = hessian((8, 8), 1.4, rng)
    assert Preconditioner(h, 1.0, 0.3).scale == Preconditioner(h, 1.0, 0.3).scale
