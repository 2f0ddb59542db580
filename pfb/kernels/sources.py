r"""Sources of a restored image: islands above the noise, and elliptical Gaussians fitted to them.

A Gaussian is :math:`A \exp(-4\ln 2\, r^T S^{-1} r)`, with S as in `pfb.kernels.beam`. Errors are those of Condon (1997, PASP 109,
166) for noise that has the resolution of the beam.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, find_objects, label, maximum_filter
from scipy.optimize import least_squares

from pfb.kernels.beam import LN16, from_spread, spread
from pfb.kernels.masking import NEIGHBOURS, islands
from pfb.types import Beam, Real

MOST = 10
"""Gaussians of an island at most; what is left of a larger one is extended emission that Gaussians do not describe."""

WIDEST = 3.0
"""A Gaussian wider than this many times the island, or than its beam where that is wider, is none."""


class Gaussian(NamedTuple):
    """A fitted Gaussian."""

    x: float
    """Centre in pixels, counted from zero."""
    y: float
    peak: float
    """Jy/beam."""
    shape: Beam
    """Fitted widths and position angle, in radians."""


class Errors(NamedTuple):
    """Standard deviations of a Gaussian's parameters."""

    along: float
    """Of the position along the major axis, in radians."""
    across: float
    """Of the position along the minor axis, in radians."""
    peak: float
    flux: float
    major: float
    minor: float
    pa: float


class Island(NamedTuple):
    """The pixels of an island, and the Gaussians that it is made of."""

    x: NDArray[np.int64]
    """(n,) pixels."""
    y: NDArray[np.int64]
    noise: float
    """Mean local noise in Jy/beam."""
    gaussians: list[Gaussian]


def find_sources(image: Real, noise: Real, beam: Beam, cell: float, *, high: float, low: float) -> list[Island]:
    """Find islands and fit Gaussians to them.

    There is one for each peak that exceeds `high` times the noise and is higher than all within half a beam, unless a fit
    makes no ellipse of it. If none are left, shapes are that of the beam and only places and peaks are fitted.

    Parameters
    ----------
    image : (nx, ny) float
        Restored image in Jy/beam; NaN where blank.
    noise : (nx, ny) float
        Local noise in the same unit.
    beam : Beam
        Restoring beam.
    cell : float
        Pixel size in radians.
    high, low : float
        Signal-to-noise ratios of a peak, and of an island's edge.

    Returns
    -------
    list of Island
        The brightest first.
    """
    labels, _ = label(islands(image, noise, high=high, low=low).mask, NEIGHBOURS)
    peaks = _peaks(image, beam, cell) & (labels > 0)
    with np.errstate(invalid="ignore"):
        peaks &= image > high * noise
    found = []
    for number, box in enumerate(find_objects(labels), 1):
        first = [max(s.start - 1, 0) for s in box]
        wide = tuple(slice(f, s.stop + 1) for f, s in zip(first, box, strict=True))
        own = labels[wide] == number
        places = np.argwhere(peaks[wide] & own) + first
        order = np.argsort(-image[places[:, 0], places[:, 1]])[:MOST]
        x, y = (axis + f for axis, f in zip(_fitted_pixels(own, np.isfinite(image[wide]), len(order)), first, strict=True))
        gaussians = _fit(image, x, y, places[order], beam, cell)
        found.append(Island(x, y, float(noise[x, y].mean()), gaussians))
    return sorted(found, key=lambda island: -max((g.peak for g in island.gaussians), default=0.0))


