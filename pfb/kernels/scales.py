r"""Round components of several sizes: :math:`K(r) \propto (1 - r^2/a^2)^2` within a, which is exactly zero beyond."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ducc0
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from pfb.errors import ShapeError
from pfb.types import Real

REACH = 1 / (2 * math.sqrt(1 - math.sqrt(0.5)))
"""Radius of a kernel over its full width at half maximum."""


def radius(width: float) -> float:
    """Return the radius beyond which a kernel of a full width at half maximum is zero; both in pixels."""
    return REACH * width


def scale_kernel(width: float) -> Real:
    """Return a kernel whose sum is 1, (2 m + 1, 2 m + 1) float64, m the largest whole number below its radius.

    Parameters
    ----------
    width : float
        Full width at half maximum in pixels; 0 for a point.
    """
    reach = radius(width)
    m = max(math.ceil(reach) - 1, 0)
    square = np.square(np.arange(-m, m + 1.0))
    inside = np.maximum(1 - np.add.outer(square, square) / max(reach, 1.0) ** 2, 0)
    kernel = np.square(inside)
    return kernel / kernel.sum()


def smooth(image: Real, widths: Sequence[float], nthreads: int = 1) -> list[Real]:
    """Convolve an image with kernels of some widths; what lies outside of it is zero.

    Parameters
    ----------
    image : (nx, ny) float
        Not changed.
    widths : sequence of float
        Full widths at half maximum in pixels; 0 gives the image itself.
    nthreads : int
        Threads of the transforms.

    Returns
    -------
    list of (nx, ny) float
        In the precision of the image.
    """
    kernels = [scale_kernel(width) for width in widths]
    m = max(kernel.shape[0] // 2 for kernel in kernels)
    if m == 0:
        return [image for _ in widths]
    padded = [ducc0.fft.good_size(n + m, True) for n in image.shape]
    spectrum = _transform(image, padded, 0, nthreads)
    out = []
    for kernel in kernels:
        half = kernel.shape[0] // 2
        if half == 0:
            out.append(image)
            continue
        if any(2 * half + 1 > n for n in padded):
            raise ShapeError(f"a scale of {2 * half + 1} pixels does not fit an image of shape {image.shape}: give smaller ones")
        product = _transform(kernel.astype(image.dtype), padded, half, nthreads)
        product *= spectrum
        wide = ducc0.fft.c2r(product, axes=(0, 1), forward=False, inorm=2, lastsize=padded[1], nthreads=nthreads)
        out.append(np.ascontiguousarray(wide[: image.shape[0], : image.shape[1]]))
    return out


def depth_inside(mask: NDArray[np.bool_] | None, shape: tuple[int, int]) -> Real:
    """Return how far every pixel is from the nearest one outside of a mask, or beyond the edge, (nx, ny) float32; 0 outside."""
    inside = np.zeros((shape[0] + 2, shape[1] + 2), bool)
    inside[1:-1, 1:-1] = True if mask is None else mask
    return distance_transform_edt(inside)[1:-1, 1:-1].astype(np.float32)


def reached(pixels: NDArray[np.int64], shape: tuple[int, ...], width: float) -> NDArray[np.bool_]:
    """Return where the kernels of a width around some pixels, (n, 2), are not zero, (nx, ny)."""
    empty = np.ones(shape, bool)
    empty[pixels[:, 0], pixels[:, 1]] = False
    if empty.all():
        return ~empty
    near: NDArray[np.bool_] = distance_transform_edt(empty) < radius(width)
    return near


def automatic_widths(beam: float, shape: tuple[int, int]) -> tuple[float, ...]:
    """Return a point, the width of the beam and its doubles, as long as a kernel covers no more than half of the image.

    Parameters
    ----------
    beam : float
        Full width at half maximum in pixels.
    shape : (int, int)
        Of the image.
    """
    widths, width = [0.0], beam
    while 2 * radius(width) <= min(shape) / 2:
        widths.append(width)
        width *= 2
    return tuple(widths)


def _transform(image: Real, padded: Sequence[int], shift: int, nthreads: int) -> Real:
    """Transform an image at the low corner of a larger grid, or with the pixel (shift, shift) at its origin."""
    wide = np.zeros(padded, image.dtype)
    wide[: image.shape[0], : image.shape[1]] = image
    if shift:
        wide = np.roll(wide, (-shift, -shift), axis=(0, 1))
    return ducc0.fft.r2c(wide, axes=(0, 1), nthreads=nthreads)
