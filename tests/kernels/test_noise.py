import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from pfb.errors import ShapeError
from pfb.kernels.noise import local_rms, robust_rms


def naive(image, window, spacing):
    """The definition: boxes cut out one by one, sorted by hand, and SciPy's interpolation between their centres."""
    axes, coarse = [], {}
    for n in image.shape:
        number = int(np.ceil((n - 1) / spacing)) + 1
        axes.append(np.linspace(0, n - 1, number))
    for i, x in enumerate(axes[0]):
        for j, y in enumerate(axes[1]):
            sides = []
            for centre, n in zip((x, y), image.shape, strict=True):
                first = round(centre) - window // 2
                first = min(max(first, 0), max(n - window, 0))
                sides.append(range(first, min(first + window, n)))
            values = sorted(image[a, b] for a in sides[0] for b in sides[1] if not np.isnan(image[a, b]))
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
            away = sorted(abs(v - middle) for v in values)
            coarse[i, j] = 1.482602218505602 * (away[(len(away) - 1) // 2] + away[len(away) // 2]) / 2
    knots = np.array([[coarse[i, j] for j in range(len(axes[1]))] for i in range(len(axes[0]))])
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in image.shape), indexing="ij"), -1)
    return RegularGridInterpolator(axes, knots)(grid)


@pytest.mark.parametrize("shape", [(24, 24), (25, 18), (7, 31)], ids=str)
def test_local_rms_is_its_definition(shape, rng):
    image = rng.standard_normal(shape) * np.linspace(1, 3, shape[0])[:, None]
    image[2, 3] = np.nan
    np.testing.assert_allclose(local_rms(image, 8, 5.0), naive(image, 8, 5.0), rtol=1e-12)
    np.testing.assert_array_equal(local_rms(image, 8), local_rms(image, 8, 4))


def test_noise_that_varies_is_followed_and_sources_are_not(rng):
    x = np.linspace(1, 3, 256)
    image = rng.standard_normal((256, 256)) * x[:, None]
    image[rng.integers(0, 256, 400), rng.integers(0, 256, 400)] += 1000
    found = local_rms(image, 64)
    # A box of 64 x 64 independent pixels gives the deviation to 0.0183, seven of which are the least and most of 81 boxes;
    # one pixel in 160 with a source adds a percent.
    np.testing.assert_allclose(found[32:-32] / x[32:-32, None], 1, atol=0.14)
    assert abs((found[32:-32] / x[32:-32, None]).mean() - 1) < 0.03


def test_robust_rms_is_the_deviation_of_normal_numbers(rng):
    values = 5 + 2 * rng.standard_normal(100_000)
    assert robust_rms(values) == pytest.approx(2, rel=0.02)  # its own deviation is 0.37%
    assert robust_rms(np.r_[values, np.nan]) == robust_rms(values)
    assert np.isnan(robust_rms(np.array([np.nan])))


def test_blank_parts_take_the_nearest_estimate(rng):
    image = rng.standard_normal((64, 64)).astype("f4")
    image[:32] = np.nan
    found = local_rms(image, 8, 8)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert 0.5 < found[0, 0] < 1.5


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (3, 2)], ids=str)
def test_images_smaller_than_a_box_are_one_box(shape, rng):
    image = rng.standard_normal(shape)
    np.testing.assert_allclose(local_rms(image, 50), np.full(shape, robust_rms(image)))


def test_an_image_without_pixels_is_refused():
    with pytest.raises(ShapeError, match="blank everywhere"):
        local_rms(np.full((4, 4), np.nan), 2)
