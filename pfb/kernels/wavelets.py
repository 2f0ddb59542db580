"""Orthonormal wavelet decompositions of images in several levels, and their adjoint.

One level is the work of `pfb.kernels.lattice`. The image is extended by zeros and every coefficient that is
not zero is kept, so that the transform is an exact isometry for any size, odd or even; its adjoint is its inverse.
The coefficients equal those of PyWavelets in mode ``zero``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pywt

from pfb.errors import InputError
from pfb.kernels import lattice
from pfb.types import Real

DIRAC = "self"
NAMES = (DIRAC, "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8")


class Level(NamedTuple):
    """Sizes of one level: its input, and its four sub-bands (all alike)."""

    image: tuple[int, int]
    subband: tuple[int, int]


def length(name: str) -> int:
    """Return the number of taps of a wavelet's filters.

    Raises
    ------
    InputError
        If `name` is none of db1 ... db8.
    """
    if name not in NAMES[1:]:
        raise InputError(f"wavelet basis {name!r} is unknown; choose from {', '.join(NAMES)}")
    return int(pywt.Wavelet(name).dec_len)


@lru_cache(maxsize=256)
def levels(shape: tuple[int, int], name: str, nlevels: int) -> tuple[Level, ...]:
    """Return the sizes of every level of a decomposition; none for the Dirac basis."""
    if name == DIRAC:
        return ()
    overlap = length(name) - 1
    out = []
    for _ in range(nlevels):
        subband = (shape[0] + overlap) // 2, (shape[1] + overlap) // 2
        out.append(Level(shape, subband))
        shape = subband
    return tuple(out)


def ncoefficient(shape: tuple[int, int], name: str, nlevels: int) -> int:
    """Return the number of coefficients of an image in one basis."""
    cascade = levels(shape, name, nlevels)
    if not cascade:
        return shape[0] * shape[1]
    last = cascade[-1].subband
    return sum(3 * level.subband[0] * level.subband[1] for level in cascade) + last[0] * last[1]


def analyse(image: Real, name: str, nlevels: int, out: Real) -> None:
    """Write the coefficients of an image in one basis into `out`.

    Parameters
    ----------
    image : (nx, ny) float32 or float64
        Image, C-contiguous.
    name : str
        ``self`` or ``db1`` ... ``db8``.
    nlevels : int
        Levels of the decomposition; with 0 the image is copied.
    out : (ncoefficient or more,) float
        Details of the first level (horizontal, vertical, diagonal), of the second, ..., and
        the approximation of the last. What lies beyond is set to zero.
    """
    n = ncoefficient(image.shape, name, nlevels)
    out[n:] = 0
    if name == DIRAC:
        out[:n] = image.ravel()
        return
    split = getattr(lattice, f"analyse_{name}")
    approximation, start = np.ascontiguousarray(image), 0
    for level in levels(image.shape, name, nlevels):
        details, start = _details(out, start, level)
        coarse = np.empty(level.subband, image.dtype)
        split(approximation, coarse, *details)
        approximation = coarse
    out[start:n] = approximation.ravel()


def synthesise(coefficients: Real, name: str, nlevels: int, out: Real) -> None:
    """Add the image of the coefficients in one basis to `out`: the adjoint of `analyse`.

    Parameters
    ----------
    coefficients : (ncoefficient or more,) float32 or float64
        Laid out as by `analyse`; what lies beyond the last is ignored.
    name, nlevels
        As for `analyse`.
    out : (nx, ny) float
        Image that is added to, C-contiguous.
    """
    n = ncoefficient(out.shape, name, nlevels)
    cascade = levels(out.shape, name, nlevels)
    if not cascade:
        out += coefficients[:n].reshape(out.shape)
        return
    join = getattr(lattice, f"synthesise_{name}")
    last = cascade[-1].subband
    end = n - last[0] * last[1]
    approximation = coefficients[end:n].reshape(last)
    for level in reversed(cascade):
        start = end - 3 * level.subband[0] * level.subband[1]
        details, _ = _details(coefficients, start, level)
        first = level is cascade[0]
        fine = out if first else np.empty(level.image, out.dtype)
        join(approximation, *details, fine, first)
        approximation, end = fine, start


def _details(flat: Real, start: int, level: Level) -> tuple[tuple[Real, Real, Real], int]:
    """Views of the three detail sub-bands of a level, and where the next level starts."""
    size = level.subband[0] * level.subband[1]
    lh, hl, hh = (flat[start + i * size : start + (i + 1) * size].reshape(level.subband) for i in range(3))
    return (lh, hl, hh), start + 3 * size
