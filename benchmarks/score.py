"""Score models against the sky that was simulated.

    python benchmarks/score.py TRUTH.ecsv MODEL...

A MODEL is the PREFIX.zarr of `pfb clean`, or a quoted pattern of FITS images in Jy/pixel, one per
band, of any other imager. Model and truth are averaged over the bands and convolved to one circular
beam; the truth has every source's flux at the band's effective frequency.
"""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from astropy.io import fits
from scipy import fft

from pfb.errors import InputError, PfbError
from pfb.io import dataset
from pfb.io.sky import Component, direction_cosines, read_sky
from pfb.types import Geometry, Real

ARCSEC = np.deg2rad(1 / 3600)
BEAM = 8.0
"""Full width at half maximum in arcsec of the beam that model and truth are compared at."""

_FWHM = np.sqrt(8 * np.log(2))
_SOURCE = 1e-6
"""Pixels fainter than this fraction of the truth's peak hold no source..."""
_ENOUGH = 1000
"""...if there are more than so many; else the fainter half of the image does not."""


class Model(NamedTuple):
    """The model of an imager."""

    geometry: Geometry
    freq: list[float]
    """Effective frequency of every band in Hz."""
    cube: Real
    """(band, nx, ny) in Jy/pixel."""


class Score(NamedTuple):
    """How near a model is to the truth; all but the first two in Jy per beam of the comparison."""

    snr: float
    """20 log10(|truth| / |truth - model|), in dB."""
    flux_ratio: float
    """Sum of the model over that of the truth."""
    rms: float
    """Rms of the difference."""
    off_source: float
    """Rms of the difference where the truth is empty."""
    largest: float
    """Largest difference."""


def truth_image(sky: Sequence[Component], geometry: Geometry, freq: float) -> Real:
    """Return the (nx, ny) image of a sky in Jy/pixel at a frequency in Hz, limited to the resolution of its pixels.

    A source between pixels is spread over the image as a sinc, a Gaussian keeps its width. Sources beyond the edges
    are left out.
    """
    nx, ny = geometry.shape
    cell = geometry.cell
    u, v = fft.fftfreq(nx, cell)[:, None], fft.rfftfreq(ny, cell)[None]
    total = np.zeros((nx, ny // 2 + 1), complex)
    for c in sky:
        l, m, _ = direction_cosines(c.ra, c.dec, geometry.ra, geometry.dec)
        x, y = nx // 2 - l / cell, ny // 2 + m / cell
        if not (-0.5 <= x < nx - 0.5 and -0.5 <= y < ny - 0.5):
            continue
        flux = c.I * (freq / c.ref_freq) ** c.alpha
        total += flux * np.exp(-2j * np.pi * cell * (u * x + v * y)) * _gaussian(u, v, c.fwhm)
    image: Real = fft.irfft2(total, s=(nx, ny))
    return image


def convolve(image: Real, cell: float, beam: float) -> Real:
    """Turn (nx, ny) Jy/pixel into Jy/beam of a circular Gaussian of width `beam` in radians, of peak one."""
    nx, ny = image.shape
    transfer = _gaussian(fft.fftfreq(nx, cell)[:, None], fft.rfftfreq(ny, cell)[None], beam)
    area = 2 * np.pi * (beam / _FWHM / cell) ** 2
    out: Real = fft.irfft2(fft.rfft2(image) * transfer, s=image.shape) * area
    return out


def score(model: Model, sky: Sequence[Component], beam: float = BEAM) -> Score:
    """Compare the mean model of all bands with the mean truth, at a beam in arcsec."""
    cell = model.geometry.cell
    truth = np.mean([truth_image(sky, model.geometry, freq) for freq in model.freq], axis=0)
    expected = convolve(truth, cell, beam * ARCSEC)
    found = convolve(model.cube.mean(axis=0), cell, beam * ARCSEC)
    difference = found - expected
    empty = expected < _SOURCE * expected.max()
    if empty.sum() <= _ENOUGH:
        empty = expected < np.median(expected)
    error = float(np.linalg.norm(difference))
    return Score(
        snr=20 * float(np.log10(np.linalg.norm(expected) / error)) if error else np.inf,
        flux_ratio=float(found.sum() / expected.sum()),
        rms=float(difference.std()),
        off_source=float(difference[empty].std()),
        largest=float(np.abs(difference).max()),
    )


def read_dataset(path: str) -> Model:
    """Read the model of a finished `pfb clean`."""
    ds = dataset.open_dataset(path, needs="clean").sel(stokes="I")
    return Model(dataset.geometry(ds), [band.freq for band in dataset.bands(ds)], ds["model"].values)


def read_images(pattern: str) -> Model:
    """Read the model of another imager: FITS images in Jy/pixel, one per band."""
    paths = sorted(glob.glob(pattern))
    if not paths:
        raise InputError(f"no file is named {pattern}; give a PREFIX.zarr or a pattern of FITS images")
    planes, freq = [], []
    for path in paths:
        data, header = fits.getdata(path, header=True)
        plane = np.squeeze(np.asarray(data, np.float64))
        axis = next((i for i in range(1, 5) if str(header.get(f"CTYPE{i}", "")).startswith("FREQ")), None)
        if plane.ndim != 2 or axis is None:
            raise InputError(f"{path} has shape {data.shape} but must hold one plane and a FREQ axis; give one file per band")
        planes.append(np.nan_to_num(plane.T))
        freq.append(float(header[f"CRVAL{axis}"]))
    nx, ny = planes[0].shape
    ra, dec = (float(np.deg2rad(header[f"CRVAL{i}"])) for i in (1, 2))
    cell = float(np.deg2rad(abs(header["CDELT1"])))
    return Model(Geometry(nx=nx, ny=ny, cell=cell, ra=ra, dec=dec), freq, np.stack(planes))


def _gaussian(u: Real, v: Real, fwhm: float) -> Real:
    """The transform of a circular Gaussian of unit integral and width `fwhm` in radians."""
    out: Real = np.exp(-((np.pi * fwhm) ** 2) / (4 * np.log(2)) * (u**2 + v**2))
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Score the models that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("truth", metavar="TRUTH.ecsv", help="the sky, as pfb simulate writes it beside the set")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="PREFIX.zarr, or a quoted pattern of FITS images")
    parser.add_argument("--beam", type=float, default=BEAM, metavar="ARCSEC", help="beam to compare at (default: %(default)g)")
    arguments = parser.parse_args(argv)
    try:
        sky = read_sky(arguments.truth)
        for path in arguments.models:
            model = read_dataset(path) if path.rstrip("/").endswith(".zarr") else read_images(path)
            s = score(model, sky, arguments.beam)
            print(
                f"{path}: SNR {s.snr:.2f} dB, flux ratio {s.flux_ratio:.4f}, difference rms {s.rms * 1e6:.2f} "
                f"(off sources {s.off_source * 1e6:.2f}), largest {s.largest * 1e6:.0f} uJy/beam"
            )
    except PfbError as error:
        print(f"score: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
