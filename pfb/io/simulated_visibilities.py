"""The visibilities of a sky: the direct sum over its components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.io.sky import Component, direction_cosines
from pfb.types import CORRELATIONS, LIGHTSPEED, Complex, Real

# Rows at a time, so that what one component needs stays in the cache.
_ROWS = 4096


def predict(
    uvw: Real, freq: Real, sky: Sequence[Component], centre: tuple[float, float], correlations: Sequence[int], angle: float = 0.0,
    response: Real | None = None,
) -> Complex:  # fmt: skip
    r"""Sum over components, each a point or a Gaussian.

    .. math::
        V = \sum I(\nu) \, g \, e^{+2\pi i (ul + vm + w(n-1)) \nu/c}, \qquad
        g = e^{-\pi^2 (\theta_1^2 k_1^2 + \theta_2^2 k_2^2) \nu^2 / (4 c^2 \ln 2)}

    with :math:`k_1, k_2` the parts of (u, v) along the axes of a Gaussian.

    This sign goes with UVW as MeerKAT's sets store them, position of antenna 1 minus that
    of antenna 2.

    Parameters
    ----------
    uvw
        (row, 3) float64, metres.
    freq
        (chan,) Hz, evenly spaced.
    sky
        The components.
    centre
        (ra, dec) of the phase centre in radians.
    correlations
        casacore's numbers of the (corr,) correlations.
    angle
        Position angle in radians, North through East, of the feeds.
    response
        (component, chan) power that the dishes have there; one by default.

    Returns
    -------
    (row, chan, corr) complex64
        In Jy, without noise.
    """
    vis = np.empty((len(uvw), len(freq), len(correlations)), np.complex64)
    for first in range(0, len(uvw), _ROWS):
        part = slice(first, first + _ROWS)
        power = np.ones((len(sky), len(freq))) if response is None else response
        stokes = _turned(_stokes(uvw[part], freq, sky, centre, power), angle)
        for i, number in enumerate(correlations):
            terms = [factor * stokes[s] for s, factor in zip("IQUV", CORRELATIONS[number], strict=True) if factor and s in stokes]
            vis[part, :, i] = sum(terms[1:], terms[0]).T if terms else 0
    return vis


def _turned(stokes: dict[str, Complex], angle: float) -> dict[str, Complex]:
    """Return what turned feeds see: Q + iU has their angle, twice, less."""
    if not angle or not {"Q", "U"} & set(stokes):
        return stokes
    nothing = np.zeros_like(next(iter(stokes.values())))
    q, u = stokes.get("Q", nothing), stokes.get("U", nothing)
    cosine, sine = np.cos(2 * angle), np.sin(2 * angle)
    return stokes | {"Q": cosine * q + sine * u, "U": cosine * u - sine * q}


def _stokes(
    uvw: Real, freq: Real, sky: Sequence[Component], centre: tuple[float, float], response: Real
) -> dict[str, Complex]:
    """Return (chan, row) visibilities of those of I, Q, U, V that any component has."""
    used = [s for s in "IQUV" if any(getattr(c, s) or (c.rm and s in "QU" and (c.Q or c.U)) for c in sky)]
    total: dict[str, Complex] = {s: np.zeros((len(freq), len(uvw)), np.complex128) for s in used}
    for c, power in zip(sky, response, strict=True):
        l, m, n = direction_cosines(c.ra, c.dec, *centre)
        phase = 2 * np.pi / LIGHTSPEED * (uvw @ np.array([l, m, n - 1.0]))
        fringe = np.exp(1j * phase * freq[0])
        # From one channel to the next the phase advances by the same angle: one product instead of one exponential.
        step = np.exp(1j * phase * (freq[1] - freq[0])) if len(freq) > 1 else None
        flux, width = {s: own * power for s, own in zip("IQUV", c.stokes(freq), strict=True)}, _width(uvw, c)
        for k, nu in enumerate(freq):
            seen = fringe * np.exp(-width * nu**2) if c.fwhm else fringe
            for s in used:
                if flux[s][k]:
                    total[s][k] += flux[s][k] * seen
            if step is not None:
                fringe = fringe * step
    return total


def _width(uvw: Real, c: Component) -> Real:
    """Return by how much the logarithm of a Gaussian falls, (row,), per square of a Hz."""
    sine, cosine = np.sin(c.pa), np.cos(c.pa)
    along, across = uvw[:, 0] * sine + uvw[:, 1] * cosine, uvw[:, 0] * cosine - uvw[:, 1] * sine
    minor = c.fwhm if c.minor is None else c.minor
    scaled: Real = (c.fwhm * along) ** 2 + (minor * across) ** 2
    return np.pi**2 / (4 * np.log(2) * LIGHTSPEED**2) * scaled
