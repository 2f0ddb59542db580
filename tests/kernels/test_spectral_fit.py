"""Spectral fits against a general minimiser, and their errors against the scatter over draws of the noise."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

from pfb.errors import InputError
from pfb.kernels.spectral_fit import fit_spectra, reference_frequency

FREQ = np.array([0.9e9, 1.1e9, 1.25e9, 1.6e9])
SIGMA = np.array([0.02, 0.01, 0.03, 0.015])


def spectrum(nu, flux, alpha, beta=0.0, nu0=1.2e9):
    return flux * (nu / nu0) ** (alpha + beta * np.log(nu / nu0))


@pytest.mark.parametrize("terms", [1, 2])
def test_is_what_a_general_minimiser_finds(terms, rng):
    """Steep, inverted, curved and faint ones, one with a negative band."""
    true = np.array([[1.0, -0.7, 0.2], [0.3, 1.5, -0.5], [2.0, -3.0, 0.0], [0.06, -0.8, 0.0]])[:, : terms + 1]
    data = np.array([spectrum(FREQ, *p) for p in true]).T + SIGMA[:, None] * rng.standard_normal((4, len(true)))
    data[3, 3] = -0.004
    fit = fit_spectra(data, SIGMA, FREQ, 1.2e9, terms)
    for i, p in enumerate(true):
        found, covariance = curve_fit(spectrum, FREQ, data[:, i], p0=p, sigma=SIGMA, absolute_sigma=True)
        np.testing.assert_allclose([fit.flux[i], *fit.terms[:, i]], found, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose([fit.flux_error[i], *fit.errors[:, i]], np.sqrt(np.diag(covariance)), rtol=2e-3)
        assert fit.chi2[i] == pytest.approx(np.sum(((data[:, i] - spectrum(FREQ, *found)) / SIGMA) ** 2), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("terms", [1, 2])
def test_errors_are_the_scatter_and_the_index_is_not_biased(terms, rng):
    """At 8 sigma in the bands together; the mean of 4000 draws has a sixtieth of the error of one."""
    true = (0.06, -0.7, 0.0)[: terms + 1]
    data = spectrum(FREQ, *true)[:, None] + SIGMA[:, None] * rng.standard_normal((4, 4000))
    nu0 = reference_frequency(FREQ, SIGMA)
    fit = fit_spectra(data, SIGMA, FREQ, nu0, terms)
    good = np.isfinite(fit.flux)
    assert good.mean() > 0.99
    pull = (fit.terms[0] - true[1])[good] / fit.errors[0][good]
    if terms == 1:
        assert abs(np.median(pull)) < 0.1
        assert np.std(pull) == pytest.approx(1, abs=0.1)
        flux = (fit.flux - spectrum(nu0, *true))[good] / fit.flux_error[good]
        assert np.std(flux) == pytest.approx(1, abs=0.05)
        assert abs(np.corrcoef(flux, pull)[0, 1]) < 0.3, "nearly independent at the reference frequency"
    else:
        assert np.percentile(np.abs(pull), 68.3) == pytest.approx(1, abs=0.15)


def test_no_noise_is_exact_with_as_many_bands_as_parameters():
    freq = FREQ[[0, 3]]
    fit = fit_spectra(spectrum(freq, 0.5, -1.2)[:, None], np.ones(2), freq, 1.2e9, 1)
    np.testing.assert_allclose([fit.flux[0], fit.terms[0, 0], fit.chi2[0]], [0.5, -1.2, 0.0], atol=1e-9)


def test_errors_of_every_pixel(rng):
    sigma = np.stack([SIGMA, 2 * SIGMA], axis=1)
    data = np.repeat(spectrum(FREQ, 1.0, -0.7)[:, None], 2, axis=1)
    fit = fit_spectra(data, sigma, FREQ, 1.2e9, 1)
    np.testing.assert_allclose(fit.errors[0, 1], 2 * fit.errors[0, 0], rtol=1e-6)


def test_what_has_no_positive_spectrum_is_blank():
    data = np.stack([-spectrum(FREQ, 1.0, 0.0), np.full(4, np.nan), spectrum(FREQ, 1.0, 0.0)], axis=1)
    fit = fit_spectra(data, SIGMA, FREQ, 1.2e9, 1)
    for values in (fit.flux, fit.flux_error, fit.terms[0], fit.errors[0], fit.chi2):
        np.testing.assert_array_equal(np.isnan(values), [True, True, False])


@pytest.mark.parametrize(("bands", "terms", "message"), [
    (1, 1, "a spectral index has rank 2, for which 2 bands with data are needed, but there is 1: image more bands$"),
    (2, 2, "a spectral curvature has rank 3, for which 3 bands .* but there are 2: image more bands, or leave out --curvature"),
])  # fmt: skip
def test_too_few_bands_are_refused(bands, terms, message):
    with pytest.raises(InputError, match=message):
        fit_spectra(np.ones((bands, 3)), np.ones(bands), FREQ[:bands], 1e9, terms)
