r"""Beams: fit one to a PSF, find one that encloses many, convolve an image to one.

A beam is the Gaussian :math:`\exp(-4\ln 2\; r^T S^{-1} r)` with the symmetric matrix
:math:`S = F_1^2 e_1 e_1^T + F_2^2 e_2 e_2^T` of its full widths at half maximum, called its
*spread* here. Spreads add under convolution. The major axis is
:math:`e_1 = (-\sin\theta, \cos\theta)` in pixels, since x runs along falling right ascension and the
position angle :math:`\theta` is counted North through East.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import ducc0
import numpy as np

from pfb.errors import InputError, ShapeError
from pfb.kernels.convolution import convolve
from pfb.types import Beam, Real

LN16 = 4 * np.log(2)
# Beyond this many full widths a Gaussian is below 1e-17, less than the rounding of its peak.
REACH = 3.8
# exp(-40) = 4e-18, for the same reason.
NEGLIGIBLE = 40.0


class BeamFit(NamedTuple):
    """A fitted beam and how it was found."""

    beam: Beam
    least_squares: bool
    """False if the fit failed and the second moments of the lobe were taken instead."""


def fit_beam(psf: Real, cell: float) -> Beam | None:
    """Return the beam that `fit_lobe` finds, however it finds it."""
    fit = fit_lobe(psf, cell)
    return None if fit is None else fit.beam


def fit_lobe(psf: Real, cell: float) -> BeamFit | None:
    """Fit an elliptical Gaussian to the central lobe of a point spread function.

    The lobe is the connected region above half of the central value. The Gaussian has
    its peak fixed to that value and pixel. If least squares find no ellipse, the
    second moments of the lobe, corrected for its truncation at half maximum, are used.

    Parameters
    ----------
    psf : (nx_psf, ny_psf) float
        Its centre is pixel ``(nx_psf // 2, ny_psf // 2)``; any normalisation.
    cell : float
        Pixel size in radians.

    Returns
    -------
    BeamFit or None
        None if the central value is not positive or the lobe touches a NaN, e.g. for an empty band.
    """
    x, y, value, complete = _lobe(psf)
    if not complete:
        return None
    spread = _least_squares(x, y, value)
    found = spread is not None
    if spread is None:
        spread = _moments(x, y, value)
    return BeamFit(from_spread(spread * cell**2), found)


def gaussian_transfer(beam: Beam, shape: tuple[int, int], cell: float) -> Real:
    r"""Fourier transform a beam of peak 1 centred on pixel (0, 0) of a periodic grid.

    Equals the real-input FFT of the sampled Gaussian, but is computed in closed form,

    .. math::
        \sum_{ij} A \exp\left(-\frac{\pi^2}{4\ln 2}\, k_{ij}^T S k_{ij}\right),
        \quad A = \frac{\pi}{4\ln 2} \sqrt{\det S},
        \quad k_{ij} = (u + i, v + j),

    where the aliases other than i = j = 0 matter for beams of less than three pixels.

    Parameters
    ----------
    beam : Beam
        Widths and angle in radians.
    shape : (int, int)
        Size of the real grid in pixels.
    cell : float
        Pixel size in radians.

    Returns
    -------
    (shape[0], shape[1] // 2 + 1) float64
        Its value at zero frequency is the area of the beam in pixels.
    """
    return spread_transfer(spread(beam) / cell**2, shape)


def spread_transfer(matrix: Real, shape: tuple[int, int]) -> Real:
    """Do the same for a beam whose spread is given in pixels squared, (2, 2)."""
    area = np.pi / LN16 * np.sqrt(np.linalg.det(matrix))
    us, vs = _aliases(matrix), _aliases(matrix[::-1, ::-1])
    return _fill(shape, lambda u, v: area * sum(_decay(matrix, u + i, v + j) for i in us for j in vs))


def transfer_ratio(native: Beam, target: Beam, shape: tuple[int, int], cell: float) -> Real:
    """Divide the Fourier transforms of two beams of peak 1, which brings an image from one to the other.

    Without aliases: an image made with a gridder has no power beyond the band of its grid.

    Parameters
    ----------
    native, target : Beam
        Widths and angles in radians; the target encloses the native beam.
    shape : (int, int)
        Size of the real grid in pixels.
    cell : float
        Pixel size in radians.

    Returns
    -------
    (shape[0], shape[1] // 2 + 1) float64
        Its value at zero frequency is the ratio of the areas.
    """
    return spread_ratio(spread(native) / cell**2, spread(target) / cell**2, shape)


def spread_ratio(before: Real, after: Real, shape: tuple[int, int]) -> Real:
    """Do the same for beams whose spreads are given in pixels squared, (2, 2)."""
    ratio = np.sqrt(np.linalg.det(after) / np.linalg.det(before))
    return _fill(shape, lambda u, v: ratio * _decay(after - before, u, v))


def encloses(outer: Beam, inner: Beam, rtol: float = 1e-6) -> bool:
    """Tell whether a beam is nowhere narrower than another, up to `rtol` of the inner one's minor width."""
    narrowest = np.linalg.eigvalsh(spread(outer) - spread(inner))[0]
    return bool(narrowest >= -2 * rtol * inner.minor**2)


def common_beam(beams: Sequence[Beam]) -> Beam:
    r"""Return the ellipse of smallest area that encloses all beams (Loewner's).

    Maximises :math:`\log\det P` subject to :math:`P \preceq S_i^{-1}`, which is convex, by an
    interior-point method; the result encloses every beam strictly and exceeds the least area by less than 1e-7.

    Parameters
    ----------
    beams : sequence of Beam
        All finite, in any order; position angles mean axes, so theta and theta + pi are the same.

    Returns
    -------
    Beam
        One of the beams, unchanged, if it encloses all others.

    Raises
    ------
    InputError
        If there are no beams.
    """
    if not beams:
        raise InputError("there is no beam to enclose; at least one band needs data")
    for beam in sorted(beams, key=lambda beam: beam.major * beam.minor):
        if all(encloses(beam, other, rtol=1e-9) for other in beams):
            return beam
    spreads = np.array([spread(beam) for beam in beams])
    scale = np.trace(spreads, axis1=1, axis2=2).mean()
    return from_spread(np.linalg.inv(_largest_below(np.linalg.inv(spreads / scale))) * scale)


def restore(model: Real, residual: Real, cell: float, native: Beam, target: Beam, nthreads: int = 1) -> Real:
    r"""Return :math:`x * G_T + r * (G_T / G_N)`, the image seen with the target beam.

    The ratio is that of the closed-form transforms of the two Gaussians of peak 1, so the
    residual, too, is in Jy per target beam afterwards. Images are padded with zeros,
    nothing wraps around an edge.

    Parameters
    ----------
    model : (nx, ny) float
        Jy/pixel.
    residual : (nx, ny) float
        Jy per native beam. Returned bit for bit if the beams are equal and the model is zero.
    cell : float
        Pixel size in radians.
    native, target : Beam
        Beam of the residual, and the beam asked for.
    nthreads : int
        Threads used inside this call.

    Returns
    -------
    (nx, ny) float
        Jy per target beam, in the wider precision of the two images.

    Raises
    ------
    ShapeError
        If the images differ in shape.
    InputError
        If the target is narrower than the native beam in any direction.
    """
    if model.shape != residual.shape:
        raise ShapeError(f"the model has shape {model.shape} but the residual {residual.shape}; restore images of one grid")
    if not encloses(target, native):
        raise InputError(
            f"the restoring beam {describe(target)} is narrower than the native beam {describe(native)}; choose a wider one"
        )
    nx, ny = model.shape
    reach = int(np.ceil(REACH * target.major / cell))
    padded = ducc0.fft.good_size(nx + reach, True), ducc0.fft.good_size(ny + reach, True)
    image = convolve(model, gaussian_transfer(target, padded, cell), padded, nthreads)
    if target != native:
        residual = convolve(residual, transfer_ratio(native, target, padded, cell), padded, nthreads)
    return image + residual


def describe(beam: Beam) -> str:
    """Write a beam in arcsec and degrees."""
    major, minor = np.degrees(beam.major) * 3600, np.degrees(beam.minor) * 3600
    return f'{major:.4g}" x {minor:.4g}" at {np.degrees(beam.pa):.1f} deg'


def spread(beam: Beam) -> Real:
    """Return the (2, 2) matrix of a beam's squared widths along x and y, in rad^2."""
    sine, cosine = np.sin(beam.pa), np.cos(beam.pa)
    axes = np.array([[-sine, cosine], [cosine, sine]])
    return (axes.T * [beam.major**2, beam.minor**2]) @ axes


def from_spread(matrix: Real) -> Beam:
    """Return the beam of a `spread`, its position angle in (-pi/2, pi/2]."""
    (small, large), axes = np.linalg.eigh(matrix)
    angle = 0.0 if large <= small * (1 + 1e-12) else np.arctan2(-axes[0, 1], axes[1, 1])
    # An axis has no direction: fold the angle into (-pi/2, pi/2].
    angle -= np.pi * np.ceil(angle / np.pi - 0.5)
    return Beam(float(np.sqrt(large)), float(np.sqrt(small)), float(angle))


def _lobe(psf: Real) -> tuple[Real, Real, Real, bool]:
    """Offsets from the centre in pixels and values, relative to the centre's, of the central lobe; whether it is usable."""
    from scipy.ndimage import binary_dilation, label  # takes longer to import than most tasks that need this module take

    nx, ny = psf.shape
    peak = float(psf[nx // 2, ny // 2])
    half = 16
    while True:
        x0, y0 = max(nx // 2 - half, 0), max(ny // 2 - half, 0)
        # A NaN counts as above half maximum, so that a lobe that touches one is found out.
        window = np.asarray(psf[x0 : nx // 2 + half + 1, y0 : ny // 2 + half + 1], "f8") / (peak if peak > 0 else np.nan)
        regions, _ = label(~(window < 0.5))
        lobe = regions == regions[nx // 2 - x0, ny // 2 - y0]
        rim = lobe.copy()
        rim[1:-1, 1:-1] = False
        if not np.isfinite(window[lobe]).all() or not rim.any() or half >= max(nx, ny):
            break
        half *= 2
    if lobe.sum() < 12:
        # Too few pixels for three parameters: take their neighbours as well.
        lobe = binary_dilation(lobe, np.ones((3, 3))) & (window > 0)
    x, y = np.nonzero(lobe)
    return x + x0 - nx // 2.0, y + y0 - ny // 2.0, window[lobe], bool(np.isfinite(window[lobe]).all())


def _least_squares(x: Real, y: Real, value: Real) -> Real | None:
    """Spread in pixels^2 of the Gaussian of peak 1 closest to `value`, or None if there is none."""
    from scipy.optimize import least_squares

    basis = np.stack([x * x, 2 * x * y, y * y], axis=1)
    gaussian = lambda q: np.exp(-basis @ q)
    # The logarithm is linear in q; weights make it nearly the problem to be solved, so it is a good start.
    start, *_, rank, _ = np.linalg.lstsq(basis * value[:, None], -value * np.log(value), rcond=None)
    if rank < 3:
        return None
    with np.errstate(over="ignore"):
        fit = least_squares(
            lambda q: gaussian(q) - value,
            start,
            jac=lambda q: -basis * gaussian(q)[:, None],
            method="trf",
            x_scale="jac",
            xtol=1e-12,
        )
    quadratic = fit.x[[0, 1, 1, 2]].reshape(2, 2)
    if not fit.success or np.linalg.eigvalsh(quadratic)[0] <= 0:
        return None
    return LN16 * np.linalg.inv(quadratic)


def _moments(x: Real, y: Real, value: Real) -> Real:
    """Spread in pixels^2 from the second moments of a lobe."""
    inside = value >= 0.5
    points = np.stack([x, y])[:, inside]
    variance = (points * value[inside]) @ points.T / value[inside].sum()
    # A Gaussian cut at half maximum keeps 1 - ln 2 of its variance.
    sizes, axes = np.linalg.eigh(variance / (1 - np.log(2)))
    # The variance of a pixel, 1/12, is the least that a lobe can have.
    return 2 * LN16 * (axes * np.maximum(sizes, 1 / 12)) @ axes.T


def _largest_below(bounds: Real) -> Real:
    """Return the (2, 2) matrix P of largest determinant with bounds[i] - P positive definite for all i."""
    basis = np.array([[[1, 0], [0, 0]], [[0, 1], [1, 0]], [[0, 0], [0, 1]]], "f8")
    p = np.array([1.0, 0.0, 1.0]) * np.linalg.eigvalsh(bounds).min() / 2

    def cost(p: Real, mu: float) -> float:
        matrices = np.concatenate([np.tensordot(p, basis, 1)[None], bounds - np.tensordot(p, basis, 1)])
        det = np.linalg.det(matrices)
        if (det <= 0).any() or (matrices[:, 0, 0] <= 0).any():
            return np.inf
        return float(-np.log(det[0]) - mu * np.log(det[1:]).sum())

    for mu in 10.0 ** -np.arange(0, 9) / len(bounds):
        for _ in range(50):
            own = np.linalg.inv(np.tensordot(p, basis, 1)) @ basis
            slack = np.linalg.inv(bounds - np.tensordot(p, basis, 1))[:, None] @ basis
            gradient = -np.einsum("kii", own) + mu * np.einsum("nkii->k", slack)
            hessian = np.einsum("kij,lji->kl", own, own) + mu * np.einsum("nkij,nlji->kl", slack, slack)
            step = -np.linalg.solve(hessian, gradient)
            decrease = -gradient @ step
            size, now = 1.0, cost(p, mu)
            while size > 1e-12 and not cost(p + size * step, mu) <= now - 0.1 * size * decrease:
                size /= 2
            if size <= 1e-12 or decrease < 1e-10 * mu:
                break
            p = p + size * step
    return np.tensordot(p, basis, 1)


def _aliases(matrix: Real) -> range:
    """Aliases along the first axis that are not negligible anywhere on the grid."""
    # The least exponent for a given u, over all v.
    least = np.pi**2 / LN16 * np.linalg.det(matrix) / matrix[1, 1]
    n = int(0.5 + np.sqrt(NEGLIGIBLE / least))
    return range(-n, n + 1)


def _decay(matrix: Real, u: Real, v: Real) -> Real:
    decay: Real = np.exp(-(np.pi**2) / LN16 * (matrix[0, 0] * u * u + 2 * matrix[0, 1] * u * v + matrix[1, 1] * v * v))
    return decay


def _fill(shape: tuple[int, int], function: Callable[[Real, Real], Real]) -> Real:
    """Evaluate a function of the frequencies in cycles per pixel, by blocks of rows so that temporaries stay small."""
    u, v = np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])[None, :]
    out = np.empty((u.size, v.size))
    for start in range(0, u.size, 256):
        out[start : start + 256] = function(u[start : start + 256], v)
    return out
