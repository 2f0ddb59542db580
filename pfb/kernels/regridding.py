"""Bring the flux of an image to other pixels, all of it, and to where it was."""

from __future__ import annotations

import numpy as np

from pfb.types import Real

ALIGNED = 1e-4
"""Pixels by which a place may miss the middle of a pixel and still be taken for it."""


def deposit(flux: Real, x: Real, y: Real, shape: tuple[int, int]) -> Real:
    """Divide the flux at every place among the four pixels around it, by their distances along each axis.

    The sum and the centre of the flux are conserved. What falls beyond the middles of the outermost pixels is lost in part,
    what falls off the image altogether.

    Parameters
    ----------
    flux : (n,) float
        Jy.
    x, y : (n,) float
        Places in pixels, counted from zero; those that are not finite are left out.
    shape : (int, int)
        Of the image.

    Returns
    -------
    (nx, ny) float64
        Jy/pixel.
    """
    x, y = _snapped(x), _snapped(y)
    seen = np.isfinite(x) & np.isfinite(y) & (x > -1) & (y > -1) & (x < shape[0]) & (y < shape[1])
    flux, x, y = flux[seen], x[seen], y[seen]
    i, j = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    u, v = x - i, y - j
    # One pixel more on every side, for what is shared with pixels that are not there.
    wide = (shape[0] + 2, shape[1] + 2)
    image = np.zeros(wide[0] * wide[1])
    for a, share_x in ((0, 1 - u), (1, u)):
        for b, share_y in ((0, 1 - v), (1, v)):
            place = (i + 1 + a) * wide[1] + j + 1 + b
            image += np.bincount(place, flux * share_x * share_y, minlength=image.size)
    return np.ascontiguousarray(image.reshape(wide)[1:-1, 1:-1])


def split(ratio: float) -> int:
    """Return into how many parts along each axis a pixel is divided that is `ratio` times as wide as those it is brought to.

    Pixels of the same width stay whole, so that an aligned image is unchanged and a point stays as small as can be. Others
    are cut so finely that an even image stays even to a few percent.
    """
    return 1 if abs(ratio - 1) < 1e-3 else max(3, int(np.ceil(3 * ratio)))


def _snapped(x: Real) -> Real:
    near = np.round(x)
    return np.where(np.abs(x - near) < ALIGNED, near, x)
