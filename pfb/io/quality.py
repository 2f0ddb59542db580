"""What is odd about the visibilities and weights of a window, in a few of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfb.io.casa_tables import cell_shape, main_table
from pfb.io.remarks import Remark, remark
from pfb.io.window import Window, sample_rows

ROWS = 256
"""Rows looked at in each window."""
AGREE = 0.01
"""Relative difference of weights that is let pass."""


def check_columns(windows: list[Window]) -> list[Remark]:
    """Look at the visibilities and natural weights that would be imaged, in rows spread over every window of a set."""
    return [_weights(windows), _visibilities(windows)]


def _weights(windows: list[Window]) -> Remark:
    values = np.concatenate([_values(w, w.weight_column) for w in windows])
    finite = values[np.isfinite(values)]
    counts = {
        "not finite": len(values) - len(finite), "negative": _count(finite < 0), "zero": _count(finite == 0),
    }  # fmt: skip
    wrong = [f"{_share(n, len(values))} are {what}, and left out" for what, n in counts.items() if n]
    if len(finite) and (finite == 1).all():
        wrong.append("all are one: they say nothing of the noise")
    wrong += _sigma(windows)
    good = finite[finite > 0]
    spread = f", from {good.min():.3g} to {good.max():.3g}" if len(good) else ""
    return remark("weights", f"{windows[0].weight_column}{spread} (in {ROWS} rows of each window at most)", *wrong)


def _sigma(windows: list[Window]) -> list[str]:
    """Say in words how SIGMA, which is not used, differs from what WEIGHT promises."""
    tables = [(main_table(w.path, w.stamp), sample_rows(w, ROWS)) for w in windows]
    needed = [(t, rows, c) for t, rows in tables for c in ("SIGMA", "WEIGHT")]
    if any(c not in t.columns() or cell_shape(t, c, rows) is None for t, rows, c in needed):
        return []
    sigma, weight = (np.concatenate([t.getcol(c, index=(rows,)).ravel() for t, rows in tables]) for c in ("SIGMA", "WEIGHT"))
    known = np.isfinite(sigma) & np.isfinite(weight) & (sigma > 0) & (weight > 0)
    if not known.any():
        return []
    ratio = float(np.median(weight[known] * sigma[known].astype(np.float64) ** 2))
    return [f"WEIGHT is {ratio:.3g} times 1 / SIGMA^2; SIGMA is not used"] if abs(ratio - 1) > AGREE else []


def _visibilities(windows: list[Window]) -> Remark:
    total = flagged = infinite = strong = 0
    for w in windows:
        vis, flag = _values(w, w.data_column), _values(w, "FLAG").astype(bool)
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


def _values(window: Window, column: str) -> NDArray[Any]:
    """Return a column of some of a window's rows as a flat array: of the selected channels, if it has any."""
    table, rows = main_table(window.path, window.stamp), sample_rows(window, ROWS)
    values: NDArray[Any] = table.getcol(column, index=(rows,))
    return (values[:, window.channels] if values.ndim == 3 else values).ravel()


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.3g}%"
