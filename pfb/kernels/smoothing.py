"""Bring an image from the beam that it has to a wider one."""

from __future__ import annotations

from enum import Enum

import ducc0
import numpy as np

from pfb.errors import ShapeError
from pfb.kernels.beam import REACH, spread_ratio, spread_transfer
from pfb.kernels.convolution import convolve
from pfb.types import Real


class Brightness(Enum):
    """What the values of an image are for."""

    BEAM = "beam"
    """Its beam, e.g. Jy/beam: a point keeps its peak."""
    PIXEL = "pixel"
    """A pixel, e.g. Jy/pixel; for a beam afterwards."""
    SURFACE = "surface"
    """A solid angle, e.g. K or Jy/sr: extended emission keeps its level."""


def smooth(image: Real, native: Real | None, target: Real, brightness: Brightness, nthreads: int = 1) -> Real:
    """Convolve an image with the Gaussian that makes the target beam of the native one.

    The Gaussian is known in closed form in Fourier space, so that it is cut off nowhere and moves nothing. Beyond the
    edges of the image is nothing, and nothing wraps around. Blank pixels count as zero and are blank afterwards: they
    neither spread nor take flux from anything but what lies within a beam of them.

    Parameters
    ----------
    image : (nx, ny) float
        NaN where blank; it is not changed.
    native : (2, 2) float or None
        Spread of the image's beam in pixels squared, see `pfb.kernels.beam`; None if it has none.
    target : (2, 2) float
        That of the beam asked for: nowhere narrower, which is not checked.
    brightness : Brightness
        What the values are for.
    nthreads : int
        Threads used inside this call; 0 uses all.

    Returns
    -------
    (nx, ny) float64
        For the target beam if the values were for a beam or a pixel.

    Raises
    ------
    ShapeError
        If the image has not two axes.
    """
    if image.ndim != 2:
        raise ShapeError(f"an image has two axes, got an array of shape {image.shape}: give its planes one by one")
    blank = ~np.isfinite(image)
    if blank.all() or (native is not None and np.array_equal(native, target)):
        return image.astype("f8")
    filled = np.where(blank, 0.0, image)
    padded = tuple(
        ducc0.fft.good_size(n + int(np.ceil(REACH * np.sqrt(width))), True)
        for n, width in zip(image.shape, np.diag(target), strict=True)
    )
    if native is None:
        transfer = spread_transfer(target, padded)
    else:
        transfer = spread_ratio(native, target, padded)
    if brightness is Brightness.SURFACE:
        transfer /= transfer[0, 0]
    out = convolve(filled, transfer, padded, nthreads)
    out[blank] = np.nan
    return out
