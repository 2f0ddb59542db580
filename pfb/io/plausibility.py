"""What is odd about the metadata of a measurement set: tables, antennas, times, channels and rows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pfb.io.casa_tables import blocks, main_table, subtable
from pfb.io.channels import oddities
from pfb.io.description import SetDescription
from pfb.io.msv4 import is_store
from pfb.io.remarks import Remark, remark

OPTIONAL = ("FEED", "OBSERVATION", "STATE")
"""Sub-tables that are read if they are there; without those that every set must have there is no image."""
BLOCKS = 4
"""Blocks of about a million rows that are searched for duplicates."""

_EARTH = 6.3e6, 6.4e6
# MJD seconds of the years 1930 and 2100.
_TIMES = 2.2e9, 7.6e9
_UNIX = 3506716800.0


def check_metadata(d: SetDescription) -> list[Remark]:
    """Look at all but the visibilities; whatever is found is a warning, since `select` refuses what cannot be used."""
    table = main_table(os.path.abspath(d.path), d.stamp)
    return [_tables(d, table), _antennas(d), _times(d), _channels(d), _rows(d, table)]


def _tables(d: SetDescription, table: Any) -> Remark:
    if is_store(d.path):
        return remark("tables", f"an MSv4 store of {d.telescope or 'an unknown telescope'}")
    stated = {name for name, value in table.getkeywords().items() if isinstance(value, str) and value.startswith("Table: ")}
    absent = sorted(name for name in stated if not os.path.isdir(os.path.join(d.path, name)))
    unknown = [name for name in OPTIONAL if name not in stated or name in absent]
    detail = f"{len(stated)} sub-tables, of {d.telescope or 'an unknown telescope'}"
    others = [name for name in absent if name not in OPTIONAL]
    detail += f"; not there but not needed: {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}" * bool(others)
    wrong = [f"without {', '.join(unknown)} some of receptors, telescope or intents are not known"] * bool(unknown)
    if not d.telescope and "OBSERVATION" not in unknown:
        wrong.append("OBSERVATION names no telescope")
    return remark("tables", detail, *wrong)


def _antennas(d: SetDescription) -> Remark:
    wrong = [] if d.dish_diameter else ["DISH_DIAMETER is not known: --npix or --fov must be given"]
    table = subtable(d.path, "ANTENNA")
    if table is not None:
        with table:
            positions = np.asarray(table.getcol("POSITION"), np.float64).reshape(-1, 3) if table.nrow() else np.zeros((0, 3))
        far = np.linalg.norm(positions, axis=1)
        off = np.count_nonzero(~((far > _EARTH[0]) & (far < _EARTH[1])))
        wrong += [f"{off} of {len(far)} antennas are not on the Earth"] * bool(off)
        same = len(positions) - len(np.unique(positions.round(3), axis=0))
        wrong += [f"{same} of the positions occur twice"] * bool(same)
    return remark("antennas", f"{d.antennas}, of {d.dish_diameter:g} m", *wrong)


def _times(d: SetDescription) -> Remark:
    start, end = min((g.start for g in d.groups), default=0.0), d.end
    wrong = []
    if not np.isfinite([start, end]).all():
        wrong.append("TIME is not finite in some rows")
    elif not (_TIMES[0] < start and end < _TIMES[1]):
        unix = _TIMES[0] < start + _UNIX < _TIMES[1] and start > 0
        wrong.append(f"TIME is {start:.10g} s, no modified Julian date of an observation" + (", but a Unix time" if unix else ""))
    return remark("times", f"{end - start:.6g} s from the first to the last integration", *wrong)


def _channels(d: SetDescription) -> Remark:
    used = [w for w in d.spectral_windows if w.rows]
    wrong = [f"spectral window {w.id}: {words}" for w in used for words in oddities(w.freq, w.width)]
    descending = sum(len(w.freq) > 1 and w.freq[0] > w.freq[-1] for w in used)
    total = f"{sum(len(w.freq) for w in used)} in {len(used)} spectral window{'s' * (len(used) > 1)}"
    return remark("channels", total + f", {descending} of them descending" * bool(descending), *wrong)


def _rows(d: SetDescription, table: Any) -> Remark:
    looked, duplicates = 0, 0
    names = ("TIME", "ANTENNA1", "ANTENNA2", "DATA_DESC_ID", "FIELD_ID")
    for number, (_, c) in enumerate(blocks(table, names)):
        if number == BLOCKS:
            break
        order = np.lexsort([c[n] for n in names])
        same = np.ones(max(len(order) - 1, 0), bool)
        for n in names:
            same &= np.diff(c[n][order]) == 0
        looked, duplicates = looked + len(order), duplicates + int(same.sum())
    sampled = "" if looked == d.rows else f" (of the first {looked} rows)"
    unused = _descriptions(d) - len(d.data_descriptions)
    detail = f"{d.rows}, {d.autocorrelations} of them autocorrelations, which are left out"
    detail += f"; {unused} data descriptions own none" * bool(unused)
    wrong = f"{duplicates} rows have time, antennas, field and window of another row{sampled}: they count twice"
    return remark("rows", detail, *[wrong] * bool(duplicates))


def _descriptions(d: SetDescription) -> int:
    table = subtable(d.path, "DATA_DESCRIPTION")
    if table is None:
        return len(d.data_descriptions)
    with table:
        return int(table.nrow())
