"""Matching pursuit, which CLEAN is: of point sources in one image, and of components in the images of all bands."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from pfb.types import Real

Pixels = NDArray[np.int64]
"""(n, 2): first and second index of pixels, one that is found again occurs again."""

POSITIVITY = ("none", "clip", "joint")
"""Which fluxes a component may have: any; negative ones are set to zero; if any band has a negative one it is none."""


class Rule(NamedTuple):
    """How components are taken off.

    Parameters
    ----------
    mix : (band, band) float
        Fluxes of a component are this times the values of all bands at its pixel; see `mixing`.
    positivity : str
        One of `POSITIVITY`; with another than ``none`` only positive peaks are looked for.
    """

    mix: Real
    positivity: str = "none"


def mixing(peaks: Real, gain: float, freq: Real, terms: int | None = None) -> Real:
    r"""Return the matrix that makes fluxes of values: :math:`g F P^{-1}`, with F the fit of a polynomial in frequency.

    The fit minimises :math:`\sum_b p_b (f_b - \sum_k c_k \nu_b^k)^2`. Whatever the number of terms, :math:`\sum_b p_b f_b` is
    g times the sum of the values then, which is what the sum of the residuals falls by at the pixel.

    Parameters
    ----------
    peaks : (band,) float
        Peak p of the PSF of every band, none of them zero.
    gain : float
        Loop gain g.
    freq : (band,) float
        Hz.
    terms : int, optional
        Coefficients of the polynomial; by default, and if there are as many as bands, every band has a flux of its own.

    Returns
    -------
    (band, band) float64
    """
    n = len(peaks)
    fit = np.eye(n)
    if terms is not None and terms < n:
        x = (freq - np.mean(freq)) / max(float(np.ptp(freq)), 1.0)
        basis = np.vander(x, terms, increasing=True)
        fit = basis @ np.linalg.solve(basis.T @ (peaks[:, None] * basis), basis.T * peaks)
    return np.ascontiguousarray(gain * fit / peaks)


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
    prefer = np.ones(left.shape) if mask is None else np.ascontiguousarray(mask, np.float64)
    found, fluxes = np.empty((maxit, 2), np.int64), np.empty((maxit, 1))
    peak = float(psf[psf.shape[0] // 2, psf.shape[1] // 2])
    if peak <= 0:
        return found[:0]
    psfs, mix = np.ascontiguousarray(psf, np.float64)[None], np.array([[gain / peak]])
    count = _pursue(left[None], left, psfs, mix, prefer, (depth, 0.0, int(positive), True), found, fluxes)
    return found[:count]


def hogbom(residuals: Real, psfs: Real, prefer: Real, rule: Rule, *, floor: float, maxit: int) -> tuple[Pixels, Real]:
    """Take components at the highest pixels of the sum of all bands off every band, with the whole of its PSF [1]_.

    Parameters
    ----------
    residuals : (band, nx, ny) float64
        In Jy over the beam of all bands; what is found is taken off them.
    psfs : (band, px, py) float64
        In the same unit per Jy, their peaks at (px // 2, py // 2). What of their sidelobes lies outside counts as zero.
    prefer : (nx, ny) float
        What the sum is multiplied with where its peak is looked for; 0 where none may be.
    rule : Rule
        What is taken off.
    floor : float
        End when no pixel is above it.
    maxit : int
        Components at most.

    Returns
    -------
    Pixels, (n, band) float64
        In the order found, and their fluxes in Jy.

    References
    ----------
    .. [1] Hogbom J. 1974, A&AS 15, 417.
    """
    found, fluxes = np.empty((maxit, 2), np.int64), np.empty((maxit, len(residuals)))
    total = residuals[0] if len(residuals) == 1 else residuals.sum(axis=0)
    mode = POSITIVITY.index(rule.positivity)
    wanted = np.array(prefer, np.float64)
    count = _pursue(residuals, total, psfs, rule.mix, wanted, (0.0, floor, mode, False), found, fluxes)
    return found[:count], fluxes[:count]


class Patch(NamedTuple):
    """Pixels that are cleaned among themselves, with what they see of each other's sidelobes."""

    values: Real
    """(band, n) float64: the images of all bands there; changed by `clark`."""
    pixels: Pixels
    prefer: Real
    """(n,) float64, see `hogbom`."""
    psfs: Real
    """(band, px, py) float: the middle of the PSFs; the pixels see nothing of each other beyond it."""


def clark(patch: Patch, rule: Rule, *, floor: float, maxit: int) -> tuple[Real, int]:
    """Take components off the brightest pixels only, with the middle of the PSFs [1]_.

    Parameters
    ----------
    patch : Patch
        The pixels; what is found is taken off their values.
    rule, floor, maxit
        As of `hogbom`.

    Returns
    -------
    (n, band) float64, int
        Flux of every pixel, the sum over its components, and how many these were.

    References
    ----------
    .. [1] Clark B. 1980, A&A 89, 377.
    """
    fluxes = np.zeros((len(patch.pixels), len(patch.values)))
    mode = POSITIVITY.index(rule.positivity)
    psfs, prefer = np.ascontiguousarray(patch.psfs), np.array(patch.prefer, np.float64)
    total = patch.values.sum(axis=0)
    return fluxes, int(_clark(patch.values, total, patch.pixels, psfs, rule.mix, prefer, (floor, mode, maxit), fluxes))


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
def _component(mix: Any, values: Any, mode: Any, flux: Any) -> Any:
    """Make the fluxes of a component; returns whether it may be one."""
    for b in range(len(flux)):
        total = 0.0
        for c in range(len(values)):
            total += mix[b, c] * values[c]
        if mode and total < 0:
            if mode == 2:
                return False
            total = 0.0
        flux[b] = total
    return True


@numba.njit(nogil=True, cache=True)
def _pursue(left: Any, total: Any, psfs: Any, mix: Any, prefer: Any, search: Any, found: Any, fluxes: Any) -> Any:
    """Find components until a depth of the first peak, a floor or, if asked for, the noise; returns how many.

    What is searched for is (depth, floor, number in `POSITIVITY`, whether to stop at the noise). The sum over the bands is
    `total`, which is `left` itself if there is one band; a pixel that may not be a component is not looked at again.
    """
    depth, floor, mode, noisy = search
    nx, ny = total.shape
    nband, px, py = psfs.shape
    number = np.sum(prefer > 0)
    level, count = floor, 0
    first = True
    while count < len(found):
        best, i, j, squares = 0.0, -1, -1, 0.0
        for a in range(nx):
            for b in range(ny):
                wish = prefer[a, b]
                if wish == 0:
                    continue
                value = total[a, b]
                squares += value * value
                if not mode:
                    value = abs(value)
                value *= wish
                if value > best:
                    best, i, j = value, a, b
        if first:
            level, first = max(floor, depth * best), False
        if i < 0 or best <= level or (noisy and best * best <= 2 * np.log(number) * squares / number):
            return count
        flux = fluxes[count]
        if not _component(mix, left[:, i, j], mode, flux):
            prefer[i, j] = 0
            continue
        found[count, 0], found[count, 1] = i, j
        count += 1
        up, across = px // 2 - i, py // 2 - j
        for c in range(nband):
            for a in range(max(0, -up), min(nx, px - up)):
                for b in range(max(0, -across), min(ny, py - across)):
                    taken = flux[c] * psfs[c, a + up, b + across]
                    total[a, b] -= taken
                    if nband > 1:
                        left[c, a, b] -= taken
    return count


@numba.njit(nogil=True, cache=True)
def _clark(values: Any, total: Any, pixels: Any, psfs: Any, mix: Any, prefer: Any, search: Any, fluxes: Any) -> Any:
    """Add up the fluxes of components among some pixels; returns how many components these were.

    What is searched for is (floor, number in `POSITIVITY`, components at most).
    """
    floor, mode, maxit = search
    nband, px, py = psfs.shape
    flux = np.empty(nband)
    count = 0
    while count < maxit:
        best, at = floor, -1
        for k in range(len(total)):
            value = (total[k] if mode else abs(total[k])) * prefer[k]
            if value > best:
                best, at = value, k
        if at < 0:
            break
        if not _component(mix, values[:, at], mode, flux):
            prefer[at] = 0
            continue
        fluxes[at] += flux
        count += 1
        up, across = px // 2 - pixels[at, 0], py // 2 - pixels[at, 1]
        for k in range(len(total)):
            a, b = pixels[k, 0] + up, pixels[k, 1] + across
            if 0 <= a < px and 0 <= b < py:
                for c in range(nband):
                    taken = flux[c] * psfs[c, a, b]
                    values[c, k] -= taken
                    total[k] -= taken
    return count
