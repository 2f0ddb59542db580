"""The tables of a simulated measurement set, stored as MeerKAT's are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from arcae.lib.arrow_tables import Table, ms_descriptor
from numpy.typing import NDArray

from pfb.io.simulated_array import DISH_DIAMETER
from pfb.io.simulated_layout import CIRCULAR, Layout

_SLOW = (
    "TIME", "TIME_CENTROID", "INTERVAL", "EXPOSURE", "FIELD_ID", "SCAN_NUMBER", "STATE_ID", "ARRAY_ID",
    "OBSERVATION_ID", "PROCESSOR_ID", "FEED1", "FEED2",
)  # fmt: skip
_TILE_BYTES = 1 << 20
_TOPOCENTRIC = 5
# Width of the window that no row uses.
_UNUSED_FREQ = np.array([0.4e9, 0.5e9, 0.6e9])


def create_main(path: str, layout: Layout) -> Table:
    """Create a set with an empty main table and return that, to be closed by the caller.

    Cells of a fixed shape are in TiledColumnStMan, cells whose shape differs from row to row
    in TiledShapeStMan, what changes slowly in IncrementalStMan.
    """
    defects = layout.simulation.defects
    channels = {len(w.freq) for w in layout.windows}
    corr = len(defects.feeds)
    optional = ["DATA"] + ["CORRECTED_DATA"] * defects.corrected_data + ["MODEL_DATA"] * defects.model_data
    optional += ["WEIGHT_SPECTRUM"] * (defects.weight_spectrum != "absent")
    description, complete = ms_descriptor("MAIN"), ms_descriptor("MAIN", complete=True)
    managers: list[dict[str, Any]] = []
    for name in [*optional, "FLAG"]:
        fixed = len(channels) == 1 and name not in defects.empty_columns
        size = max(channels) + (name == "MODEL_DATA")
        description[name] = description.get(name, complete[name]) | {"ndim": 2}
        tile = (corr, size, max(1, _TILE_BYTES // (8 * corr * size)))
        managers.append(_tiled(description, name, tile, fixed))
    for name, size in (("UVW", 3), ("WEIGHT", corr), ("SIGMA", corr)):
        managers.append(_tiled(description, name, (size, _TILE_BYTES // (8 * size)), fixed=True))
    for name in _SLOW:
        description[name] |= {"dataManagerType": "IncrementalStMan", "dataManagerGroup": "Slow"}
    managers.append({"NAME": "Slow", "TYPE": "IncrementalStMan", "SPEC": {}, "COLUMNS": list(_SLOW)})
    description["UVW"]["keywords"]["MEASINFO"]["Ref"] = "J2000"
    return Table.ms_from_descriptor(path, "MAIN", table_desc=description, dminfo={f"*{i}": m for i, m in enumerate(managers, 1)})


def _tiled(description: dict[str, Any], name: str, tile: tuple[int, ...], fixed: bool) -> dict[str, Any]:
    """Say in a column's description that it is tiled, and return the description of its storage manager."""
    manager = "TiledColumnStMan" if fixed else "TiledShapeStMan"
    description[name] |= {"dataManagerType": manager, "dataManagerGroup": f"Tiled{name}"}
    if fixed:
        # Option 4: the shape is fixed. casacore counts axes from the fastest.
        description[name] |= {"ndim": len(tile) - 1, "shape": list(tile[-2::-1]), "option": 4}
    return {"NAME": f"Tiled{name}", "TYPE": manager, "SPEC": {"DEFAULTTILESHAPE": list(tile)}, "COLUMNS": [name]}


def write_subtables(path: str, layout: Layout) -> None:
    """Write all sub-tables of a set whose main table exists."""
    _antennas(path, layout)
    _frequencies(path, layout)
    _fields(path, layout)
    _observation(path, layout)
    for empty in ("POINTING", "FLAG_CMD", "HISTORY"):
        _write(path, empty, 0, {})


