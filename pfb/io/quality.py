"""What is odd about the visibilities and weights of a window, in a few of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfb.io.casa_tables import main_table
from pfb.io.cells import read_cells, read_visibilities, read_weights
from pfb.io.columns import disagreements
from pfb.io.remarks import Remark, remark
from pfb.io.window import Window, sample_rows

ROWS = 256
"""Rows looked at in each window."""


def check_columns(windows: list[Window]) -> list[Remark]:
    """Look at the visibilities and natural weights that would be imaged, in rows spread over every window of a set."""
    return [_weights(windows), _visibilities(windows)]


def _weights(windows: list[Window]) -> Remark:
    values = np.concatenate([_of_rows(w, read_weights, w.weight_column) for w in windows])
    finite = values[np.isfinite(values)]
    counts = {
        "not finite": len(values) - len(finite), "negative": _count(finite < 0), "zero": _count(finite == 0),
    }  # fmt: skip
    wrong = [f"{_share(n, len(values))} are {what}, and left out" for what, n in counts.items() if n]
    if len(finite) and (finite == 1).all():
        wrong.append("all are one: they say nothing of the noise")
    wrong += disagreements(windows)
    good = finite[finite > 0]
    spread = f", from {good.min():.3g} to {good.max():.3g}" if len(good) else ""
    return remark("weights", f"{windows[0].weight_column}{spread} (in {ROWS} rows of each window at most)", *wrong)


def _visibilities(windows: list[Window]) -> Remark:
    total = flagged = infinite = strong = 0
    for w in windows:
        vis, flag = _of_rows(w, read_visibilities, w.data_column), _of_rows(w, read_cells, "FLAG").astype(bool)
        good = np.isfinite(vis)
        total, flagged = total + len(vis), flagged + _count(flag)
        infinite += _count(~flag & ~good)
        strong += _count(vis[~flag & good] != 0)
    wrong = [f"{_share(infinite, total)} are not finite, not flagged, and left out"] * bool(infinite)
    if flagged < total and not strong:
        wrong.append("all are zero: was the column ever filled?")
    if flagged > 0.9 * total:
        wrong.append(f"{_share(flagged, total)} are flagged")
    detail = f"{windows[0].data_column}, {_share(flagged, total)} flagged (in {ROWS} rows of each window at most)"
    return remark("visibilities", detail, *wrong)


def _count(values: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(values))


def _of_rows(window: Window, read: Callable[..., NDArray[Any]], column: str) -> NDArray[Any]:
    """Return what is in a column in some of a window's rows, at its selected channels, as a flat array."""
    table, rows = main_table(window.path, window.stamp), sample_rows(window, ROWS)
    return read(table, column, rows, window.channels, len(window.correlations)).ravel()


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.3g}%"
