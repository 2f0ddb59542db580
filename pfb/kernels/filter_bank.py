r"""Filters of a continuous wavelet transform, in the Fourier domain.

The row of frequency f, in cycles per unit of time, has the scale :math:`s = 1 / (f\,dt)` in samples and

.. math:: H(\omega) = A \exp(-\sigma^2 (s \omega - 2\pi)^2 / 2), \quad 0 < \omega \le \pi,

zero elsewhere: the analytic Morlet wavelet, whose envelope is a Gaussian of :math:`\sigma` periods,
:math:`h(u) = A / (\sqrt{2\pi} \sigma s) \exp(-u^2 / (2 \sigma^2 s^2)) \exp(2\pi i u / s)` in samples u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.types import Real

NORMS = ("amplitude", "energy", "fcwt")
PADS = ("zero", "reflect", "none")

_REACH = {4: 6.2, 8: 8.7}
"""Standard deviations of a Gaussian beyond which it is below the rounding of numbers of so many bytes."""
_ODD = (1, 3, 5, 7, 9, 11, 15)
"""Lengths of transforms are these times a power of two: every row can then be decimated, and they are good lengths."""


@dataclass(frozen=True, eq=False)
class Morlet:
    """What a transform is made of.

    Parameters
    ----------
    freqs : (row,) float
        Frequencies in cycles per unit of time, in any order, which is that of the rows.
    sigma : float
        Standard deviation of the envelope in periods; between 1 and 8 as a rule.
    norm : str
        ``amplitude``: the modulus is the amplitude of a real oscillation. ``energy``: white noise has its own variance
        in every row (Torrence & Compo 1998, BAMS 79, 61). ``fcwt``: flat, with the constant of the fCWT library.

    Raises
    ------
    InputError
        If a frequency is not positive, or sigma or norm are not as above.
    """

    freqs: Real
    sigma: float = 2.0
    norm: str = "amplitude"

    def __post_init__(self) -> None:
        freqs = np.asarray(self.freqs, float)
        object.__setattr__(self, "freqs", freqs)
        if freqs.ndim != 1 or not freqs.size or not (np.isfinite(freqs) & (freqs > 0)).all():
            raise InputError("frequencies of a transform must be one or more positive numbers")
        if not self.sigma > 0:
            raise InputError(f"sigma is {self.sigma} but must be positive")
        if self.norm not in NORMS:
            raise InputError(f"norm is {self.norm!r} but must be one of {', '.join(NORMS)}")

    def amplitude(self, dt: float) -> Real:
        """Return A of every row."""
        if self.norm == "energy":
            return np.sqrt(2 * np.pi * self.sigma / (self.freqs * dt)) * np.pi**-0.25
        return np.full(self.freqs.size, 2.0 if self.norm == "amplitude" else math.sqrt(2 * np.pi) * np.pi**-0.25)


class Bank(NamedTuple):
    """Filters on the frequencies of a padded series, each only where it is not negligible."""

    length: int
    """Samples of the padded series."""
    pad: str
    first: NDArray[np.int64]
    """(row,) the first bin of a filter; bin k has k / (length dt) cycles per unit of time."""
    bins: NDArray[np.int64]
    """(row,) how many bins it has, none beyond Nyquist's."""
    start: NDArray[np.int64]
    """(row,) where its values begin."""
    values: Real
    """All filters, one after the other, over `length`."""


def log_frequencies(low: float, high: float, n: int) -> Real:
    """Return n frequencies in equal ratios from `high` down to `low`, both included."""
    return np.geomspace(high, low, n)


def bank(morlet: Morlet, n: int, dt: float = 1.0, pad: str = "zero", dtype: Any = np.float32) -> Bank:
    """Sample the filters for series of n samples.

    Parameters
    ----------
    morlet : Morlet
        What they are.
    n : int
        Samples of a series.
    dt : float
        Time between samples.
    pad : str
        What lies beyond the ends: ``zero``, the ``reflect``-ed series, or ``none``: its other end. Padding is as wide as
        the widest filter reaches, so that the ends do not see each other: `sigma` times 6.2 periods of the lowest frequency
        in single precision, 8.7 in double.
    dtype
        float32 or float64.

    Raises
    ------
    InputError
        If the padding is unknown, n is not positive, or a frequency is above Nyquist's.
    """
    if pad not in PADS:
        raise InputError(f"pad is {pad!r} but must be one of {', '.join(PADS)}")
    if n < 1:
        raise InputError(f"a series has {n} samples but must have one or more")
    scale = 1 / (morlet.freqs * dt)
    if (scale < 2).any():
        raise InputError(
            f"the frequency {morlet.freqs.max():g} is above the {1 / (2 * dt):g} that samples every {dt:g} allow: leave it out"
        )
    kind = np.dtype(dtype)
    reach = _REACH[kind.itemsize]
    # A reflected series goes on at both ends, and the two must not meet where either is seen.
    sides = {"none": 0, "zero": 1, "reflect": 2}[pad]
    length = padded_length(n + sides * math.ceil(reach * morlet.sigma * scale.max())) if sides else n
    step = 2 * np.pi / length
    low, high = ((2 * np.pi + sign * reach / morlet.sigma) / (scale * step) for sign in (-1, 1))
    first = np.maximum(np.ceil(low), 1).astype(np.int64)
    last = np.minimum(np.floor(high), length // 2).astype(np.int64)
    count = np.maximum(last - first + 1, 0)
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    values = np.empty(int(count.sum()), kind)
    for row, (s, amplitude) in enumerate(zip(scale, morlet.amplitude(dt), strict=True)):
        bins = np.arange(first[row], first[row] + count[row])
        filtered = amplitude * np.exp(-((morlet.sigma * (s * step * bins - 2 * np.pi)) ** 2) / 2)
        values[start[row] : start[row] + count[row]] = filtered / length
    return Bank(length, pad, first, count, start, values)


def padded_length(n: int) -> int:
    """Return the least 1, 3, 5, 7, 9, 11 or 15 times a power of two that is not below n."""
    return min(odd * 2 ** max(0, math.ceil(math.log2(n / odd))) for odd in _ODD)


def seen_whole(morlet: Morlet, valid: NDArray[np.bool_], dt: float = 1.0, width: float = 2.0) -> NDArray[np.bool_]:
    """Say where a row is far enough from the ends and from gaps: the cone of influence.

    Parameters
    ----------
    morlet : Morlet
        The rows.
    valid : (n,) bool
        False in gaps.
    dt : float
        Time between samples.
    width : float
        How far that is, in standard deviations of the envelope.

    Returns
    -------
    (row, n) bool
    """
    number = np.arange(valid.size)
    before = np.maximum.accumulate(np.where(valid, -1, number))
    after = np.minimum.accumulate(np.where(valid, valid.size, number)[::-1])[::-1]
    distance = np.minimum(number - before, after - number)
    return np.asarray(distance[None] > width * morlet.sigma / (morlet.freqs[:, None] * dt))
