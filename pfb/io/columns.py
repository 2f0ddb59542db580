"""Which columns hold the visibilities and the natural weights of a set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pfb.errors import InputError
from pfb.io.casa_tables import cell_shape, main_table, unfinished
from pfb.io.metadata import SetDescription
from pfb.io.window import Window, sample_rows
from pfb.types import Real

# Rows looked at: few, and more if those hold no weight at all, so that a flagged stretch condemns no column.
_FEW, _MANY = 128, 4096


def choose_columns(
    d: SetDescription, windows: list[Window], data: str | None, weight: str | None
) -> tuple[list[Window], list[str]]:
    """Fill in the columns of a set's windows.

    Cells of a bounded number of rows, spread over the selection, are looked at. SIGMA is never used.

    Parameters
    ----------
    d
        The set.
    windows
        Its windows, whose columns are not yet known.
    data
        Column of the visibilities; None: CORRECTED_DATA if it holds them, else DATA.
    weight
        Column of the natural weights, (chan, corr) or (corr,) in each row; None:
        WEIGHT_SPECTRUM if it holds (chan, corr) that are neither all zero nor all one,
        else WEIGHT.

    Returns
    -------
    windows, notes
        The windows with their columns, and a sentence for each default that was decided.

    Raises
    ------
    InputError
        If a column does not exist, holds cells of another shape, or the weights are all zero.
    """
    notes: list[str] = []
    data = _data_column(d, windows, data, notes)
    weight = _asked_weight(d, windows, weight) if weight else _default_weight(d, windows, notes)
    return [replace(w, data_column=data, weight_column=weight) for w in windows], notes


def _data_column(d: SetDescription, windows: list[Window], asked: str | None, notes: list[str]) -> str:
    known = {c.name: c for c in d.columns}
    if asked is None:
        usable = "CORRECTED_DATA" in known and not _misshaped(windows, "CORRECTED_DATA")
        column = "CORRECTED_DATA" if usable else "DATA"
        reason = " (it has no usable CORRECTED_DATA)" if column == "DATA" else ""
        notes.append(f"{d.path}: column {column} is imaged{reason}")
    else:
        column = asked
    if column not in known or "complex" not in known[column].kind:
        listed = ", ".join(d.visibility_columns) or "none"
        raise InputError(f"{d.path} has no visibility column {column} (it has {listed}); choose one with --data-column")
    for name, remedy in ((column, "choose another with --data-column"), ("FLAG", "repair the set")):
        if wrong := _misshaped(windows, name):
            raise InputError(f"{name} of {d.path} {wrong}; {remedy}")
    if unfinished(d.path, column):
        raise InputError(
            f"{column} of {d.path} was left unfinished by pfb predict: run that again, or choose another with --data-column"
        )
    return column


def _asked_weight(d: SetDescription, windows: list[Window], column: str) -> str:
    known = {c.name: c for c in d.columns}
    if column not in known or known[column].kind not in ("float", "double"):
        listed = ", ".join(n for n, c in known.items() if "WEIGHT" in n and c.has_cells) or "none"
        raise InputError(f"{d.path} has no weight column {column} (it has {listed}); choose one with --weight-column")
    if (wrong := _misshaped(windows, column)) and _misshaped(windows, column, per_channel=False):
        raise InputError(f"{column} of {d.path} {wrong}, or one weight for each correlation; choose another with --weight-column")
    if _verdict(windows, column) == "all zero":
        raise InputError(f"{column} of {d.path} is all zero, which leaves nothing to image; choose another with --weight-column")
    return column


def _default_weight(d: SetDescription, windows: list[Window], notes: list[str]) -> str:
    known = {c.name for c in d.columns}
    spectrum = _unusable(windows, "WEIGHT_SPECTRUM", known, per_channel=True)
    if not spectrum:
        return "WEIGHT_SPECTRUM"
    plain = _unusable(windows, "WEIGHT", known, per_channel=False)
    if plain and plain != "is all one":
        raise InputError(
            f"{d.path} has no usable weights (WEIGHT_SPECTRUM {spectrum}, WEIGHT {plain}); "
            "fill one of them or name another column with --weight-column"
        )
    notes.append(f"{d.path}: WEIGHT gives the weights, because WEIGHT_SPECTRUM {spectrum}")
    return "WEIGHT"


def _unusable(windows: list[Window], column: str, known: set[str], per_channel: bool) -> str:
    """Say in words why a column holds no usable weights; empty if it does."""
    if column not in known:
        return "does not exist"
    if wrong := _misshaped(windows, column, per_channel):
        return wrong
    verdict = _verdict(windows, column)
    return f"is {verdict}" if verdict else ""


def _misshaped(windows: list[Window], column: str, per_channel: bool = True) -> str:
    """Say in words how cells differ from (channels, correlations) or (correlations,); empty if they do not."""
    for window in windows:
        needed = window.shape if per_channel else window.shape[1:]
        found = cell_shape(main_table(window.path, window.stamp), column, sample_rows(window, _FEW))
        if found != needed:
            has = "has empty cells or cells of several shapes" if found is None else f"has cells of shape {found}"
            return f"{has} in spectral window {window.spw}, which needs {needed}"
    return ""


def _verdict(windows: list[Window], column: str) -> str:
    """Return ``all zero`` if no weight is positive, ``all one`` if every finite weight is one, else nothing."""
    values = _finite_values(windows, column, _FEW)
    if not (values > 0).any() and not (_finite_values(windows, column, _MANY) > 0).any():
        return "all zero"
    return "all one" if (values == 1).all() and len(values) else ""


def _finite_values(windows: list[Window], column: str, count: int) -> Real:
    tables = [(main_table(w.path, w.stamp), sample_rows(w, count)) for w in windows]
    values = np.concatenate([table.getcol(column, index=(rows,)).ravel() for table, rows in tables])
    return values[np.isfinite(values)]
