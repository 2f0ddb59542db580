"""Images of bands at the frequencies of channels."""

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.kernels.spectra import linear, nearest_band, polynomial

LOW, HIGH = np.array([1.0e9, 1.2e9, 1.3e9]), np.array([1.2e9, 1.3e9, 1.6e9])
CENTRE = np.array([1.1e9, 1.25e9, 1.45e9])


def at(basis, images):
    return basis.design @ basis.mix @ images


def test_a_channel_has_the_image_of_its_band_or_of_the_nearest(rng):
    freq = np.array([0.5e9, 1.0e9, 1.19e9, 1.21e9, 1.299e9, 1.301e9, 1.59e9, 9e9])
    images = rng.standard_normal((3, 7))
    np.testing.assert_array_equal(at(nearest_band(freq, LOW, HIGH), images), images[[0, 0, 0, 1, 1, 2, 2, 2]])


def test_linear_interpolation_is_numpys_whatever_the_order(rng):
    freq = np.linspace(0.9e9, 1.7e9, 33)
    images, order = rng.standard_normal(3), [2, 0, 1]
    basis = linear(freq, CENTRE[order])
    np.testing.assert_allclose(at(basis, images[order]), np.interp(freq, CENTRE, images), atol=1e-14)


def test_a_polynomial_is_the_weighted_least_squares_fit(rng):
    freq = np.linspace(0.9e9, 1.7e9, 5)
    centre = np.array([*CENTRE, 1.6e9, 1.7e9])
    weight = np.array([1.0, 4.0, 0.0, 2.0, 0.5])
    images = rng.standard_normal((5, 6))
    used = weight > 0
    fit = np.polyfit(centre[used] / 1e9, images[used], 1, w=np.sqrt(weight[used]))
    expected = np.array([np.polyval(fit, f / 1e9) for f in freq])
    np.testing.assert_allclose(at(polynomial(freq, centre, weight, 2), images), expected, atol=1e-12)
    # As many terms as bands: every band as it is, the one without weight aside.
    exact = at(polynomial(centre, centre, weight, 4), images)
    np.testing.assert_allclose(exact[used], images[used], atol=1e-10)


def test_more_terms_than_bands_are_refused():
    with pytest.raises(InputError, match="3 terms has rank 3 but the model has 2 bands with data: use at most 2"):
        polynomial(CENTRE, CENTRE, np.array([1.0, 0.0, 2.0]), 3)
