import numpy as np
import pytest

from pfb.kernels.primary_beam import KNOTS, corrected, effective, on_pixels, over_azimuth, over_rotation, relative, turned

CELL = np.deg2rad(0.01)


def lopsided(x, y):
    """A beam that is wider upwards than to the right, and off its axis to the right."""
    return np.exp(-(((x - 0.002) / 0.02) ** 2) - (y / 0.03) ** 2)


def test_directions_for_a_dish():
    """At the zenith's position angle of 0 East is on the left; at 90 degrees, with the zenith in the East, East is up."""
    np.testing.assert_allclose(turned(1.0, 0.0, 0.0), (-1, 0), atol=1e-15)
    np.testing.assert_allclose(turned(0.0, 1.0, 0.0), (0, 1), atol=1e-15)
    np.testing.assert_allclose(turned(1.0, 0.0, np.pi / 2), (0, 1), atol=1e-15)
    np.testing.assert_allclose(turned(0.0, 1.0, np.pi / 2), (1, 0), atol=1e-15)  # North is on the right of who looks East


@pytest.mark.parametrize("shape", [(8, 8), (7, 12), (1, 5), (1, 300), (300, 2), (2, 3)], ids=str)
def test_pixels_one_by_one(shape):
    found = on_pixels(lopsided, shape, CELL)
    assert found.shape == shape
    for i, j in np.ndindex(shape):
        l, m = -(i - shape[0] // 2) * CELL, (j - shape[1] // 2) * CELL
        sine = np.hypot(l, m)
        factor = np.arcsin(sine) / sine if sine else 1.0
        assert found[i, j] == pytest.approx(lopsided(l * factor, m * factor), rel=1e-12)


def test_between_knots_are_splines():
    shape = (2 * KNOTS + 3, KNOTS + 40)
    i, j = np.mgrid[: shape[0], : shape[1]]
    l, m = -(i - shape[0] // 2) * CELL / 8, (j - shape[1] // 2) * CELL / 8
    np.testing.assert_allclose(on_pixels(lopsided, shape, CELL / 8), lopsided(l, m), atol=2e-6)


def test_beyond_the_horizon_there_is_no_error():
    assert np.isfinite(on_pixels(lopsided, (9, 9), 0.5)).all()


def test_it_is_never_negative():
    assert on_pixels(lambda l, m: l, (9, 9), CELL).min() == 0


def test_rotation_is_the_weighted_mean(rng):
    l, m = rng.normal(0, 0.02, (2, 50))
    angles = [(0.3, 1.0), (-1.2, 2.5), (2.8, 0.5)]
    expected = np.zeros(50)
    for angle, weight in angles:
        right = np.array([-np.cos(angle), np.sin(angle)])  # East and North of what is on the right
        up = np.array([np.sin(angle), np.cos(angle)])
        expected += weight / 4 * lopsided(l * right[0] + m * right[1], l * up[0] + m * up[1])
    np.testing.assert_allclose(over_rotation(lopsided, l, m, angles), expected)


def test_azimuth_is_the_mean_over_all_angles(rng):
    l, m = rng.normal(0, 0.02, (2, 50))
    all_around = [(2 * np.pi * k / 720, 1.0) for k in range(720)]
    np.testing.assert_allclose(over_azimuth(lopsided, l, m), over_rotation(lopsided, l, m, all_around), atol=1e-7)


def test_bands_together(rng):
    beams, weights = rng.random((3, 5, 4)), [1.0, 0.0, 3.0]
    mean = effective(beams, weights)
    np.testing.assert_allclose(mean, np.sqrt((beams[0] ** 2 + 3 * beams[2] ** 2) / 4))
    # The noise of a flux that least squares fit to all bands, in units of that of the MFS image.
    sigma = 1 / np.sqrt([1.0, 3.0])
    fit = 1 / np.sqrt((beams[0] / sigma[0]) ** 2 + (beams[2] / sigma[1]) ** 2)
    np.testing.assert_allclose(fit, 1 / np.sqrt(4) / mean)


def test_ratio_and_correction_end_at_the_cut_off():
    mean, beam = np.array([[0.5, 0.1, 0.0999, 0.0]]), np.array([[0.25, 0.2, 0.3, 0.4]])
    np.testing.assert_allclose(relative(beam, mean, 0.1), [[0.5, 2, 0, 0]])
    np.testing.assert_allclose(corrected(beam, mean, 0.1), [[0.5, 2, np.nan, np.nan]])
    np.testing.assert_allclose(corrected(beam.astype("f4"), mean, 0.1, 0.0), [[0.5, 2, 0, 0]])
    assert corrected(beam.astype("f4"), mean, 0.1).dtype == np.float32
