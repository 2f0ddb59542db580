"""Round components of several sizes, against sums over pixels."""

import numpy as np
import pytest

from pfb.errors import ShapeError
from pfb.kernels.scales import automatic_widths, depth_inside, radius, reached, scale_kernel, smooth


@pytest.mark.parametrize("width", [0.0, 0.5, 1.0, 2.5, 4.0, 7.3])
def test_a_kernel_is_what_its_formula_says(width):
    kernel = scale_kernel(width)
    m, a = kernel.shape[0] // 2, radius(width)
    expected = np.zeros_like(kernel)
    for i, j in np.ndindex(kernel.shape):
        r2 = (i - m) ** 2 + (j - m) ** 2
        expected[i, j] = (1 - r2 / a**2) ** 2 if r2 < a**2 else float(r2 == 0)
    np.testing.assert_allclose(kernel, expected / expected.sum(), rtol=1e-12, atol=1e-15)
    assert kernel.sum() == pytest.approx(1)


def test_its_width_is_where_it_has_half_its_maximum():
    kernel = scale_kernel(20.0)
    m = kernel.shape[0] // 2
    assert kernel[m, m + 10] == pytest.approx(kernel[m, m] / 2)


@pytest.mark.parametrize("shape", [(12, 9), (9, 14), (13, 13)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_smoothing_is_a_sum_over_the_kernel(shape, dtype, rng):
    image = rng.standard_normal(shape).astype(dtype)
    before = image.copy()
    widths = [0.0, 2.0, 4.5]
    for width, found in zip(widths, smooth(image, widths), strict=True):
        kernel = scale_kernel(width)
        m = kernel.shape[0] // 2
        expected = np.zeros(shape)
        for (x, y), (i, j) in ((p, k) for p in np.ndindex(shape) for k in np.ndindex(kernel.shape)):
            a, b = x + i - m, y + j - m
            if 0 <= a < shape[0] and 0 <= b < shape[1]:
                expected[x, y] += kernel[i, j] * image[a, b]
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
    assert (image == before).all()


def test_a_scale_larger_than_the_image_is_refused(rng):
    with pytest.raises(ShapeError, match="does not fit an image"):
        smooth(rng.standard_normal((8, 200)), [30.0])


@pytest.mark.parametrize("width", [0.0, 2.0, 4.5])
def test_depth_says_where_a_kernel_fits(width, rng):
    mask = rng.random((16, 13)) < 0.97
    kernel = scale_kernel(width)
    m, a = kernel.shape[0] // 2, radius(width)
    wide = np.zeros((16 + 2 * m, 13 + 2 * m), bool)
    wide[m : m + 16, m : m + 13] = mask
    fits = depth_inside(mask, mask.shape) > a
    for x, y in np.ndindex(mask.shape):
        expected = wide[x : x + 2 * m + 1, y : y + 2 * m + 1][kernel > 0].all()
        assert not fits[x, y] or expected  # nothing ever reaches out...
        # ...and nothing is kept out but by the pixel at the very edge.
        assert fits[x, y] or not expected or depth_inside(mask, mask.shape)[x, y] <= a
    assert (depth_inside(None, (5, 4))[2, 1:3] == 2).all()


def test_where_kernels_reach(rng):
    pixels, width = np.array([[3, 4], [9, 2]]), 3.0
    image = np.zeros((14, 11))
    image[tuple(pixels.T)] = 1
    np.testing.assert_array_equal(reached(pixels, image.shape, width), smooth(image, [width])[0] > 1e-9)
    assert not reached(pixels[:0], image.shape, width).any()


def test_automatic_scales_double_from_the_beam_to_half_the_image():
    widths = automatic_widths(3.0, (200, 260))
    assert widths == (0.0, 3.0, 6.0, 12.0, 24.0, 48.0)
    assert 2 * radius(48.0) <= 100 < 2 * radius(96.0)
    assert automatic_widths(90.0, (100, 100)) == (0.0,)
