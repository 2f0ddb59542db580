"""The visibilities of point sources and Gaussians, by the direct sum."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from pfb.types import LIGHTSPEED, Complex, Real


def component_visibilities(uvw: Real, freq: Real, direction: Real, spread: Real, flux: Real) -> Complex:
    r"""Sum over components, each a point or an elliptical Gaussian.

    .. math::
        V = \sum_c S_c(\nu) \, e^{-\frac{\pi^2}{4\ln 2} \frac{\nu^2}{c^2} (u, v)\, \Sigma_c\, (u, v)^T}
        e^{+2\pi i (ul_c + vm_c + w(n_c-1)) \nu/c}

    The w-term is that of a component's centre, also for a Gaussian.

    Parameters
    ----------
    uvw : (row, 3) float64
        Baselines in metres.
    freq : (chan,) float64
        Hz.
    direction : (comp, 3) float64
        l, m and n - 1 of every component.
    spread : (comp, 3) float64
        Elements ll, lm and mm of :math:`\Sigma`, whose eigenvalues are the squares of the full widths at half maximum in
        radians; zero for a point.
    flux : (stokes, comp, chan) float64
        Jy.

    Returns
    -------
    (stokes, row, chan) complex128
        Jy.
    """
    vis = np.zeros((len(flux), len(uvw), len(freq)), np.complex128)
    steps = np.diff(freq)
    even = len(freq) > 2 and bool(np.ptp(steps) <= 1e-13 * freq[-1])
    decay = np.pi**2 / (4 * np.log(2) * LIGHTSPEED**2) * spread
    _sum(uvw, np.asarray(freq, np.float64), even, direction * (2 * np.pi / LIGHTSPEED), decay, flux, vis)
    return vis


def local_frame(ra: Real, dec: Real, ra0: float, dec0: float) -> tuple[Real, Real]:
    """Return where places are as seen from a phase centre, and how East and North there lie in its (l, m) plane.

    Parameters
    ----------
    ra, dec : (comp,) float64
        Places in radians.
    ra0, dec0 : float
        The phase centre in radians.

    Returns
    -------
    direction : (comp, 3) float64
        l, m and n - 1.
    jacobian : (comp, 2, 2) float64
        ``[:, :, 0]`` is the change of (l, m) towards East, ``[:, :, 1]`` that towards North, per radian.
    """
    d = ra - ra0
    sine, cosine = np.sin(dec), np.cos(dec)
    l = cosine * np.sin(d)
    m = sine * np.cos(dec0) - cosine * np.sin(dec0) * np.cos(d)
    n = sine * np.sin(dec0) + cosine * np.cos(dec0) * np.cos(d)
    # n - 1 without cancellation, for components near the centre.
    less = np.where(n > 0, -(l**2 + m**2) / (1 + n), n - 1)
    east = np.stack([np.cos(d), np.sin(dec0) * np.sin(d)], axis=-1)
    north = np.stack([-sine * np.sin(d), cosine * np.cos(dec0) + sine * np.sin(dec0) * np.cos(d)], axis=-1)
    return np.stack([l, m, less], axis=-1), np.stack([east, north], axis=-1)


def spreads(major: Real, minor: Real, pa: Real, jacobian: Real) -> Real:
    """Return the (comp, 3) `spread` of Gaussians in the (l, m) plane.

    Parameters
    ----------
    major, minor : (comp,) float64
        Full widths at half maximum in radians.
    pa : (comp,) float64
        Position angles in radians, from North through East, where the components are.
    jacobian : (comp, 2, 2) float64
        From `local_frame`.
    """
    along = np.stack([np.sin(pa), np.cos(pa)], axis=-1)
    across = np.stack([np.cos(pa), -np.sin(pa)], axis=-1)
    first = np.einsum("cij,cj->ci", jacobian, along) * major[:, None]
    second = np.einsum("cij,cj->ci", jacobian, across) * minor[:, None]
    l, m = np.stack([first[:, 0], second[:, 0]]), np.stack([first[:, 1], second[:, 1]])
    return np.stack([(l * l).sum(axis=0), (l * m).sum(axis=0), (m * m).sum(axis=0)], axis=-1)


@numba.njit(nogil=True, cache=True)
def _sum(uvw: Any, freq: Any, even: Any, delays: Any, decay: Any, flux: Any, vis: Any) -> Any:
    nchan = len(freq)
    for r in range(len(uvw)):
        u, v, w = uvw[r]
        for c in range(len(delays)):
            delay = u * delays[c, 0] + v * delays[c, 1] + w * delays[c, 2]
            width = decay[c, 0] * u * u + 2 * decay[c, 1] * u * v + decay[c, 2] * v * v
            fringe = np.exp(1j * delay * freq[0])
            # From one channel to the next the phase advances by the same angle: one product instead of one exponential.
            step = np.exp(1j * delay * (freq[1] - freq[0])) if even else fringe
            for k in range(nchan):
                if k > 0:
                    fringe = fringe * step if even else np.exp(1j * delay * freq[k])
                seen = fringe * np.exp(-width * freq[k] * freq[k]) if width > 0 else fringe
                for s in range(len(flux)):
                    vis[s, r, k] += flux[s, c, k] * seen
