"""Observations for tests: small sets with a known sky and chosen defects, and real ones where the checkout has them."""

from __future__ import annotations

import os
import tarfile
import warnings
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import arcae
import numpy as np
import pytest
import xarray as xr

from pfb.io.measurement_set import pieces, read, release
from pfb.io.simulated_set import Defects, Layout, Simulation, lay_out, write_set
from pfb.io.sky import Component, offset

ROOT = Path(__file__).parents[1]
ARCMIN = np.deg2rad(1 / 60)

# 224 rows of 8 channels and 4 correlations, 7 mJy of noise, written in a tenth of a second.
SMALL = dict(
    nant=8, nchan=8, nspw=1, band="L", scans=1, scan_length=2.0, dump=16.0, ra=63.36, dec=-45.0,
    start="2024-06-10T06:00:00", sefd=420.0, gain_error=0.0, rfi=0.02, seed=0, calibrators=False,
)  # fmt: skip


class Observed(NamedTuple):
    """A set that was written, and the truth behind it."""

    path: str
    layout: Layout
    sky: list[Component]


def small_sky(ra=SMALL["ra"], dec=SMALL["dec"]):
    """Two polarised points and a Gaussian, none at the centre, for a target at (ra, dec) degrees."""
    ra, dec = np.deg2rad(ra % 360), np.deg2rad(dec)
    components = [
        (7.0, 3.0, dict(I=1.0, Q=0.1, U=-0.05, V=0.02, alpha=-0.7)),
        (-5.0, 9.0, dict(I=0.4, alpha=0.3)),
        (-3.0, -8.0, dict(I=0.5, Q=-0.02, alpha=-0.5, fwhm=0.5 * ARCMIN)),
    ]
    placed = [(offset(ra, dec, l * ARCMIN, m * ARCMIN), rest) for l, m, rest in components]
    return [Component(ra=a, dec=d, **rest) for (a, d), rest in placed]


def small_set(path, *, sky=None, **parameters):
    """Write a small set and return it as `Observed`.

    `parameters` are fields of `Simulation`, in place of `SMALL`, or of `Defects`; the sky is
    `small_sky` around the target unless one is given. There is a signal wherever the defects leave any.
    """
    names = {f.name for f in fields(Defects)}
    defects = Defects(**{k: v for k, v in parameters.items() if k in names})
    given = SMALL | {k: v for k, v in parameters.items() if k not in names}
    sky = small_sky(given["ra"], given["dec"]) if sky is None else sky
    layout = lay_out(Simulation(**given, defects=defects), sky)
    write_set(str(path), layout)
    made = Observed(str(path), layout, sky)
    assert strength(made) > 1e-3, f"{path} holds no signal"
    return made


def strength(made):
    """The mean modulus of the good samples of the first window, in Jy; infinite if the defects leave none."""
    defects, window = made.layout.simulation.defects, made.layout.windows[0]
    column = next((c for c in ("DATA", "CORRECTED_DATA") if c not in defects.zero_columns + defects.empty_columns), None)
    if column is None or (column == "CORRECTED_DATA" and not defects.corrected_data):
        return np.inf
    with arcae.table(made.path) as table:
        rows = np.flatnonzero(table.getcol("DATA_DESC_ID") == window.data_desc_id)
        vis, flag = (table.getcol(name, index=(rows,)) for name in (column, "FLAG"))
    good = vis[(flag == 0) & np.isfinite(vis)]
    return float(np.abs(good).mean()) if len(good) else np.inf


def read_window(w, rows=None, channels=slice(None)):
    """Read all of a window, in pieces of so many rows: its uvw, visibilities and weights."""
    return [np.concatenate(parts) for parts in zip(*(read(p, channels) for p in pieces(w, rows)), strict=True)]


def change(path, column, function):
    """Rewrite a column of a table in place."""
    release()
    with arcae.table(str(path), readonly=False) as table:
        table.putcol(column, function(table.getcol(column)))


def to_store(path, store, chunks=2):
    """Convert a set to an MSv4 store, its visibilities in chunks of so many times and 3 channels; returns its path."""
    with warnings.catch_warnings():
        # Of the converter: texts of fixed length are not in zarr's specification yet.
        warnings.simplefilter("ignore")
        tree = xr.open_datatree(path, engine="xarray-ms:msv2")
        for node in tree.subtree:
            if "VISIBILITY" in node.data_vars:
                node.dataset = node.to_dataset(inherit=False).chunk(time=chunks, frequency=3)
        tree.to_zarr(store, mode="w", consolidated=False)
        tree.close()
    return str(store)


def unpack_real(name, folder):
    """Unpack a real observation, e.g. ``3c273_vla_8ghz``, into a folder and return its path; skip the test without it.

    It is looked for in the folder that PFB_REAL_DATA names, beside the checkout and among the examples.
    """
    named = [Path(p) for p in [os.environ.get("PFB_REAL_DATA")] if p]
    places = [*named, ROOT.parent / "shared" / "data" / "real", ROOT / "examples" / "data"]
    found = [tar for place in places if place.is_dir() for tar in sorted(place.glob(f"{name}*.t*gz"))]
    if not found:
        pytest.skip(f"the real observation {name} is not here; set PFB_REAL_DATA to a folder that has it")
    with tarfile.open(found[0]) as tar:
        tar.extractall(folder, filter="data")
    return str(next(p.parent for p in Path(folder).glob("*/table.dat")))
