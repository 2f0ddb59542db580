"""One decomposition level of an orthonormal wavelet transform, its adjoint, and the cascade of levels.

The image is extended by zeros and every coefficient that is not zero is kept, so that the
transform is an exact isometry for any size, odd or even; its adjoint is its inverse.
The coefficients equal those of PyWavelets in mode ``zero``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
import pywt
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.types import Real

DIRAC = "self"
NAMES = (DIRAC, "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8")


class Level(NamedTuple):
    """Sizes of one level: its input, and its four sub-bands (all alike)."""

    image: tuple[int, int]
    subband: tuple[int, int]


def filters(name: str, dtype: Any = np.float64) -> NDArray[Any]:
    """Return the (2, length) low- and high-pass decomposition filters of a wavelet.

    Raises
    ------
    InputError
        If `name` is none of db1 ... db8.
    """
    if name not in NAMES[1:]:
        raise InputError(f"wavelet basis {name!r} is unknown; choose from {', '.join(NAMES)}")
    wavelet = pywt.Wavelet(name)
    return np.array([wavelet.dec_lo, wavelet.dec_hi], dtype)


@lru_cache(maxsize=256)
def levels(shape: tuple[int, int], name: str, nlevels: int) -> tuple[Level, ...]:
    """Return the sizes of every level of a decomposition; none for the Dirac basis."""
    if name == DIRAC:
        return ()
    length = filters(name).shape[1]
    out = []
    for _ in range(nlevels):
        subband = (shape[0] + length - 1) // 2, (shape[1] + length - 1) // 2
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
    taps = filters(name, image.dtype)
    approximation, start = np.ascontiguousarray(image), 0
    for level in levels(image.shape, name, nlevels):
        details, start = _details(out, start, level)
        coarse = np.empty(level.subband, image.dtype)
        analyse_level(approximation, taps, coarse, *details)
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
    taps = filters(name, out.dtype)
    last = cascade[-1].subband
    end = n - last[0] * last[1]
    approximation = coefficients[end:n].reshape(last)
    for level in reversed(cascade):
        start = end - 3 * level.subband[0] * level.subband[1]
        details, _ = _details(coefficients, start, level)
        fine = out if level is cascade[0] else np.zeros(level.image, out.dtype)
        synthesise_level(approximation, *details, taps, fine)
        approximation, end = fine, start


def _details(flat: Real, start: int, level: Level) -> tuple[tuple[Real, Real, Real], int]:
    """Views of the three detail sub-bands of a level, and where the next level starts."""
    size = level.subband[0] * level.subband[1]
    lh, hl, hh = (flat[start + i * size : start + (i + 1) * size].reshape(level.subband) for i in range(3))
    return (lh, hl, hh), start + 3 * size


# Only contraction to fused multiply-adds: the sums keep the order in which they are written.
_jit = numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")


@_jit
def analyse_level(image, taps, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image into four sub-bands, each of half its size and half a filter.

    Parameters
    ----------
    image : (nx, ny) float
        Image, rows contiguous.
    taps : (2, length) float
        Low- and high-pass filters; a coefficient is ``c[i] = sum_k taps[k] x[2 i + 1 - k]``.
    ll, lh, hl, hh : (nx', ny') float
        Outputs, ``n' = (n + length - 1) // 2``. The first letter is the filter along y,
        the second that along x.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    length = taps.shape[1]
    half = length // 2
    low, high = np.empty(n1, image.dtype), np.empty(n1, image.dtype)
    # Even and odd samples of a row, with the zeros on both sides that the filter reaches.
    even, odd = np.zeros(c1 + half, image.dtype), np.zeros(c1 + half, image.dtype)
    for i in range(c0):
        low[:] = 0
        high[:] = 0
        for k in range(length):
            r = 2 * i + 1 - k
            if 0 <= r < n0:
                row, a, b = image[r], taps[0, k], taps[1, k]
                for j in range(n1):
                    low[j] += a * row[j]
                    high[j] += b * row[j]
        _split_row(low, taps, even, odd, ll[i], hl[i])
        _split_row(high, taps, even, odd, lh[i], hh[i])


@_jit
def _split_row(row, taps, even, odd, low, high):  # type: ignore[no-untyped-def]
    n, c, half = row.size, low.size, taps.shape[1] // 2
    shifted_even, shifted_odd = even[half:], odd[half:]
    for j in range((n + 1) // 2):
        shifted_even[j] = row[2 * j]
    for j in range(n // 2):
        shifted_odd[j] = row[2 * j + 1]
    low[:] = 0
    high[:] = 0
    for k in range(half):
        # 2 j + 1 - (2 k) is odd sample j - k; 2 j + 1 - (2 k + 1) is even sample j - k.
        o, e = odd[half - k :], even[half - k :]
        a0, a1, b0, b1 = taps[0, 2 * k], taps[0, 2 * k + 1], taps[1, 2 * k], taps[1, 2 * k + 1]
        for j in range(c):
            low[j] += a0 * o[j] + a1 * e[j]
            high[j] += b0 * o[j] + b1 * e[j]


@_jit
def synthesise_level(ll, lh, hl, hh, taps, image):  # type: ignore[no-untyped-def]
    """Add the image of four sub-bands to `image`: the adjoint of `analyse_level`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    length = taps.shape[1]
    half = length // 2
    # Coefficient rows (r - 1 + k) / 2 reach image row r, so half of them at a time are kept.
    low, high = np.empty((half + 1, n1), image.dtype), np.empty((half + 1, n1), image.dtype)
    even, odd = np.empty(c1 + half, image.dtype), np.empty(c1 + half, image.dtype)
    done = 0
    for r in range(n0):
        last = min((r + length - 2) // 2, c0 - 1)
        while done <= last:
            _join_row(ll[done], hl[done], taps, even, odd, low[done % (half + 1)])
            _join_row(lh[done], hh[done], taps, even, odd, high[done % (half + 1)])
            done += 1
        out = image[r]
        for k in range((r + 1) % 2, length, 2):
            i = (r - 1 + k) // 2
            if i < c0:
                row, detail, a, b = low[i % (half + 1)], high[i % (half + 1)], taps[0, k], taps[1, k]
                for j in range(n1):
                    out[j] += a * row[j] + b * detail[j]


@_jit
def _join_row(low, high, taps, even, odd, row):  # type: ignore[no-untyped-def]
    n, c, half = row.size, low.size, taps.shape[1] // 2
    even[:] = 0
    odd[:] = 0
    for k in range(half):
        # The first half - 1 entries stand for samples before the image, which are dropped.
        o, e = odd[half - 1 - k :], even[half - 1 - k :]
        a0, a1, b0, b1 = taps[0, 2 * k], taps[0, 2 * k + 1], taps[1, 2 * k], taps[1, 2 * k + 1]
        for j in range(c):
            o[j] += a0 * low[j] + b0 * high[j]
            e[j] += a1 * low[j] + b1 * high[j]
    o, e = odd[half - 1 :], even[half - 1 :]
    for j in range((n + 1) // 2):
        row[2 * j] = e[j]
    for j in range(n // 2):
        row[2 * j + 1] = o[j]
