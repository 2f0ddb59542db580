"""Simulate a small observation and clean it, from Python.

    python examples/clean.py [FOLDER]

prints the flux of every source in every band beside the true one. The products stay in FOLDER,
which is `clean-example` by default. It takes a minute or two.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import xarray as xr

from pfb.cli.console import Console
from pfb.config import Clean
from pfb.io.simulated_set import Simulation, lay_out, write_set
from pfb.io.sky import Component, direction_cosines, offset
from pfb.pipeline import clean
from pfb.pipeline.reporting import Reporter

NPIX = 320
CELL = 2.4
"""Pixel size in arcsec."""
NITER = 15
"""Major cycles."""

ARCMIN = np.deg2rad(1 / 60)
RA, DEC = np.deg2rad(63.36), np.deg2rad(-45.0)

SOURCES = (
    (1.5, 1.0, 1.0, -0.7, 0.0),
    (-1.0, 1.6, 0.4, 0.3, 0.0),
    (-0.8, -1.4, 0.6, -0.9, 0.4),
)
"""East and north offset in arcmin, flux at 1.284 GHz in Jy, spectral index, width in arcmin (0: a point)."""


def sky() -> list[Component]:
    """Place the sources around the target."""
    components = []
    for east, north, flux, alpha, width in SOURCES:
        ra, dec = offset(RA, DEC, east * ARCMIN, north * ARCMIN)
        components.append(Component(ra=ra, dec=dec, I=flux, alpha=alpha, fwhm=width * ARCMIN))
    return components


def observe(path: Path) -> None:
    """Write a measurement set of the sky: 24 of MeerKAT's dishes, 8 channels of L band, two scans of three minutes."""
    observation = Simulation(
        nant=24, nchan=8, nspw=1, band="L", scans=2, scan_length=3.0, dump=8.0, ra=63.36, dec=-45.0,
        start="2024-06-10T06:00:00", sefd=420.0, gain_error=0.0, rfi=0.02, seed=1,
    )  # fmt: skip
    write_set(str(path), lay_out(observation, sky()), overwrite=True)


def fluxes(store: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add up the model around every source.

    Returns
    -------
    freq : (band,) float64
        Frequencies in Hz.
    found, true : (source, band) float64
        Jy.
    """
    with xr.open_zarr(store) as ds:
        freq, model = ds["freq"].values, ds["model"].values[0]  # Stokes I in Jy/pixel, [band, x, y]
        cell = ds.attrs["geometry"]["cell"]
    nx, ny = model.shape[1:]
    x, y = np.ogrid[:nx, :ny]
    found = []
    for source in sky():
        l, m, _ = direction_cosines(source.ra, source.dec, RA, DEC)
        distance = np.hypot(x - (nx // 2 - l / cell), y - (ny // 2 + m / cell)) * cell
        found.append(model[:, distance < 0.7 * ARCMIN].sum(axis=1))
    true = [source.I * (freq / source.ref_freq) ** source.alpha for source in sky()]
    return freq, np.array(found), np.array(true)


def main(folder: Path, report: Reporter) -> tuple[np.ndarray, np.ndarray]:
    """Do everything; returns the fluxes found and the true ones, (source, band) in Jy."""
    folder.mkdir(parents=True, exist_ok=True)
    path, output = folder / "example.ms", str(folder / "example")
    observe(path)
    # The options are those of the command line: `pfb clean --help`.
    config = Clean(output=output, overwrite=True, npix=str(NPIX), cell=CELL, nband=4, niter=NITER)
    clean.run((str(path),), config, report)

    freq, found, true = fluxes(f"{output}.zarr")
    print("\nsource   " + "".join(f"{f / 1e6:>20.0f} MHz" for f in freq))
    for i, (mine, theirs) in enumerate(zip(found, true, strict=True)):
        print(f"{i:>6}   " + "".join(f"{a:>10.3f} of {b:<6.3f} Jy" for a, b in zip(mine, theirs, strict=True)))
    print(f"\nThe picture is {output}-quicklook.png")
    return found, true


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "clean-example"), Console())
