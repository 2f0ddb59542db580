"""Cells of a set's main table: visibilities, or sums of them, natural weights, flags."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfb.io.casa_tables import Rows
from pfb.io.expression import parse_terms
from pfb.types import Complex, Real

_DTYPES = {"complex": np.complex64, "dcomplex": np.complex128, "float": np.float32, "double": np.float64, "boolean": np.uint8}


def is_sigma(column: str) -> bool:
    """Say whether a column of weights holds standard deviations instead."""
    return column.startswith("SIGMA")


def read_cells(table: Any, column: str, rows: Rows, stored: NDArray[np.int64], correlations: int) -> NDArray[Any]:
    """Read (row, chan, corr) cells into an array of our own, its channels in the order of `stored`."""
    low, high = int(stored.min()), int(stored.max()) + 1
    dtype = _DTYPES[table.getcoldesc(column)["valueType"]]
    buffer: NDArray[Any] = np.empty((_length(rows), high - low, correlations), dtype)
    table.getcol(column, index=(rows, slice(low, high)), result=buffer)
    if len(stored) == high - low and (np.diff(stored) == 1).all():
        return buffer
    # One contiguous read and a gather in memory: strided reads take casacore several times as long.
    return buffer[:, stored - low]


def read_visibilities(table: Any, text: str, rows: Rows, stored: NDArray[np.int64], correlations: int) -> Complex:
    """Read (row, chan, corr) visibilities: a column, or a sum as `parse_terms` reads it. Not finite where any term is not."""
    first, *others = parse_terms(text)
    vis = read_cells(table, first.column, rows, stored, correlations)
    with np.errstate(invalid="ignore", over="ignore"):
        if first.factor != 1:
            vis *= first.factor
        for term in others:
            more = read_cells(table, term.column, rows, stored, correlations)
            vis = vis.astype(np.result_type(vis, more), copy=False)
            vis += more if term.factor == 1 else term.factor * more
    return vis


def read_weights(table: Any, column: str, rows: Rows, stored: NDArray[np.int64], correlations: int) -> Real:
    """Read (row, chan, corr) natural weights, from cells of (chan, corr) or of (corr,)."""
    one = rows.start if isinstance(rows, slice) else int(rows[0])
    if len(table.row_shapes(column, index=(slice(one, one + 1),))[0].as_py()) == 2:
        values = read_cells(table, column, rows, stored, correlations)
    else:
        shape = _length(rows), len(stored), correlations
        values = np.broadcast_to(table.getcol(column, index=(rows,))[:, None, :], shape).copy()
    return to_weights(values) if is_sigma(column) else values


def to_weights(sigma: Real) -> Real:
    """Return 1 / sigma^2, and zero where sigma is not positive, or not finite."""
    usable = np.isfinite(sigma) & (sigma > 0)
    with np.errstate(over="ignore"):
        weight: Real = np.where(usable, sigma, 1) ** -2
    weight[~usable] = 0
    return weight


def _length(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
