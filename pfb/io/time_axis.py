"""When the rows of a window were observed, and where it may be cut without parting rows that are averaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.io.casa_tables import Rows, cross_rows, main_table
from pfb.io.measurement_set import Piece
from pfb.io.window import Window, window_rows
from pfb.types import Real

Interval = Callable[[NDArray[np.int32], Real], NDArray[np.int64]]
"""Numbers the intervals that rows of these scans and times belong to."""
Columns = tuple[Real, NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""Times, scans and antennas."""

_BLOCK = 1 << 20


class RowColumns(NamedTuple):
    """What tells rows apart: arrays of one number per row, `uvw` of three in metres."""

    uvw: Real
    """Zero where it is not finite."""
    time: Real
    """Centre of the integration in MJD seconds."""
    scan: NDArray[np.int32]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]


@dataclass(frozen=True)
class TimeAxis:
    """The times of a window."""

    starts: tuple[tuple[int, float], ...]
    """Numbers of the scans, ascending, and the first time stamp of each in MJD seconds."""
    dump: float
    """Median of the seconds between time stamps; 0 if there is but one."""


def row_columns(piece: Piece) -> RowColumns:
    """Read the columns of a piece that tell its rows apart."""
    table = main_table(piece.path, piece.stamp)
    rows = cross_rows(piece.path, piece.stamp, piece.rows)[piece.data_desc_id].take(piece.first, piece.last)
    uvw = table.getcol("UVW", index=(rows,)).astype(np.float64)
    uvw[~np.isfinite(uvw).all(axis=1)] = 0.0
    return RowColumns(uvw, *_columns(table, rows))


def time_axis(window: Window) -> TimeAxis:
    """Read when the scans of a window begin, and how long its integrations are."""
    table, runs = main_table(window.path, window.stamp), window_rows(window)
    begin: dict[int, float] = {}
    stamps: list[NDArray[np.float64]] = []
    for first in range(0, len(runs), _BLOCK):
        time, scan, _, _ = _columns(table, runs.take(first, min(first + _BLOCK, len(runs))))
        for number in np.unique(scan).tolist():
            begin[number] = min(begin.get(number, np.inf), float(time[scan == number].min()))
        stamps.append(np.unique(time))
    steps = np.diff(np.unique(np.concatenate([np.zeros(0), *stamps])))
    return TimeAxis(tuple(sorted(begin.items())), float(np.median(steps)) if steps.size else 0.0)


def cuts(window: Window, interval: Interval) -> NDArray[np.int64]:
    """List the places where a window may be cut so that no two rows of a baseline, scan and interval are parted.

    Parameters
    ----------
    window
        From `select`.
    interval
        Numbers the intervals of rows, given their scans and times.

    Returns
    -------
    (n,) int64
        Ascending numbers of selected rows; the first is 0, the last the number of rows.
    """
    table, runs = main_table(window.path, window.stamp), window_rows(window)
    found, last = [np.zeros(1, np.int64)], (-1, -1)
    for first in range(0, len(runs), _BLOCK):
        time, scan, _, _ = _columns(table, runs.take(first, min(first + _BLOCK, len(runs))))
        number = interval(scan, time)
        follows = np.diff(scan, prepend=last[0]), np.diff(number, prepend=last[1])
        if (follows[0] < 0).any() or (follows[1][follows[0] == 0] < 0).any():
            return _cuts_of_any_order(_columns(table, runs.take(0, len(runs))), interval)
        places = np.flatnonzero((follows[0] != 0) | (follows[1] != 0)) + first
        found.append(places[places > 0])
        last = int(scan[-1]), int(number[-1])
    return np.concatenate([*found, [len(runs)]])


def _cuts_of_any_order(columns: Columns, interval: Interval) -> NDArray[np.int64]:
    """Cut where every baseline's interval that has begun is over."""
    time, scan, antenna1, antenna2 = columns
    order = np.lexsort((interval(scan, time), scan, antenna2, antenna1))
    keys = np.stack([antenna1, antenna2, scan, interval(scan, time)])[:, order]
    begins = np.flatnonzero((np.diff(keys, axis=1, prepend=keys[:, :1] - 1) != 0).any(axis=0))
    # lexsort is stable: within a key rows keep their order, so the last one is the largest.
    ends = np.append(begins[1:], len(order)) - 1
    over = np.empty(len(order), np.int64)
    over[order] = np.repeat(order[ends], ends - begins + 1)
    until = np.maximum.accumulate(over)
    return np.concatenate([[0], np.flatnonzero(until == np.arange(len(order))) + 1])


def _columns(table: Any, rows: Rows) -> Columns:
    names = ("TIME", "SCAN_NUMBER", "ANTENNA1", "ANTENNA2")
    time, scan, antenna1, antenna2 = (table.getcol(name, index=(rows,)) for name in names)
    return time, scan, antenna1, antenna2
