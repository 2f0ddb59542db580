"""Prediction, dirty images, PSFs and residuals of a band."""

import numpy as np
import pytest

from pfb.operators.measurement import Gridder, Measurement
from pfb.types import LIGHTSPEED, Visibilities
from tests.operators.bands import wsum

SHAPE, CELL = (13, 10), 4e-3
GRIDDER = Gridder(SHAPE, CELL, epsilon=1e-10)


def matrix_of(uvw, freq, shape=SHAPE, cell=CELL):
    """R, by the convention: V = sum_x I exp(+2 pi i nu / c (u l + v m + w (n - 1))), (row, chan, nx, ny)."""
    l = -(np.arange(shape[0]) - shape[0] // 2)[:, None] * cell
    m = (np.arange(shape[1]) - shape[1] // 2)[None, :] * cell
    n1 = np.sqrt(1 - l**2 - m**2) - 1
    u, v, w = (uvw[:, None, None, None, i] * freq[:, None, None] / LIGHTSPEED for i in range(3))
    return np.exp(2j * np.pi * (u * l + v * m + w * n1))


def piece(rng, rows, freq):
    """Samples of random visibilities; some of weight zero."""
    freq = np.asarray(freq)
    size = (rows, freq.size)
    weight = rng.uniform(0.5, 2, size) * (rng.random(size) > 0.2)
    vis = rng.standard_normal(size) + 1j * rng.standard_normal(size)
    return Visibilities(rng.uniform(-30, 30, (rows, 3)), freq, np.where(weight > 0, vis, 0), weight)


@pytest.fixture
def band(rng):
    """Two spectral windows of different size, and a piece without rows."""
    return piece(rng, 20, [0.9e9, 1.0e9, 1.1e9]), piece(rng, 15, [1.3e9]), piece(rng, 0, [1.4e9, 1.5e9])


def dense(band, vis):
    """R^H W vis, by the definition."""
    image = np.zeros(SHAPE)
    for part, v in zip(band, vis, strict=True):
        image += np.einsum("rc,rc,rcxy->xy", part.weight, v, matrix_of(part.uvw, part.freq).conj()).real
    return image


def predict(part, model):
    return np.einsum("xy,rcxy->rc", model, matrix_of(part.uvw, part.freq))


@pytest.fixture
def close(band):
    """Compare images to the accuracy of the gridder."""
    size = np.sqrt(sum(np.linalg.norm(p.weight * p.vis) ** 2 for p in band))
    return lambda a, b, scale=1.0: np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * size * scale)


def test_the_operator_is_the_matrix_that_defines_it(rng):
    part = piece(rng, 20, [0.9e9, 1.1e9])
    op, matrix = Measurement(part.uvw, part.freq, GRIDDER), matrix_of(part.uvw, part.freq)
    assert (op.domain, op.codomain) == (SHAPE, (20, 2))
    x = rng.standard_normal(SHAPE)
    np.testing.assert_allclose(op.dot(x), predict(part, x), rtol=0, atol=1e-8)
    expected = np.einsum("rc,rcxy->xy", part.vis, matrix.conj()).real
    np.testing.assert_allclose(op.hdot(part.vis), expected, rtol=0, atol=1e-8)


def test_dirty_is_the_weighted_sum_over_all_pieces(band, close):
    close(GRIDDER.dirty(band), dense(band, [p.vis for p in band]))


def test_images_of_pieces_add_up(band, close):
    close(GRIDDER.dirty(band), sum(GRIDDER.dirty([p]) for p in band), scale=1e-6)


@pytest.mark.parametrize("shape", [(26, 20), (13, 10), (17, 11)], ids=str)
def test_the_psf_peaks_with_the_sum_of_the_weights(shape, band):
    psf = GRIDDER.psf(band, shape)
    assert psf.shape == shape
    assert np.unravel_index(psf.argmax(), shape) == (shape[0] // 2, shape[1] // 2)
    assert psf.max() == pytest.approx(wsum(band), rel=1e-8)
    expected = sum(np.einsum("rc,rcxy->xy", p.weight, matrix_of(p.uvw, p.freq, shape)).real for p in band)
    np.testing.assert_allclose(psf, expected, rtol=0, atol=1e-7)


def test_residual_is_dirty_less_what_the_model_gives(band, close, rng):
    model = rng.standard_normal(SHAPE)
    vis = [p.vis - predict(p, model) for p in band]
    residual = GRIDDER.residual(band, model).image
    assert residual.dtype == np.float64
    close(residual, dense(band, vis), scale=10)
    close(GRIDDER.residual(band, np.zeros(SHAPE)).image, GRIDDER.dirty(band), scale=1e-6)


def test_residual_of_the_truth_is_nothing(band, rng, close):
    model = rng.standard_normal(SHAPE)
    perfect = [p._replace(vis=np.where(p.weight > 0, predict(p, model), 0)) for p in band]
    close(GRIDDER.residual(perfect, model).image, 0, scale=10)


def test_a_model_in_single_precision_is_predicted_in_double(band, close, rng):
    model = rng.standard_normal(SHAPE).astype("f4")
    close(GRIDDER.residual(band, model).image, GRIDDER.residual(band, model.astype("f8")).image, scale=1e-6)


def test_the_variance_of_a_residual_is_that_of_its_pixels_if_visibilities_are_incoherent(band, rng):
    """The mean square of an image of visibilities whose phases are random; also where the model is not zero."""
    model = rng.standard_normal(SHAPE)
    left = [np.where(p.weight > 0, p.vis - predict(p, model), 0) for p in band]
    squares = []
    for _ in range(300):
        turned = [v * np.exp(2j * np.pi * rng.uniform(size=v.shape)) for v in left]
        squares.append(np.mean(np.square(dense(band, turned))))
    assert GRIDDER.residual(band, model).spread.variance == pytest.approx(np.mean(squares), rel=0.05)


def test_the_input_is_not_changed(band, rng):
    before, model = [(p.vis.copy(), p.weight.copy()) for p in band], rng.standard_normal(SHAPE)
    kept = model.copy()
    GRIDDER.residual(band, model)
    GRIDDER.psf(band, SHAPE)
    assert (model == kept).all()
    for (vis, weight), p in zip(before, band, strict=True):
        assert (p.vis == vis).all()
        assert (p.weight == weight).all()


EMPTY = {
    "no piece": (),
    "no rows": (Visibilities(np.zeros((0, 3)), np.array([1e9]), np.zeros((0, 1), complex), np.zeros((0, 1))),),
    "all flagged": (Visibilities(np.ones((4, 3)), np.array([1e9]), np.zeros((4, 1), complex), np.zeros((4, 1))),),
}


@pytest.mark.parametrize("band", EMPTY.values(), ids=list(EMPTY))
def test_an_empty_band_is_zero(band):
    for image in (GRIDDER.dirty(band), GRIDDER.psf(band, SHAPE), GRIDDER.residual(band, np.ones(SHAPE)).image):
        assert image.shape == SHAPE
        assert not image.any()
