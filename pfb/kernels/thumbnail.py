"""A small picture of a large residual, in which no source is lost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.types import Real

SIDE = 512
"""Pixels of its longer side at most."""

STRETCH = 5.0
"""Rms of the residual out to which it is shown, as in the picture of a finished run."""

ZERO, LEVELS = 128, 127
"""The level that stands for zero, and how many are on either side of it."""


class Thumbnail(NamedTuple):
    """An image in 255 levels."""

    levels: NDArray[np.uint8]
    """(mx, my), indexed ``[x, y]``; 1 stands for -limit and less, 128 for zero, 255 for limit and more."""
    limit: float
    """In the unit of the image."""


def block_extremes(image: Real, side: int) -> Real:
    """Return the value of largest magnitude, with its sign, of every square block of pixels.

    Parameters
    ----------
    image : (nx, ny) float
    side : int
        Pixels that the longer side of the result has at most. Blocks are as small as that allows; those at the far edges
        have the pixels that are left.

    Returns
    -------
    (mx, my) float
        Of values that are equal but for their sign, the positive one.
    """
    block = -(-max(image.shape) // side)
    rows, columns = (np.arange(0, n, block) for n in image.shape)
    high, low = (f.reduceat(f.reduceat(image, rows, axis=0), columns, axis=1) for f in (np.maximum, np.minimum))
    out: Real = np.where(high >= -low, high, low)
    return out


def thumbnail(image: Real, side: int = SIDE) -> Thumbnail:
    """Return the block extremes of an image in levels, out to `STRETCH` times its rms; all grey if that is zero or not finite."""
    limit = STRETCH * float(np.sqrt(np.mean(np.square(image))))
    small = block_extremes(image, side)
    if not 0 < limit < np.inf:
        return Thumbnail(np.full(small.shape, ZERO, np.uint8), limit)
    return Thumbnail((np.rint(np.clip(small / limit, -1, 1) * LEVELS) + ZERO).astype(np.uint8), limit)
