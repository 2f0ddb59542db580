"""Primary beams of telescopes: MeerKAT's from katbeam, others from FITS or zarr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from astropy import units
from astropy.io import fits
from scipy.ndimage import map_coordinates

from pfb.errors import InputError
from pfb.io.fits import first_image
from pfb.types import Geometry, Real

KATBEAM = {"UHF": ("MKAT-AA-UHF-JIM-2020", 544e6, 1088e6), "L": ("MKAT-AA-L-JIM-2020", 856e6, 1712e6)}
"""MeerKAT's receivers that katbeam knows: the name of the model, and the band in Hz."""

SKY, DISH = {"RA", "L", "LL"}, {"X", "PX", "AZ"}
"""First words of CTYPE1 of a beam that is fixed to the sky, and of one that is fixed to the dish."""

HIGHEST, LOWEST, NEGATIVE = 1.05, 0.5, -0.05
"""A power beam has its peak between the first two, and is nowhere less than the last."""


def katbeam_receiver(name: str, low: float, high: float) -> str:
    """Return the receiver of ``katbeam`` or ``katbeam:NAME`` for frequencies from `low` to `high` in Hz.

    Raises
    ------
    InputError
        If katbeam is not installed, or has no model for the receiver or the frequencies.
    """
    try:
        import_module("katbeam")
    except ImportError as error:
        raise InputError(f"--beam-model {name} needs katbeam ({error}): pip install 'pfb-dask[meerkat]'") from error
    _, _, asked = name.partition(":")
    known = ", ".join(f"{own} ({start / 1e6:g}-{stop / 1e6:g} MHz)" for own, (_, start, stop) in KATBEAM.items())
    if asked and asked not in KATBEAM:
        raise InputError(f"--beam-model {name}: katbeam knows no receiver {asked}, only {known}; give a FITS beam")
    # What both receive is the L band's by default, which most observations use.
    for receiver in [asked] if asked else ["L", "UHF"]:
        _, start, stop = KATBEAM[receiver]
        if start <= low and high <= stop:
            return receiver
    raise InputError(f"--beam-model {name}: bands of {low / 1e6:g}-{high / 1e6:g} MHz are not in {known}; give a FITS beam")


def katbeam_response(receiver: str, x: Real, y: Real, freq: float) -> Real:
    """Return MeerKAT's Stokes I power beam.

    Beyond the frequencies of its table the beam at their end is scaled with the wavelength.

    Parameters
    ----------
    receiver : str
        A key of `KATBEAM`.
    x, y : (...) float
        Angles right and up of the axis in radians.
    freq : float
        In Hz.
    """
    beam = import_module("katbeam").JimBeam(KATBEAM[receiver][0])
    megahertz = freq / 1e6
    nearest = float(np.clip(megahertz, beam.freqMHzlist.min(), beam.freqMHzlist.max()))
    scale = np.degrees(megahertz / nearest)
    power: Real = beam.I(x * scale, y * scale, nearest)
    return power


@dataclass(frozen=True, eq=False)
class BeamGrid:
    """A power beam on a grid of angles.

    Parameters
    ----------
    values : (plane, n, m) float64
        Response, one on the axis.
    freq : (plane,) float64
        Frequencies in Hz, ascending; empty for one plane that serves for all.
    first, second : (float, float)
        Angle of the first pixel, and from one to the next, in radians: East and North, or right and up.
    turning : bool
        It is fixed to the dish, so the sky turns in it.
    centre : (float, float)
        Angles of the axis of the beam, about which it is scaled.
    """

    values: Real
    freq: Real
    first: tuple[float, float]
    second: tuple[float, float]
    turning: bool
    centre: tuple[float, float] = (0.0, 0.0)

    def response(self, x: Real, y: Real, freq: float) -> Real:
        """Return the response at angles in radians, zero beyond the grid, linear in frequency between the planes.

        Each plane is first scaled with the wavelength to the frequency that is asked for.
        """
        if not self.freq.size:
            return self._plane(0, x, y, 1.0)
        right = int(np.clip(np.searchsorted(self.freq, freq), 1, max(self.freq.size - 1, 1)))
        if self.freq.size == 1 or not self.freq[0] < freq < self.freq[-1]:
            nearest = int(np.abs(self.freq - freq).argmin())
            return self._plane(nearest, x, y, freq / self.freq[nearest])
        low, high = self.freq[right - 1], self.freq[right]
        share = (freq - low) / (high - low)
        return (1 - share) * self._plane(right - 1, x, y, freq / low) + share * self._plane(right, x, y, freq / high)

    def covers(self, freq: float) -> bool:
        """Whether a frequency in Hz lies within half a step of the planes; one plane is scaled to any."""
        if self.freq.size < 2:
            return True
        before, after = (self.freq[1] - self.freq[0]) / 2, (self.freq[-1] - self.freq[-2]) / 2
        return bool(self.freq[0] - before <= freq <= self.freq[-1] + after)

    def _plane(self, plane: int, x: Real, y: Real, scale: float) -> Real:
        axes = ((x, *self.first, self.centre[0]), (y, *self.second, self.centre[1]))
        at = [(middle + scale * (a - middle) - start) / step for a, start, step, middle in axes]
        values = self.values[plane]
        blank = np.isnan(values)
        # Cubic splines ring at the edge of what is blank.
        found: Real = map_coordinates(np.where(blank, 0.0, values), at, order=1 if blank.any() else 3, cval=0.0)
        return found


