"""Continuous wavelet transforms of many series: the spectrum of each once, then a product and an inverse transform per row.

Series are worked on one by one, in the same way whatever batch they are in, so that their bits depend on nothing else.
Nothing here uses threads; all of it lets go of Python's lock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ducc0
import numba
import numpy as np
from numpy.typing import NDArray

from pfb.errors import ShapeError
from pfb.kernels.filter_bank import Bank
from pfb.types import Complex, Real

_CACHE = 512_000
"""Bytes of rows that are transformed at a time, which fit the second-level cache."""
_ALIGNED = 512
"""Rows whose distance is a multiple of so many samples would share their places in the cache."""
_APART = 8
"""Samples between such rows."""
OVERSAMPLE = 2.0
"""Samples of a decimated row over the bins of its filter, at least."""


class Octave(NamedTuple):
    """Rows that are sampled alike."""

    rows: NDArray[np.int64]
    """Which rows of the transform these are."""
    step: int
    """Samples of the series from one sample to the next."""
    values: Complex
    """(series, row, ceil(n / step)): samples 0, step, 2 step ... of the whole transform."""


def spectrum(x: Real | Complex, bank: Bank) -> Complex:
    """Return the padded spectra of series.

    Parameters
    ----------
    x : (series, n) float or complex
        Finite; in the precision of the bank. Of complex series only positive frequencies are kept.
    bank : Bank
        For series of n samples.

    Returns
    -------
    (series, length // 2 + 1) complex
    """
    dtype = np.result_type(bank.values.dtype, np.complex64)
    if x.ndim != 2 or x.shape[1] > bank.length or x.dtype.type not in (bank.values.dtype.type, dtype.type):
        raise ShapeError(
            f"the transform takes (series, n) {bank.values.dtype} or {dtype} of at most {bank.length} samples, "
            f"got {x.shape} {x.dtype}"
        )
    out = np.empty((len(x), bank.length // 2 + 1), dtype)
    row: NDArray[Any] = np.zeros(bank.length, x.dtype)
    whole = np.empty(bank.length, dtype) if np.iscomplexobj(x) else None
    for series, made in zip(x, out, strict=True):
        _padded(series, bank.pad, row)
        if whole is None:
            ducc0.fft.r2c(row, axes=(0,), forward=True, inorm=0, nthreads=1, out=made)
        else:
            ducc0.fft.c2c(row, axes=(0,), forward=True, inorm=0, nthreads=1, out=whole)
            made[:] = whole[: made.size]
    return out


def transform(x: Real | Complex, bank: Bank) -> Complex:
    """Return the whole transform, a sample of every row for every sample of the series.

    Parameters
    ----------
    x, bank
        As for `spectrum`.

    Returns
    -------
    (series, row, n) complex
        In the order of the bank's rows.
    """
    spectra = spectrum(x, bank)
    nrow, n = bank.first.size, x.shape[1]
    out = np.empty((len(x), nrow, n), spectra.dtype)
    some = max(1, min(_CACHE // (bank.length * spectra.itemsize), nrow))
    work = _rows(some, bank.length, spectra.dtype)
    for one, made in zip(spectra, out, strict=True):
        for first in range(0, nrow, some):
            rows = work[: min(some, nrow - first)]
            _multiply(one, *bank[2:], first, rows)
            ducc0.fft.c2c(rows, axes=(1,), forward=False, inorm=0, out=rows, nthreads=1)
            made[first : first + len(rows)] = rows[:, :n]
    return out


def steps(bank: Bank, oversample: float = OVERSAMPLE) -> NDArray[np.int64]:
    """Return for every row the largest power of two that its samples may be apart.

    Folding the bins of a filter into so few loses nothing, since no two of them fall together.
    """
    out = np.ones(bank.first.size, np.int64)
    larger = 2
    while bank.length % larger == 0:
        out[bank.length // larger >= np.maximum(oversample * bank.bins, 1)] = larger
        larger *= 2
    return out


def octaves(x: Real | Complex, bank: Bank, oversample: float = OVERSAMPLE) -> list[Octave]:
    """Return the transform with every row sampled only as fast as its band needs, so that it takes a fraction of time and memory.

    Parameters
    ----------
    x, bank
        As for `spectrum`.
    oversample : float
        How much faster than the least; 1 at least.

    Returns
    -------
    list of Octave
        By ascending step.
    """
    spectra = spectrum(x, bank)
    every, out = steps(bank, oversample), []
    for step in np.unique(every):
        rows = np.flatnonzero(every == step)
        count = -(-x.shape[1] // int(step))
        values = np.empty((len(x), rows.size, count), spectra.dtype)
        work = _rows(rows.size, bank.length // int(step), spectra.dtype)
        for one, made in zip(spectra, values, strict=True):
            _fold(one, *bank[2:], rows, work)
            ducc0.fft.c2c(work, axes=(1,), forward=False, inorm=0, out=work, nthreads=1)
            made[:] = work[:, :count]
        out.append(Octave(rows, int(step), values))
    return out


def _rows(count: int, length: int, dtype: np.dtype[np.complexfloating]) -> Complex:
    return np.empty((count, length + _APART * (length % _ALIGNED == 0)), dtype)[:, :length]


def _padded(series: NDArray[Any], pad: str, out: NDArray[Any]) -> None:
    """Write a series, and what follows it up to its beginning, into `out`."""
    n = series.size
    out[:n] = series
    if pad == "reflect":
        # The first half of the padding belongs to the end, the second to the beginning.
        beyond = np.arange(n, out.size)
        beyond = np.where(beyond < (n + out.size) // 2, beyond, beyond - out.size)
        folded = np.mod(beyond, 2 * n)
        out[n:] = series[np.where(folded < n, folded, 2 * n - 1 - folded)]


@numba.njit(nogil=True, cache=True)
def _multiply(spectrum, first, count, start, values, row, out):  # type: ignore[no-untyped-def]
    """Rows of products, the whole of each, since the inverse transforms are made in place."""
    for i in range(out.shape[0]):
        low, n, at = first[row + i], count[row + i], start[row + i]
        out[i, :low] = 0
        for k in range(n):
            out[i, low + k] = spectrum[low + k] * values[at + k]
        out[i, low + n :] = 0


@numba.njit(nogil=True, cache=True)
def _fold(spectrum, first, count, start, values, rows, out):  # type: ignore[no-untyped-def]
    """The same with the bins folded, k modulo the length of a row."""
    length = out.shape[1]
    for i in range(rows.size):
        low, n, at = first[rows[i]], count[rows[i]], start[rows[i]]
        out[i] = 0
        place = low % length
        for k in range(n):
            out[i, place] += spectrum[low + k] * values[at + k]
            place += 1
            if place == length:
                place = 0
