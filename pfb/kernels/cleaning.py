"""Matching pursuit of point sources, which CLEAN is: where the sky has them, and what each band sees of them."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pfb.types import Real

Pixels = NDArray[np.int64]
"""(n, 2): first and second index of pixels, one that is found again occurs again."""


def find_points(
    residual: Real, psf: Real, *, gain: float, depth: float, maxit: int, mask: Any = None, positive: bool = False
) -> Pixels:
    r"""Take `gain` times the highest pixel and its sidelobes off a residual, again and again [1]_.

    It ends when no pixel is above `depth` times the first peak, or above :math:`\sqrt{2 \ln n}` times the
    rms of what is left of the n pixels, which is about where the highest of n independent normal numbers is: then
    what stands out is as likely noise or a sidelobe.

    Parameters
    ----------
    residual : (nx, ny) float
        Not changed.
    psf : (px, py) float
        With its peak at (px // 2, py // 2). What of its sidelobes lies outside counts as zero.
    gain : float
        Fraction of a peak that is subtracted.
    depth : float
        Fraction of the first peak at which to end; 1 finds nothing.
    maxit : int
        Pixels at most.
    mask : (nx, ny) bool, optional
        Where to look for peaks.
    positive : bool
        Look for positive ones only.

    Returns
    -------
    Pixels
        In the order found.

    References
    ----------
    .. [1] Hogbom J. 1974, A&AS 15, 417.
    """
    left = np.array(residual, np.float64)
    allowed = np.ones(left.shape, np.bool_) if mask is None else np.ascontiguousarray(mask, np.bool_)
    found = np.empty((maxit, 2), np.int64)
    peak = float(psf[psf.shape[0] // 2, psf.shape[1] // 2])
    if peak <= 0:
        return found[:0]
    count = _pursue(left, np.ascontiguousarray(psf, np.float64), gain / peak, depth, allowed, positive, found)
    return found[:count]


def point_fluxes(residual: Real, psf: Real, pixels: Pixels, gain: float) -> Real:
    """Return what the same subtractions, pixel by pixel in the same order, take off another residual.

    Only the values at the pixels are followed, so no image is touched.

    Parameters
    ----------
    residual : (nx, ny) float
        Of one band, in any unit.
    psf : (px, py) float
        Of the same band, in the same unit per Jy.
    pixels : Pixels
        From `find_points`.
    gain : float
        Fraction of a pixel that is subtracted.

    Returns
    -------
    (n,) float
        Flux in Jy of each.
    """
    centre = np.array(psf.shape) // 2
    left = residual[pixels[:, 0], pixels[:, 1]].astype(np.float64)
    peak = float(psf[tuple(centre)])
    fluxes = np.zeros(len(pixels))
    for i, pixel in enumerate(pixels):
        fluxes[i] = gain * left[i] / peak
        at = pixels - pixel + centre
        inside = ((at >= 0) & (at < psf.shape)).all(axis=1)
        left[inside] -= fluxes[i] * psf[at[inside, 0], at[inside, 1]]
    return fluxes


def point_model(residual: Real, psf: Real, pixels: Pixels, *, gain: float, positive: bool = False) -> Real:
    """Return the sum of the `point_fluxes` as an image in Jy/pixel, (nx, ny) float; if it is `positive` no pixel is negative."""
    model = np.zeros(residual.shape)
    np.add.at(model, (pixels[:, 0], pixels[:, 1]), point_fluxes(residual, psf, pixels, gain))
    return np.maximum(model, 0, out=model) if positive else model


@numba.njit(nogil=True, cache=True)
def _pursue(left: Any, psf: Any, scale: Any, depth: Any, allowed: Any, positive: Any, found: Any) -> Any:
    nx, ny = left.shape
    px, py = psf.shape
    number = np.sum(allowed)
    level = 0.0
    for count in range(len(found)):
        best, i, j, squares = 0.0, -1, -1, 0.0
        for a in range(nx):
            for b in range(ny):
                if not allowed[a, b]:
                    continue
                value = left[a, b]
                squares += value * value
                if not positive:
                    value = abs(value)
                if value > best:
                    best, i, j = value, a, b
        if count == 0:
            level = depth * best
        if i < 0 or best <= level or best * best <= 2 * np.log(number) * squares / number:
            return count
        found[count, 0], found[count, 1] = i, j
        flux = scale * left[i, j]
        up, across = px // 2 - i, py // 2 - j
        for a in range(max(0, -up), min(nx, px - up)):
            for b in range(max(0, -across), min(ny, py - across)):
                left[a, b] -= flux * psf[a + up, b + across]
    return len(found)
