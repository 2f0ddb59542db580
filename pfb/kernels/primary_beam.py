r"""The primary beam on the pixels of an image: turned with the sky, averaged, and put together over bands.

A *pattern* is the response of a dish to power, one on its axis, as a function of the angle from the axis. A dish on
an alt-azimuth mount keeps its pattern upright while the sky turns: a direction (l, m), East and North, lies at

.. math:: x = -l \cos q + m \sin q, \qquad y = l \sin q + m \cos q

to the right and up, with q the parallactic angle, that of the zenith from North through East.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.interpolate import CubicSpline, RectBivariateSpline

from pfb.types import Real

Pattern = Callable[[Real, Real], Real]
"""Takes two arrays of angles in radians, returns the power response; it must be smooth over a hundredth of the image."""

KNOTS = 257
"""Places along an axis at which a pattern is evaluated at most; between them are cubic splines. They are 0.01 degrees apart for a
wide MeerKAT field, which makes errors of less than 1e-6 of the axis."""

DIRECTIONS = 72
"""Over which a pattern is averaged azimuthally."""


def turned(l: Real, m: Real, angle: float) -> tuple[Real, Real]:
    """Return where directions, East and North, are for a dish, right and up, at a parallactic angle in radians."""
    return -l * np.cos(angle) + m * np.sin(angle), l * np.sin(angle) + m * np.cos(angle)


def over_rotation(pattern: Pattern, l: Real, m: Real, angles: Sequence[tuple[float, float]]) -> Real:
    """Average a pattern over parallactic angles.

    Parameters
    ----------
    pattern : Pattern
        Of right and up.
    l, m : (...) float
        Directions East and North, angles in radians.
    angles : sequence of (float, float)
        Parallactic angles in radians, and their weights.

    Returns
    -------
    (...) float
        The mean power response.
    """
    total = np.zeros(np.shape(l))
    for angle, weight in angles:
        total += weight * pattern(*turned(l, m, angle))
    return total / sum(weight for _, weight in angles)


def over_azimuth(pattern: Pattern, l: Real, m: Real) -> Real:
    """Average a pattern over all directions at the same distance from the axis; see `over_rotation`."""
    radius = np.hypot(l, m)
    # Twice as many as along half of an axis.
    knots = np.linspace(0.0, max(float(radius.max()), 1e-9), KNOTS)
    around = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    profile = pattern(np.outer(knots, np.cos(around)), np.outer(knots, np.sin(around))).mean(axis=1)
    mean: Real = CubicSpline(knots, profile)(radius)
    return mean


def on_pixels(response: Pattern, shape: tuple[int, int], cell: float) -> Real:
    """Evaluate a response on the pixels of an image.

    Parameters
    ----------
    response : callable
        Of the directions l and m: angles from the phase centre in radians, East and North.
    shape : (int, int)
        Size of the image.
    cell : float
        Pixel size in radians; the projection is orthographic (SIN).

    Returns
    -------
    (nx, ny) float64
        Never negative.
    """
    few = min(shape) > 3  # cubic splines need four
    places = [np.linspace(0, n - 1, min(n, KNOTS) if few else n) for n in shape]
    l, m = np.meshgrid(-(places[0] - shape[0] // 2) * cell, (places[1] - shape[1] // 2) * cell, indexing="ij")
    sine = np.hypot(l, m)
    # Of the angle over its sine; pixels beyond the horizon are as good as on it.
    stretch = np.divide(np.arcsin(np.minimum(sine, 1.0)), sine, out=np.ones_like(sine), where=sine > 0)
    values = response(l * stretch, m * stretch)
    if values.shape != shape:
        values = RectBivariateSpline(*places, values)(*map(np.arange, shape))
    positive: Real = np.maximum(values, 0.0)
    return positive


def effective(beams: Sequence[Real], weights: Sequence[float]) -> Real:
    r"""Return the beam of all bands together, :math:`\bar P = (\sum_b w_b P_b^2 / \sum_b w_b)^{1/2}`.

    A flux that is fitted to all bands at once has a noise of that of the MFS image over this.

    Parameters
    ----------
    beams : sequence of (nx, ny) float
        Of the bands.
    weights : sequence of float
        Sums of their weights.
    """
    squares = sum(weight * np.square(beam) for beam, weight in zip(beams, weights, strict=True))
    mean: Real = np.sqrt(squares / sum(weights))
    return mean


def relative(beam: Real, mean: Real, cutoff: float) -> Real:
    """Return the beam of a band over that of all, (nx, ny); zero where the latter is below the cut-off."""
    inside = mean >= cutoff
    return np.divide(beam, mean, out=np.zeros_like(beam), where=inside)


def corrected(image: Real, mean: Real, cutoff: float, fill: float = np.nan) -> Real:
    """Divide an image by a beam, both (nx, ny); `fill` where the beam is below the cut-off."""
    out = np.full(image.shape, fill, image.dtype)
    return np.divide(image, mean, out=out, where=mean >= cutoff)
