r"""Averages of visibilities over time and channels: the same for every baseline, or as far as each allows.

An average of samples i with weights w is :math:`\bar V = \sum w_i V_i / \sum w_i`; its uvw and frequency are means with the
same weights, and its weight is their sum. If the phase of a source turns n times over what is averaged,
:math:`\mathrm{sinc}(\pi n)` of its amplitude is left (Bridle & Schwab 1999, ASP Conf. Ser. 180, 371).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from pfb.types import LIGHTSPEED, Complex, Real, Visibilities

SLACK = 1e-3
"""Of an interval: a time stamp that was rounded still counts to its own."""

STEP = 4
"""Baselines average 1, 4, 16 ... channels, so that a band has few parts that differ in their channels."""

Indices = NDArray[np.int64]
Sums = tuple[Complex, Real, Real, Real, Real, Real]
"""As of `_add`, from `sum_vis` on."""


@dataclass(frozen=True)
class Averaging:
    """How far is averaged.

    Parameters
    ----------
    time : float
        Seconds of an interval; 0 averages no time stamps.
    chan : int
        Channels of an average; with a `corner`, at most.
    corner : (float, float, float), optional
        ``(l, m, 1 - n)`` of the corner of the image, all positive: every baseline is averaged as far as a source there
        allows. None: all alike.
    decorrelation : float
        The least part of its amplitude that is left of such a source.
    dump : float
        Seconds between time stamps, which `corner` needs.
    starts : tuple of (int, float)
        Ascending numbers of the scans and when each begins, in the seconds of the time stamps: intervals are counted
        from there.
    """

    time: float = 0.0
    chan: int = 1
    corner: tuple[float, float, float] | None = None
    decorrelation: float = 0.99
    dump: float = 0.0
    starts: tuple[tuple[int, float], ...] = ()


class Rows(NamedTuple):
    """By what rows are told apart."""

    uvw: Real
    """(row, 3) metres, finite."""
    time: Real
    """(row,) seconds."""
    scan: NDArray[np.integer]
    antenna1: NDArray[np.integer]
    antenna2: NDArray[np.integer]


class Group(NamedTuple):
    """Rows that average the same channels."""

    factor: int
    """Channels of an average."""
    member: Indices
    """(row,) which average each row belongs to; -1 if to none of this group."""
    averages: int
    """How many."""


def intervals(averaging: Averaging, scan: NDArray[np.integer], time: Real) -> Indices:
    """Return the number of every row's interval within its scan."""
    return np.floor(_since(averaging, scan, time) / averaging.time + SLACK).astype(np.int64)


def turns(baseline: Real, corner: tuple[float, float, float]) -> Real:
    """Return how far a source in the worst corner is from the phase centre, seen along baselines, in units of theirs.

    Parameters
    ----------
    baseline : (..., 3)
        Baselines or their changes; in wavelengths, turns of the phase come out.
    corner
        As of `Averaging`.
    """
    return np.abs(baseline) @ np.array(corner)


