"""What is in an MSv4 store, in the words of measurement sets: names become ids, in the order in which they come."""

from __future__ import annotations

import os
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.io.description import Column, DataDescription, Field, RowGroup, SetDescription, SpectralWindow
from pfb.io.msv4 import Numbers, Partition, StoreTable, antennas, partitions
from pfb.types import CORRELATION_NAMES, Real

_FRAMES = {"fk5": "FK5", "j2000": "FK5", "icrs": "ICRS", "fk4": "FK4", "b1950": "FK4"}
_CENTRES = ("FIELD_PHASE_CENTER_DIRECTION", "FIELD_PHASE_CENTER")
_NUMBERS = {name: number for number, name in CORRELATION_NAMES.items()}

Key = TypeVar("Key", bound=Hashable)
Direction = tuple[str, float, float, str]
"""Name, right ascension and declination in radians, frame."""


class Catalogue:
    """The ids of all that the datasets of a store name."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts = partitions(path)
        self.antennas = antennas(self.parts)
        self.spws: dict[tuple[str, bytes], int] = {}
        self.descriptions: dict[tuple[int, tuple[int, ...]], int] = {}
        self.fields: dict[Direction, int] = {}
        self.states: dict[str, int] = {}
        self.scans: dict[str, int] = {}
        names = [name for p in self.parts for name in p.names("scan_name")]
        # Names of scans are numbers, as a rule; else they are counted.
        self._numbered = all(name.isdecimal() for name in names)
        self.numbers = [self._number(p) for p in self.parts]

    def _number(self, p: Partition) -> Numbers:
        freq = p.data["frequency"]
        spw = _id(self.spws, (str(freq.attrs.get("spectral_window_name", "")), np.asarray(freq.values, np.float64).tobytes()))
        ids = {name: i for i, name in enumerate(self.antennas["NAME"].tolist())}
        pairs = [p.names(f"baseline_antenna{side}_name") for side in (1, 2)]
        if unknown := sorted({*pairs[0], *pairs[1]} - set(ids)):
            raise InputError(f"{p.name} has baselines of {unknown[0]}, which its antenna_xds does not list; repair the store")
        directions = _directions(p)
        if unknown := sorted(set(p.names("field_name")) - set(directions)):
            raise InputError(f"{p.name} has no phase centre of field {unknown[0]}; repair its field_and_source_xds")
        scans = p.names("scan_name")
        return Numbers(
            data_desc_id=_id(self.descriptions, (spw, _correlations(p))),
            state=_id(self.states, ",".join(map(str, p.data["scan_name"].attrs.get("scan_intents", [])))),
            field=_spread(p, [_id(self.fields, directions[name]) for name in p.names("field_name")]),
            scan=_spread(p, [int(s) if self._numbered else 1 + _id(self.scans, s) for s in scans]),
            antenna1=np.array([ids[name] for name in pairs[0]], np.int32),
            antenna2=np.array([ids[name] for name in pairs[1]], np.int32),
        )


def open_table(path: str) -> StoreTable:
    """Open a store as a main table; raises `InputError` if it is none, or lacks what the schema demands."""
    found = catalogue(path)
    return StoreTable(found.parts, found.numbers)


def catalogue(path: str) -> Catalogue:
    """List what a store names."""
    try:
        return Catalogue(path)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be opened as an MSv4 store ({error}); is it complete?") from error


@lru_cache(maxsize=16)
def frequencies(path: str, written: int) -> tuple[Real, ...]:
    """Return the (chan,) frequencies in Hz of every spectral window of a store, in the stored order; read once per process."""
    return tuple(np.frombuffer(values) for _, values in catalogue(path).spws)


def describe_store(path: str, written: int) -> SetDescription:
    """Describe a store as `pfb.io.metadata.describe` does a measurement set; `written` is its stamp."""
    found = catalogue(os.path.abspath(path))
    groups = _groups(found)
    diameters = found.antennas["DISH_DIAMETER"]
    first = found.parts[0]
    telescopes = first.antennas["telescope_name"].values.ravel().tolist() if "telescope_name" in first.antennas.variables else []
    observers = first.data.attrs.get("observation_info", {}).get("observer", [])
    states, spws = list(found.states), list(found.spws)
    descriptions = [
        DataDescription(id=i, spw=spw, correlations=corr, rows=sum(g.rows for g in groups if g.data_desc_id == i))
        for (spw, corr), i in found.descriptions.items()
    ]
    widths = {n.data_desc_id: _width(p) for p, n in zip(found.parts, found.numbers, strict=True)}
    return SetDescription(
        path=path,
        stamp=written,
        telescope=str(first.antennas.attrs.get("overall_telescope_name") or next(iter(telescopes), "")),
        observer=str(next(iter(observers), "")) if isinstance(observers, list) else str(observers),
        antennas=len(diameters),
        dish_diameter=float(np.median(diameters[diameters > 0])) if (diameters > 0).any() else 0.0,
        fields=tuple(_field(i, key, groups, states) for key, i in found.fields.items()),
        spectral_windows=tuple(
            SpectralWindow(
                id=i, name=name, freq=np.frombuffer(values), width=next(widths[x.id] for x in descriptions if x.spw == i),
                rows=sum(x.rows for x in descriptions if x.spw == i),
                correlations=tuple(dict.fromkeys(c for x in descriptions if x.spw == i for c in x.correlations)),
            )
            for i, (name, values) in enumerate(spws)
        ),
        data_descriptions=tuple(descriptions),
        groups=groups,
        columns=_columns(StoreTable(found.parts, found.numbers)),
        rows=sum(p.rows for p in found.parts),
        position=_position(found.antennas["POSITION"]),
    )  # fmt: skip


def _position(positions: NDArray[Any]) -> tuple[float, float, float]:
    known = positions[np.isfinite(positions).all(axis=1) & positions.any(axis=1)]
    x, y, z = known.mean(axis=0).tolist() if len(known) else (0.0, 0.0, 0.0)
    return x, y, z


def _groups(found: Catalogue) -> tuple[RowGroup, ...]:
    made: dict[tuple[int, int, int, int], list[float]] = {}
    for p, n in zip(found.parts, found.numbers, strict=True):
        autos = int(np.count_nonzero(n.antenna1 == n.antenna2))
        for field, scan in sorted(set(zip(n.field.tolist(), n.scan.tolist(), strict=True))):
            times = p.times[(n.field == field) & (n.scan == scan)]
            g = made.setdefault((n.data_desc_id, field, scan, n.state), [0, 0, np.inf, -np.inf])
            count = len(times)
            g[:] = [g[0] + count * p.baselines, g[1] + count * autos, min(g[2], times.min()), max(g[3], times.max())]
    return tuple(
        RowGroup(
            data_desc_id=key[0], field=key[1], scan=key[2], state=key[3],
            rows=int(g[0]), autocorrelations=int(g[1]), start=float(g[2]), end=float(g[3]),
        )
        for key, g in sorted(made.items())
    )  # fmt: skip


def _field(i: int, key: Direction, groups: tuple[RowGroup, ...], states: list[str]) -> Field:
    own = [g for g in groups if g.field == i]
    intents = sorted({states[g.state] for g in own} - {""})
    ra = key[1] % (2 * np.pi) % (2 * np.pi)
    return Field(id=i, name=key[0], ra=ra, dec=key[2], frame=key[3], rows=sum(g.rows for g in own), intents=tuple(intents))


def _directions(p: Partition) -> dict[str, Direction]:
    """Return the phase centre of every field of a dataset."""
    name = next((n for n in _CENTRES if n in p.fields.variables), None)
    if name is None or "time" in p.fields[name].dims:
        raise InputError(f"{p.name} has no fixed phase centre of its fields; phase it to one direction")
    centre = p.fields[name]
    frame = str(centre.attrs.get("frame", "icrs"))
    values = np.asarray(centre.transpose(..., "sky_dir_label").values, np.float64).reshape(-1, 2)
    names = np.atleast_1d(p.fields["field_name"].values).tolist()
    frame = _FRAMES.get(frame.lower(), frame)
    return {str(n): (str(n), float(v[0]), float(v[1]), frame) for n, v in zip(names, values, strict=True)}


def _correlations(p: Partition) -> tuple[int, ...]:
    names = p.names("polarization")
    if unknown := [name for name in names if name not in _NUMBERS]:
        raise InputError(f"{p.name} has correlations {', '.join(unknown)}, which are not known; use linear or circular ones")
    return tuple(_NUMBERS[name] for name in names)


def _width(p: Partition) -> Real:
    """Return the (chan,) widths in Hz; zero where the store does not say."""
    stated: Any = p.data["frequency"].attrs.get("channel_width", 0.0)
    value = np.asarray(stated["data"] if isinstance(stated, dict) else stated, np.float64)
    return np.broadcast_to(np.where(np.isfinite(value), value, 0.0), p.data["frequency"].shape).copy()


def _columns(table: StoreTable) -> tuple[Column, ...]:
    return tuple(Column(name=n, kind=table.getcoldesc(n)["valueType"], has_cells=True) for n in table.array_columns())


def _spread(p: Partition, ids: list[int]) -> Any:
    """Return (time,) ids, of one that holds for all times too."""
    return np.broadcast_to(np.array(ids, np.int32), p.times.shape)


def _id(known: dict[Key, int], key: Key) -> int:
    return known.setdefault(key, len(known))
