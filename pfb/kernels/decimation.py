r"""Images on the coarsest grid that still carries what the samples see of them, and back.

Pixels are made smaller than the longest baseline needs, and the longest baseline of a low band is shorter than that of a
high one, so that most of an image's Fourier plane is empty. Along each axis a windowed sinc takes that part away:

.. math:: y_j = \sum_i h(r j - i)\, x_i, \qquad h(t) = \mathrm{sinc}(t / r)\, k(t)

with the ratio r of the pixel sizes and Kaiser's window k. Up to the band edge b, in cycles per fine pixel, the Fourier sums of
x and y are the same to the accuracy asked for; beyond 1 / r - b nothing is left that could fold into it.

References
----------
.. [1] Kaiser J. F. & Schafer R. W. 1980, IEEE Trans. ASSP 28, 105 (width of the window for an attenuation).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pfb.types import Real

FILL = 0.8
"""Fraction of the coarse grid's Fourier axis up to the band edge; the rest is what the filter takes to fall."""

WORTH = 0.9
"""An axis is left as it is if it has more coarse pixels than this fraction of its own."""

REACH = 0.25
"""The filter reaches beyond the image by no more than this fraction of half of it."""

BLOCK = 32
"""Coarse pixels of one product of matrices: many enough to be fast, few enough that little of it is zeros."""


class Decimation:
    """Resamples images of a size to a coarser grid, and has the adjoint of it.

    Both grids have the middle, pixel ``n // 2``, in common. The coarse one goes beyond the image, as far as the filter does.

    Parameters
    ----------
    shape : (int, int)
        Size of the images.
    band : (float, float)
        Highest frequency that must be kept along each axis, in cycles per pixel.
    accuracy : float
        Largest error of a Fourier sum up to there along an axis, of a pixel of 1.

    Attributes
    ----------
    shape : (int, int)
        Size of the coarse images, along an axis that of the images if nothing would be gained there.
    ratio : (float, float)
        Their pixel size over that of the images; 1 then.
    """

    def __init__(self, shape: tuple[int, int], band: tuple[float, float], accuracy: float) -> None:
        self._x, self._y = (_axis(n, limit, accuracy) for n, limit in zip(shape, band, strict=True))
        self.shape = self._x.coarse, self._y.coarse
        self.ratio = self._x.ratio, self._y.ratio

    def dot(self, x: Real) -> Real:
        """Resample an image, (nx, ny) float32; it is returned as it is if nothing would be gained."""
        if self._x.products:
            fine, x = x, np.empty((self._x.coarse, x.shape[1]), x.dtype)
            for p in self._x.products:
                np.matmul(p.matrix, fine[p.start : p.stop], out=x[p.first : p.last])
        if self._y.products:
            fine, x = x, np.empty((x.shape[0], self._y.coarse), x.dtype)
            for p in self._y.products:
                np.matmul(fine[:, p.start : p.stop], p.matrix.T, out=x[:, p.first : p.last])
        return x

    def hdot(self, y: Real) -> Real:
        """Apply the adjoint to a coarse image, float32."""
        if self._y.products:
            coarse, y = y, np.zeros((y.shape[0], self._y.fine), y.dtype)
            for p in self._y.products:
                y[:, p.start : p.stop] += coarse[:, p.first : p.last] @ p.matrix
        if self._x.products:
            coarse, y = y, np.zeros((self._x.fine, y.shape[1]), y.dtype)
            for p in self._x.products:
                y[p.start : p.stop] += p.matrix.T @ coarse[p.first : p.last]
        return y


class _Product(NamedTuple):
    """A block of the filter: coarse pixels `first` to `last` - 1 from the fine ones `start` to `stop` - 1."""

    first: int
    last: int
    start: int
    stop: int
    matrix: Real


class _Axis(NamedTuple):
    """Sizes of one axis, and its filter; none if the axis stays as it is."""

    fine: int
    coarse: int
    ratio: float
    products: list[_Product]


def _axis(fine: int, band: float, accuracy: float) -> _Axis:
    attenuation = max(-20 * math.log10(accuracy / 3), 21.0)
    # Half of the filter's length in coarse pixels, and in fine ones.
    taps = (attenuation - 7.95) / (2.285 * 2 * math.pi * (1 - FILL)) / 2
    longest = REACH * fine / 2 / taps
    ratio = min(FILL / (2 * band), longest) if band > 0 else longest
    half = taps * ratio
    coarse = 2 * math.ceil((fine // 2 + half) / ratio) + 1
    if ratio <= 1 or coarse > WORTH * fine:
        return _Axis(fine, fine, 1.0, [])
    beta, products = _beta(attenuation), []
    for first in range(0, coarse, BLOCK):
        last = min(first + BLOCK, coarse)
        places = (np.arange(first, last) - coarse // 2) * ratio + fine // 2
        start = min(max(math.ceil(places[0] - half), 0), fine - 1)
        stop = max(min(math.floor(places[-1] + half) + 1, fine), start + 1)
        t = places[:, None] - np.arange(start, stop)
        window = np.i0(beta * np.sqrt(np.clip(1 - (t / half) ** 2, 0, None))) / np.i0(beta)
        matrix = np.where(np.abs(t) <= half, np.sinc(t / ratio) * window, 0)
        products.append(_Product(first, last, start, stop, matrix.astype(np.float32)))
    return _Axis(fine, coarse, ratio, products)


def _beta(attenuation: float) -> float:
    """Shape of Kaiser's window for an attenuation in dB, 21 or more."""
    if attenuation > 50:
        return 0.1102 * (attenuation - 8.7)
    return 0.5842 * (attenuation - 21) ** 0.4 + 0.07886 * (attenuation - 21)
