r"""Matched filters for what does not oscillate: pulses and flares of a given shape, at any time, in series with gaps.

For a template h that is centred on sample t, weights w (inverse variances; zero in gaps) and a series x,

.. math:: S(t) = \sum_u w_u x_u h_{u-t} \Big/ \sqrt{\sum_u w_u h_{u-t}^2}

is the best amplitude over its standard deviation (Turin 1960, IRE Trans. IT-6, 311): a standard normal number
where there is only noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ducc0
import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError, ShapeError
from pfb.types import Complex, Real

RISE = 0.1
"""Rise time of a flare over its decay time."""
_LONG = 8.0
"""Times or standard deviations after which a template is cut off."""


def boxcar(width: float) -> Real:
    """Return a constant over so many samples, at least one."""
    return np.ones(max(round(width), 1))


def gauss(width: float) -> Real:
    """Return a Gaussian with a standard deviation of so many samples."""
    reach = int(np.ceil(_LONG * width))
    return np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * width**2))


def flare(width: float) -> Real:
    """Return an exponential that decays in so many samples, and rises in a tenth of that."""
    before, after = int(np.ceil(_LONG * RISE * width)), int(np.ceil(_LONG * width))
    t = np.arange(-before, after + 1)
    return np.where(t < 0, np.exp(np.minimum(t, 0) / (RISE * width)), np.exp(-np.maximum(t, 0) / width))


FAMILIES: dict[str, tuple[Callable[[float], Real], Callable[[Real], int]]] = {
    "boxcar": (boxcar, lambda h: (h.size - 1) // 2),
    "gauss": (gauss, lambda h: h.size // 2),
    "flare": (flare, lambda h: int(h.argmax())),
}
"""Templates by name, and which of their samples is the time that they are given."""


class Templates(NamedTuple):
    """Templates of one family on the frequencies of a padded series."""

    family: str
    widths: Real
    """(row,) samples."""
    length: int
    """Samples of the padded series."""
    amplitude: Complex
    """(row, length // 2 + 1) conjugate transforms of h, over `length`."""
    power: Complex
    """(row, length // 2 + 1) those of h squared."""


def templates(family: str, widths: Sequence[float] | Real, n: int, dtype: Any = np.float32) -> Templates:
    """Make the templates of a family for series of n samples.

    Parameters
    ----------
    family : str
        ``boxcar``, ``gauss`` or ``flare``.
    widths : sequence of float
        In samples, positive, see the functions of those names.
    n : int
        Samples of a series. Of a template that is longer only what may overlap the series counts.
    dtype
        float32 or float64.

    Raises
    ------
    InputError
        If the family is unknown, or a width is not positive.
    """
    if family not in FAMILIES:
        raise InputError(f"the family {family!r} is unknown: choose one of {', '.join(FAMILIES)}")
    widths = np.asarray(widths, float)
    if widths.ndim != 1 or not widths.size or not (np.isfinite(widths) & (widths > 0)).all():
        raise InputError("widths of templates must be one or more positive numbers of samples")
    make, middle = FAMILIES[family]
    made = [make(width) for width in widths]
    length = 2 * ducc0.fft.good_size(-(-(n + min(max(h.size for h in made), n)) // 2))
    rows = np.zeros((2, widths.size, length))
    for row, h in enumerate(made):
        at = np.arange(h.size) - middle(h)
        seen = np.abs(at) < n
        rows[0, row, at[seen]] = h[seen]
        rows[1, row, at[seen]] = h[seen] ** 2
    spectra = np.conj(ducc0.fft.r2c(rows, axes=(2,), forward=True, inorm=2)).astype(np.result_type(dtype, np.complex64))
    return Templates(family, widths, length, spectra[0], spectra[1])


def significance(x: Real, weight: Real, bank: Templates) -> Real:
    """Return S of every series, template and time.

    Parameters
    ----------
    x : (series, n) float
        Less their means or models. Samples without weight do not count, whatever they are.
    weight : (series, n) or (n,) float
        Inverse variances.
    bank : Templates
        For series of n samples, in the precision of x.

    Returns
    -------
    (series, row, n) float
        Zero where a template sees no sample, or next to nothing of one.
    """
    n, dtype = x.shape[-1], x.dtype
    if x.ndim != 2 or weight.shape not in (x.shape, x.shape[1:]) or np.result_type(dtype, np.complex64) != bank.amplitude.dtype:
        raise ShapeError(
            f"the filter takes (series, n) and weights of that shape or (n,) in the precision of {bank.amplitude.dtype}, "
            f"got {x.shape} {dtype} and {weight.shape}"
        )
    out = np.empty((len(x), bank.widths.size, n), dtype)
    shared = _variance(weight.astype(dtype, copy=False), bank, n) if weight.ndim == 1 else None
    for one, own, made in zip(x, np.broadcast_to(weight, x.shape), out, strict=True):
        variance = _variance(own.astype(dtype, copy=False), bank, n) if shared is None else shared
        weighted = np.where(own > 0, own * np.where(own > 0, one, 0), 0).astype(dtype)
        made[:] = _correlated(weighted, bank.amplitude, bank.length)[:, :n]
        made *= variance
    return out


def _variance(weight: Real, bank: Templates, n: int) -> Real:
    """Return the standard deviation of the best amplitude, (row, n); zero where too little is seen to have one."""
    seen = _correlated(weight, bank.power, bank.length)[:, :n]
    # What rounding makes of nothing is not divided by.
    floor = 1e3 * np.finfo(weight.dtype).eps * seen.max(axis=1, keepdims=True)
    return np.divide(1, np.sqrt(np.maximum(seen, 0)), out=np.zeros_like(seen), where=seen > np.maximum(floor, 0))


def _correlated(series: NDArray[Any], spectra: Complex, length: int) -> Real:
    row = np.zeros(length, series.dtype)
    row[: series.size] = series
    product = spectra * ducc0.fft.r2c(row, axes=(0,), forward=True, inorm=0, nthreads=1)
    out: Real = ducc0.fft.c2r(product, axes=(1,), lastsize=length, forward=False, inorm=0, nthreads=1)
    return out
