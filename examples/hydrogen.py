"""Subtract the continuum from an observation of a galaxy's neutral hydrogen, and see the disc rotate.

    python examples/hydrogen.py SET [FOLDER]

is written for the VLA observation of NGC 5921 that CASA's tutorials use: calibrated, 63 channels around 1413.4 MHz, the galaxy
is field 2. It writes the column LINE into the set. The same on the command line:

    pfb clean SET -o continuum --field 2 --chan 4~6,50~59 --nband 1 --npix 256 --cell 15
    pfb predict SET --model continuum.zarr --field 2 --subtract --column LINE
    pfb image SET -o line --field 2 --chan 10~46 --nband 37 --data-column LINE --npix 256 --cell 15 --robust 1
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from astropy.io import fits

from pfb.cli.console import Console
from pfb.config import Clean, Image, Predict
from pfb.io.fits import read_image
from pfb.pipeline import clean, image, predict
from pfb.pipeline.reporting import Reporter

FIELD = "2"
FREE = "4~6,50~59"
"""Channels without line emission."""
LINE = (10, 46)
"""First and last channel with it."""
NPIX = 256
CELL = 15.0
"""Pixel size in arcsec."""
HALF = 20
"""Half the width of a box around the galaxy in pixels."""

REST = 1420.405752e6
"""Frequency of the line in Hz."""
LIGHT = 299792.458
"""Speed of light in km/s."""


class Disc(NamedTuple):
    """What the cube shows of the galaxy."""

    velocity: np.ndarray
    """(chan,) km/s, optical convention."""
    flux: np.ndarray
    """(chan,) sum of the brightness above three times the noise, Jy/beam."""
    north: float
    """Mean velocity of the northern half in km/s, weighted with the brightness."""
    south: float


def subtract(path: str, folder: Path, report: Reporter) -> None:
    """Make a model of the continuum, and write the data less it into the column LINE."""
    model = str(folder / "continuum")
    config = Clean(
        output=model, overwrite=True, field=FIELD, chan=FREE, data_column="DATA", nband=1, npix=str(NPIX), cell=CELL, niter=8
    )
    clean.run((path,), config, report)
    options = Predict(model=(f"{model}.zarr",), field=FIELD, subtract=True, column="LINE", data_column="DATA", overwrite=True)
    predict.run((path,), options, report)


def measure(path: str, folder: Path, report: Reporter) -> Disc:
    """Image every channel of the line, and weigh the velocities of the two halves of the galaxy."""
    first, last = LINE
    config = Image(
        output=str(folder / "line"), overwrite=True, field=FIELD, chan=f"{first}~{last}", data_column="LINE",
        nband=last - first + 1, npix=str(NPIX), cell=CELL, robust=1.0,
    )  # fmt: skip
    image.run((path,), config, report)
    cube, _ = read_image(folder / "line-dirty-cube.fits")
    freq = fits.getdata(folder / "line-dirty-cube.fits", "BANDS")["FREQ"]
    velocity = LIGHT * (REST / freq - 1)
    noise = np.array([1.4826 * np.median(np.abs(plane - np.median(plane))) for plane in cube])
    middle = NPIX // 2
    box = cube[:, middle - HALF : middle + HALF + 1, middle - HALF : middle + HALF + 1]
    seen = np.where(box > 3 * noise[:, None, None], box, 0)
    north, south = (half.sum(axis=(1, 2)) for half in (seen[:, :, HALF + 1 :], seen[:, :, :HALF]))
    mean = [float(np.average(velocity, weights=half)) for half in (north, south)]
    return Disc(velocity, seen.sum(axis=(1, 2)), *mean)


def main(path: str, folder: Path, report: Reporter) -> Disc:
    """Do everything."""
    folder.mkdir(parents=True, exist_ok=True)
    subtract(path, folder, report)
    disc = measure(path, folder, report)
    for velocity, flux in zip(disc.velocity, disc.flux, strict=True):
        print(f"{velocity:8.1f} km/s  {'#' * round(60 * flux / disc.flux.max())}")
    print(f"\nThe northern half recedes with {disc.north:.0f} km/s, the southern with {disc.south:.0f} km/s")
    return disc


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "hydrogen-example"), Console())
