"""Where an image has emission that stands out of its local noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import label

from pfb.types import Real

Mask = NDArray[np.bool_]

NEIGHBOURS = np.ones((3, 3), bool)
"""Pixels that touch at a corner belong together."""

HALF_MAXIMUM = np.pi / 4
"""Area of an ellipse over the product of its axes."""


class Islands(NamedTuple):
    """A mask made of islands of emission."""

    mask: Mask
    """(nx, ny); True inside."""
    number: int


def islands(
    image: Real, noise: Real, *,
    high: float, low: float, smallest: float = 0.0, negative: bool = False, within: Mask | None = None,
) -> Islands:  # fmt: skip
    """Find the islands of an image above `low` times its noise that somewhere exceed `high` times the noise.

    Parameters
    ----------
    image : (nx, ny) float
        NaN where blank, which is outside of every island.
    noise : (nx, ny) float
        Local noise in the same unit.
    high, low : float
        Signal-to-noise ratios that a pixel of the island must exceed, and that all must; low <= high.
    smallest : float
        Islands of fewer pixels are dropped.
    negative : bool
        Take the absolute value of the image: for Stokes Q, U and V.
    within : (nx, ny) bool, optional
        Where there may be islands.

    Returns
    -------
    Islands
        Connected along sides and corners.
    """
    value = np.abs(image) if negative else image
    with np.errstate(invalid="ignore"):
        wide, seeds = value > low * noise, value > high * noise
    if within is not None:
        wide &= within
    labels, found = label(wide, NEIGHBOURS)
    kept = np.zeros(found + 1, bool)
    kept[labels[seeds & wide]] = True
    kept &= np.bincount(labels.ravel(), minlength=found + 1) >= smallest
    kept[0] = False
    return Islands(kept[labels], int(kept.sum()))


def beam_pixels(major: float, minor: float, cell: float) -> float:
    """Return how many pixels a beam has above half of its maximum; widths and pixel size in the same unit."""
    return HALF_MAXIMUM * major * minor / cell**2
