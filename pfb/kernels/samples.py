"""Small operations on the samples of a band, which are in memory or come one part after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pfb.types import LIGHTSPEED, Real, Visibilities

SHIFT = 44
"""Bits of an amplitude that `strongest` leaves out of its histogram, in which steps are a 256th of the amplitude then."""


class Streamed(Sequence[Visibilities]):
    """A band whose parts are fetched one after the other, whenever they are looked at; small, so it travels.

    Parameters
    ----------
    sources : sequence of callable
        Each returns a part, the same at any time.
    functions : sequence of callable
        What every part goes through, in this order.
    """

    def __init__(
        self, sources: Sequence[Callable[[], Visibilities]], functions: Sequence[Callable[[Visibilities], Visibilities]] = ()
    ) -> None:
        self.sources, self.functions = tuple(sources), tuple(functions)

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> Visibilities: ...
    @overload
    def __getitem__(self, index: slice) -> Streamed: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Fetch a part, or leave out parts."""
        if isinstance(index, slice):
            return Streamed(self.sources[index], self.functions)
        part = self.sources[index]()
        for function in self.functions:
            part = function(part)
        return part

    def __iter__(self) -> Iterator[Visibilities]:
        # Nothing here holds a part that the caller has let go.
        return map(self.__getitem__, range(len(self)))


Band = tuple[Visibilities, ...] | Streamed


def each(band: Band, function: Callable[[Visibilities], Visibilities]) -> Band:
    """Let every part of a band go through a function: now, or when it is fetched."""
    if isinstance(band, Streamed):
        return Streamed(band.sources, (*band.functions, function))
    return tuple(function(part) for part in band)


def chain(windows: Sequence[Band]) -> Band:
    """Make a band of the parts of its windows: all in memory, or all streamed and not gone through any function."""
    if windows and isinstance(windows[0], Streamed):
        return Streamed([source for band in windows if isinstance(band, Streamed) for source in band.sources])
    return tuple(part for band in windows for part in band)


def join(pieces: Sequence[Sequence[Sequence[Visibilities]]]) -> tuple[tuple[Visibilities, ...], ...]:
    """Join the pieces of a window for each Stokes product; parts that differ in their number of channels stay apart.

    Products whose coordinates were one array have one again.
    """
    shared: dict[tuple[int, ...], Real] = {}
    joined = []
    for of_product in zip(*pieces, strict=True):
        alike: dict[int, list[Visibilities]] = {}
        for piece in of_product:
            for part in piece:
                alike.setdefault(part.freq.size, []).append(part)
        joined.append(tuple(_sharing(alike[size], shared) for size in sorted(alike, reverse=True)))
    return tuple(joined)


def _sharing(pieces: Sequence[Visibilities], shared: dict[tuple[int, ...], Real]) -> Visibilities:
    whole = tuple(id(part.uvw) for part in pieces)
    if whole not in shared:
        shared[whole] = pieces[0].uvw if len(pieces) == 1 else np.concatenate([part.uvw for part in pieces])
    return concatenate(pieces, shared[whole])


def concatenate(pieces: Sequence[Visibilities], uvw: Real | None = None) -> Visibilities:
    """Join pieces that have the same channels, row after row; the frequencies of averages are averaged again.

    `uvw` are the coordinates of all of them, if these are at hand.
    """
    if len(pieces) == 1:
        return pieces[0]
    return Visibilities(
        np.concatenate([p.uvw for p in pieces]) if uvw is None else uvw,
        mean_frequencies([p.freq for p in pieces], [p.weight.sum(axis=0) for p in pieces]),
        np.concatenate([p.vis for p in pieces]),
        np.concatenate([p.weight for p in pieces]),
        pieces[0].window,
    )


def mean_frequencies(freqs: Sequence[Real], weights: Sequence[Real]) -> Real:
    """Return the mean frequency of every channel, from (chan,) frequencies in Hz and sums of weights of every piece."""
    first = freqs[0]
    if all(np.array_equal(first, freq) for freq in freqs):
        return first
    total = np.sum(weights, axis=0)
    shift = np.sum([w * (f - first) for w, f in zip(weights, freqs, strict=True)], axis=0)
    mean: Real = first + np.divide(shift, total, out=np.zeros_like(first), where=total > 0)
    return mean


def clip_strongest(band: Sequence[Visibilities], fraction: float) -> Band:
    """Give weight zero to the strongest samples of a band.

    Parameters
    ----------
    band : Band
        Not changed.
    fraction : float
        Fraction of the samples with weight that is dropped, by their amplitude; 0 drops none.
    """
    if not isinstance(band, Streamed):
        band = tuple(band)
    if fraction == 0:
        return band
    limit = strongest(band, fraction) if isinstance(band, Streamed) else _quantile(band, fraction)
    return band if limit is None else each(band, partial(_clipped, limit=limit))


def _clipped(part: Visibilities, limit: float) -> Visibilities:
    keep = np.abs(part.vis) <= limit
    return part._replace(vis=np.where(keep, part.vis, 0), weight=np.where(keep, part.weight, 0))


def _amplitudes(part: Visibilities) -> Real:
    return np.abs(part.vis)[part.weight > 0]


def _quantile(band: Sequence[Visibilities], fraction: float) -> float | None:
    used = np.concatenate([np.zeros(0), *map(_amplitudes, band)])
    return float(np.quantile(used, 1 - fraction)) if used.size else None


def strongest(band: Sequence[Visibilities], fraction: float) -> float | None:
    """Return the quantile ``1 - fraction`` of the amplitudes of the samples with weight; None if there are none.

    They are never all in memory: the band is looked at twice, first for a histogram, then for those in the steps that matter.
    """
    counts = np.zeros(1 << (63 - SHIFT), np.int64)
    for part in band:
        steps = _steps(_amplitudes(part))
        low = int(steps.min(initial=0))
        own = np.bincount(steps - low)
        counts[low : low + own.size] += own
    total = int(counts.sum())
    if total == 0:
        return None
    place = (1 - fraction) * (total - 1)  # of the quantile among all amplitudes in ascending order
    lower, upper = int(place), min(int(place) + 1, total - 1)
    ends = np.cumsum(counts)
    first, last = np.searchsorted(ends, [lower, upper], side="right")
    values = np.sort(np.concatenate([_between(_amplitudes(part), first, last) for part in band]))
    below = int(ends[first] - counts[first])
    return float(np.quantile(values[[lower - below, upper - below]], place - lower))


def _between(amplitudes: Real, first: int, last: int) -> Real:
    steps = _steps(amplitudes)
    return amplitudes[(first <= steps) & (steps <= last)]


def _steps(amplitudes: Real) -> NDArray[np.int64]:
    """Number amplitudes by the leading bits of their floating-point numbers, which ascend with them."""
    return np.ascontiguousarray(amplitudes, np.float64).view(np.int64) >> SHIFT


def coordinates(part: Visibilities) -> Real:
    """Return (u, v, w) in wavelengths of the samples with weight, (3, sample) float64, turned so that w >= 0.

    The sky is real, so a sample and the one opposite to it are the same.
    """
    rows, channels = np.nonzero(part.weight)
    out = np.ascontiguousarray(part.uvw[rows].T)
    out *= part.freq[channels] / LIGHTSPEED
    out *= np.where(out[2] < 0, -1.0, 1.0)
    return out