def errors(gaussian: Gaussian, noise: float, beam: Beam) -> Errors:
    r"""Return the standard deviations of a fit, with :math:`\rho` of Condon's equation 41 and the exponents that follow it.

    The width of the noise is that of the beam along each axis of the Gaussian.
    """
    shape = gaussian.shape
    area = shape.major * shape.minor / (beam.major * beam.minor)
    sine, cosine = np.sin(shape.pa), np.cos(shape.pa)
    first, second = (float(axis @ spread(beam) @ axis) for axis in (np.array([-sine, cosine]), np.array([cosine, sine])))

    def relative(major: float, minor: float) -> float:
        square = area / 4 * (1 + first / shape.major**2) ** major * (1 + second / shape.minor**2) ** minor
        return float(np.sqrt(2 / square) * noise / abs(gaussian.peak))

    peak, along, across = relative(1.5, 1.5), relative(2.5, 0.5), relative(0.5, 2.5)
    flux = abs(integrated(gaussian, beam)) * np.sqrt(peak**2 + (along**2 + across**2) / area)
    # A circle has no angle, and none is known to less than half of its range.
    difference = shape.major**2 - shape.minor**2
    turn = np.sqrt(2) * shape.major * shape.minor / difference * across if difference > 0 else np.pi
    sigma = np.sqrt(8 * np.log(2))
    return Errors(
        along=float(shape.major * along / sigma),
        across=float(shape.minor * across / sigma),
        peak=abs(gaussian.peak) * peak,
        flux=float(flux),
        major=shape.major * along,
        minor=shape.minor * across,
        pa=float(min(turn, np.pi / 2)),
    )


def integrated(gaussian: Gaussian, beam: Beam) -> float:
    """Return the flux of a Gaussian in Jy."""
    return gaussian.peak * gaussian.shape.major * gaussian.shape.minor / (beam.major * beam.minor)


def deconvolved(shape: Beam, beam: Beam) -> Beam:
    """Return the Gaussian that the beam widens to `shape`; an axis that is not wider than the beam is zero."""
    values, vectors = np.linalg.eigh(spread(shape) - spread(beam))
    values = np.where(values > 1e-9 * beam.minor**2, values, 0.0)
    if not values.any():
        return Beam(0.0, 0.0, 0.0)
    # The angle is that of the eigenvectors, also if an axis is zero.
    angle = from_spread((vectors * [1.0, 2.0]) @ vectors.T).pa
    return Beam(float(np.sqrt(values[1])), float(np.sqrt(values[0])), angle)


