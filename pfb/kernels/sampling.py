"""How the samples of a band see an image: on the coarsest pixels and through the fewest screens that will do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pfb.kernels import wterm
from pfb.kernels.decimation import REACH, Decimation
from pfb.kernels.wterm import WTerm
from pfb.types import Real


class Sampling(NamedTuple):
    """What products with a band's Hessian need to know of its samples."""

    decimation: Decimation
    """From the image to coarser pixels."""
    cell: tuple[float, float]
    """Their size in radians."""
    term: WTerm
    """The w-term on them."""
    places: Real
    """Where the samples lie in its table, (sample,) float32."""
    coord: Real
    """(2, sample, 2) float32: cycles per coarse pixel along x and y of the samples, and of those opposite to them."""


def sampling(uvw: Real, shape: tuple[int, int], cell: float, epsilon: float, w_accuracy: float | None) -> Sampling:
    """Prepare the products of images with samples, whose signs are those of `pfb.kernels.gridding`.

    Parameters
    ----------
    uvw : (3, sample) float64
        Coordinates in wavelengths, w >= 0; one sample or more.
    shape : (int, int)
        Size of the image, any.
    cell : float
        Pixel size in radians.
    epsilon : float
        Accuracy of all but the w-term.
    w_accuracy : float or None
        Of the w-term, see `wterm.factorise`; None leaves it out.
    """
    w = np.zeros(uvw.shape[1]) if w_accuracy is None else uvw[2]
    decimation = Decimation(shape, highest_frequencies(uvw[:2], w, shape, cell), epsilon)
    coarse = cell * decimation.ratio[0], cell * decimation.ratio[1]
    term = wterm.factorise((float(w.min()), float(w.max())), wterm.deepest(decimation.shape, coarse), w_accuracy or 1.0)
    # Coordinates of x = 0, 1, ... run against l; the second half of them is opposite to the first.
    coord = np.empty((2, uvw.shape[1], 2), np.float32)
    coord[0, :, 0], coord[0, :, 1] = uvw[0] * coarse[0], uvw[1] * -coarse[1]
    np.negative(coord[0], out=coord[1])
    return Sampling(decimation, coarse, term, term.places(w), coord)


def highest_frequencies(uv: Real, w: Real, shape: tuple[int, int], cell: float) -> tuple[float, float]:
    """Return the highest frequency of an image that samples see along each axis, in cycles per pixel.

    The w-term is a screen whose slope w l / n moves it: most where the filter ends that resamples the pixels at the edge.

    Parameters
    ----------
    uv : (2, sample) float
        Coordinates in wavelengths.
    w : (sample,) float
        The same, zero if there is no w-term.
    shape, cell
        Of the image.
    """
    edges = [size // 2 * cell * (1 + REACH) for size in shape]
    square = sum(edge**2 for edge in edges)
    if square >= 1:
        return 0.5, 0.5
    x, y = (float((np.abs(u) + w * (edge / np.sqrt(1 - square))).max()) * cell for u, edge in zip(uv, edges, strict=True))
    return x, y
