"""The small picture of a residual."""

from __future__ import annotations

import numpy as np
import pytest

from pfb.kernels.thumbnail import STRETCH, block_extremes, thumbnail


def naive(image, side):
    """Look at every block of pixels."""
    block = 1
    while -(-max(image.shape) // block) > side:
        block += 1
    nx, ny = (-(-n // block) for n in image.shape)
    out = np.empty((nx, ny))
    for i in range(nx):
        for j in range(ny):
            part = image[i * block : (i + 1) * block, j * block : (j + 1) * block].ravel()
            out[i, j] = max(part, key=lambda v: (abs(v), v))
    return out


@pytest.mark.parametrize("shape", [(64, 64), (65, 30), (31, 64), (7, 100), (16, 16), (1, 1)])
@pytest.mark.parametrize("side", [16, 5, 1])
def test_blocks_show_their_extremes(rng, shape, side):
    image = rng.standard_normal(shape)
    found = block_extremes(image, side)
    assert max(found.shape) <= side or max(shape) <= side
    np.testing.assert_array_equal(found, naive(image, side))


def test_a_small_image_stays_as_it_is(rng):
    image = rng.standard_normal((16, 9))
    np.testing.assert_array_equal(block_extremes(image, 16), image)


def test_a_negative_source_of_one_pixel_is_seen(rng):
    image = 0.1 * rng.standard_normal((300, 200))
    image[123, 45] = -9.0
    small = block_extremes(image, 50)
    assert small.min() == small[123 // 6, 45 // 6] == -9.0


def test_levels_go_out_to_five_times_the_rms(rng):
    image = rng.standard_normal((40, 30))
    image[3, 4], image[5, 6] = 50.0, -50.0
    levels, limit = thumbnail(image, 100)
    assert levels.dtype == np.uint8
    assert limit == pytest.approx(STRETCH * np.sqrt(np.mean(image**2)))
    assert (levels[3, 4], levels[5, 6]) == (255, 1)
    expected = np.clip(image, -limit, limit)
    np.testing.assert_allclose((levels.astype(float) - 128) / 127 * limit, expected, atol=limit / 127 * 0.500001)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_an_image_without_a_scale_is_grey(value):
    """The run says what is wrong with it; the picture must not be another error."""
    assert (thumbnail(np.full((5, 4), value)).levels == 128).all()
