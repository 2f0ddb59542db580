"""Images brought to a wider beam, against sums over pixels and another program's beams."""

import numpy as np
import pytest

from pfb.errors import ShapeError
from pfb.kernels.smoothing import Brightness, smooth

NATIVE = np.array([[20.0, 3.0], [3.0, 12.0]])  # squared widths in pixels
TARGET = np.array([[50.0, -6.0], [-6.0, 31.0]])


def gaussian(spread, shape, x0, y0):
    offsets = np.stack(np.meshgrid(np.arange(shape[0]) - x0, np.arange(shape[1]) - y0, indexing="ij"), axis=-1)
    return np.exp(-4 * np.log(2) * np.einsum("xyi,ij,xyj->xy", offsets, np.linalg.inv(spread), offsets))


@pytest.mark.parametrize("shape", [(80, 81), (97, 70)], ids=str)
@pytest.mark.parametrize(("x0", "y0"), [(40, 36), (33.3, 41.7)])
def test_a_source_keeps_its_flux_and_its_place(shape, x0, y0):
    image = 3.0 * gaussian(NATIVE, shape, x0, y0)
    found = smooth(image, NATIVE, TARGET, Brightness.BEAM)
    np.testing.assert_allclose(found, 3.0 * gaussian(TARGET, shape, x0, y0), atol=3e-7)
    areas = np.sqrt(np.linalg.det(TARGET) / np.linalg.det(NATIVE))
    assert found.sum() / areas == pytest.approx(image.sum(), rel=1e-6)
    x, y = np.indices(shape)
    assert ((found * x).sum() / found.sum(), (found * y).sum() / found.sum()) == pytest.approx((x0, y0), abs=1e-6)


def test_any_image_is_convolved_as_the_definition_says(rng):
    image = rng.standard_normal((21, 18))
    kernel = gaussian(TARGET - NATIVE, (41, 35), 20, 17)
    kernel *= np.sqrt(np.linalg.det(TARGET) / np.linalg.det(NATIVE)) / kernel.sum()
    expected = np.zeros(image.shape)
    for i, j in np.ndindex(image.shape):
        expected += image[i, j] * kernel[20 - i : 41 - i, 17 - j : 35 - j]
    np.testing.assert_allclose(smooth(image, NATIVE, TARGET, Brightness.BEAM), expected, atol=1e-6)


def test_surface_brightness_keeps_its_level():
    found = smooth(np.full((90, 85), 7.0), NATIVE, TARGET, Brightness.SURFACE)
    np.testing.assert_allclose(found[30:60, 30:55], 7.0, rtol=1e-6)
    np.testing.assert_allclose(found, smooth(np.full((90, 85), 7.0), NATIVE, TARGET, Brightness.BEAM) * np.sqrt(
        np.linalg.det(NATIVE) / np.linalg.det(TARGET)), rtol=1e-10)  # fmt: skip


def test_points_without_a_beam_become_beams():
    image = np.zeros((40, 45))
    image[17, 20] = 2.0
    found = smooth(image, None, TARGET, Brightness.PIXEL)
    np.testing.assert_allclose(found, 2 * gaussian(TARGET, image.shape, 17, 20), atol=1e-9)


def test_blank_pixels_neither_spread_nor_disturb():
    image = gaussian(NATIVE, (80, 80), 40, 40)
    holed = image.copy()
    holed[:8] = holed[60, 60:] = np.nan
    found = smooth(holed, NATIVE, TARGET, Brightness.BEAM)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(holed))
    good = ~np.isnan(holed)
    np.testing.assert_allclose(found[good], gaussian(TARGET, (80, 80), 40, 40)[good], atol=1e-6)
    assert np.isnan(smooth(np.full((5, 6), np.nan), NATIVE, TARGET, Brightness.BEAM)).all()


def test_nothing_wraps_around_an_edge():
    found = smooth(gaussian(NATIVE, (64, 64), 0, 3), NATIVE, TARGET, Brightness.BEAM)
    assert np.abs(found[40:]).max() < 1e-9


def test_equal_beams_leave_the_image_as_it_is(rng):
    image = rng.standard_normal((9, 7)).astype("f4")
    np.testing.assert_array_equal(smooth(image, NATIVE, NATIVE, Brightness.BEAM), image)


def test_a_cube_is_refused():
    with pytest.raises(ShapeError, match=r"an image has two axes, got an array of shape \(2, 3, 4\)"):
        smooth(np.zeros((2, 3, 4)), NATIVE, TARGET, Brightness.BEAM)