def read_beam(path: str | Path, geometry: Geometry) -> BeamGrid:
    """Read a power beam.

    A FITS image or cube has as its first two axes RA and Dec (or L and M, angles East and North), if the beam is fixed to the
    sky, or X and Y (or AZ and EL), angles right and up, if it is fixed to the dish; degrees unless CUNIT says otherwise; and
    maybe a third, FREQ. In a zarr store it is the only variable, or the variable ``beam``, with coordinates
    ``l`` and ``m``, or ``x`` and ``y``, in degrees, and maybe ``freq`` in Hz.

    Parameters
    ----------
    path : str or Path
        A FITS file, or the folder of a zarr store.
    geometry : Geometry
        Of the image: where a beam with RA and Dec lies in it.

    Raises
    ------
    InputError
        If it cannot be read, has other axes, or is no power beam: its peak is not about one, or it is negative.
    """
    grid = _from_zarr(path) if Path(path).is_dir() else _from_fits(path, geometry)
    peak, least = float(np.nanmax(grid.values, initial=-np.inf)), float(np.nanmin(grid.values, initial=np.inf))
    if not LOWEST <= peak <= HIGHEST or least < NEGATIVE:
        raise InputError(
            f"the beam {path} has values from {least:.3g} to {peak:.3g} but the power beam of Stokes I is one on its axis and "
            "never negative: normalise it, or square a voltage beam"
        )
    return grid


def _from_fits(path: str | Path, geometry: Geometry) -> BeamGrid:
    data, header = first_image(path)
    kinds = [str(header.get(f"CTYPE{i + 1}", "")).split("-")[0].strip().upper() for i in range(data.ndim)]
    if len(kinds) < 2 or kinds[0] not in SKY | DISH:
        raise InputError(f"the beam {path} has the axes {', '.join(kinds) or 'none'}; it needs RA, DEC or L, M or X, Y")
    if any(header.get(f"PC{i}_{j}", 0.0) or header.get(f"CD{i}_{j}", 0.0) for i, j in ((1, 2), (2, 1))):
        raise InputError(f"the axes of the beam {path} are turned against its pixels: regrid it to axes along them")
    values: Any = data
    for axis in range(data.ndim, 2, -1):  # Python's first axis is FITS's last
        place = data.ndim - axis - (data.ndim - values.ndim)
        if kinds[axis - 1] == "STOKES":
            values = values.take(round(_pixel(header, axis, 1.0)), axis=place)
        elif kinds[axis - 1] != "FREQ" and values.shape[place] == 1:
            values = values.take(0, axis=place)
        elif kinds[axis - 1] != "FREQ":
            raise InputError(f"the beam {path} has {values.shape[place]} pixels along axis {axis}, which is not FREQ; select one")
    freq: Real = np.empty(0)
    if "FREQ" in kinds:
        axis = kinds.index("FREQ") + 1
        start, step = _axis(header, axis, "Hz")
        freq = start + step * np.arange(data.shape[-axis])
    axes, centre = [_axis(header, 1, "rad"), _axis(header, 2, "rad")], (0.0, 0.0)
    if kinds[0] == "RA":
        centre = _pointing(header, geometry)
        axes = [
            (middle + start - np.deg2rad(float(header[f"CRVAL{axis}"])), step)
            for axis, middle, (start, step) in zip((1, 2), centre, axes, strict=True)
        ]
    values = values.reshape(-1, *values.shape[-2:]).swapaxes(1, 2)
    return _ascending(BeamGrid(np.asarray(values, np.float64), freq, axes[0], axes[1], kinds[0] in DISH, centre))


