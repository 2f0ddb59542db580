"""Read measurement sets: what they hold, which samples are selected, and the samples themselves, piece by piece.

Nothing here is written to a set. Table handles and row lists live in each process (see `casa_tables`);
what travels to workers is a `Piece`, a few numbers and names.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.io.casa_tables import RowFilter, cross_rows, main_table, release
from pfb.io.cells import read_cells, read_visibilities, read_weights
from pfb.io.description import SetDescription
from pfb.io.metadata import channel_frequencies, describe
from pfb.io.selection import SelectedData, Selection, select
from pfb.io.uv_range import UVRange
from pfb.io.window import Window
from pfb.types import Complex, Real

__all__ = [
    "Piece",
    "RawVisibilities",
    "SelectedData",
    "Selection",
    "SetDescription",
    "Window",
    "describe",
    "pieces",
    "read",
    "release",
    "select",
]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Consecutive selected rows of a window: all that `read` needs, and small to send."""

    path: str
    stamp: int
    data_desc_id: int
    rows: RowFilter
    uv: UVRange | None
    """Lengths of baselines; the samples of others get weight zero."""
    spw: int
    channels: tuple[tuple[int, int], ...]
    """Stored channels in ascending order of frequency, as runs (first, last); last < first where they are stored descending."""
    correlations: int
    data_column: str
    weight_column: str
    first: int
    last: int
    """It holds selected rows ``first <= i < last`` of its window."""


class RawVisibilities(NamedTuple):
    """Samples as a set stores them, cleaned of whatever must not be used."""

    uvw: Real
    """(row, 3) float64, metres, as stored."""
    vis: Complex
    """(row, chan, corr) complex64 or complex128, Jy, channels in ascending order; zero where the weight is zero."""
    weight: Real
    """(row, chan, corr) float32 or float64, finite, not negative; zero where flagged or not usable."""


def pieces(window: Window, rows_per_piece: int | None = None, cuts: NDArray[np.int64] | None = None) -> list[Piece]:
    """Cut a window into pieces of consecutive rows.

    Parameters
    ----------
    window
        From `select`.
    rows_per_piece
        Rows of each piece but the last; None for ``window.row_chunk``.
    cuts
        Ascending numbers of rows, from 0 to all of them, where alone a piece may begin and end. It then has fewer rows, or
        more if there are more between two cuts.
    """
    channels = _runs(window.channels)
    return [
        Piece(
            path=window.path,
            stamp=window.stamp,
            data_desc_id=window.data_desc_id,
            rows=window.row_filter,
            uv=window.uv,
            spw=window.spw,
            channels=channels,
            correlations=len(window.correlations),
            data_column=window.data_column,
            weight_column=window.weight_column,
            first=first,
            last=last,
        )
        for first, last in _edges(window.rows, rows_per_piece or window.row_chunk, cuts)
    ]


def _edges(rows: int, size: int, cuts: NDArray[np.int64] | None) -> list[tuple[int, int]]:
    """Return the first row of every piece and the one after its last."""
    if cuts is None:
        return [(first, min(first + size, rows)) for first in range(0, rows, size)]
    edges = [0]
    while edges[-1] < rows:
        furthest = int(np.searchsorted(cuts, edges[-1] + size, side="right")) - 1
        following = int(np.searchsorted(cuts, edges[-1], side="right"))
        edges.append(int(cuts[max(furthest, following)]))
    return list(pairwise(edges))


def read(piece: Piece, channels: slice = slice(None)) -> RawVisibilities:
    """Read the samples of a piece.

    Weight and visibility are zero where FLAG or FLAG_ROW is set, where visibility, weight or
    uvw is not finite, where the weight is not positive, and where the baseline is not within the range of lengths, in
    wavelengths of the sample's own channel. Autocorrelations belong to no piece.
    Safe to call from several threads.

    Parameters
    ----------
    piece
        From `pieces`.
    channels
        Which of the window's channels, counted in ascending frequency as in ``window.freq``.
        Only these are read from disk.
    """
    table = main_table(piece.path, piece.stamp)
    rows = cross_rows(piece.path, piece.stamp, piece.rows)[piece.data_desc_id].take(piece.first, piece.last)
    stored = np.concatenate([np.arange(a, b + 1) if a <= b else np.arange(a, b - 1, -1) for a, b in piece.channels])[channels]
    uvw = table.getcol("UVW", index=(rows,)).astype(np.float64)
    vis = read_visibilities(table, piece.data_column, rows, stored, piece.correlations)
    weight = read_weights(table, piece.weight_column, rows, stored, piece.correlations)

    bad = read_cells(table, "FLAG", rows, stored, piece.correlations).view(bool)
    off = ~np.isfinite(uvw).all(axis=1)
    uvw[off] = 0.0
    off |= table.getcol("FLAG_ROW", index=(rows,)).astype(bool)
    bad[off] = True
    bad |= ~np.isfinite(vis)
    bad |= ~np.isfinite(weight)
    if piece.uv is not None:
        bad |= ~piece.uv.samples(uvw, channel_frequencies(piece.path, piece.stamp, piece.spw)[stored])[:, :, None]
    with np.errstate(invalid="ignore"):
        bad |= ~(weight > 0)
    np.copyto(vis, 0, where=bad)
    np.copyto(weight, 0, where=bad)
    return RawVisibilities(uvw, vis, weight)


def _runs(channels: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Write an order of channels as (first, last) runs that go up or down by one."""
    runs: list[tuple[int, int]] = []
    for c in channels.tolist():
        first, last = runs[-1] if runs else (c, c)
        step = 1 if last >= first else -1
        if runs and (c - last == step or (first == last and abs(c - last) == 1)):
            runs[-1] = (first, c)
        else:
            runs.append((c, c))
    return tuple(runs)
