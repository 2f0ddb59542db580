"""The selected samples of one data description: its channels, its rows, its longest baseline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.io.casa_tables import RowFilter, RowRuns, Rows, cross_rows, main_table
from pfb.io.channels import usable_widths
from pfb.io.description import RowGroup, SetDescription, SpectralWindow
from pfb.io.expression import parse_terms
from pfb.io.uv_range import UVRange
from pfb.types import LIGHTSPEED, Real

Ranges = list[tuple[int, int]]
"""First and last of each range, both included."""

_CHUNK_BYTES = 128 << 20
# Rows whose flags are looked at in turn, longest baseline first, before all flags are read instead.
_TRIES = (64, 1024, 16384)
_SURVEYED_BYTES = 1 << 30


class Baseline(NamedTuple):
    """The length of a baseline, sqrt(u^2 + v^2)."""

    metres: float
    wavelengths: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """The selected samples of one data description of one set: same channels, same correlations."""

    path: str
    """Absolute path of the set."""
    stamp: int
    """When the set was last written, in ns."""
    data_desc_id: int
    spw: int
    fields: tuple[int, ...]
    scans: tuple[int, ...] | None
    """None: all."""
    times: tuple[tuple[float, float], ...] | None = None
    """Ranges of TIME in MJD seconds; None: all."""
    uv: UVRange | None = None
    """Lengths of the baselines whose samples are used; None: all."""
    lengths: tuple[float, float] | None = None
    """Lengths in metres of the baselines whose rows are used, which is what `uv` comes to for all windows of the set."""
    rows: int
    """Selected rows, which are cross-correlations only."""
    freq: Real
    """(chan,) centres of the selected channels in Hz, ascending."""
    width: Real
    """(chan,) their widths in Hz, positive."""
    channels: NDArray[np.int64]
    """(chan,) their places in the stored order."""
    stored_channels: int
    """How many channels the set has, selected or not."""
    correlations: tuple[int, ...]
    """casacore's numbers, in the stored order."""
    data_column: str = ""
    """A column, or a sum of columns as `parse_terms` reads it."""
    weight_column: str = ""
    """Natural weights, or standard deviations."""

    @property
    def shape(self) -> tuple[int, int]:
        """(channels, correlations) of a stored cell."""
        return self.stored_channels, len(self.correlations)

    @property
    def row_filter(self) -> RowFilter:
        """Which rows of the set are used, if they have this data description."""
        return RowFilter(self.fields, self.scans, self.times, self.lengths)

    @property
    def row_chunk(self) -> int:
        """Rows to read at a time: whole tiles, about 128 MiB of the selected visibilities, flags and weights."""
        # 8 + 4 + 1 bytes of a complex64 visibility, its weight and its flag; of a sum one more column is there.
        size = 21 if len(self._data_columns) > 1 else 13
        return self.whole_tiles(max(1, _CHUNK_BYTES // (size * len(self.freq) * len(self.correlations))))

    def whole_tiles(self, rows: int) -> int:
        """Return so many rows, or fewer that fill tiles of the visibilities; tiles may be larger than `rows`."""
        tile = _tile_rows(main_table(self.path, self.stamp), self._data_columns[0], self.shape)
        return rows - rows % tile if rows > tile else rows

    @property
    def _data_columns(self) -> list[str]:
        return [term.column for term in parse_terms(self.data_column)] if self.data_column else [""]


def spectral_window(d: SetDescription, data_desc_id: int) -> SpectralWindow:
    """Return the spectral window of a data description that owns rows."""
    return d.spectral_windows[next(x.spw for x in d.data_descriptions if x.id == data_desc_id)]


def make_window(
    d: SetDescription, groups: Sequence[RowGroup], scans: tuple[int, ...] | None = None, channels: Ranges | None = None
) -> Window:
    """Make the window of a data description, its columns not yet known.

    Parameters
    ----------
    d
        The set.
    groups
        Selected groups of rows, all of the same data description.
    scans
        Selected scans; None: all.
    channels
        Ranges of stored channels; those beyond the last are left out, and so none may be left. None: all.
    """
    description = next(x for x in d.data_descriptions if x.id == groups[0].data_desc_id)
    spectral = d.spectral_windows[description.spw]
    stored = np.arange(len(spectral.freq))
    if channels is not None:
        stored = stored[np.any([(a <= stored) & (stored <= b) for a, b in channels], axis=0)]
    stored = stored[np.argsort(spectral.freq[stored], kind="stable")]
    return Window(
        path=os.path.abspath(d.path),
        stamp=d.stamp,
        data_desc_id=description.id,
        spw=description.spw,
        fields=tuple(sorted({g.field for g in groups})),
        scans=scans,
        times=None,
        uv=None,
        lengths=None,
        rows=sum(g.rows - g.autocorrelations for g in groups),
        freq=spectral.freq[stored],
        width=usable_widths(spectral.freq, spectral.width)[stored],
        channels=stored,
        stored_channels=len(spectral.freq),
        correlations=description.correlations,
    )


def narrow(
    windows: Sequence[Window], times: tuple[tuple[float, float], ...] | None, uv: UVRange | None
) -> list[Window]:
    """Leave of the windows of a set what lies in ranges of time and of lengths of baselines; some may have no rows then.

    Parameters
    ----------
    windows
        From `make_window`.
    times
        Ranges of TIME in MJD seconds; None: all.
    uv
        Lengths; None: all.
    """
    if not windows or (times is None and uv is None):
        return list(windows)
    # The same rows in all windows of a set, so that a process lists them once.
    edges = float(min(w.freq.min() for w in windows)), float(max(w.freq.max() for w in windows))
    lengths = None if uv is None else uv.in_metres(*edges)
    narrowed = [replace(w, times=times, uv=uv, lengths=lengths) for w in windows]
    found = [cross_rows(w.path, w.stamp, w.row_filter) for w in narrowed]
    return [replace(w, rows=len(f[w.data_desc_id]) if w.data_desc_id in f else 0) for w, f in zip(narrowed, found, strict=True)]


def first_time(window: Window) -> float:
    """Return the earliest TIME of a window's rows, MJD seconds UTC."""
    table, runs = main_table(window.path, window.stamp), window_rows(window)
    times = [table.getcol("TIME", index=(runs.take(a, b),)).min() for a, b in _steps(len(runs), 1 << 20)]
    return float(min(times))


def survey(d: SetDescription) -> tuple[Window, ...]:
    """Return the windows that hold all cross-correlations of a set, whatever their fields; columns are not looked for."""
    cross = [[g for g in d.groups if g.data_desc_id == x.id and g.rows > g.autocorrelations] for x in d.data_descriptions]
    return tuple(make_window(d, groups) for groups in cross if groups)


def flagged_fraction(window: Window) -> tuple[float, bool]:
    """Return the fraction of flagged samples, and whether all flags were read: at most about 1 GiB of them are."""
    table, runs = main_table(window.path, window.stamp), window_rows(window)
    cell = window.shape[0] * window.shape[1]
    steps = _steps(len(runs), max(1, _SURVEYED_BYTES // (16 * cell)))
    read = steps if len(steps) <= 16 else [steps[i] for i in np.linspace(0, len(steps) - 1, 16).astype(int)]
    flagged = 0
    for first, last in read:
        rows = runs.take(first, last)
        flag = table.getcol("FLAG", index=(rows,)).astype(bool)
        flagged += int(np.count_nonzero(flag | table.getcol("FLAG_ROW", index=(rows,))[:, None, None].astype(bool)))
    return flagged / (cell * sum(last - first for first, last in read)), read is steps


def window_rows(window: Window) -> RowRuns:
    """Return the table rows of a window in the stored order; listed once per process."""
    return cross_rows(window.path, window.stamp, window.row_filter)[window.data_desc_id]


def sample_rows(window: Window, count: int) -> NDArray[np.int64]:
    """Return at most `count` of a window's table rows, evenly spread, ascending."""
    runs = window_rows(window)
    return runs.at(np.unique(np.linspace(0, len(runs) - 1, count).astype(np.int64)))


def longest_baseline(window: Window) -> Baseline | None:
    """Return the longest baseline, in wavelengths, of a row with an unflagged selected sample; None if there is none.

    Flags are read for a few of the longest, and only where all of those are flagged for all.
    """
    return _extreme(window, longest=True)


def shortest_baseline(window: Window) -> Baseline | None:
    """Return the shortest baseline with an unflagged selected sample that has a length; see `longest_baseline`."""
    return _extreme(window, longest=False)


def _extreme(window: Window, longest: bool) -> Baseline | None:
    table, runs = main_table(window.path, window.stamp), window_rows(window)
    parts = [_lengths(table, runs.take(a, b), window, longest) for a, b in _steps(len(runs), 1 << 20)]
    metres, waves = np.concatenate(parts, axis=1) if parts else np.empty((2, 0))
    usable = np.flatnonzero(waves >= 0 if longest else waves > 0)
    order = usable[np.argsort(-waves[usable] if longest else waves[usable], kind="stable")]
    first = 0
    for count in _TRIES:
        if first >= len(order):
            return None
        tried = np.sort(order[first : first + count])
        good = tried[_unflagged(table, runs.at(tried), window)]
        if len(good):
            return _of_rows(metres, waves, good, longest)
        first += count
    good_rows = np.concatenate([_unflagged(table, runs.take(a, b), window) for a, b in _steps(len(runs), window.row_chunk)])
    rest = order[good_rows[order]]
    return _of_rows(metres, waves, rest, longest) if len(rest) else None


def _of_rows(metres: Real, waves: Real, rows: NDArray[np.int64], longest: bool) -> Baseline:
    one = rows[np.argmax(waves[rows]) if longest else np.argmin(waves[rows])]
    return Baseline(float(metres[one]), float(waves[one]))


def _steps(total: int, size: int) -> list[tuple[int, int]]:
    return [(a, min(a + size, total)) for a in range(0, total, size)]


def _lengths(table: Any, rows: Rows, window: Window, longest: bool) -> Real:
    """Return (2, row) sqrt(u^2 + v^2) in metres and wavelengths, at the highest or lowest selected frequency.

    Both are -1 where UVW is not finite, FLAG_ROW is set, or no sample is within the range of lengths.
    """
    uvw = table.getcol("UVW", index=(rows,))
    bad = ~np.isfinite(uvw).all(axis=1) | table.getcol("FLAG_ROW", index=(rows,)).astype(bool)
    metres = np.where(bad, 0.0, np.hypot(uvw[:, 0], uvw[:, 1]))
    first, after = (window.uv or UVRange()).channels(metres, window.freq)
    bad |= after <= first
    at = np.where(bad, 0, after - 1 if longest else first)
    return np.where(bad, -1.0, [metres, metres * window.freq[at] / LIGHTSPEED])


def _unflagged(table: Any, rows: Rows, window: Window) -> NDArray[np.bool_]:
    """Say which rows have an unflagged sample among the selected channels, within the range of lengths."""
    low, high = int(window.channels.min()), int(window.channels.max())
    flag = table.getcol("FLAG", index=(rows, slice(low, high + 1)))[:, window.channels - low].astype(bool)
    if window.uv is not None:
        flag |= ~window.uv.samples(table.getcol("UVW", index=(rows,)), window.freq)[:, :, None]
    return ~flag.all(axis=(1, 2))


def _tile_rows(table: Any, column: str, shape: tuple[int, ...]) -> int:
    """Return how many rows share a tile; 1 for a column that is not tiled."""
    for manager in table.getdminfo().values():
        if column in manager["COLUMNS"]:
            cubes = manager.get("SPEC", {}).get("HYPERCUBES", {}).values()
            # casacore counts axes from the fastest, so rows come last and cells are transposed.
            tiles = [c["TileShape"] for c in cubes if tuple(c["CellShape"]) == shape[::-1]]
            return max((int(tile[-1]) for tile in tiles), default=1)
    return 1