def _write(path: str, name: str, rows: int, columns: dict[str, Any], frame: str | None = None) -> None:
    """Write a sub-table; a list is written cell by cell, so that its cells may differ in shape."""
    description, complete = ms_descriptor(name), ms_descriptor(name, complete=True)
    description |= {c: complete[c] for c in columns if c not in description}
    for column in description:
        if frame and "MEASINFO" in description[column].get("keywords", {}) and column.endswith("_DIR"):
            description[column]["keywords"]["MEASINFO"]["Ref"] = frame
    with Table.ms_from_descriptor(path, name, table_desc=description) as table:
        table.addrows(rows)
        for column, values in columns.items():
            if isinstance(values, list):
                for i, cell in enumerate(values):
                    table.putcol(column, np.asarray(cell)[None], index=(slice(i, i + 1),))
            elif rows:
                table.putcol(column, values)


def _texts(values: Iterable[str]) -> NDArray[np.object_]:
    return np.array(list(values), dtype=object)


def _antennas(path: str, layout: Layout) -> None:
    n = len(layout.dishes)
    names = _texts(layout.dishes)
    diameter = DISH_DIAMETER if layout.simulation.defects.dish_diameter else 0.0
    _write(path, "ANTENNA", n, {
        "NAME": names, "STATION": names, "TYPE": _texts(["GROUND-BASED"] * n), "MOUNT": _texts(["ALT-AZ"] * n),
        "POSITION": layout.itrf, "OFFSET": np.zeros((n, 3)), "DISH_DIAMETER": np.full(n, diameter),
        "FLAG_ROW": np.zeros(n, bool),
    })  # fmt: skip
    angles = np.full(2, layout.simulation.defects.receptor_angle)
    receptors = ["R", "L"] if layout.simulation.defects.feeds[0] in CIRCULAR else ["X", "Y"]
    _write(path, "FEED", n, {
        "ANTENNA_ID": np.arange(n, dtype=np.int32), "FEED_ID": np.zeros(n, np.int32),
        "SPECTRAL_WINDOW_ID": np.full(n, -1, np.int32), "NUM_RECEPTORS": np.full(n, 2, np.int32),
        "POLARIZATION_TYPE": [_texts(receptors)] * n, "BEAM_ID": np.full(n, -1, np.int32),
        "BEAM_OFFSET": [np.zeros((2, 2))] * n, "POL_RESPONSE": [np.eye(2, dtype=np.complex64)] * n,
        "RECEPTOR_ANGLE": [angles] * n, "POSITION": np.zeros((n, 3)), "TIME": np.full(n, layout.start),
        "INTERVAL": np.full(n, 1e30),
    })  # fmt: skip


