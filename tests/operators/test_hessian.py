"""The convolution with a PSF as the Hessian of a band."""

import numpy as np
import pytest

from pfb.errors import ShapeError
from pfb.operators.hessian import PsfHessian
from pfb.operators.measurement import Gridder, wsum
from pfb.types import Visibilities

SHAPES = [(8, 8), (7, 9), (10, 7)]
CELL = 1e-3
LIGHTSPEED = 299792458.0


def matrix_of(op):
    """The operator applied to every pixel in turn."""
    units = np.eye(int(np.prod(op.domain))).reshape(-1, *op.domain)
    return np.stack([op.dot(unit).ravel() for unit in units], axis=1)


def even_symmetric(shape, rng):
    """A PSF on an even grid whose transform is real and positive: a sum of cosines that fit the grid."""
    spectrum = rng.uniform(0, 1, (shape[0], shape[1]))
    return np.fft.fftshift(np.fft.fft2(spectrum).real)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_convolves_with_a_psf_of_positive_transform(shape, rng):
    """Element (i, j) of the matrix is the PSF at i - j, over wsum, and eta on the diagonal."""
    padded = tuple(2 * n for n in shape)
    psf = even_symmetric(padded, rng)
    expected = np.empty((*shape, *shape))
    for index in np.ndindex(expected.shape):
        x, y, i, j = index
        expected[index] = psf[x - i + padded[0] // 2, y - j + padded[1] // 2]
    size = int(np.prod(shape))
    expected = expected.reshape(size, size) / 3 + 0.25 * np.eye(size)
    np.testing.assert_allclose(matrix_of(PsfHessian(psf, shape, 3.0, eta=0.25)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_gridding_after_degridding_where_the_psf_is_compact(shape, rng):
    """R^H W R / w, of a flat array whose PSF is a Gaussian of 1.5 pixels: nothing is cut off, and its transform is positive."""
    u, v = np.meshgrid(np.linspace(-0.5, 0.5, 41), np.linspace(-0.5, 0.5, 41))  # per pixel
    uvw = np.stack([u.ravel(), v.ravel(), 0 * u.ravel()], axis=1) * LIGHTSPEED / 1e9 / CELL
    weight = np.exp(-0.5 * (2 * np.pi * 1.5) ** 2 * (u**2 + v**2)).reshape(-1, 1)
    band = (Visibilities(uvw, np.array([1e9]), np.zeros(weight.shape, complex), weight),)
    gridder = Gridder(shape, CELL, epsilon=1e-10)
    hessian = PsfHessian(gridder.psf(band, tuple(2 * n for n in shape)), shape, wsum(band))
    x = rng.standard_normal(shape)
    np.testing.assert_allclose(hessian.dot(x), -gridder.residual(band, x) / wsum(band), rtol=0, atol=1e-4)


@pytest.mark.parametrize("padded", [(8, 6), (11, 9), (16, 12)], ids=str)
def test_it_is_symmetric_and_positive_for_any_psf(padded, rng):
    op = PsfHessian(rng.standard_normal(padded), (8, 6), 2.0, eta=0.1)
    matrix = matrix_of(op)
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-14)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] >= 0.1 - 1e-13
    assert values[-1] <= op.bound + 1e-13


def test_the_bound_is_reached_where_nothing_is_padded(rng):
    op = PsfHessian(rng.standard_normal((8, 6)), (8, 6), 2.0, eta=0.1)
    assert np.linalg.eigvalsh(matrix_of(op))[-1] == pytest.approx(op.bound, rel=1e-13)


def test_wsum_is_that_of_all_bands(rng):
    psf, x = rng.standard_normal((16, 12)), rng.standard_normal((8, 6))
    one, four = (PsfHessian(psf, (8, 6), wsum).dot(x) for wsum in (1.0, 4.0))
    np.testing.assert_allclose(one, 4 * four, rtol=1e-13)


def test_eta_is_added_whatever_wsum_is(rng):
    x = rng.standard_normal((8, 6))
    np.testing.assert_allclose(PsfHessian(np.zeros((16, 12)), (8, 6), 4.0, eta=0.5).dot(x), 0.5 * x, rtol=1e-15)


def test_single_precision_images_stay_single_whatever_the_psf(rng):
    psf, x = rng.standard_normal((16, 12)), rng.standard_normal((8, 6)).astype("f4")
    op = PsfHessian(psf, (8, 6), 3.0, eta=0.1)
    assert op.dot(x).dtype == np.float32
    np.testing.assert_allclose(op.dot(x), op.dot(x.astype("f8")), rtol=0, atol=1e-5)


def test_the_psf_is_not_kept_nor_changed(rng):
    psf, x = rng.standard_normal((16, 12)), rng.standard_normal((8, 6))
    before = psf.copy()
    op = PsfHessian(psf, (8, 6), 3.0)
    y = op.dot(x)
    assert (psf == before).all()
    psf[:] = 0
    np.testing.assert_array_equal(op.dot(x), y)


@pytest.mark.parametrize("padded", [(7, 12), (16, 5)], ids=str)
def test_a_psf_smaller_than_the_image_is_refused(padded):
    with pytest.raises(ShapeError, match=r"images of shape \(8, 6\) need one at least as large: .*--psf-oversize"):
        PsfHessian(np.zeros(padded), (8, 6), 1.0)


def test_an_image_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match=r"an image of shape \(8, 6\), got \(6, 8\)"):
        PsfHessian(np.zeros((16, 12)), (8, 6), 1.0).dot(np.zeros((6, 8)))
