"""The visibilities of a sky: the direct sum over its components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.io.sky import Component, direction_cosines
from pfb.types import Complex, Real

_SPEED_OF_LIGHT = 299792458.0

# What I, Q, U, V add to a correlation, by casacore's number: RR RL LR LL, XX XY YX YY.
_FEEDS = {
    5: (1, 0, 0, 1), 6: (0, 1, 1j, 0), 7: (0, 1, -1j, 0), 8: (1, 0, 0, -1),
    9: (1, 1, 0, 0), 10: (0, 0, 1, 1j), 11: (0, 0, 1, -1j), 12: (1, -1, 0, 0),
}  # fmt: skip

# Rows at a time, so that what one component needs stays in the cache.
_ROWS = 4096


def predict(uvw: Real, freq: Real, sky: Sequence[Component], centre: tuple[float, float], correlations: Sequence[int]) -> Complex:
    r"""Sum over components, each a point or a Gaussian.

    .. math::
        V = \sum I(\nu) \, g \, e^{+2\pi i (ul + vm + w(n-1)) \nu/c}, \qquad
        g = e^{-\pi^2 \theta^2 (u^2 + v^2) \nu^2 / (4 c^2 \ln 2)}

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

    Returns
    -------
    (row, chan, corr) complex64
        In Jy, without noise.
    """
    vis = np.empty((len(uvw), len(freq), len(correlations)), np.complex64)
    for first in range(0, len(uvw), _ROWS):
        part = slice(first, first + _ROWS)
        stokes = _stokes(uvw[part], freq, sky, centre)
        for i, number in enumerate(correlations):
            terms = [factor * stokes[s] for s, factor in zip("IQUV", _FEEDS[number], strict=True) if factor and s in stokes]
            vis[part, :, i] = sum(terms[1:], terms[0]).T if terms else 0
    return vis


def _stokes(uvw: Real, freq: Real, sky: Sequence[Component], centre: tuple[float, float]) -> dict[str, Complex]:
    """Return (chan, row) visibilities of those of I, Q, U, V that any component has."""
    used = [s for s in "IQUV" if any(getattr(c, s) for c in sky)]
    total: dict[str, Complex] = {s: np.zeros((len(freq), len(uvw)), np.complex128) for s in used}
    uv2 = (uvw[:, 0] ** 2 + uvw[:, 1] ** 2) / _SPEED_OF_LIGHT**2
    for c in sky:
        l, m, n = direction_cosines(c.ra, c.dec, *centre)
        phase = 2 * np.pi / _SPEED_OF_LIGHT * (uvw @ np.array([l, m, n - 1.0]))
        fringe = np.exp(1j * phase * freq[0])
        # From one channel to the next the phase advances by the same angle: one product instead of one exponential.
        step = np.exp(1j * phase * (freq[1] - freq[0])) if len(freq) > 1 else None
        for k, nu in enumerate(freq):
            shape = np.exp(-((np.pi * c.fwhm * nu) ** 2) / (4 * np.log(2)) * uv2) if c.fwhm else 1.0
            seen = fringe * ((nu / c.ref_freq) ** c.alpha * shape)
            for s in used:
                if flux := getattr(c, s):
                    total[s][k] += flux * seen
            if step is not None:
                fringe = fringe * step
    return total
