"""MSv4 stores (schema 4 of xradio, in zarr), one dataset or a processing set, read as if they were a measurement set's table.

A row is an integration of a baseline: those of a dataset in order of time, then of ``baseline_id``, dataset after dataset.
UVW and visibilities have the signs of measurement sets, which converters take over as they are.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import erfa
import numpy as np
import pyarrow
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.types import Real

if TYPE_CHECKING:  # they take a second to import, which every worker would that reads measurement sets only
    import xarray as xr
    import zarr

VISIBILITY = "VISIBILITY"
SCALARS = ("TIME", "FIELD_ID", "SCAN_NUMBER", "ANTENNA1", "ANTENNA2", "DATA_DESC_ID", "STATE_ID", "FLAG_ROW")
"""Columns of one number a row."""
ROW_DIMS = ("time", "baseline_id")

# MJD seconds of 1970-01-01, the zero of the times in a store.
_UNIX = 3506716800.0
_MJD_ZERO, _DAY = 2400000.5, 86400.0
_MARKERS = ("zarr.json", ".zgroup", ".zmetadata")
_METADATA = (*_MARKERS, ".zattrs", ".zarray")
_NEEDED = (
    VISIBILITY, "UVW", "time", "frequency", "polarization", "field_name", "scan_name",
    "baseline_antenna1_name", "baseline_antenna2_name",
)  # fmt: skip
_OPTIONS: dict[str, Any] = dict(chunks=None, consolidated=False, decode_times=False, decode_timedelta=False, mask_and_scale=False)
_KINDS = {"c8": "complex", "c16": "dcomplex", "f2": "float", "f4": "float", "f8": "double"}
_WIDER = ["", "float", "double", "complex", "dcomplex"]
# Columns of ANTENNA and FEED: their names in a store, and what stands for one that is not there.
_ANTENNA_COLUMNS: dict[str, tuple[str, Any]] = {
    "MOUNT": ("mount", ""), "POSITION": ("ANTENNA_POSITION", [np.nan] * 3), "DISH_DIAMETER": ("ANTENNA_DISH_DIAMETER", 0.0),
    "RECEPTOR_ANGLE": ("ANTENNA_RECEPTOR_ANGLE", [np.nan] * 2),
}  # fmt: skip
# Bytes read at a time of rows that follow one another, if chunks are smaller.
_READ = 16 << 20

Index = tuple[Any, ...]


def is_store(path: str) -> bool:
    """Say whether a folder is a zarr group."""
    return any(os.path.isfile(os.path.join(path, marker)) for marker in _MARKERS)


def written(path: str) -> int:
    """Return when a store was last written, in ns."""
    # A chunk is replaced by another file, which changes the time of its folder, so the many chunks need not be looked at.
    return max(
        os.stat(place).st_mtime_ns
        for folder, _, files in os.walk(path)
        for place in (folder, *(os.path.join(folder, f) for f in files if f in _METADATA))
    )


@dataclass(frozen=True, eq=False)
class Partition:
    """One dataset of a store: a spectral window, a set of correlations, all its baselines at all its times."""

    name: str
    """Path of its group in the store."""
    data: xr.Dataset
    """Not loaded."""
    antennas: xr.Dataset
    fields: xr.Dataset

    @cached_property
    def times(self) -> Real:
        """(time,) MJD seconds UTC."""
        time = self.data["time"]
        scale, form = (str(time.attrs.get(key, default)).lower() for key, default in (("scale", "utc"), ("format", "unix")))
        if scale not in ("utc", "tai") or form != "unix":
            raise InputError(f"{self.name} has times in {scale}, {form}; UTC or TAI in seconds since 1970 is needed")
        seconds = np.asarray(time.values, np.float64) + _UNIX
        return _utc(seconds) if scale == "tai" else seconds

    @cached_property
    def baselines(self) -> int:
        """How many there are."""
        return int(self.data.sizes["baseline_id"])

    @property
    def rows(self) -> int:
        """Integrations times baselines."""
        return len(self.times) * self.baselines

    @property
    def cell(self) -> tuple[int, int]:
        """Channels and correlations."""
        return int(self.data.sizes["frequency"]), int(self.data.sizes["polarization"])

    def names(self, coordinate: str) -> list[str]:
        """Return a coordinate of texts."""
        return [str(value) for value in np.atleast_1d(self.data[coordinate].values).tolist()]


@dataclass(frozen=True, eq=False)
class Numbers:
    """Ids that the columns of a measurement set have, for what a store calls by name; one for each time or baseline."""

    data_desc_id: int
    state: int
    field: NDArray[np.int32]
    """(time,)"""
    scan: NDArray[np.int32]
    """(time,)"""
    antenna1: NDArray[np.int32]
    """(baseline,)"""
    antenna2: NDArray[np.int32]


def partitions(path: str) -> list[Partition]:
    """Open all datasets of a store, ordered by name; nothing but coordinates is read when they are asked for.

    Raises
    ------
    InputError
        If there is none, or it lacks what the schema demands.
    """
    import xarray as xr
    import zarr

    root = zarr.open_group(path, mode="r")
    groups = sorted(name for name, own in [("", root), *_subgroups(root)] if VISIBILITY in own)
    if not groups:
        raise InputError(f"{path} is a zarr store without a variable VISIBILITY, so it is no MSv4 store; give the path of one")
    found = []
    for name in groups:
        data = xr.open_zarr(path, group=name or None, **_OPTIONS)
        missing = [n for n in _NEEDED if n not in data.variables]
        if missing:
            raise InputError(f"{path}/{name} has no {', '.join(missing)}, which MSv4 demands; write it with schema 4 of xradio")
        base = data.attrs.get("data_groups", {}).get("base", {})
        fields = str(base.get("field_and_source", "field_and_source_base_xds")).rsplit("/", 1)[-1]
        found.append(Partition(f"{path}/{name}", data, *(_child(path, name, child) for child in ("antenna_xds", fields))))
    return found


def _subgroups(group: zarr.Group, prefix: str = "") -> Iterator[tuple[str, zarr.Group]]:
    for name, own in group.groups():
        yield f"{prefix}{name}", own
        yield from _subgroups(own, f"{prefix}{name}/")


def _child(path: str, group: str, child: str) -> xr.Dataset:
    import xarray as xr

    try:
        return xr.open_zarr(path, group=f"{group}/{child}" if group else child, **_OPTIONS)
    except (FileNotFoundError, KeyError) as error:
        raise InputError(f"{path}/{group} has no {child}, which MSv4 demands; write it with schema 4 of xradio") from error


class StoreTable:
    """A store as a main table: of arcae's `Table` what reads, for rows in ascending order.

    Parameters
    ----------
    parts
        The datasets.
    numbers
        Their ids.
    """

    def __init__(self, parts: list[Partition], numbers: list[Numbers]) -> None:
        self._parts, self._numbers = parts, numbers
        self._first = np.concatenate([[0], np.cumsum([p.rows for p in parts])]).astype(np.int64)

    def close(self) -> None:
        """Let the datasets go."""
        for part in self._parts:
            part.data.close()

    def nrow(self) -> int:
        """Return how many rows there are."""
        return int(self._first[-1])

    def columns(self) -> list[str]:
        """Return the names of the columns: those of measurement sets for what has no name of its own in a store."""
        return sorted({*SCALARS, *self.array_columns()})

    def array_columns(self) -> list[str]:
        """Return the names of those with an array in each row; any dataset may lack any of them."""
        found = (str(n) for p in self._parts for n, v in p.data.variables.items() if _has_cells(v))
        return sorted({"FLAG", *found})

    def getcoldesc(self, column: str) -> dict[str, Any]:
        """Return the type of an array column by casacore's name."""
        kinds = [_kind(p.data[column]) for p in self._parts if column in p.data.variables]
        return {"valueType": "boolean" if column == "FLAG" else max(kinds, key=_WIDER.index)}

    def getkeywords(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def getcolkeywords(self, column: str) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def getdminfo(self) -> dict[str, Any]:
        """Describe the chunks of visibilities as the tiles of measurement sets are described."""
        cubes = {}
        for i, p in enumerate(self._parts):
            rows = _chunk(p.data[VISIBILITY]) * p.baselines
            cubes[f"*{i}"] = {"TileShape": [*p.cell[::-1], rows], "CellShape": [*p.cell[::-1]]}
        return {"zarr": {"COLUMNS": self.columns(), "SPEC": {"HYPERCUBES": cubes}}}

    def row_shapes(self, column: str, index: Index = ()) -> pyarrow.Array:
        """Return the shapes of the cells of rows; null where a dataset has no such variable."""
        rows = self._rows(index)
        shapes = [self._shape(p, column) for p in self._parts]
        owner = np.searchsorted(self._first, rows, side="right") - 1
        return pyarrow.array([shapes[i] for i in owner], pyarrow.list_(pyarrow.int64()))

    def getcol(self, column: str, index: Index = (), result: NDArray[Any] | None = None) -> NDArray[Any]:
        """Read a column of rows, and of channels if `index` has a second member."""
        rows = self._rows(index)
        channels = index[1] if len(index) > 1 else slice(None)
        dense = not (len(index) and isinstance(index[0], np.ndarray))
        scalar = column in SCALARS
        cuts = np.searchsorted(rows, self._first)
        for i, (first, last) in enumerate(pairwise(cuts.tolist())):
            if first == last:
                continue
            local = rows[first:last] - self._first[i]
            time, baseline = np.divmod(local, self._parts[i].baselines)
            if scalar:
                values = np.broadcast_to(self._scalars(i)[column], self._grid(i))[time, baseline]
                result = _filled(result, len(rows), values, first)
                continue
            for start, stop, block, t0 in self._blocks(self._parts[i], column, time, channels, dense):
                values = block[time[start:stop] - t0, baseline[start:stop]]
                result = _filled(result, len(rows), values, first + start)
        if result is None:
            return np.empty(0, np.int32 if scalar else np.float64)
        return result

    def _grid(self, i: int) -> tuple[int, int]:
        return len(self._parts[i].times), self._parts[i].baselines

    def _scalars(self, i: int) -> dict[str, NDArray[Any]]:
        """Return the columns of one number a row, shaped to stretch over (time, baseline)."""
        p, n = self._parts[i], self._numbers[i]
        return {
            "TIME": p.times[:, None], "FIELD_ID": n.field[:, None], "SCAN_NUMBER": n.scan[:, None],
            "ANTENNA1": n.antenna1[None], "ANTENNA2": n.antenna2[None], "DATA_DESC_ID": np.array([[n.data_desc_id]], np.int32),
            "STATE_ID": np.array([[n.state]], np.int32), "FLAG_ROW": np.zeros((1, 1), np.uint8),
        }  # fmt: skip

    def _rows(self, index: Index) -> NDArray[np.int64]:
        if not index:
            return np.arange(self.nrow())
        rows = index[0]
        return np.arange(*rows.indices(self.nrow())) if isinstance(rows, slice) else np.asarray(rows, np.int64)

    def _shape(self, p: Partition, column: str) -> list[int] | None:
        if column == "FLAG" and column not in p.data.variables:
            return list(p.cell)
        return list(p.data[column].shape[2:]) if column in p.data.variables else None

    def _blocks(
        self, p: Partition, column: str, time: NDArray[np.int64], channels: slice, dense: bool
    ) -> Iterator[tuple[int, int, NDArray[Any], int]]:
        """Yield places in `time`, and what is stored from the first to the last of these times: a few chunks."""
        if column == "FLAG" and column not in p.data.variables:
            shape = p.data[VISIBILITY][:1, :, channels].shape
            yield 0, len(time), np.broadcast_to(np.uint8(0), (int(time[-1] - time[0]) + 1, *shape[1:])), int(time[0])
            return
        array = p.data[column].transpose(*ROW_DIMS, ...)
        array = array[:, :, channels] if array.ndim > 2 else array
        chunk = _chunk(p.data[column])
        if dense:
            chunk *= max(1, _READ // max(1, chunk * int(np.prod(array.shape[1:])) * array.dtype.itemsize))
        cuts = [0, *(np.flatnonzero(np.diff(time // chunk)) + 1), len(time)]
        for start, stop in pairwise(cuts):
            block = array[int(time[start]) : int(time[stop - 1]) + 1].values
            yield start, stop, (block != 0).view(np.uint8) if column == "FLAG" else block, int(time[start])


class Columns:
    """A sub-table of few columns in memory."""

    def __init__(self, values: Mapping[str, NDArray[Any]]) -> None:
        self._values = values

    def __enter__(self) -> Columns:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def nrow(self) -> int:
        """Return how many rows there are."""
        return len(next(iter(self._values.values())))

    def columns(self) -> list[str]:
        """Return their names."""
        return list(self._values)

    def getcol(self, column: str, index: Index = ()) -> NDArray[Any]:
        """Return a column, or some of its rows."""
        return self._values[column][index]

    def row_shapes(self, column: str) -> pyarrow.Array:
        """Return the shapes of the cells of a column."""
        return pyarrow.array([list(cell.shape) for cell in self._values[column]])


def antennas(parts: list[Partition]) -> dict[str, NDArray[Any]]:
    """Return what is known of all antennas of a store, under casacore's names of columns.

    NAME, MOUNT, POSITION in metres (ITRF), DISH_DIAMETER in metres, and RECEPTOR_ANGLE of both receptors in radians; NaN, zero or
    nothing where the store does not say.
    """
    known: dict[str, dict[str, Any]] = {}
    for p in parts:
        count = p.antennas.sizes["antenna_name"]
        values = {column: _antenna_column(p.antennas, column, count) for column in _ANTENNA_COLUMNS}
        for i, name in enumerate(map(str, p.antennas["antenna_name"].values.tolist())):
            known.setdefault(name, {"NAME": name} | {column: v[i] for column, v in values.items()})
    return {column: np.array([own[column] for own in known.values()]) for column in ("NAME", *_ANTENNA_COLUMNS)}


def sub_table(path: str, name: str) -> Columns | None:
    """Return what a store has of the sub-tables ANTENNA and FEED; None for all others."""
    if name not in ("ANTENNA", "FEED"):
        return None
    columns = antennas(partitions(path))
    return Columns(columns | {"ANTENNA_ID": np.arange(len(columns["NAME"]))} if name == "FEED" else columns)


def _antenna_column(xds: xr.Dataset, column: str, count: int) -> NDArray[Any]:
    name, blank = _ANTENNA_COLUMNS[column]
    values: NDArray[Any] = xds[name].values if name in xds.variables else np.array([blank] * count)
    return values


def _utc(tai: Real) -> Real:
    """Turn MJD seconds TAI into UTC."""
    with warnings.catch_warnings():
        # Of years to come nobody knows the leap seconds.
        warnings.simplefilter("ignore", erfa.ErfaWarning)
        whole, fraction = erfa.taiutc(_MJD_ZERO, tai / _DAY)
    utc: Real = ((whole - _MJD_ZERO) + fraction) * _DAY
    return utc


def _has_cells(variable: xr.Variable) -> bool:
    return set(ROW_DIMS) < set(variable.dims) and variable.dtype.kind in "fcbui"


def _kind(variable: xr.DataArray) -> str:
    return _KINDS.get(variable.dtype.str[1:], "")


def _chunk(variable: xr.DataArray) -> int:
    """Return how many times share a chunk."""
    chunks: Any = variable.encoding.get("chunks")
    axis: Hashable = "time"
    return int(chunks[variable.dims.index(axis)]) if chunks else int(variable.sizes[axis])


def _filled(result: NDArray[Any] | None, rows: int, values: NDArray[Any], first: int) -> NDArray[Any]:
    """Put values from row `first` on into an array, which is made for the first of them."""
    if result is None:
        result = np.empty((rows, *values.shape[1:]), values.dtype)
    result[first : first + len(values)] = values
    return result
