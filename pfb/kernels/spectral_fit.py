r"""Spectral index and curvature by weighted least squares, :math:`S = S_0 (\nu/\nu_0)^{\alpha + \beta \ln(\nu/\nu_0)}`.

Fluxes are fitted, not their logarithms: a logarithm needs positive values, and that of a noisy one is biased by
:math:`-\sigma^2 / 2S^2`. The errors are those of the linear problem at the minimum, so they hold where
:math:`S / \sigma` of the mean over the bands is well above one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.types import Real

MAXIT = 60
TOLERANCE = 1e-9
"""Change of the parameters, all of order one, at which the iteration has converged."""


class SpectralFit(NamedTuple):
    """Spectra of n pixels or sources."""

    flux: Real
    """(n,) flux at the reference frequency, in the unit of the data; NaN where no positive spectrum fits."""
    flux_error: Real
    """(n,) its standard deviation."""
    terms: Real
    """(terms, n) spectral index, and curvature if it was asked for."""
    errors: Real
    """(terms, n) their standard deviations."""
    chi2: Real
    """(n,) sum of the squares of the weighted residuals."""


def reference_frequency(freq: Real, sigma: Real) -> float:
    """Return the (geometric) mean frequency in Hz with weights ``sigma**-2``, at which flux and index are independent."""
    return float(np.exp(np.average(np.log(freq), weights=sigma**-2.0)))


def require_rank(bands: int, terms: int) -> None:
    """Raise `InputError` unless there are enough bands for a spectral index (terms 1) or a curvature (terms 2)."""
    if bands <= terms:
        what = "a spectral index" if terms == 1 else "a spectral curvature"
        raise InputError(
            f"{what} has rank {terms + 1}, for which {terms + 1} bands with data are needed, but there "
            f"{'is' if bands == 1 else 'are'} {bands}: image more bands{'' if terms == 1 else ', or leave out --curvature'}"
        )


def fit_spectra(flux: Real, sigma: Real, freq: Real, reference: float, terms: int) -> SpectralFit:
    r"""Minimise :math:`\sum_b (S_b - S(\nu_b))^2 / \sigma_b^2` for each of n pixels, by Levenberg and Marquardt.

    Parameters
    ----------
    flux : (band, n) float
        Flux or brightness.
    sigma : (band,) or (band, n) float
        Its standard deviation, positive; independent between bands.
    freq : (band,) float
        Hz.
    reference : float
        Frequency of :math:`S_0` in Hz.
    terms : int
        1: spectral index; 2: and curvature.

    Raises
    ------
    InputError
        If there are fewer bands than parameters.
    """
    require_rank(len(np.unique(freq)), terms)
    s = np.asarray(flux, np.float64).T
    weight = np.broadcast_to(1 / np.asarray(sigma, np.float64).T, s.shape)
    x = np.log(np.asarray(freq, np.float64) / reference)[:, None] ** np.arange(terms + 1.0)
    p = _start(s, weight, x)
    with np.errstate(all="ignore"):
        p = _minimise(p, s, weight, x)
        model = np.exp(p @ x.T)
        jacobian = (model * weight)[:, :, None] * x
        variance = _diagonal_of_inverse(np.einsum("nbi,nbj->nij", jacobian, jacobian))
    p[~np.isfinite(variance).all(axis=1)] = np.nan
    deviation = np.sqrt(np.where(np.isnan(p), np.nan, variance))
    chi2 = (np.square((s - model) * weight)).sum(axis=1)
    s0 = np.exp(p[:, 0])
    return SpectralFit(s0, s0 * deviation[:, 0], p[:, 1:].T, deviation[:, 1:].T, np.where(np.isnan(s0), np.nan, chi2))


def _start(s: Real, weight: Real, x: Real) -> Real:
    """A straight line through the fluxes gives the first flux and index; NaN where its mean is not positive."""
    w = weight**2
    total, mean = w.sum(axis=1), (w * s).sum(axis=1) / w.sum(axis=1)
    centre = (w * x[:, 1]).sum(axis=1) / total
    away = x[:, 1] - centre[:, None]
    slope = (w * away * s).sum(axis=1) / (w * away**2).sum(axis=1)
    p = np.zeros((len(s), x.shape[1]))
    with np.errstate(all="ignore"):
        p[:, 1] = np.clip(slope / mean, -5, 5)
        p[:, 0] = np.log(mean) - p[:, 1] * centre
    return p


def _minimise(p: Real, s: Real, weight: Real, x: Real) -> Real:
    def cost(p: Real, rows: NDArray[np.int64]) -> Real:
        value: Real = np.square((s[rows] - np.exp(p @ x.T)) * weight[rows]).sum(axis=1)
        return value

    left = np.flatnonzero(np.isfinite(p).all(axis=1))
    damping, now = np.full(len(s), 1e-3), np.full(len(s), np.inf)
    now[left] = cost(p[left], left)
    diagonal = np.arange(x.shape[1])
    for _ in range(MAXIT):
        if not left.size:
            break
        model = np.exp(p[left] @ x.T)
        jacobian = (model * weight[left])[:, :, None] * x
        normal = np.einsum("nbi,nbj->nij", jacobian, jacobian)
        right = np.einsum("nbi,nb->ni", jacobian, (s[left] - model) * weight[left])
        normal[:, diagonal, diagonal] *= 1 + damping[left, None]
        # A flux that falls to zero leaves nothing to solve.
        sound = np.isfinite(normal).all(axis=(1, 2)) & (np.linalg.det(normal) > 0)
        p[left[~sound]] = np.nan
        left, normal, right = left[sound], normal[sound], right[sound]
        step = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
        tried = cost(p[left] + step, left)
        better = tried <= now[left]
        p[left[better]] += step[better]
        now[left[better]] = tried[better]
        damping[left] *= np.where(better, 0.1, 10.0)
        done = (better & (np.abs(step).max(axis=1) < TOLERANCE)) | (damping[left] > 1e12)
        left = left[~done]
    return p


def _diagonal_of_inverse(normal: Real) -> Real:
    """Return the diagonals of the inverses of (n, k, k) matrices; NaN where there is none."""
    out = np.full(normal.shape[:2], np.nan)
    sound = np.flatnonzero(np.isfinite(normal).all(axis=(1, 2)))
    sound = sound[np.linalg.det(normal[sound]) > 0]
    out[sound] = np.diagonal(np.linalg.inv(normal[sound]), axis1=1, axis2=2)
    return np.where(out > 0, out, np.nan)