def turns_allowed(kept: float) -> float:
    """Return the n for which sinc(pi n) is `kept`, at most 1."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):  # sinc falls all the way
        low, high = (middle, high) if np.sinc(middle) > kept else (low, middle)
    return low


def groups(averaging: Averaging, rows: Rows, freq: Real) -> list[Group]:
    """Say which rows are averaged, and how many channels of them.

    Rows of one baseline, scan and interval belong together. With a `corner`, what may be lost is shared by time and
    channels, and an interval is cut into as many pieces of whole time stamps as a baseline needs.

    Parameters
    ----------
    averaging : Averaging
        How far is averaged.
    rows : Rows
        In any order.
    freq : (chan,) float64
        Hz, ascending.

    Returns
    -------
    list of Group
        By ascending factor; the averages of each are in the order of scan, time and baseline.
    """
    antennas = int(rows.antenna2.max(initial=0)) + 1
    baseline = rows.antenna1.astype(np.int64) * antennas + rows.antenna2
    interval = intervals(averaging, rows.scan, rows.time) if averaging.time > 0 else _number(rows.time)
    cut = np.zeros_like(interval)
    factor = np.full(len(baseline), min(averaging.chan, freq.size))
    if averaging.corner is not None:
        whole = _number(rows.scan, interval, baseline)
        limit = turns_allowed(np.sqrt(averaging.decorrelation))
        factor = _channels(averaging, rows.uvw, whole, freq, limit)
        if averaging.time > 0 and averaging.dump > 0:
            cut = _cuts(averaging, rows, whole, limit * LIGHTSPEED / float(freq[-1]))
    number = _number(rows.scan, interval, cut, baseline)
    made = []
    for one in np.unique(factor):
        own = factor == one
        member = np.full(len(number), -1)
        member[own] = _number(number[own])
        made.append(Group(int(one), member, int(member.max()) + 1))
    return made


def average(made: Sequence[Group], rows: Rows, freq: Real, vis: Complex, weight: Real) -> list[Visibilities]:
    """Average samples, one group after the other.

    Parameters
    ----------
    made : sequence of Group
        From `groups`.
    rows, freq
        As for `groups`.
    vis : (row, chan) complex
        Jy. Samples without weight do not count, whatever they are.
    weight : (row, chan) float
        Natural weights.

    Returns
    -------
    list of Visibilities
        Of every group; an average without weight is zero and lies in the middle of its samples.
    """
    means = Means(made, freq)
    means.add(slice(None), rows.uvw, vis, weight)
    return means.result()


class Means:
    """Averages that are made of one piece of the rows after the other.

    Parameters
    ----------
    made : sequence of Group
        From `groups`, for all rows.
    freq : (chan,) float64
        Hz.
    """

    def __init__(self, made: Sequence[Group], freq: Real) -> None:
        self._groups, self._freq = made, freq
        self._sums = [_sums(group, freq) for group in made]

    def add(self, where: slice, uvw: Real, vis: Complex, weight: Real) -> None:
        """Take in some of the rows, (row, 3), (row, chan) and (row, chan); `where` says which of all rows they are."""
        for group, sums in zip(self._groups, self._sums, strict=True):
            _add(group.member[where], group.factor, self._freq, uvw, vis, weight, *sums)

    def result(self) -> list[Visibilities]:
        """Return the averages of every group, once."""
        made = [_divided(*sums) for sums in self._sums]
        self._sums = []
        return made


def _since(averaging: Averaging, scan: NDArray[np.integer], time: Real) -> Real:
    """Return seconds since the scan began."""
    numbers = np.array([number for number, _ in averaging.starts])
    begin = np.array([start for _, start in averaging.starts])
    return time - begin[np.searchsorted(numbers, scan)]


def _number(*keys: NDArray[np.generic]) -> Indices:
    """Number the combinations of keys that occur, in their order."""
    whole = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        found, place = np.unique(key, return_inverse=True)
        whole = np.unique(whole * max(len(found), 1) + place, return_inverse=True)[1]
    return whole.astype(np.int64, copy=False)


def _channels(averaging: Averaging, uvw: Real, whole: Indices, freq: Real, limit: float) -> Indices:
    """Return how many channels every row may average, the same throughout an interval of a baseline."""
    factor = np.ones(len(uvw), np.int64)
    longest = np.zeros(int(whole.max(initial=-1)) + 1)
    np.maximum.at(longest, whole, turns(uvw, averaging.corner or (0, 0, 0)))
    most = min(averaging.chan, freq.size)
    trial = STEP
    while trial <= most:
        first = np.arange(0, freq.size, trial)
        last = np.minimum(first + trial, freq.size) - 1
        width = (freq[last] - freq[first]).max() + np.median(np.diff(freq))
        factor[(longest * width / LIGHTSPEED <= limit)[whole]] = trial
        trial *= STEP
    return factor


def _cuts(averaging: Averaging, rows: Rows, whole: Indices, limit: float) -> Indices:
    """Number the pieces that the interval of a row's baseline is cut into: none turns by more than `limit`, in metres."""
    order = np.lexsort((rows.time, whole))
    step = np.diff(rows.time[order])
    follows = (np.diff(whole[order]) == 0) & (step > 0)
    speed = turns(np.diff(rows.uvw[order], axis=0)[follows], averaging.corner or (0, 0, 0)) / step[follows]
    fastest = np.zeros(int(whole.max(initial=-1)) + 1)
    np.maximum.at(fastest, whole[order[1:]][follows], speed)
    with np.errstate(divide="ignore"):
        dumps = np.clip(limit / (fastest * averaging.dump), 1, max(averaging.time / averaging.dump, 1))
    since = np.mod(_since(averaging, rows.scan, rows.time) + SLACK * averaging.dump, averaging.time)
    return np.floor(since / (np.floor(dumps + SLACK)[whole] * averaging.dump)).astype(np.int64)


def _sums(group: Group, freq: Real) -> Sums:
    nchan = -(-freq.size // group.factor)
    middle = np.array([freq[i * group.factor : (i + 1) * group.factor].mean() for i in range(nchan)])
    return (
        np.zeros((group.averages, nchan), complex), np.zeros((group.averages, nchan)), np.zeros((group.averages, 4)),
        np.zeros((group.averages, 4)), middle, np.zeros(nchan),
    )  # fmt: skip


def _divided(vis: Complex, weight: Real, heavy: Real, plain: Real, middle: Real, shift: Real) -> Visibilities:
    np.divide(vis, weight, out=vis, where=weight > 0)
    total = weight.sum(axis=0)
    freq = middle + np.divide(shift, total, out=np.zeros_like(shift), where=total > 0)
    used = np.where(heavy[:, 3:] > 0, heavy, plain)
    return Visibilities(used[:, :3] / used[:, 3:], freq, vis, weight)


@numba.njit(nogil=True, cache=True)
def _add(member, factor, freq, uvw, vis, weight, sum_vis, sum_weight, heavy, plain, middle, shift):  # type: ignore[no-untyped-def]
    """Add (row, chan) samples to the sums of their averages; `heavy` and `plain` hold u, v, w and what these are divided by."""
    for r in range(member.size):
        i = member[r]
        if i < 0:
            continue
        total = 0.0
        for c in range(freq.size):
            w = weight[r, c]
            if w > 0:
                k = c // factor
                sum_vis[i, k] += w * vis[r, c]
                sum_weight[i, k] += w
                shift[k] += w * (freq[c] - middle[k])
                total += w
        for axis in range(3):
            heavy[i, axis] += total * uvw[r, axis]
            plain[i, axis] += uvw[r, axis]
        heavy[i, 3] += total
        plain[i, 3] += 1.0
