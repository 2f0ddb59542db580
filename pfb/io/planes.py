"""FITS images of any number of axes, plane by plane, and the beam of every plane, whoever wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units
from astropy.io import fits
from astropy.wcs import WcsError

from pfb.errors import InputError
from pfb.io.fits import celestial
from pfb.types import Beam, Real

PARAMETERS = ("BMAJ", "BMIN", "BPA")
AIPS = re.compile(r"CLEAN BMAJ=\s*(\S+)\s+BMIN=\s*(\S+)\s+BPA=\s*(\S+)")


@dataclass(frozen=True, kw_only=True)
class Planes:
    """A FITS image; its pixels stay in the file."""

    path: str
    number: int
    """Of the extension that holds it."""
    header: fits.Header
    beams: tuple[Beam | None, ...]
    """Of every plane, as the planes follow each other in the file; None where the file says none."""
    pixel: Real
    """(2, 2): what a step along x and y is in radians to the East and to the North."""

    @property
    def shape(self) -> tuple[int, int]:
        """(nx, ny)."""
        return int(self.header["NAXIS1"]), int(self.header["NAXIS2"])

    def read(self) -> Iterator[Real]:
        """Yield the (nx, ny) planes, one after the other; blank pixels are NaN."""
        with fits.open(self.path, memmap=True) as hdus:
            section = hdus[self.number].section
            for index in np.ndindex(_lengths(self.header)):
                plane = np.asarray(section[(*index, slice(None), slice(None))], "f8")
                yield np.ascontiguousarray(plane.T)


def open_planes(path: str | Path) -> Planes:
    """Find the first image of a file, and its beams.

    Beams are looked for in the table BEAMS (CASA, `pfb`), in numbered keywords (``BMAJ1`` ...), in BMAJ, BMIN and BPA
    (WSClean), and in the HISTORY of AIPS, in this order.

    Raises
    ------
    InputError
        If there is no image, or if its first axes are not those of the sky.
    """
    try:
        with fits.open(path, memmap=True) as hdus:
            found = [(i, hdu.header.copy()) for i, hdu in enumerate(hdus) if hdu.is_image and hdu.header["NAXIS"] >= 2][:1]
            tables = [hdu for hdu in hdus if hdu.name == "BEAMS"]
            table = (tables[0].data.copy(), tables[0].columns) if tables else None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} cannot be read as FITS ({error}); give the name of a FITS image") from error
    if not found:
        raise InputError(f"{path} holds no image; give the name of a FITS image")
    number, header = found[0]
    pixel = _pixel(header)
    if pixel is None:
        raise InputError(
            f"the first axes of {path} are {header.get('CTYPE1', '?')} and {header.get('CTYPE2', '?')} but those of the sky "
            "are needed: reorder its axes"
        )
    beams = tuple(_beams(header, table))
    return Planes(path=str(path), number=number, header=header, beams=beams, pixel=pixel)


@contextmanager
def planes_file(source: Planes, beam: Beam, unit: str, path: str | Path) -> Iterator[Any]:
    """Write a file like another one with all planes in one beam; yields a function that takes the next (nx, ny) plane.

    Header and tables are those of the source but for what is said of beam and unit. Pixels are stored in double precision
    if they were, else in single precision.

    Parameters
    ----------
    source : Planes
        The other file.
    beam : Beam
        Of all planes.
    unit : str
        BUNIT; left out if it is empty.
    path : str or Path
        File to write.
    """
    dtype = "f8" if source.header["BITPIX"] == -64 else "f4"
    hdu = fits.StreamingHDU(path, _like(source.header, beam, unit, dtype))
    try:
        yield lambda plane: hdu.write(np.ascontiguousarray(plane.T, dtype=dtype))
    finally:
        hdu.close()
    with fits.open(source.path, memmap=False) as hdus:
        kept = [hdu.copy() for hdu in hdus if isinstance(hdu, fits.BinTableHDU) and not hdu.is_image and hdu.name != "BEAMS"]
    if kept:
        with fits.open(path, mode="append") as hdus:
            hdus.extend(kept)


def _like(old: fits.Header, beam: Beam, unit: str, dtype: str) -> fits.Header:
    header = fits.Header([("SIMPLE", True), ("BITPIX", -64 if dtype == "f8" else -32), ("NAXIS", old["NAXIS"])])
    for axis in range(1, old["NAXIS"] + 1):
        header[f"NAXIS{axis}"] = old[f"NAXIS{axis}"]
    header["EXTEND"] = True
    dropped = {
        "SIMPLE", "XTENSION", "BITPIX", "NAXIS", "PCOUNT", "GCOUNT", "GROUPS", "EXTEND", "EXTNAME", "EXTVER", "BSCALE", "BZERO",
        "BLANK", "BUNIT", "CASAMBM", "DATAMIN", "DATAMAX", "CHECKSUM", "DATASUM", *PARAMETERS,
    }  # fmt: skip
    for card in old.cards:
        if card.keyword not in dropped and not re.fullmatch(r"(NAXIS|BMAJ|BMIN|BPA)\d+", card.keyword):
            header.append(card, end=True)
    for name, value in zip(PARAMETERS, np.degrees(beam), strict=True):
        header[name] = float(value)
    if unit:
        header["BUNIT"] = unit
    return header


def _pixel(header: fits.Header) -> Real | None:
    try:
        wcs = celestial(header)
    except WcsError:
        return None
    return np.radians(wcs.pixel_scale_matrix) if wcs.has_celestial else None


def _lengths(header: fits.Header) -> tuple[int, ...]:
    """Lengths of the axes beyond the sky's, as numpy orders them."""
    return tuple(int(header[f"NAXIS{axis}"]) for axis in range(header["NAXIS"], 2, -1))


