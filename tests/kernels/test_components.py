"""The direct sum over components, against its definition and against sums over pixels."""

import numpy as np
import pytest
from astropy.coordinates import SkyCoord

from pfb.kernels.components import component_visibilities, local_frame, spreads
from pfb.types import LIGHTSPEED

EVEN, UNEVEN = np.linspace(1.0e9, 1.3e9, 4), np.array([0.9e9, 1.0e9, 1.25e9])


def naive(uvw, freq, direction, flux):
    vis = np.zeros((len(flux), len(uvw), len(freq)), complex)
    for s, of_stokes in enumerate(flux):
        for c, of_component in enumerate(of_stokes):
            for k, nu in enumerate(freq):
                vis[s, :, k] += of_component[k] * np.exp(2j * np.pi * nu / LIGHTSPEED * (uvw @ direction[c]))
    return vis


@pytest.mark.parametrize("freq", [EVEN, UNEVEN, EVEN[:1], EVEN[:2]], ids=["even", "uneven", "one", "two"])
def test_points_are_the_direct_sum(freq, rng):
    uvw = 3000 * rng.standard_normal((20, 3))
    direction = np.stack([*(0.02 * rng.standard_normal((2, 5))), -1e-3 * rng.random(5)], axis=1)
    flux = rng.standard_normal((2, 5, len(freq)))
    vis = component_visibilities(uvw, freq, direction, np.zeros((5, 3)), flux)
    np.testing.assert_allclose(vis, naive(uvw, freq, direction, flux), atol=1e-11)


def test_a_gaussian_is_the_sum_over_its_pixels(rng):
    """Elongated, turned and off centre: position angles run from North (m) through East (l)."""
    arcmin = np.deg2rad(1 / 60)
    major, minor, pa = 3 * arcmin, 1.2 * arcmin, 0.6
    uvw, freq = 250 * rng.standard_normal((15, 3)) * [1, 1, 0], EVEN
    l0, m0 = 0.01, -0.004
    spread = spreads(*(np.array([v]) for v in (major, minor, pa)), np.eye(2)[None])
    vis = component_visibilities(uvw, freq, np.array([[l0, m0, 0.0]]), spread, np.full((1, 1, 4), 2.0))

    step = 0.1 * arcmin
    l, m = np.meshgrid(*[np.arange(-120, 121) * step] * 2, indexing="ij")
    along, across = l * np.sin(pa) + m * np.cos(pa), l * np.cos(pa) - m * np.sin(pa)
    pixels = np.exp(-4 * np.log(2) * ((along / major) ** 2 + (across / minor) ** 2))
    pixels *= 2.0 / pixels.sum()
    places = np.stack([l.ravel() + l0, m.ravel() + m0, np.zeros(l.size)], axis=1)
    expected = [[pixels.ravel() @ np.exp(2j * np.pi * nu / LIGHTSPEED * (places @ b)) for nu in freq] for b in uvw]
    assert np.abs(vis).min() < 1.8 < np.abs(vis).max(), "resolved by some"
    np.testing.assert_allclose(vis[0], expected, atol=2e-7)


def test_a_place_and_its_local_axes_agree_with_astropy(rng):
    ra0, dec0 = 6.2, -0.7
    centre = SkyCoord(ra0, dec0, unit="rad")
    ra, dec = ra0 + 0.1 * rng.standard_normal(6), dec0 + 0.1 * rng.standard_normal(6)
    direction, jacobian = local_frame(ra, dec, ra0, dec0)
    for i, place in enumerate(SkyCoord(ra, dec, unit="rad")):
        r, pa = centre.separation(place).rad, centre.position_angle(place).rad
        np.testing.assert_allclose(direction[i], [np.sin(r) * np.sin(pa), np.sin(r) * np.cos(pa), np.cos(r) - 1], atol=1e-13)
    h = 1e-6
    north, _ = local_frame(ra, dec + h, ra0, dec0)
    east, _ = local_frame(ra + h / np.cos(dec), dec, ra0, dec0)
    np.testing.assert_allclose(jacobian[:, :, 1], (north - direction)[:, :2] / h, atol=1e-6)
    np.testing.assert_allclose(jacobian[:, :, 0], (east - direction)[:, :2] / h, atol=1e-6)
