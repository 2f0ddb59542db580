"""What a measurement set holds: fields, spectral windows, scans, columns, times."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.io.casa_tables import blocks, cells, main_table, stamp, subtable
from pfb.io.description import Column, DataDescription, Field, RowGroup, SetDescription, SpectralWindow
from pfb.io.msv4 import is_store
from pfb.io.msv4_description import describe_store, frequencies
from pfb.types import Real

# casacore's names of the frames that a FITS header can state.
FRAMES = {"J2000": "FK5", "ICRS": "ICRS", "B1950": "FK4", "B1950_VLA": "FK4"}

_NEEDED = ("UVW", "TIME", "FLAG", "FLAG_ROW", "ANTENNA1", "ANTENNA2", "DATA_DESC_ID", "FIELD_ID", "SCAN_NUMBER", "STATE_ID")


def describe(path: str) -> SetDescription:
    """Describe a measurement set from its sub-tables and the small columns of its main table, or an MSv4 store.

    Raises `InputError` if there is no set at `path`, or it lacks what every measurement set has.
    """
    written = stamp(path)
    if is_store(path):
        return describe_store(path, written)
    table = main_table(os.path.abspath(path), written)
    missing = [c for c in _NEEDED if c not in table.columns()]
    if missing:
        raise InputError(f"{path} has no column {', '.join(missing)}, which every measurement set has; give the path of one")
    groups = _groups(table)
    intents = _strings(path, "STATE", "OBS_MODE")
    descriptions = _data_descriptions(path, groups)
    diameters = _scalars(path, "ANTENNA", "DISH_DIAMETER")
    telescope, observer = _strings(path, "OBSERVATION", "TELESCOPE_NAME"), _strings(path, "OBSERVATION", "OBSERVER")
    return SetDescription(
        path=path,
        stamp=written,
        telescope=telescope[0] if telescope else "",
        observer=observer[0] if observer else "",
        antennas=len(diameters),
        dish_diameter=float(np.median(diameters[diameters > 0])) if (diameters > 0).any() else 0.0,
        position=_position(path),
        turning=not any(mount.upper().startswith("EQ") for mount in _strings(path, "ANTENNA", "MOUNT")),
        fields=_fields(path, groups, intents),
        spectral_windows=_spectral_windows(path, descriptions),
        data_descriptions=tuple(d for d in descriptions if d.rows),
        groups=groups,
        columns=_columns(table),
        rows=table.nrow(),
    )


@lru_cache(maxsize=64)
def channel_frequencies(path: str, written: int, spw: int) -> Real:
    """Return the (chan,) centres of a spectral window's channels in Hz, in the stored order; read once per process.

    Parameters
    ----------
    path, written
        As for `main_table`.
    spw
        Its id.
    """
    if is_store(path):
        return frequencies(path, written)[spw]
    table = subtable(path, "SPECTRAL_WINDOW")
    if table is None:
        raise InputError(f"{path} has no sub-table SPECTRAL_WINDOW any more; was it changed during the run?")
    with table:
        return _or_empty(cells(table, "CHAN_FREQ")[spw])


def _groups(table: Any) -> tuple[RowGroup, ...]:
    names = ("DATA_DESC_ID", "FIELD_ID", "SCAN_NUMBER", "STATE_ID")
    found: dict[tuple[int, ...], list[float]] = {}
    for _, c in blocks(table, (*names, "ANTENNA1", "ANTENNA2", "TIME")):
        keys = np.stack([c[n] for n in names])
        begins = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
        # Few runs of many rows as a rule; if there are many, they are of few groups.
        groups, group = np.unique(keys[:, begins], axis=1, return_inverse=True)
        group = np.repeat(group.ravel(), np.diff(np.append(begins, keys.shape[1])))
        rows = np.bincount(group)
        autos = np.bincount(group, c["ANTENNA1"] == c["ANTENNA2"])
        start, end = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
        np.minimum.at(start, group, c["TIME"])
        np.maximum.at(end, group, c["TIME"])
        for key, n, auto, t0, t1 in zip(groups.T.tolist(), rows, autos, start, end, strict=True):
            g = found.setdefault(tuple(key), [0, 0, np.inf, -np.inf])
            g[:] = [g[0] + n, g[1] + auto, min(g[2], t0), max(g[3], t1)]
    return tuple(
        RowGroup(
            data_desc_id=key[0], field=key[1], scan=key[2], state=key[3],
            rows=int(g[0]), autocorrelations=int(g[1]), start=float(g[2]), end=float(g[3]),
        )
        for key, g in sorted(found.items())
    )  # fmt: skip


def _fields(path: str, groups: tuple[RowGroup, ...], intents: list[str]) -> tuple[Field, ...]:
    table = subtable(path, "FIELD")
    if table is None:
        raise InputError(f"{path} has no sub-table FIELD, which every measurement set has; is it complete?")
    with table:
        names, centres, frames = table.getcol("NAME").tolist(), cells(table, "PHASE_DIR"), _frames(table)
    fields = []
    for i, (name, centre, frame) in enumerate(zip(names, centres, frames, strict=True)):
        ra, dec = (0.0, 0.0) if centre is None else centre.reshape(-1, 2)[0]
        own = [g for g in groups if g.field == i]
        modes = {intents[g.state] for g in own if 0 <= g.state < len(intents)}
        # A tiny negative angle modulo 2 pi rounds up to 2 pi itself.
        ra = float(ra) % (2 * np.pi) % (2 * np.pi)
        fields.append(
            Field(id=i, name=name, ra=ra, dec=float(dec), frame=frame,
                  rows=sum(g.rows for g in own), intents=tuple(sorted(m for m in modes if m)))
        )  # fmt: skip
    return tuple(fields)


def _frames(table: Any) -> list[str]:
    """Return the frame of every phase centre; ALMA's sets say it row by row, the others once."""
    info = table.getcolkeywords("PHASE_DIR").get("MEASINFO", {})
    if "VarRefCol" in info:
        names = dict(zip(info["TabRefCodes"], info["TabRefTypes"], strict=True))
        frames = [names.get(code, f"code {code}") for code in table.getcol(info["VarRefCol"]).tolist()]
    else:
        frames = [info.get("Ref", "J2000")] * table.nrow()
    return [FRAMES.get(f, f) for f in frames]