def _beams(header: fits.Header, table: tuple[Any, Any] | None) -> list[Beam | None]:
    lengths = _lengths(header)
    if table is not None:
        return _of_table(header, lengths, *table)
    count = int(np.prod(lengths, dtype=int))
    channels = _along(header, "FREQ", lengths)
    if "BMAJ1" in header and len(set(channels)) > 1:
        return [_beam([header.get(f"{name}{channel + 1}", np.nan) for name in PARAMETERS]) for channel in channels]
    said: Sequence[Any] = [header.get(name, np.nan) for name in PARAMETERS]
    if "BMAJ" not in header:
        lines = [match.groups() for line in header.get("HISTORY", []) if (match := AIPS.search(str(line)))]
        said = lines[-1] if lines else said
    elif "BMIN" not in header:
        said = [header["BMAJ"], header["BMAJ"], 0.0]
    return [_beam(said)] * count


def _of_table(header: fits.Header, lengths: tuple[int, ...], rows: Any, columns: Any) -> list[Beam | None]:
    """Beams of the table that CASA writes: one for every channel and polarisation."""
    usual = zip(PARAMETERS, ("arcsec", "arcsec", "deg"), strict=True)
    scales = [units.Unit(columns[name].unit or unit).to("deg") for name, unit in usual]
    found = {}
    for row in rows:
        place = int(row["CHAN"]), int(row["POL"]) if "POL" in columns.names else 0
        found[place] = _beam([float(row[name]) * scale for name, scale in zip(PARAMETERS, scales, strict=True)])
    channels, products = (_along(header, axis, lengths) for axis in ("FREQ", "STOKES"))
    return [found.get((c, p), found.get((c, 0))) for c, p in zip(channels, products, strict=True)]


SPECTRAL = ("FREQ", "VELO", "VRAD", "VOPT", "FELO", "WAVE")


def _along(header: fits.Header, kind: str, lengths: tuple[int, ...]) -> list[int]:
    """Places along an axis of every plane; zeros if there is no such axis."""
    words = SPECTRAL if kind == "FREQ" else (kind,)
    types = [str(header.get(f"CTYPE{axis}", "")) for axis in range(header["NAXIS"], 2, -1)]
    axis = next((i for i, name in enumerate(types) if name.startswith(words)), None)
    return [0 if axis is None else index[axis] for index in np.ndindex(lengths)]


def _beam(degrees: Sequence[Any]) -> Beam | None:
    """Return a beam of numbers in degrees, None if they make none."""
    try:
        major, minor, pa = (float(np.radians(float(value))) for value in degrees)
    except ValueError:
        return None
    return Beam(major, minor, pa) if np.isfinite([major, minor, pa]).all() and major >= minor > 0 else None
