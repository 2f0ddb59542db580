r"""The noise of an image from place to place, unmoved by the sources in it."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import map_coordinates

from pfb.errors import ShapeError
from pfb.types import Real

SIGMA_PER_MAD = 1.482602218505602
"""Standard deviation of a normal distribution over its median absolute deviation, 1 / Phi^-1(3/4)."""


def robust_rms(values: Real) -> float:
    r"""Return the standard deviation of what is mostly normal noise: :math:`1.4826\, \mathrm{med} |v - \mathrm{med}\, v|`.

    Parameters
    ----------
    values : (...) float
        NaN is left out.

    Returns
    -------
    float
        In the unit of the values; NaN if all of them are.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return float("nan")
    return SIGMA_PER_MAD * float(np.median(np.abs(finite - np.median(finite))))


def local_rms(image: Real, window: float, spacing: float | None = None) -> Real:
    """Estimate the noise of an image in boxes around the knots of a grid, and interpolate linearly between them.

    Boxes at the edges are shifted inwards, so that all have the same number of pixels. A box
    without a finite pixel takes the estimate of the nearest one that has some.

    Parameters
    ----------
    image : (nx, ny) float
        NaN where blank.
    window : float
        Width of a box in pixels: many times the resolution, a few times the scale on which the noise varies at most.
    spacing : float, optional
        Largest distance of the knots in pixels; half of `window` by default.

    Returns
    -------
    (nx, ny) float
        Robust standard deviation, in the unit and precision of the image; also where it is blank.

    Raises
    ------
    ShapeError
        If all pixels are blank.
    """
    knots = [_knots(n, window / 2 if spacing is None else spacing) for n in image.shape]
    boxes = [[_box(k, window, n) for k in own] for own, n in zip(knots, image.shape, strict=True)]
    coarse = np.array([[robust_rms(image[a, b]) for b in boxes[1]] for a in boxes[0]])
    known = np.argwhere(np.isfinite(coarse))
    if not len(known):
        raise ShapeError(f"the image of shape {image.shape} is blank everywhere, so it has no noise: give one with finite pixels")
    for hole in np.argwhere(np.isnan(coarse)):
        coarse[tuple(hole)] = coarse[tuple(known[np.square(known - hole).sum(axis=1).argmin()])]
    out = np.empty(image.shape, image.dtype if image.dtype.kind == "f" else np.float64)
    along = [np.interp(np.arange(n), own, np.arange(len(own))) for own, n in zip(knots, image.shape, strict=True)]
    for x, row in enumerate(along[0]):  # a row at a time: the coordinates of all pixels would take four images
        out[x] = map_coordinates(coarse, [np.full(len(along[1]), row), along[1]], order=1, mode="nearest")
    return out


def _knots(n: int, spacing: float) -> Real:
    """Return the centres of boxes from the first pixel to the last, evenly spread and at most `spacing` apart."""
    return np.linspace(0, n - 1, max(int(np.ceil((n - 1) / max(spacing, 1.0))), 0) + 1) if n > 1 else np.zeros(1)


def _box(centre: float, window: float, n: int) -> slice:
    width = min(max(round(window), 1), n)
    first = min(max(round(centre) - width // 2, 0), n - width)
    return slice(first, first + width)
