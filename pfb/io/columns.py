"""Which columns hold the visibilities and the natural weights of a set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pfb.errors import InputError
from pfb.io.casa_tables import cell_shape, main_table, unfinished
from pfb.io.cells import is_sigma, to_weights
from pfb.io.description import SetDescription
from pfb.io.expression import parse_terms
from pfb.io.window import Window, sample_rows
from pfb.types import Real

# Rows looked at: few, and more if those hold no weight at all, so that a flagged stretch condemns no column.
_FEW, _MANY = 128, 4096
_ZERO, _ONE = "is all zero", "is all one"
# Names in measurement sets, and in MSv4 stores.
_CORRECTED, _RAW = ("CORRECTED_DATA", "VISIBILITY_CORRECTED"), ("DATA", "VISIBILITY")
_PAIRS = (("WEIGHT_SPECTRUM", "SIGMA_SPECTRUM"), ("WEIGHT", "SIGMA"))
# Relative difference of weights that is let pass.
_AGREE = 0.01


def choose_columns(
    d: SetDescription, windows: list[Window], data: str | None, weight: str | None
) -> tuple[list[Window], list[str]]:
    """Fill in the columns of a set's windows.

    Cells of a bounded number of rows, spread over the selection, are looked at.

    Parameters
    ----------
    d
        The set.
    windows
        Its windows, whose columns are not yet known.
    data
        Column of the visibilities, or a sum of columns; None: CORRECTED_DATA if it holds them, else DATA.
    weight
        Column of the natural weights, (chan, corr) or (corr,) in each row, or, if its name begins with SIGMA, of standard
        deviations; None: WEIGHT_SPECTRUM if it holds (chan, corr) that are neither all zero nor all one, else WEIGHT, else,
        if no column has weights, SIGMA_SPECTRUM or SIGMA.

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


def disagreements(windows: list[Window]) -> list[str]:
    """Say where the weights of a set's windows are not what its standard deviations promise, and which of both is used."""
    found = []
    for weight, sigma in _PAIRS:
        tables = [(main_table(w.path, w.stamp), sample_rows(w, _FEW)) for w in windows]
        needed = [(t, rows, c) for t, rows in tables for c in (weight, sigma)]
        if any(c not in t.columns() or cell_shape(t, c, rows) is None for t, rows, c in needed):
            continue
        parts = [[t.getcol(c, index=(rows,)).ravel().astype(np.float64) for t, rows in tables] for c in (weight, sigma)]
        w, s = (np.concatenate(part) for part in parts)
        if len(w) != len(s):
            continue
        known = np.isfinite(w) & np.isfinite(s) & (w > 0) & (s > 0)
        ratio = w[known] * s[known] ** 2
        if len(ratio) and np.median(np.abs(ratio - 1)) > _AGREE:
            used = [w.weight_column for w in windows]
            verdict = f"{weight} is not" if sigma in used else f"{sigma} is not"
            found.append(f"{weight} is {np.median(ratio):.3g} times 1 / {sigma}^2; {verdict} used")
    return found


def _data_column(d: SetDescription, windows: list[Window], asked: str | None, notes: list[str]) -> str:
    known = {c.name: c for c in d.columns}
    if asked is None:
        corrected = next((c for c in _CORRECTED if c in known), _CORRECTED[0])
        usable = corrected in known and not _misshaped(windows, corrected)
        text = corrected if usable else next((c for c in _RAW if c in known), _RAW[0])
        reason = "" if usable else f" (it has no usable {corrected})"
        notes.append(f"{d.path}: column {text} is imaged{reason}")
    else:
        text = asked
    for term in parse_terms(text):
        _require_visibilities(d, windows, term.column)
    if wrong := _misshaped(windows, "FLAG"):
        raise InputError(f"FLAG of {d.path} {wrong}; repair the set")
    return text