def _frequencies(path: str, layout: Layout) -> None:
    defects = layout.simulation.defects
    windows = sorted((w.spw, w.freq, w.width) for w in layout.windows)
    descriptions = sorted((w.data_desc_id, w.spw, 0) for w in layout.windows)
    polarizations: list[tuple[int, ...]] = [defects.feeds]
    if defects.unused_descriptions:
        windows.insert(0, (0, _UNUSED_FREQ, 0.1e9))
        polarizations.insert(0, (1,))
        descriptions = [(0, 0, 0)] + [(d, spw, 1) for d, spw, _ in descriptions] + [(len(descriptions) + 1, 0, 0)]
    n = len(windows)
    widths = [np.full(len(freq), 0.0 if defects.zero_widths else width) for _, freq, width in windows]
    _write(path, "SPECTRAL_WINDOW", n, {
        "CHAN_FREQ": [freq for _, freq, _ in windows], "CHAN_WIDTH": widths,
        "EFFECTIVE_BW": [abs(w) for w in widths], "RESOLUTION": [abs(w) for w in widths],
        "REF_FREQUENCY": np.array([freq[len(freq) // 2] for _, freq, _ in windows]),
        "NUM_CHAN": np.array([len(w) for w in widths], np.int32),
        "TOTAL_BANDWIDTH": np.array([abs(w.sum()) for w in widths]), "MEAS_FREQ_REF": np.full(n, _TOPOCENTRIC, np.int32),
        "NAME": _texts(f"{layout.simulation.band}-band-{i}" for i in range(n)), "NET_SIDEBAND": np.ones(n, np.int32),
        "FREQ_GROUP": np.zeros(n, np.int32), "FREQ_GROUP_NAME": _texts(["none"] * n),
        "IF_CONV_CHAIN": np.zeros(n, np.int32), "FLAG_ROW": np.zeros(n, bool),
    })  # fmt: skip
    _write(path, "POLARIZATION", len(polarizations), {
        "NUM_CORR": np.array([len(p) for p in polarizations], np.int32),
        "CORR_TYPE": [np.array(p, np.int32) for p in polarizations],
        "CORR_PRODUCT": [np.array([divmod((number - 1) % 4, 2) for number in p], np.int32) for p in polarizations],
        "FLAG_ROW": np.zeros(len(polarizations), bool),
    })  # fmt: skip
    _write(path, "DATA_DESCRIPTION", len(descriptions), {
        "SPECTRAL_WINDOW_ID": np.array([spw for _, spw, _ in descriptions], np.int32),
        "POLARIZATION_ID": np.array([p for _, _, p in descriptions], np.int32),
        "FLAG_ROW": np.zeros(len(descriptions), bool),
    })  # fmt: skip


def _fields(path: str, layout: Layout) -> None:
    n = len(layout.fields)
    names = _texts(f.name for f in layout.fields)
    numbers = np.arange(n, dtype=np.int32)
    error = np.deg2rad(layout.simulation.defects.centre_error)
    directions = [np.array([[f.ra, f.dec + error]]) for f in layout.fields]
    codes = _texts(f.intent.removeprefix("CALIBRATE_")[:1] for f in layout.fields)
    _write(path, "FIELD", n, {
        "NAME": names, "CODE": codes, "TIME": np.full(n, layout.start), "NUM_POLY": np.zeros(n, np.int32),
        "SOURCE_ID": numbers, "PHASE_DIR": directions, "DELAY_DIR": directions, "REFERENCE_DIR": directions,
        "FLAG_ROW": np.zeros(n, bool),
    }, frame=layout.simulation.defects.frame)  # fmt: skip
    _write(path, "SOURCE", n, {
        "SOURCE_ID": numbers, "NAME": names, "CODE": codes, "DIRECTION": np.concatenate(directions),
        "PROPER_MOTION": np.zeros((n, 2)), "TIME": np.full(n, layout.start), "INTERVAL": np.full(n, 1e30),
        "SPECTRAL_WINDOW_ID": np.full(n, -1, np.int32), "NUM_LINES": np.zeros(n, np.int32),
        "CALIBRATION_GROUP": np.zeros(n, np.int32),
    })  # fmt: skip
    _write(path, "STATE", n, {
        "OBS_MODE": _texts(f.intent for f in layout.fields), "SIG": np.ones(n, bool), "REF": np.zeros(n, bool),
        "CAL": np.zeros(n), "LOAD": np.zeros(n), "SUB_SCAN": np.zeros(n, np.int32), "FLAG_ROW": np.zeros(n, bool),
    })  # fmt: skip


def _observation(path: str, layout: Layout) -> None:
    nothing = [_texts(["none"])]
    _write(path, "OBSERVATION", 1, {
        "TELESCOPE_NAME": _texts([layout.simulation.defects.telescope]), "TIME_RANGE": np.array([[layout.start, layout.end]]),
        "OBSERVER": _texts(["pfb"]), "PROJECT": _texts(["simulation"]), "LOG": nothing, "SCHEDULE": nothing,
        "SCHEDULE_TYPE": _texts(["none"]), "RELEASE_DATE": np.array([layout.end]), "FLAG_ROW": np.zeros(1, bool),
    })  # fmt: skip
    _write(path, "PROCESSOR", 1, {
        "TYPE": _texts(["CORRELATOR"]), "SUB_TYPE": _texts(["SKARAB"]), "TYPE_ID": np.full(1, -1, np.int32),
        "MODE_ID": np.full(1, -1, np.int32), "FLAG_ROW": np.zeros(1, bool),
    })  # fmt: skip