def band_peaks(images: Real, island: Island, noise: Real, beam: Beam, cell: float) -> tuple[Real, Real]:
    """Measure the Gaussians of an island, at their places and with their shapes, in the images of bands.

    Parameters
    ----------
    images : (band, n) float
        The island's pixels of every band, seen with the same beam, in Jy/beam.
    island : Island
        Its Gaussians and its n pixels.
    noise : (band,) float
        Noise of every band, which has the resolution of the beam, in Jy/beam.
    beam, cell
        As for `find_sources`.

    Returns
    -------
    peak, error : (band, gaussian) float
        Jy/beam.
    """
    templates = np.stack([_value(island.x - g.x, island.y - g.y, _quadratic(g.shape, cell)) for g in island.gaussians], axis=1)
    inverse = np.linalg.pinv(templates)
    # Few pixels say what correlation there is; of a large island every so many-th does.
    step = max(1, len(island.x) // 1500)
    some = slice(None, None, step)
    dx, dy = (axis[some, None] - axis[None, some] for axis in (island.x, island.y))
    # White noise seen with the beam is correlated over its width times the square root of two.
    correlation = _value(dx, dy, _quadratic(beam, cell) / 2)
    part = inverse[:, some] * step if step > 1 else inverse
    variance = np.einsum("gi,ij,gj->g", part, correlation, part)
    return images @ inverse.T, np.sqrt(variance) * noise[:, None]


def _peaks(image: Real, beam: Beam, cell: float) -> NDArray[np.bool_]:
    reach = max(1, round(beam.minor / cell / 2))
    offsets = np.hypot(*np.ogrid[-reach : reach + 1, -reach : reach + 1])
    filled = np.where(np.isfinite(image), image, -np.inf)
    at_top: NDArray[np.bool_] = filled == maximum_filter(filled, footprint=offsets <= reach)
    return at_top


def _fitted_pixels(own: NDArray[np.bool_], finite: NDArray[np.bool_], number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pixels of an island, and their neighbours where they are too few for the parameters."""
    if own.sum() < 12 * number:
        own = binary_dilation(own, NEIGHBOURS) & finite
    x, y = np.nonzero(own)
    return x, y


def _fit(image: Real, x: Any, y: Any, places: Any, beam: Beam, cell: float) -> list[Gaussian]:
    """Fit Gaussians that start at some places."""
    value = np.asarray(image[x, y], np.float64)
    scale = float(np.abs(value).max())
    starts = np.array([[image[a, b] / scale, a, b, *_quadratic(beam, cell)] for a, b in places], np.float64)
    widest = (WIDEST * max(np.hypot(np.ptp(x) + 1, np.ptp(y) + 1), beam.major / cell)) ** 2
    left = starts
    while len(left):
        found = _least_squares(x, y, value / scale, left, free=6)
        if found is None:
            left = left[:-1]
            continue
        sound = np.array([_sound(p, x, y, widest) for p in found])
        if sound.all():
            return [_gaussian(p, scale, cell) for p in found]
        # A peak of the noise on the skirt of a source: without it the others may be fitted.
        left = left[sound] if sound.any() else left[:-1]
    found = _least_squares(x, y, value / scale, starts, free=3)
    return [_gaussian(p, scale, cell) for p in (starts if found is None else found)]


def _least_squares(x: Any, y: Any, value: Real, starts: Real, free: int) -> Real | None:
    """Fit amplitude, place and, if `free` is 6, shape; (gaussian, 6), or None if there are too few pixels or it fails."""
    if len(x) < free * len(starts):
        return None

    def parameters(p: Real) -> Real:
        full = starts.copy()
        full[:, :free] = p.reshape(-1, free)
        return full

    def parts(p: Real) -> tuple[Real, Real, Real, Real]:
        full = parameters(p)
        dx, dy = x[:, None] - full[:, 1], y[:, None] - full[:, 2]
        shape = np.exp(-(full[:, 3] * dx * dx + 2 * full[:, 4] * dx * dy + full[:, 5] * dy * dy))
        return full, dx, dy, shape

    def residual(p: Real) -> Real:
        full, _, _, shape = parts(p)
        difference: Real = shape @ full[:, 0] - value
        return difference

    def jacobian(p: Real) -> Real:
        full, dx, dy, shape = parts(p)
        a, (q, r, s) = full[:, 0] * shape, full[:, 3:].T
        columns = [shape, 2 * a * (q * dx + r * dy), 2 * a * (r * dx + s * dy), -a * dx * dx, -2 * a * dx * dy, -a * dy * dy]
        return np.stack(columns[:free], axis=2).reshape(len(x), -1)

    with np.errstate(all="ignore"):
        try:
            fit = least_squares(residual, starts[:, :free].ravel(), jac=jacobian, x_scale="jac", xtol=1e-10, max_nfev=200)
        except (ValueError, np.linalg.LinAlgError):
            return None
    return parameters(fit.x) if fit.success else None


def _sound(p: Real, x: Any, y: Any, widest: float) -> bool:
    """Say whether a Gaussian is one: positive, on its island, an ellipse, and not wider than that by far."""
    amplitude, a, b, q, r, s = p
    if not amplitude > 0 or not (x.min() - 1 <= a <= x.max() + 1 and y.min() - 1 <= b <= y.max() + 1):
        return False
    return q > 0 and q * s > r * r and bool(LN16 / np.linalg.eigvalsh([[q, r], [r, s]])[0] < widest)


def _gaussian(p: Real, scale: float, cell: float) -> Gaussian:
    matrix = LN16 * np.linalg.inv([[p[3], p[4]], [p[4], p[5]]]) * cell**2
    return Gaussian(float(p[1]), float(p[2]), float(p[0] * scale), from_spread(matrix))


def _quadratic(beam: Beam, cell: float) -> Real:
    r"""Return the xx, xy and yy elements of :math:`4 \ln 2\, S^{-1}` in pixels**-2."""
    matrix = LN16 * np.linalg.inv(spread(beam) / cell**2)
    return matrix[[0, 0, 1], [0, 1, 1]]


def _value(dx: Any, dy: Any, quadratic: Real) -> Real:
    value: Real = np.exp(-(quadratic[0] * dx * dx + 2 * quadratic[1] * dx * dy + quadratic[2] * dy * dy))
    return value