def _require_visibilities(d: SetDescription, windows: list[Window], column: str) -> None:
    known = {c.name: c for c in d.columns}
    if column not in known or "complex" not in known[column].kind:
        listed = ", ".join(d.visibility_columns) or "none"
        raise InputError(f"{d.path} has no visibility column {column} (it has {listed}); choose one with --data-column")
    if wrong := _misshaped(windows, column):
        raise InputError(f"{column} of {d.path} {wrong}; choose another with --data-column")
    if unfinished(d.path, column):
        raise InputError(
            f"{column} of {d.path} was left unfinished by pfb predict: run that again, or choose another with --data-column"
        )


def _asked_weight(d: SetDescription, windows: list[Window], column: str) -> str:
    known = {c.name: c for c in d.columns}
    if column not in known or known[column].kind not in ("float", "double"):
        listed = ", ".join(n for n, c in known.items() if ("WEIGHT" in n or is_sigma(n)) and c.has_cells) or "none"
        raise InputError(f"{d.path} has no weight column {column} (it has {listed}); choose one with --weight-column")
    if wrong := _ill_shaped_weights(windows, column):
        raise InputError(f"{column} of {d.path} {wrong}, or one weight for each correlation; choose another with --weight-column")
    if _verdict(windows, column) == _ZERO:
        nothing = "has no positive number" if is_sigma(column) else "is all zero"
        raise InputError(f"{column} of {d.path} {nothing}, which leaves nothing to image; choose another with --weight-column")
    return column


def _default_weight(d: SetDescription, windows: list[Window], notes: list[str]) -> str:
    known = {c.name for c in d.columns}
    why = {c: _unusable(windows, c, known) for c in ("WEIGHT_SPECTRUM", "WEIGHT")}
    if not why["WEIGHT_SPECTRUM"]:
        return "WEIGHT_SPECTRUM"
    if why["WEIGHT"] in ("", _ONE):
        notes.append(f"{d.path}: WEIGHT gives the weights, because WEIGHT_SPECTRUM {why['WEIGHT_SPECTRUM']}")
        return "WEIGHT"
    reasons = ", ".join(f"{c} {reason}" for c, reason in why.items())
    sigma = [c for c in ("SIGMA_SPECTRUM", "SIGMA") if not _unusable(windows, c, known)]
    # Weights that are all zero say that nothing is to be used, whatever sigma says; only the user may overrule that.
    if sigma and _ZERO not in why.values():
        notes.append(f"{d.path}: 1 / {sigma[0]}^2 gives the weights, because {reasons}")
        return sigma[0]
    if why["WEIGHT_SPECTRUM"] == _ONE and _ZERO not in why.values():
        notes.append(f"{d.path}: WEIGHT_SPECTRUM gives the weights, all of them one, because WEIGHT {why['WEIGHT']}")
        return "WEIGHT_SPECTRUM"
    remedy = f"image with --weight-column {sigma[0]}" if sigma else "fill one of them or name another column with --weight-column"
    raise InputError(f"{d.path} has no usable weights ({reasons}); {remedy}")


def _unusable(windows: list[Window], column: str, known: set[str]) -> str:
    """Say in words why a column holds no usable weights; empty if it does."""
    if column not in known:
        return "does not exist"
    if wrong := _misshaped(windows, column) if column.endswith("SPECTRUM") else _ill_shaped_weights(windows, column):
        return wrong
    return _verdict(windows, column)


def _ill_shaped_weights(windows: list[Window], column: str) -> str:
    """Say in words how cells differ from (channels, correlations) and from (correlations,); empty if they do not."""
    wrong = _misshaped(windows, column)
    return wrong if wrong and _misshaped(windows, column, per_channel=False) else ""


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
    """Return `_ZERO` if no weight is positive, `_ONE` if every finite weight is one, else nothing."""
    values = _finite_weights(windows, column, _FEW)
    if not (values > 0).any() and not (_finite_weights(windows, column, _MANY) > 0).any():
        return _ZERO
    return _ONE if (values == 1).all() and len(values) else ""


def _finite_weights(windows: list[Window], column: str, count: int) -> Real:
    tables = [(main_table(w.path, w.stamp), sample_rows(w, count)) for w in windows]
    values = np.concatenate([table.getcol(column, index=(rows,)).ravel() for table, rows in tables])
    weights = to_weights(values) if is_sigma(column) else values
    return weights[np.isfinite(weights)]
