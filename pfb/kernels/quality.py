"""What a deconvolved image says about itself: its brightest sources, and regions that are negative on a large scale."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pfb.kernels.beam import LN16, REACH, spread
from pfb.types import Beam, Real


class Source(NamedTuple):
    """A peak of a restored image, in Jy/beam."""

    x: int
    y: int
    restored: float
    """Value of the restored image."""
    model: float
    """What the model has there, seen with the beam: a sum over pixels, without Fourier transforms."""
    residual: float
    """What the residual has there."""


class Bowl(NamedTuple):
    """The box of an image whose mean is most negative for the noise."""

    x: int
    y: int
    """Its middle pixel."""
    width: int
    """Pixels along an edge."""
    mean: float
    noise: float
    """Standard deviation of the mean of such a box if noise is independent from beam to beam."""
    boxes: int
    """How many of its size there are."""


def brightest(image: Real, count: int, separation: int, above: float) -> list[tuple[int, int]]:
    """Find the brightest pixels of an image that are not close to each other.

    Parameters
    ----------
    image : (nx, ny) float
        NaN where blank.
    count : int
        How many to return at most.
    separation : int
        No two are nearer than this along both axes, in pixels.
    above : float
        All are brighter.

    Returns
    -------
    list of (int, int)
        The brightest first.
    """
    left = np.where(np.isfinite(image), image, -np.inf)
    found: list[tuple[int, int]] = []
    while len(found) < count:
        x, y = (int(i) for i in np.unravel_index(left.argmax(), left.shape))
        if not left[x, y] > above:
            break
        found.append((x, y))
        left[max(x - separation, 0) : x + separation + 1, max(y - separation, 0) : y + separation + 1] = -np.inf
    return found


def source_at(place: tuple[int, int], restored: Real, model: Real, residual: Real, beam: Beam, cell: float) -> Source:
    """Say what a restored image is made of at a pixel.

    Parameters
    ----------
    place : (int, int)
        The pixel.
    restored, residual : (nx, ny) float
        Jy/beam.
    model : (nx, ny) float
        Jy/pixel.
    beam : Beam
        Widths and angle in radians.
    cell : float
        Pixel size in radians.
    """
    reach = int(np.ceil(REACH * beam.major / cell))
    window = tuple(slice(max(p - reach, 0), p + reach + 1) for p in place)
    dx, dy = (np.arange(s.start, min(s.stop, n)) - p for s, n, p in zip(window, model.shape, place, strict=True))
    inverse = np.linalg.inv(spread(beam) / cell**2)
    quadratic = inverse[0, 0] * dx[:, None] ** 2 + 2 * inverse[0, 1] * dx[:, None] * dy + inverse[1, 1] * dy**2
    seen = float((model[window] * np.exp(-LN16 * quadratic)).sum())
    return Source(*place, float(restored[place]), seen, float(residual[place]))


def deepest_bowl(image: Real, beam_pixels: float, noise: float) -> Bowl | None:
    """Find the region that is most negative, over boxes of 4, 8, 16 ... beams along an edge.

    Parameters
    ----------
    image : (nx, ny) float
        Jy/beam; NaN where blank, which belongs to no box.
    beam_pixels : float
        Area of the beam in pixels.
    noise : float
        Standard deviation of a pixel; not zero.

    Returns
    -------
    Bowl or None
        None if the image is smaller than four boxes of the first size, or no mean is negative.
    """
    worst: Bowl | None = None
    width = max(round(4 * np.sqrt(beam_pixels)), 2)
    while 2 * width <= min(image.shape):
        nx, ny = (n // width for n in image.shape)
        means = image[: nx * width, : ny * width].reshape(nx, width, ny, width).mean(axis=(1, 3))
        if np.isfinite(means).any():
            i, j = np.unravel_index(np.nanargmin(means), means.shape)
            own = Bowl(int(i) * width + width // 2, int(j) * width + width // 2, width, float(means[i, j]),
                       noise * min(np.sqrt(beam_pixels) / width, 1.0), means.size)  # fmt: skip
            if own.mean < 0 and (worst is None or own.mean / own.noise < worst.mean / worst.noise):
                worst = own
        width *= 2
    return worst
