"""Write a column of visibilities into measurement sets: tried before the work, made like DATA, by one writer at a time.

While a column is being written it has the keyword `UNFINISHED`, so that one that a dead run has left can be told from a
complete one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arcae
import numpy as np
import pyarrow
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.io.casa_tables import UNFINISHED, Rows, cell_shape, main_table, release
from pfb.io.description import SetDescription
from pfb.io.msv4 import is_store
from pfb.io.window import Window, sample_rows, window_rows
from pfb.types import Complex, Real

_SAMPLED = 64
_FILLED_BYTES = 64 << 20
"""Bytes of a new column that are filled at a time."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Consecutive selected rows of a window, and what is done to them; small, so that it may travel."""

    window: Window
    column: str
    source: str
    """Column that the model is subtracted from or added to; empty if the model itself is written."""
    sign: float
    """What the model is multiplied with before it is added to the source."""
    first: int
    last: int
    """It holds selected rows ``first <= i < last`` of its window."""

    def rows(self) -> Rows:
        """Return its rows in the table."""
        return window_rows(self.window).take(self.first, self.last)


def pieces(window: Window, column: str, source: str, sign: float, most: int) -> list[Piece]:
    """Cut a window into pieces of at most so many bytes of single-precision visibilities, whole tiles where they are smaller."""
    size = max(1, min(window.row_chunk, most // (8 * len(window.freq) * len(window.correlations))))
    return [
        Piece(window=window, column=column, source=source, sign=sign, first=first, last=min(first + size, window.rows))
        for first in range(0, window.rows, size)
    ]


def read_uvw(piece: Piece) -> Real:
    """Read the (row, 3) baselines of a piece in metres; zero where they are not finite."""
    uvw = main_table(piece.window.path, piece.window.stamp).getcol("UVW", index=(piece.rows(),)).astype(np.float64)
    uvw[~np.isfinite(uvw).all(axis=1)] = 0.0
    return uvw


def write(piece: Piece, model: Complex) -> None:
    """Write the model of a piece, or the source less or plus it.

    Flagged samples are treated as all others. Calls for one set must not overlap.

    Parameters
    ----------
    piece : Piece
        Its column exists.
    model : (row, chan, corr) complex
        Jy, channels in ascending order of frequency.
    """
    w = piece.window
    rows, stored = piece.rows(), w.channels
    low, high = int(stored.min()), int(stored.max()) + 1
    span = (rows, slice(low, high))
    with _opened(w.path) as table:
        if piece.source:
            cells = table.getcol(piece.source, index=span).astype(np.complex128)
            model = cells[:, stored - low] + piece.sign * model
        if len(stored) == high - low:
            cells = np.empty(model.shape, np.complex64)
        else:
            # Between the selected channels are others, which stay as they are.
            cells = np.array(table.getcol(piece.column, index=span))
        cells[:, stored - low] = model
        table.putcol(piece.column, cells, index=span)


@contextmanager
def exclusive(paths: Sequence[str]) -> Iterator[None]:
    """Keep other writers of ours away from sets.

    Raises
    ------
    InputError
        If another process is writing one of them.
    """
    with ExitStack() as stack:
        for path in paths:
            handle = os.open(path, os.O_RDONLY)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"{path} is being written by another pfb predict; wait until it has ended") from None
            except OSError:
                pass  # a file system without locks
        yield


def check(d: SetDescription, windows: Sequence[Window], column: str, source: str, overwrite: bool) -> None:
    """Refuse, before any work is done, a column that could not be written; the write itself is tried.

    Parameters
    ----------
    d : SetDescription
        The set.
    windows : sequence of Window
        What of it is going to be written.
    column, source : str
        As for `Piece`.
    overwrite : bool
        Whether a column other than MODEL_DATA that exists may be replaced.

    Raises
    ------
    InputError
        If the source or the column has cells of another type or shape than the windows, the column exists and must stay,
        the set cannot be written to, or the disk is too full for a new column.
    """
    if is_store(d.path):
        raise InputError(f"{d.path} is an MSv4 store, which is read but never written; write into a measurement set")
    known = {c.name: c for c in d.columns}
    like = source or "DATA"
    if like not in known or "complex" not in known[like].kind:
        listed = ", ".join(d.visibility_columns) or "none"
        raise InputError(f"{d.path} has no visibility column {like} (it has {listed}); choose one with --data-column")
    _require_shape(d, windows, like, "choose another with --data-column")
    if column in known:
        if "complex" not in known[column].kind:
            raise InputError(f"{column} of {d.path} holds {known[column].kind} and no visibilities; choose another with --column")
        if column != "MODEL_DATA" and not overwrite:
            raise InputError(f"{d.path} has a column {column} already; choose another name, or replace it with --overwrite")
        if known[column].has_cells:
            _require_shape(d, windows, column, "remove it, or choose another with --column")
    else:
        _require_space(d, like)
    _try(d.path, column if column in known and known[column].has_cells else like, sample_rows(windows[0], 1))


def prepare(d: SetDescription, windows: Sequence[Window], column: str, source: str) -> None:
    """Make the column if there is none, like DATA, and mark it as unfinished.

    Rows and channels that are not going to be written are those of the source, or zero without one, where the column
    is new.

    Parameters
    ----------
    d, windows, column, source
        As for `check`, which has been called.
    """
    with _opened(d.path) as table:
        like = source or "DATA"
        new = column not in table.columns()
        if new:
            description, manager = _described_like(table, like, column)
            table.addcols({column: description}, {"*1": manager})
        table.putcolkeywords(column, {UNFINISHED: "pfb predict"})
        if new or not {c.name: c for c in d.columns}[column].has_cells:
            _fill(table, d, column, like, copied=bool(source))


def complete(path: str, column: str) -> None:
    """Say of a column that it is complete."""
    with _opened(path) as table:
        table.removecolkeyword(column, UNFINISHED)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    # Readers of ours take no lock and need none; one instance, because several would write side by side.
    table = arcae.table(path, readonly=False, lockoptions="autonoread", ninstances=1)
    try:
        yield table
    finally:
        table.close()


def _require_shape(d: SetDescription, windows: Sequence[Window], column: str, remedy: str) -> None:
    for w in windows:
        found = cell_shape(main_table(w.path, w.stamp), column, sample_rows(w, _SAMPLED))
        if found != w.shape:
            has = "has empty cells or cells of several shapes" if found is None else f"has cells of shape {found}"
            raise InputError(f"{column} of {d.path} {has} in spectral window {w.spw}, which needs {w.shape}; {remedy}")


def _require_space(d: SetDescription, like: str) -> None:
    table = main_table(os.path.abspath(d.path), d.stamp)
    sizes = {w.id: 8 * len(w.freq) for w in d.spectral_windows}
    needed = sum(x.rows * sizes[x.spw] * len(x.correlations) for x in d.data_descriptions)
    free = shutil.disk_usage(d.path).free
    if needed > free:
        raise InputError(
            f"a column like {like} of {d.path} ({table.nrow()} rows) takes {needed / 2**30:.3g} GiB but {free / 2**30:.3g} GiB "
            "of the disk are free; make room"
        )


def _try(path: str, column: str, rows: NDArray[np.int64]) -> None:
    """Write a cell as it is."""
    release(path)
    files = [Path(path), *(file for file in Path(path).iterdir() if file.is_file())]
    if locked := [str(file) for file in files if not os.access(file, os.W_OK)]:
        raise InputError(f"{locked[0]} is not writable, so nothing can be written into {path}; change its rights or copy the set")
    try:
        with _opened(path) as table:
            index = (slice(int(rows[0]), int(rows[0]) + 1),)
            table.putcol(column, table.getcol(column, index=index), index=index)
    except (pyarrow.ArrowException, OSError, RuntimeError) as error:
        raise InputError(f"{column} of {path} cannot be written ({error}); change its rights or copy the set") from error


def _described_like(table: Any, like: str, column: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the description of a column and of its storage manager: those of another one, under a new name."""
    description = dict(table.getcoldesc(like))
    found = next(m for m in table.getdminfo().values() if like in m["COLUMNS"])
    tiles = [c["TileShape"] for c in found["SPEC"].get("HYPERCUBES", {}).values()]
    tile = found["SPEC"].get("DEFAULTTILESHAPE", tiles[0] if tiles else None)
    fixed = "shape" in description
    kind = "TiledColumnStMan" if fixed else "TiledShapeStMan"
    if tile is None or not len(tile):
        tile = [*(description["shape"][::-1] if fixed else (4, 64)), 1024]
    name = f"Tiled{column}"
    description |= {"dataManagerType": kind, "dataManagerGroup": name, "valueType": "complex", "keywords": {}}
    description["comment"] = f"written by pfb predict, like {like}"
    return description, {"NAME": name, "TYPE": kind, "SPEC": {"DEFAULTTILESHAPE": list(tile)}, "COLUMNS": [column]}


def _fill(table: Any, d: SetDescription, column: str, like: str, copied: bool) -> None:
    """Give every row a cell: that of the source, or zeros."""
    numbers = table.getcol("DATA_DESC_ID")
    windows = {w.id: w for w in d.spectral_windows}
    for x in d.data_descriptions:
        shape = len(windows[x.spw].freq), len(x.correlations)
        rows = np.flatnonzero(numbers == x.id)
        step = max(1, _FILLED_BYTES // (8 * shape[0] * shape[1]))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            index: Rows = slice(int(some[0]), int(some[-1]) + 1) if some[-1] - some[0] == len(some) - 1 else some
            cells = table.getcol(like, index=(index,)) if copied else np.zeros((len(some), *shape))
            table.putcol(column, cells.astype(np.complex64), index=(index,))
