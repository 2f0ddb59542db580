"""Open CASA tables, keep their handles for as long as a process lives, and list the rows that a selection leaves."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import arcae
import numpy as np
import pyarrow
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.io.msv4 import is_store, sub_table, written
from pfb.io.msv4_description import open_table

Rows = slice | NDArray[np.int64]

UNFINISHED = "PFB_UNFINISHED"
"""Keyword of a column that is being written; its text says by which command."""

# Readers take no lock, so they never wait for a writer nor make one wait.
_LOCK = "usernoread"
# MiB of tiles that casacore keeps of every column, which does not map flags: each is read once, so a few are enough.
_TILES = 16
_BLOCK = 1 << 20
_KEPT = 8

_mutex = threading.RLock()
_handles: OrderedDict[Hashable, Any] = OrderedDict()
_selected: OrderedDict[Hashable, dict[int, RowRuns]] = OrderedDict()


@dataclass(frozen=True)
class RowFilter:
    """Which cross-correlation rows of a table are used; small, and a key."""

    fields: tuple[int, ...]
    """Values of FIELD_ID."""
    scans: tuple[int, ...] | None = None
    """Values of SCAN_NUMBER; None for all."""
    times: tuple[tuple[float, float], ...] | None = None
    """Ranges of TIME in MJD seconds, limits included; None for all."""
    lengths: tuple[float, float] | None = None
    """Least and greatest sqrt(u^2 + v^2) in metres; None for all, be UVW finite or not."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What `keep` looks at."""
        names = ("FIELD_ID", "ANTENNA1", "ANTENNA2")
        optional = {"SCAN_NUMBER": self.scans, "TIME": self.times, "UVW": self.lengths}
        return (*names, *(name for name, chosen in optional.items() if chosen is not None))

    def keep(self, c: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Say which (row,) of these columns are used."""
        keep: NDArray[np.bool_] = (c["ANTENNA1"] != c["ANTENNA2"]) & np.isin(c["FIELD_ID"], self.fields)
        if self.scans is not None:
            keep &= np.isin(c["SCAN_NUMBER"], self.scans)
        if self.times is not None:
            keep &= np.any([(a <= c["TIME"]) & (c["TIME"] <= b) for a, b in self.times], axis=0)
        if self.lengths is not None:
            length = np.hypot(c["UVW"][:, 0], c["UVW"][:, 1])
            keep &= (self.lengths[0] <= length) & (length <= self.lengths[1])
        return keep


@dataclass(frozen=True, eq=False)
class RowRuns:
    """Rows of a table as runs of consecutive ones: two integers a run, however long it is."""

    start: NDArray[np.int64]
    """(run,) table row at which each run begins."""
    position: NDArray[np.int64]
    """(run + 1,) how many rows come before each run; the last is the number of rows."""

    @classmethod
    def of(cls, rows: NDArray[np.int64]) -> RowRuns:
        """Compress an ascending (row,) list."""
        begins = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        return cls(rows[begins], np.append(begins, len(rows)))

    @classmethod
    def joined(cls, parts: list[RowRuns]) -> RowRuns:
        """Put lists one behind the other."""
        lengths = np.concatenate([np.diff(p.position) for p in parts])
        return cls(np.concatenate([p.start for p in parts]), np.concatenate([[0], np.cumsum(lengths)]))

    def __len__(self) -> int:
        return int(self.position[-1])

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the (n,) table rows at these (n,) places of the list."""
        run = np.searchsorted(self.position, positions, side="right") - 1
        return self.start[run] + positions - self.position[run]

    def take(self, first: int, last: int) -> Rows:
        """Return the table rows at places ``first <= i < last``: a slice if they are consecutive."""
        rows = self.at(np.arange(first, last))
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return rows


def stamp(path: str) -> int:
    """Return when a set was last written (ns), so that nobody reads it through a handle from before that.

    Raises `InputError` if there is no set.
    """
    if not os.path.isdir(path):
        raise InputError(f"{path} does not exist; give the path of a measurement set")
    if is_store(path):
        return written(path)
    if not os.path.isfile(os.path.join(path, "table.dat")):
        raise InputError(f"{path} holds no table.dat, so it is no measurement set; give the path of one")
    with os.scandir(path) as entries:
        return max(e.stat().st_mtime_ns for e in entries if e.is_file() and e.name != "table.lock")


def main_table(path: str, written: int) -> Any:
    """Return this process's handle of a main table.

    Parameters
    ----------
    path
        Directory of the set, absolute.
    written
        Its `stamp`; a handle from before is dropped.
    """
    # The process id is in the key because a forked child inherits handles whose threads it does not have.
    key = (os.getpid(), path, written)
    with _mutex:
        if key not in _handles:
            for old in [k for k in _handles if isinstance(k, tuple) and k[1] == path]:
                del _handles[old]
            _remember(_handles, key, _open(path))
        _handles.move_to_end(key)
        return _handles[key]


def subtable(path: str, name: str) -> Any | None:
    """Open a sub-table, to be closed by the caller; None if the set has none. Of a store there are ANTENNA and FEED."""
    if is_store(path):
        return sub_table(path, name)
    try:
        return arcae.table(f"{path}::{name}", lockoptions=_LOCK)
    except (pyarrow.ArrowException, OSError, RuntimeError):
        return None


def blocks(table: Any, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """Yield the first row and the values of small columns, about a million rows at a time."""
    for first in range(0, table.nrow(), _BLOCK):
        index = (slice(first, min(first + _BLOCK, table.nrow())),)
        yield first, {c: table.getcol(c, index=index) for c in columns}


def cells(table: Any, column: str) -> list[NDArray[Any] | None]:
    """Return the cells of an array column, whatever their shapes; None for one that holds nothing."""
    if column not in table.columns():
        return [None] * table.nrow()
    shapes = table.row_shapes(column)
    return [table.getcol(column, index=(slice(i, i + 1),))[0] if shapes[i].is_valid else None for i in range(table.nrow())]


def cell_shape(table: Any, column: str, rows: Rows) -> tuple[int, ...] | None:
    """Return the one shape that an array column has in these rows; None if any is empty or they differ."""
    shapes = {tuple(s.as_py()) if s.is_valid else None for s in table.row_shapes(column, index=(rows,))}
    return shapes.pop() if len(shapes) == 1 else None


def cross_rows(path: str, written: int, rows: RowFilter) -> dict[int, RowRuns]:
    """List the cross-correlation rows that pass a filter, for each data description that has any.

    The lists are made once per process, from the small columns, and kept.

    Parameters
    ----------
    path, written
        As for `main_table`.
    rows
        Which are used.
    """
    key = (path, written, rows)
    with _mutex:
        if key not in _selected:
            _remember(_selected, key, _find_rows(main_table(path, written), rows))
        _selected.move_to_end(key)
        return _selected[key]


def unfinished(path: str, column: str) -> bool:
    """Say whether a run that was writing a column has ended before it was complete."""
    return not is_store(path) and UNFINISHED in main_table(os.path.abspath(path), stamp(path)).getcolkeywords(column)


def release(path: str | None = None) -> None:
    """Close the handles of this process, of one set or of all, and forget its row lists."""
    path = path and os.path.abspath(path)
    with _mutex:
        for key in [k for k in _handles if isinstance(k, tuple) and path in (None, k[1])]:
            _handles.pop(key).close()
        for key in [k for k in _selected if isinstance(k, tuple) and path in (None, k[0])]:
            del _selected[key]


def _open(path: str) -> Any:
    if is_store(path):
        return open_table(path)
    try:
        return arcae.table(path, lockoptions=_LOCK, cache_size=_TILES)
    except (pyarrow.ArrowException, OSError, RuntimeError) as error:
        raise InputError(f"{path} cannot be opened as a measurement set ({error}); is it complete?") from error


def _remember(kept: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    kept[key] = value
    while len(kept) > _KEPT:
        kept.popitem(last=False)


def _find_rows(table: Any, chosen: RowFilter) -> dict[int, RowRuns]:
    found: dict[int, list[RowRuns]] = {}
    for first, c in blocks(table, ("DATA_DESC_ID", *chosen.columns)):
        keep = chosen.keep(c)
        for description in np.unique(c["DATA_DESC_ID"][keep]):
            rows = np.flatnonzero(keep & (c["DATA_DESC_ID"] == description)) + first
            found.setdefault(int(description), []).append(RowRuns.of(rows))
    return {description: RowRuns.joined(parts) for description, parts in sorted(found.items())}
