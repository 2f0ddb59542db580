"""Matching pursuit against its definition, written with shifted images."""

import numpy as np
import pytest

from pfb.kernels.cleaning import Patch, Rule, clark, find_points, hogbom, mixing, point_fluxes

SHAPES = [((12, 9), (24, 19)), ((9, 12), (9, 12)), ((8, 8), (11, 10)), ((1, 7), (1, 14)), ((1, 1), (1, 1))]


def shifted(psf, pixel, shape):
    """The PSF of a source at a pixel; zero beyond the PSF's edges."""
    out = np.zeros(shape)
    for x, y in np.ndindex(shape):
        a, b = x - pixel[0] + psf.shape[0] // 2, y - pixel[1] + psf.shape[1] // 2
        if 0 <= a < psf.shape[0] and 0 <= b < psf.shape[1]:
            out[x, y] = psf[a, b]
    return out


def naive(residual, psf, gain, depth, maxit, mask, positive):
    """Pixels, fluxes and what is left."""
    left, pixels, fluxes = residual.astype(float), [], []
    peak = psf[psf.shape[0] // 2, psf.shape[1] // 2]
    level = depth * np.where(mask, left if positive else np.abs(left), 0.0).max()
    while len(pixels) < maxit:
        height = np.where(mask, left if positive else np.abs(left), -np.inf)
        pixel = np.unravel_index(height.argmax(), left.shape)
        if height[pixel] <= level or height[pixel] <= np.sqrt(2 * np.log(mask.sum()) * np.mean(left[mask] ** 2)):
            break
        pixels.append(pixel)
        fluxes.append(gain * left[pixel] / peak)
        left = left - fluxes[-1] * shifted(psf, pixel, left.shape)
    return np.array(pixels, int).reshape(-1, 2), np.array(fluxes), left


def sky(shape, size, rng):
    """A residual of a few sources, one of them negative, and a PSF that is not symmetric, with a peak of 2."""
    psf = 0.1 * rng.standard_normal(size)
    psf[size[0] // 2, size[1] // 2] = 2.0
    residual = np.zeros(shape)
    for flux in (5.0, -4.0, 1.0):
        residual += flux * shifted(psf, tuple(rng.integers(n) for n in shape), shape)
    return residual, psf


@pytest.mark.parametrize(("shape", "size"), SHAPES, ids=str)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_pursuit_is_what_its_definition_says(shape, size, positive, masked, rng, monkeypatch):
    residual, psf = sky(shape, size, rng)
    mask = rng.random(shape) < 0.7 if masked else np.ones(shape, bool)
    before = residual.copy()
    pixels, fluxes, _ = naive(residual, psf, 0.3, 0.1, 40, mask, positive)
    found = find_points(residual, psf, gain=0.3, depth=0.1, maxit=40, mask=mask if masked else None, positive=positive)
    np.testing.assert_array_equal(found, pixels)
    np.testing.assert_allclose(point_fluxes(residual, psf, found, 0.3), fluxes, rtol=1e-12, atol=1e-14)
    assert (residual == before).all()


def test_the_test_sky_is_one_where_something_is_found(rng):
    residual, psf = sky((12, 9), (24, 19), rng)
    pixels, fluxes, left = naive(residual, psf, 0.3, 0.1, 40, np.ones((12, 9), bool), False)
    assert len(pixels) > 5
    assert min(fluxes) < 0 < max(fluxes)
    assert np.abs(left).max() < 0.5 * np.abs(residual).max()


def test_pixels_of_one_image_give_the_fluxes_of_another(rng):
    residual, psf = sky((12, 9), (24, 19), rng)
    other, own = sky((12, 9), (24, 19), rng)
    found = find_points(residual, psf, gain=0.2, depth=0.1, maxit=30)
    left, fluxes = other.copy(), []
    for pixel in found:
        fluxes.append(0.2 * left[tuple(pixel)] / 2)
        left -= fluxes[-1] * shifted(own, pixel, left.shape)
    assert len(found) > 5
    np.testing.assert_allclose(point_fluxes(other, own, found, 0.2), fluxes, rtol=1e-12, atol=1e-14)


def test_an_isolated_source_is_found_whole():
    residual = np.zeros((64, 64))
    residual[20, 41] = 3.0
    psf = np.zeros((64, 64))
    psf[32, 32] = 1.5
    found = find_points(residual, psf, gain=0.5, depth=0.001, maxit=100)
    assert {tuple(pixel) for pixel in found} == {(20, 41)}
    assert point_fluxes(residual, psf, found, 0.5).sum() == pytest.approx(2.0, abs=0.002)
    assert len(find_points(residual, psf, gain=0.5, depth=0.001, maxit=4)) == 4
    assert len(find_points(residual, psf, gain=0.5, depth=1.0, maxit=100)) == 0


def test_noise_has_no_sources(rng):
    psf = np.zeros((64, 64))
    psf[32, 32] = 1.0
    noise = rng.uniform(-1, 1, (64, 64))
    noise[40, 41] = 2.0
    assert len(find_points(noise, psf, gain=0.1, depth=0.0, maxit=100)) == 0
    noise[3, 5] = 10.0
    assert {tuple(pixel) for pixel in find_points(noise, psf, gain=0.1, depth=0.0, maxit=100)} == {(3, 5)}


@pytest.mark.parametrize("psf", [np.zeros((4, 4)), -np.ones((4, 4))])
def test_without_a_psf_nothing_is_found(psf):
    assert find_points(np.ones((4, 4)), psf, gain=0.1, depth=0.0, maxit=10).shape == (0, 2)


def test_an_empty_image_has_no_sources():
    assert find_points(np.zeros((4, 4)), np.ones((4, 4)), gain=0.1, depth=0.0, maxit=10).shape == (0, 2)
    assert len(point_fluxes(np.zeros((4, 4)), np.ones((4, 4)), np.zeros((0, 2), int), 0.1)) == 0


# All bands together


def joint(nband, shape, size, rng):
    """Residuals and PSFs of bands whose peaks add up to one."""
    peaks = rng.uniform(0.5, 1.5, nband)
    peaks /= peaks.sum()
    psfs = 0.05 * rng.standard_normal((nband, *size))
    psfs[:, size[0] // 2, size[1] // 2] = 1
    psfs *= peaks[:, None, None]
    residuals = np.zeros((nband, *shape))
    for flux in (5.0, -4.0, 1.0):
        pixel = tuple(int(rng.integers(n)) for n in shape)
        for b in range(nband):
            residuals[b] += flux * (1 + 0.3 * b) * shifted(psfs[b], pixel, shape)
    return residuals, psfs, peaks


def naive_joint(residuals, psfs, prefer, mix, positivity, floor, maxit):
    """Components one after the other, with shifted PSFs."""
    left, prefer = residuals.copy(), prefer.copy()
    pixels, fluxes = [], []
    while len(pixels) < maxit:
        total = left.sum(axis=0)
        height = (np.abs(total) if positivity == "none" else total) * prefer
        pixel = np.unravel_index(height.argmax(), total.shape)
        if height[pixel] <= floor:
            break
        flux = mix @ left[:, pixel[0], pixel[1]]
        if positivity == "joint" and (flux < 0).any():
            prefer[pixel] = 0
            continue
        if positivity != "none":
            flux = np.maximum(flux, 0)
        left -= np.stack([f * shifted(psf, pixel, total.shape) for f, psf in zip(flux, psfs, strict=True)])
        pixels.append(pixel)
        fluxes.append(flux)
    return np.array(pixels, int).reshape(-1, 2), np.array(fluxes).reshape(-1, len(residuals)), left


@pytest.mark.parametrize(("shape", "size"), SHAPES, ids=str)
@pytest.mark.parametrize("positivity", ["none", "clip", "joint"])
@pytest.mark.parametrize("nband", [1, 3])
def test_bands_are_cleaned_together(shape, size, positivity, nband, rng):
    residuals, psfs, peaks = joint(nband, shape, size, rng)
    prefer = rng.uniform(0.5, 1.0, shape) * (rng.random(shape) < 0.8)
    rule = Rule(mixing(peaks, 0.2, np.array([1.0, 2.0, 4.0])[:nband], 2), positivity)
    pixels, fluxes, left = naive_joint(residuals, psfs, prefer, rule.mix, positivity, 0.5, 30)
    found, own = hogbom(residuals, psfs, prefer, rule, floor=0.5, maxit=30)
    np.testing.assert_array_equal(found, pixels)
    np.testing.assert_allclose(own, fluxes, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(residuals, left, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("positivity", ["none", "clip", "joint"])
@pytest.mark.parametrize("nband", [1, 3])
def test_pixels_cleaned_among_themselves_see_what_lies_within_the_patch(positivity, nband, rng):
    shape, size = (12, 9), (7, 5)
    residuals, psfs, peaks = joint(nband, shape, size, rng)
    pixels = np.argwhere(rng.random(shape) < 0.6)
    prefer = np.zeros(shape)
    prefer[tuple(pixels.T)] = rng.uniform(0.5, 1.0, len(pixels))
    rule = Rule(mixing(peaks, 0.2, np.array([1.0, 2.0, 4.0])[:nband]), positivity)
    order, fluxes, left = naive_joint(residuals, psfs, prefer, rule.mix, positivity, 0.3, 25)
    assert nband == 1 or len(order)
    expected = np.zeros((nband, *shape))
    for pixel, flux in zip(order, fluxes, strict=True):
        expected[:, pixel[0], pixel[1]] += flux
    patch = Patch(residuals[:, pixels[:, 0], pixels[:, 1]], pixels, prefer[tuple(pixels.T)], psfs)
    found, count = clark(patch, rule, floor=0.3, maxit=25)
    assert count == len(order)
    np.testing.assert_allclose(found.T, expected[:, pixels[:, 0], pixels[:, 1]], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(patch.values, left[:, pixels[:, 0], pixels[:, 1]], rtol=1e-10, atol=1e-12)


def test_fluxes_are_a_weighted_polynomial_in_frequency(rng):
    freq, peaks, values = np.array([0.9e9, 1.1e9, 1.2e9, 1.7e9]), rng.uniform(0.1, 1, 4), rng.standard_normal(4)
    for terms in (1, 2, 3):
        x = freq / 1e9
        coefficients = np.polyfit(x, values / peaks, terms - 1, w=np.sqrt(peaks))
        fluxes = mixing(peaks, 0.3, freq, terms) @ values
        np.testing.assert_allclose(fluxes, 0.3 * np.polyval(coefficients, x), rtol=1e-9)
        assert peaks @ fluxes == pytest.approx(0.3 * values.sum(), rel=1e-9)  # what the sum falls by
    for terms in (None, 4, 7):
        np.testing.assert_allclose(mixing(peaks, 0.3, freq, terms) @ values, 0.3 * values / peaks, rtol=1e-9)
