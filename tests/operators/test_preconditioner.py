"""The operator that replaces the primal step: its bound, and what it inverts."""

import numpy as np
import pytest

from pfb.graph.imaging import MARGIN
from pfb.graph.imaging import _preconditioner as scaled
from pfb.operators.hessian import PsfHessian, VisibilityHessian
from pfb.operators.measurement import Gridder
from pfb.operators.preconditioner import Preconditioner
from pfb.testing import check_adjoint
from pfb.types import Visibilities
from tests.operators.bands import wsum

SINGLE = 50 * np.finfo("f4").eps
"""Of an operator that works in single precision."""


def matrix_of(op):
    units = np.eye(int(np.prod(op.domain))).reshape(-1, *op.domain)
    return np.stack([op.dot(unit).ravel() for unit in units], axis=1)


def convolution(shape, oversize, rng):
    """Of a PSF with a main lobe and sidelobes, on a grid of `oversize` times the image."""
    padded = tuple(int(oversize * n) for n in shape)
    u, v = (np.fft.fftfreq(n)[:, None] for n in padded)
    density = np.exp(-((u / 0.1) ** 2) - (v.T / 0.2) ** 2) * rng.uniform(0, 1, padded)
    return PsfHessian(np.fft.fftshift(np.fft.fft2(density).real), shape, 2.0, eta=1e-3)


def observed(shape, oversize, rng, eta=1e-3):
    """The convolution and the Hessian of a sparse array with a large w, seen on a wide field."""
    uvw = rng.normal(0, 1, (60, 3)) * [6, 6, 40]
    weight = rng.uniform(0, 2, (60, 2)) * (rng.random((60, 2)) > 0.2)
    band = (Visibilities(uvw, np.array([1.0e9, 1.2e9]), np.zeros(weight.shape, complex), weight),)
    gridder = Gridder(shape, 8e-3, epsilon=1e-7)
    psf = gridder.psf(band, tuple(int(oversize * n) for n in shape))
    return PsfHessian(psf, shape, wsum(band), eta=eta), VisibilityHessian(band, gridder, wsum(band), eta=eta)


def eigenvalues(t, hessian, gamma, shift):
    """Of T (H / (2 gamma) + s), which are real."""
    size = int(np.prod(t.domain))
    return np.linalg.eigvals(matrix_of(t) @ (matrix_of(hessian) / (2 * gamma) + shift * np.eye(size))).real


@pytest.mark.parametrize("shift", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
@pytest.mark.parametrize("oversize", [1.0, 1.5, 2.0])
class TestTheBoundOfTheIterationHoldsStrictly:
    """T^-1 - s > H / (2 gamma): every eigenvalue of T (H / (2 gamma) + s) is below one (Condat 2013), and not far below."""

    @pytest.mark.parametrize("shape", [(10, 9), (7, 7), (1, 8)], ids=str)
    def test_for_the_convolution(self, shape, oversize, gamma, shift, rng):
        h = convolution(shape, oversize, rng)
        assert 0.9 < eigenvalues(scaled(h, h, gamma, shift), h, gamma, shift).max() < 1

    @pytest.mark.parametrize("shape", [(12, 10), (9, 11)], ids=str)
    def test_for_the_hessian_through_visibilities(self, shape, oversize, gamma, shift, rng):
        """Which the convolution does not know: it has the w-term, and edges that do not wrap around."""
        psf, h = observed(shape, oversize, rng)
        assert 0.9 < eigenvalues(scaled(psf, h, gamma, shift), h, gamma, shift).max() < 1


def test_it_inverts_the_hessian_where_nothing_is_padded_and_neighbours_are_alike():
    """A transfer function that is constant is inverted exactly: H = (1 + eta), T = gamma / (1 + eta + gamma s)."""
    psf = np.zeros((8, 6))
    psf[4, 3] = 2.0
    t = Preconditioner(PsfHessian(psf, (8, 6), 2.0, eta=0.25), 0.5, 0.3)
    np.testing.assert_allclose(matrix_of(t), np.eye(48) * 0.5 / (1.25 + 0.5 * 0.3), rtol=0, atol=SINGLE)


def test_it_is_the_convolution_that_defines_it(rng):
    """Circulant where nothing is padded: a division in the Fourier plane, by the largest of nine cells."""
    shape, gamma, shift, scale = (8, 7), 0.7, 0.2, 1.5
    h = convolution(shape, 1.0, rng)
    whole = np.abs(np.fft.fft2(h.dot(np.eye(1, 56).reshape(shape)) - h.eta * np.eye(1, 56).reshape(shape)))
    largest = np.max([np.roll(whole, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)], axis=0)
    x = rng.standard_normal(shape)
    expected = np.fft.ifft2(np.fft.fft2(x) / (scale * ((largest + h.eta) / gamma + shift))).real
    found = Preconditioner(h, gamma, shift, scale).dot(x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=SINGLE * np.abs(expected).max())


@pytest.mark.parametrize("oversize", [1.0, 1.4, 2.0])
def test_it_is_symmetric_and_positive(oversize, rng):
    t = Preconditioner(convolution((8, 7), oversize, rng), 1.0, 0.2)
    check_adjoint(t, rng, rtol=SINGLE)
    matrix = matrix_of(t)
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=SINGLE * np.abs(matrix).max())
    values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    # Between those of the transfer function, whose crop it is.
    assert values[0] > 1 / (1.0 * (convolution((8, 7), oversize, rng).bound + 1.0)) / 2
    assert values[-1] < 1 / 0.2


def test_a_large_shift_makes_it_a_plain_step(rng):
    t = Preconditioner(convolution((6, 5), 2.0, rng), 1.0, 1e9, 1.05)
    np.testing.assert_allclose(matrix_of(t), np.eye(30) / (1.05 * 1e9), rtol=0, atol=1e-6 / 1e9)


def test_the_scale_divides(rng):
    h, x = convolution((8, 7), 1.5, rng), rng.standard_normal((8, 7))
    one, four = (Preconditioner(h, 1.0, 0.3, scale).dot(x) for scale in (1.0, 4.0))
    np.testing.assert_allclose(one, 4 * four, rtol=1e-5)


def test_a_band_without_data_takes_plain_steps(rng):
    """Of its eta and the shift alone."""
    h = PsfHessian(np.zeros((12, 10)), (8, 7), 3.0, eta=0.5)
    t = scaled(h, h, 0.5, 0.2)
    np.testing.assert_allclose(matrix_of(t), np.eye(56) / (MARGIN * (0.5 + 0.2)), rtol=0, atol=SINGLE)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_result_has_the_precision_of_the_image(dtype, rng):
    x = rng.standard_normal((8, 7)).astype(dtype)
    before = x.copy()
    t = Preconditioner(convolution((8, 7), 1.5, rng), 1.0, 0.3)
    out = t.dot(x)
    assert out.dtype == dtype
    assert (x == before).all()
    np.testing.assert_array_equal(out, t.dot(x.astype("f4")).astype(dtype))


def test_it_is_the_same_every_time(rng):
    psf, h = observed((8, 8), 1.4, rng)
    x = rng.standard_normal((8, 8))
    np.testing.assert_array_equal(scaled(psf, h, 1.0, 0.3).dot(x), scaled(psf, h, 1.0, 0.3).dot(x))
