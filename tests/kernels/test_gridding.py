"""The gridder against the sums that define it, and the place of a source in the image."""

from itertools import product

import numpy as np
import pytest

from pfb.kernels.gridding import degrid, good_even, grid, grid_psf
from pfb.types import LIGHTSPEED

CELL = 4e-3  # a field of several degrees: the w-term turns the phase by whole turns
FREQ = np.array([0.9e9, 1.0e9, 1.15e9])
SHAPES = [(16, 16), (17, 16), (15, 22), (13, 11), (1, 9), (1, 1)]
QUADRANTS = list(product([1, -1], [1, -1]))


def directions(shape, cell):
    """Direction cosines l (East) and m (North) of every pixel, and n - 1."""
    l = -(np.arange(shape[0]) - shape[0] // 2)[:, None] * cell
    m = (np.arange(shape[1]) - shape[1] // 2)[None, :] * cell
    l, m = np.broadcast_arrays(l, m)
    return l, m, np.sqrt(1 - l**2 - m**2) - 1


def phases(uvw, freq, l, m, n1):
    """Of a measurement set, 2 pi nu / c (u l + v m + w (n - 1)): (row, chan, *shape of l)."""
    delay = np.tensordot(uvw, np.stack([l, m, n1]), axes=1)
    return 2 * np.pi / LIGHTSPEED * np.einsum("c,r...->rc...", freq, delay)


def image_by_dft(uvw, freq, vis, weight, shape, cell):
    turned = np.exp(-1j * phases(uvw, freq, *directions(shape, cell)))
    return np.einsum("rc,rc,rcxy->xy", weight, vis, turned).real


def visibilities_by_dft(uvw, freq, image, cell):
    return np.einsum("xy,rcxy->rc", image, np.exp(1j * phases(uvw, freq, *directions(image.shape, cell))))


@pytest.fixture
def samples(rng):
    """The uvw, visibilities and weights of 40 rows and three channels; a fifth has weight zero."""
    uvw = rng.uniform(-30, 30, (40, 3))
    vis = rng.standard_normal((40, 3)) + 1j * rng.standard_normal((40, 3))
    weight = rng.uniform(0.5, 2, (40, 3)) * (rng.random((40, 3)) > 0.2)
    return uvw, np.where(weight > 0, vis, 0), weight


def scale(vis, weight):
    """What the accuracy of an image is relative to: the norm of the weighted samples."""
    return np.linalg.norm(weight * vis)


# Against the definition


@pytest.mark.parametrize("epsilon", [1e-5, 1e-10])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_grid_is_the_sum_that_defines_it(shape, epsilon, samples):
    uvw, vis, weight = samples
    image = grid(uvw, FREQ, vis, weight, shape=shape, cell=CELL, epsilon=epsilon)
    expected = image_by_dft(uvw, FREQ, vis, weight, shape, CELL)
    assert image.shape == shape
    assert image.dtype == np.float64
    assert image.flags.c_contiguous
    # The gridder bounds the rms over a full set; ten times that for a few pixels.
    np.testing.assert_allclose(image, expected, rtol=0, atol=10 * epsilon * scale(vis, weight))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_degrid_is_the_sum_that_defines_it(shape, samples, rng):
    image = rng.standard_normal(shape)
    vis = degrid(samples[0], FREQ, image, cell=CELL, epsilon=1e-10)
    expected = visibilities_by_dft(samples[0], FREQ, image, CELL)
    assert vis.dtype == np.complex128
    np.testing.assert_allclose(vis, expected, rtol=0, atol=1e-9 * np.linalg.norm(image))


def test_the_default_accuracy(samples, rng):
    uvw, vis, weight = samples
    image = grid(uvw, FREQ, vis, weight, shape=(15, 22), cell=CELL)
    expected = image_by_dft(uvw, FREQ, vis, weight, (15, 22), CELL)
    assert np.abs(image - expected).max() < 1e-6 * scale(vis, weight)


def test_the_w_term_matters_here_and_can_be_left_out(samples):
    uvw, vis, weight = samples
    options = dict(shape=(16, 16), cell=CELL, epsilon=1e-10)
    flat = grid(uvw, FREQ, vis, weight, wgridding=False, **options)
    expected = image_by_dft(uvw * [1, 1, 0], FREQ, vis, weight, (16, 16), CELL)
    np.testing.assert_allclose(flat, expected, rtol=0, atol=1e-9 * scale(vis, weight))
    assert np.abs(flat - grid(uvw, FREQ, vis, weight, **options)).max() > 1e-3 * scale(vis, weight)


def test_single_precision_stays_single(samples, rng):
    uvw, vis, weight = samples
    image = grid(uvw, FREQ, vis.astype("c8"), weight, shape=(15, 22), cell=CELL, epsilon=1e-4)
    assert image.dtype == np.float32
    expected = image_by_dft(uvw, FREQ, vis, weight, (15, 22), CELL)
    np.testing.assert_allclose(image, expected, rtol=0, atol=1e-3 * scale(vis, weight))
    assert degrid(uvw, FREQ, image, cell=CELL, epsilon=1e-4).dtype == np.complex64


def test_an_odd_image_is_the_middle_of_an_even_one(samples):
    uvw, vis, weight = samples
    odd = grid(uvw, FREQ, vis, weight, shape=(15, 21), cell=CELL, epsilon=1e-10)
    even = grid(uvw, FREQ, vis, weight, shape=(16, 24), cell=CELL, epsilon=1e-10)
    # Pixels n // 2 coincide: 8 - 7 in x, 12 - 10 in y.
    np.testing.assert_allclose(odd, even[1:16, 2:23], rtol=0, atol=1e-9 * scale(vis, weight))


def test_more_threads_change_the_last_bits_only(samples):
    uvw, vis, weight = samples
    one, two = (grid(uvw, FREQ, vis, weight, shape=(16, 16), cell=CELL, nthreads=n) for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-12 * scale(vis, weight))


# Where a source lies


def gaussian_coverage(beam, cell):
    """Samples whose PSF is a Gaussian of standard deviation `beam` pixels: a lattice in one half of the uv-plane."""
    spread = LIGHTSPEED / FREQ[1] / (2 * np.pi * beam * cell)
    u, v = np.meshgrid(np.linspace(-5, 5, 41) * spread, np.linspace(0, 5, 21) * spread)
    uvw = np.stack([u.ravel(), v.ravel(), 0 * u.ravel()], axis=1)
    weight = np.exp(-0.5 * (uvw**2).sum(axis=1) / spread**2)
    weight[uvw[:, 1] == 0] /= 2  # their conjugates are there, too
    return uvw, weight[:, None]


def peak_position(image):
    """Sub-pixel maximum by a parabola through the logarithms, exact for a Gaussian."""
    i, j = np.unravel_index(image.argmax(), image.shape)
    across, along = np.log(image[i - 1 : i + 2, j]), np.log(image[i, j - 1 : j + 2])
    return tuple(c + (a[0] - a[2]) / (2 * (a[0] - 2 * a[1] + a[2])) for c, a in ((i, across), (j, along)))


@pytest.mark.parametrize("quadrant", QUADRANTS, ids=str)
@pytest.mark.parametrize("shape", [(48, 48), (47, 49), (50, 53)], ids=str)
def test_a_source_lies_where_the_conventions_say(shape, quadrant):
    cell = 1e-5
    uvw, weight = gaussian_coverage(3.0, cell)
    east, north = quadrant[0] * 6.3 * cell, quadrant[1] * 9.8 * cell  # not on a pixel
    vis = np.exp(2j * np.pi * FREQ[1] / LIGHTSPEED * (uvw[:, :1] * east + uvw[:, 1:2] * north))
    image = grid(uvw, FREQ[1:2], vis, weight, shape=shape, cell=cell)
    x, y = peak_position(image)
    assert x == pytest.approx(shape[0] // 2 - east / cell, abs=0.01)
    assert y == pytest.approx(shape[1] // 2 + north / cell, abs=0.01)


@pytest.mark.parametrize("quadrant", QUADRANTS, ids=str)
@pytest.mark.parametrize("shape", [(16, 16), (17, 13)], ids=str)
def test_a_pixel_predicts_the_source_at_its_place(shape, quadrant, samples):
    image = np.zeros(shape)
    x, y = shape[0] // 2 - 5 * quadrant[0], shape[1] // 2 + 4 * quadrant[1]
    image[x, y] = 2.5
    l, m = 5 * quadrant[0] * CELL, 4 * quadrant[1] * CELL
    expected = 2.5 * np.exp(1j * phases(samples[0], FREQ, l, m, np.sqrt(1 - l**2 - m**2) - 1))
    np.testing.assert_allclose(degrid(samples[0], FREQ, image, cell=CELL, epsilon=1e-10), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", [(16, 16), (17, 13)], ids=str)
def test_the_psf_peaks_at_the_centre_with_the_sum_of_the_weights(shape, samples):
    uvw, _, weight = samples
    psf = grid_psf(uvw, FREQ, weight, shape=shape, cell=CELL, epsilon=1e-10)
    centre = shape[0] // 2, shape[1] // 2
    assert np.unravel_index(psf.argmax(), shape) == centre
    assert psf[centre] == pytest.approx(weight.sum(), rel=1e-9)
    expected = image_by_dft(uvw, FREQ, np.ones(weight.shape), weight, shape, CELL)
    np.testing.assert_allclose(psf, expected, rtol=0, atol=1e-9 * np.linalg.norm(weight))


# What is missing or tiny


def test_samples_of_weight_zero_are_as_if_absent(samples):
    uvw, vis, weight = samples
    weight[::3] = 0
    vis = np.where(weight > 0, vis, 0)
    kept = weight.any(axis=1)
    options = dict(shape=(15, 16), cell=CELL, epsilon=1e-10)
    whole = grid(uvw, FREQ, vis, weight, **options)
    part = grid(uvw[kept], FREQ, vis[kept], weight[kept], **options)
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(whole, part, rtol=0, atol=1e-9 * scale(vis, weight))


def test_samples_of_weight_zero_are_not_predicted(samples, rng):
    uvw, _, weight = samples
    image = rng.standard_normal((15, 16))
    whole = degrid(uvw, FREQ, image, cell=CELL)
    masked = degrid(uvw, FREQ, image, weight=weight, cell=CELL)
    assert not masked[weight == 0].any()
    np.testing.assert_allclose(masked, np.where(weight > 0, whole, 0), rtol=0, atol=1e-6 * np.linalg.norm(image))


@pytest.mark.parametrize("rows", [0, 5])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_an_empty_band_is_zero(rows, dtype):
    uvw, nothing = np.ones((rows, 3)), np.zeros((rows, 3))
    image = grid(uvw, FREQ, nothing.astype(dtype), nothing, shape=(6, 5), cell=CELL, epsilon=1e-4)
    assert image.shape == (6, 5)
    assert image.dtype == np.dtype(dtype).type(0).real.dtype
    assert not image.any()
    assert not grid_psf(uvw, FREQ, nothing, shape=(6, 5), cell=CELL).any()
    predicted = degrid(uvw, FREQ, np.ones((6, 5)), weight=nothing, cell=CELL)
    assert predicted.shape == (rows, 3)
    assert not predicted.any()


@pytest.mark.parametrize("cell", [4.8e-12, 1e-9, 6.2e-8, 6.3e-8], ids="{:g}".format)
def test_tiny_fields_are_finite_and_right(cell, samples, rng):
    """One microarcsecond and more; at a width of a microradian the w-term is switched on."""
    _, vis, weight = samples
    uvw = rng.uniform(-1, 1, (40, 3)) * 0.1 / cell  # resolves the field, whatever its size
    image = grid(uvw, FREQ, vis, weight, shape=(16, 16), cell=cell, epsilon=1e-7)
    expected = image_by_dft(uvw, FREQ, vis, weight, (16, 16), cell)
    np.testing.assert_allclose(image, expected, rtol=0, atol=1e-5 * scale(vis, weight))
    assert np.isfinite(degrid(uvw, FREQ, expected, cell=cell)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 17, 97, 1000, 1021])
def test_good_sizes_are_even_fast_and_just_large_enough(n):
    def fast(size):
        for p in (2, 3, 5):  # of a real transform
            while size % p == 0:
                size //= p
        return size == 1

    size = good_even(n)
    assert size >= n
    assert size % 2 == 0
    assert fast(size // 2)
    assert not any(fast(k // 2) for k in range(n + n % 2, size, 2))


@pytest.mark.parametrize("shape", [(33, 40), (16, 16)], ids=str)
def test_an_image_off_the_phase_centre_is_the_direct_sum(shape, rng):
    uvw, freq = 2000 * rng.standard_normal((40, 3)), np.array([1.0e9, 1.3e9])
    cell, centre = 2e-5, (0.011, -0.02)
    image = np.zeros(shape)
    x, y, flux = np.array([3, 15, 8]), np.array([5, 1, 15]), np.array([1.0, -2.0, 0.5])
    image[x, y] = flux
    l, m = centre[0] - (x - shape[0] // 2) * cell, centre[1] + (y - shape[1] // 2) * cell
    direction = np.stack([l, m, np.sqrt(1 - l**2 - m**2) - 1])
    expected = np.exp(2j * np.pi / 299792458.0 * freq[None, :, None] * (uvw @ direction)[:, None, :]) @ flux
    np.testing.assert_allclose(degrid(uvw, freq, image, cell=cell, epsilon=1e-10, centre=centre), expected, atol=1e-8)