def _axis(header: fits.Header, axis: int, unit: str) -> tuple[float, float]:
    """Return the value of the first pixel of an axis and the step to the next."""
    usual = "deg" if unit == "rad" else "Hz"
    scale = float(units.Unit(str(header.get(f"CUNIT{axis}", "")).strip() or usual).to(unit))
    step = float(header.get(f"CDELT{axis}", header.get(f"CD{axis}_{axis}", 1.0))) * scale
    return float(header.get(f"CRVAL{axis}", 0.0)) * scale + (1 - float(header.get(f"CRPIX{axis}", 1.0))) * step, step


def _pixel(header: fits.Header, axis: int, value: float) -> float:
    """Return the pixel, from 0, at which an axis has a value; the first one of an axis of one pixel."""
    start, step = float(header.get(f"CRVAL{axis}", 1.0)), float(header.get(f"CDELT{axis}", 1.0))
    if header[f"NAXIS{axis}"] == 1:
        return 0.0
    return (value - start) / step + float(header.get(f"CRPIX{axis}", 1.0)) - 1


def _pointing(header: fits.Header, geometry: Geometry) -> tuple[float, float]:
    """Return where the reference place of a beam with RA and Dec is, East and North of the phase centre."""
    ra, dec = (np.deg2rad(float(header[f"CRVAL{i}"])) for i in (1, 2))
    along, sd, cd = ra - geometry.ra, np.sin(geometry.dec), np.cos(geometry.dec)
    if np.sin(dec) * sd + np.cos(dec) * cd * np.cos(along) <= 0:
        raise InputError("the beam points at the other half of the sky: give one whose CRVAL is about the centre of the image")
    return float(np.cos(dec) * np.sin(along)), float(np.sin(dec) * cd - np.cos(dec) * sd * np.cos(along))


def _from_zarr(path: str | Path) -> BeamGrid:
    try:
        ds = xr.open_zarr(path, consolidated=False, chunks=None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"the beam {path} cannot be read as a zarr store ({error}); give one, or a FITS image") from error
    names = ["beam"] if "beam" in ds else sorted(map(str, ds.data_vars))
    if len(names) != 1:
        raise InputError(f"the beam {path} has the variables {', '.join(names)}; call the one to use beam")
    array = ds[names[0]]
    pairs: Sequence[tuple[str, str]] = [pair for pair in (("l", "m"), ("x", "y")) if set(pair) <= set(array.coords)]
    if not pairs or set(array.dims) - {"freq"} != set(pairs[0]) or not set(array.dims) <= set(array.coords):
        has = ", ".join(map(str, array.dims))
        raise InputError(f"the beam {path} has the axes {has}; it needs l and m, or x and y, and maybe freq, with coordinates")
    order = ["freq", *pairs[0]] if "freq" in array.dims else list(pairs[0])
    values = array.transpose(*order).values.astype(np.float64)
    axes = [_even(path, name, array.coords[name]) for name in pairs[0]]
    freq = array.coords["freq"].values.astype(np.float64) if "freq" in array.dims else np.empty(0)
    return _ascending(BeamGrid(values.reshape(-1, *values.shape[-2:]), freq, axes[0], axes[1], pairs[0] == ("x", "y")))


def _even(path: str | Path, name: str, coordinate: xr.DataArray) -> tuple[float, float]:
    scale = float(units.Unit(coordinate.attrs.get("units", "deg")).to("rad"))
    angles = coordinate.values.astype(np.float64) * scale
    steps = np.diff(angles)
    if not steps.size or not np.allclose(steps, steps[0], rtol=1e-3):
        raise InputError(f"the beam {path} has places along {name} that are not evenly spaced: regrid it")
    return float(angles[0]), float(steps.mean())


def _ascending(grid: BeamGrid) -> BeamGrid:
    """Return a beam with its frequencies in ascending order."""
    order = np.argsort(grid.freq)
    return replace(grid, values=grid.values[order], freq=grid.freq[order]) if order.size else grid