def _data_descriptions(path: str, groups: tuple[RowGroup, ...]) -> tuple[DataDescription, ...]:
    spws, polarizations = (
        _scalars(path, "DATA_DESCRIPTION", c).astype(int).tolist() for c in ("SPECTRAL_WINDOW_ID", "POLARIZATION_ID")
    )
    table = subtable(path, "POLARIZATION")
    if table is None or not spws:
        raise InputError(f"{path} has no rows in its sub-tables DATA_DESCRIPTION and POLARIZATION; is it complete?")
    with table:
        types = [() if cell is None else tuple(cell.tolist()) for cell in cells(table, "CORR_TYPE")]
    return tuple(
        DataDescription(id=i, spw=spw, correlations=types[pol], rows=sum(g.rows for g in groups if g.data_desc_id == i))
        for i, (spw, pol) in enumerate(zip(spws, polarizations, strict=True))
    )


def _spectral_windows(path: str, descriptions: tuple[DataDescription, ...]) -> tuple[SpectralWindow, ...]:
    table = subtable(path, "SPECTRAL_WINDOW")
    if table is None:
        raise InputError(f"{path} has no sub-table SPECTRAL_WINDOW, which every measurement set has; is it complete?")
    with table:
        freqs, widths = cells(table, "CHAN_FREQ"), cells(table, "CHAN_WIDTH")
        names = table.getcol("NAME").tolist() if "NAME" in table.columns() else [""] * table.nrow()
    windows = []
    for i, (name, freq, width) in enumerate(zip(names, freqs, widths, strict=True)):
        own = [d for d in descriptions if d.spw == i]
        correlations = dict.fromkeys(c for d in own if d.rows or len(own) == 1 for c in d.correlations)
        windows.append(
            SpectralWindow(id=i, name=name, freq=_or_empty(freq), width=_or_empty(width),
                           rows=sum(d.rows for d in own), correlations=tuple(correlations))
        )  # fmt: skip
    return tuple(windows)


def _or_empty(cell: NDArray[Any] | None) -> Real:
    return np.empty(0) if cell is None else cell.astype(np.float64)


def _columns(table: Any) -> tuple[Column, ...]:
    rows = np.unique(np.linspace(0, table.nrow() - 1, 16).astype(np.int64)) if table.nrow() else np.empty(0, np.int64)
    columns = []
    for name in sorted(table.columns()):
        description = table.getcoldesc(name)
        if "ndim" in description:
            filled = len(rows) > 0 and table.row_shapes(name, index=(rows,)).null_count < len(rows)
            columns.append(Column(name=name, kind=description["valueType"], has_cells=filled))
    return tuple(columns)


def _position(path: str) -> tuple[float, float, float]:
    table = subtable(path, "ANTENNA")
    if table is None:
        return 0.0, 0.0, 0.0
    with table:
        known = [cell for cell in cells(table, "POSITION") if cell is not None and np.isfinite(cell).all() and cell.any()]
    x, y, z = np.mean(known, axis=0).tolist() if known else (0.0, 0.0, 0.0)
    return x, y, z


def _scalars(path: str, name: str, column: str) -> NDArray[Any]:
    table = subtable(path, name)
    if table is None:
        return np.empty(0)
    with table:
        return table.getcol(column) if column in table.columns() and table.nrow() else np.empty(0)


def _strings(path: str, name: str, column: str) -> list[str]:
    return [str(s) for s in _scalars(path, name, column)]
