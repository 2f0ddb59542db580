"""FITS images and cubes with their coordinates, units and beams."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.wcs import WCS, FITSFixedWarning
from numpy.typing import NDArray

from pfb import __version__
from pfb.errors import InputError, ShapeError
from pfb.io.staging import staged
from pfb.types import Band, Beam, Geometry, Observation, Real

EQUINOX = {"ICRS": None, "FK5": 2000.0, "FK4": 1950.0}
UNITS = ("Jy/beam", "Jy/pixel", "")
MJD_EPOCH = datetime(1858, 11, 17)


@dataclass(frozen=True, kw_only=True)
class HeaderInfo:
    """What all images of a run say in their headers."""

    geometry: Geometry
    observation: Observation
    unit: str
    """``Jy/beam`` or ``Jy/pixel``, spelled so; nothing for a pure number."""
    stokes: int = 1
    """Number of its product on the STOKES axis: 1 to 4 are I, Q, U, V."""
    history: tuple[str, ...] = ()
    """Lines for HISTORY."""
    kind: str = "Intensity"
    """What the pixels are, for BTYPE."""


def write_mfs(
    path: str | Path, image: Real, info: HeaderInfo, band: Band, beam: Beam | None = None, *, overwrite: bool = False
) -> None:
    """Write one image as FITS with four axes: RA, Dec, frequency and Stokes.

    Parameters
    ----------
    path : str or Path
        File to write; it appears when it is complete.
    image : (nx, ny) float
        Indexed ``[x, y]``; NaN where blank. Stored in single precision.
    info : HeaderInfo
        Its geometry is that of the image.
    band : Band
        Frequency of the image, and its bandwidth.
    beam : Beam, optional
        Written as BMAJ, BMIN and BPA.
    overwrite : bool
        Whether a file that exists is replaced.

    Raises
    ------
    ShapeError
        If the image is not of the size of its geometry.
    InputError
        If the file exists, or if the unit or the frame is unknown.
    """
    _write(path, [image], info, [band], [beam], overwrite)


def write_cube(
    path: str | Path,
    planes: Iterable[Real],
    info: HeaderInfo,
    bands: Sequence[Band],
    beams: Sequence[Beam | None] = (),
    *,
    overwrite: bool = False,
) -> None:
    """Write one plane per band; see `write_mfs`.

    The linear frequency axis is the least-squares fit to the bands' effective frequencies;
    their exact values are in the table BANDS. Beams that differ from plane to plane are in
    the table BEAMS, as CASA writes it, announced by the keyword CASAMBM.

    Parameters
    ----------
    path : str or Path
        File to write.
    planes : iterable of (nx, ny) float
        An array ``(band, nx, ny)``, or a generator so that only one plane is in memory.
    info : HeaderInfo
        Its geometry is that of the planes.
    bands : sequence of Band
        One for each plane.
    beams : sequence of Beam or None
        One for each plane, None for a blank one; or none at all.
    overwrite : bool
        Whether a file that exists is replaced.
    """
    _write(path, planes, info, bands, beams or [None] * len(bands), overwrite)


def read_image(path: str | Path) -> tuple[Real, fits.Header]:
    """Read the first image of a file.

    Returns
    -------
    image : (nx, ny) or (band, nx, ny) float
        Axes of length one other than the sky's are dropped; blank pixels are NaN.
    header : astropy.io.fits.Header
        Its header.

    Raises
    ------
    InputError
        If the file is missing or holds no such image.
    """
    data, header = first_image(path)
    planes = [n for n in data.shape[:-2] if n > 1]
    if len(planes) > 1:
        raise InputError(
            f"{path} has axes of lengths {data.shape[::-1]} but an image or a cube has three at most; select some of them"
        )
    image = data.reshape(*planes, *data.shape[-2:]).swapaxes(-1, -2)
    return np.ascontiguousarray(image, dtype=image.dtype.newbyteorder("=") if image.dtype.kind == "f" else "f8"), header


def first_image(path: str | Path) -> tuple[NDArray[Any], fits.Header]:
    """Return the pixels of the first image of a file, as FITS orders them, and its header; raises as `read_image` does."""
    try:
        with fits.open(path, memmap=False) as hdus:
            found = [(hdu.data, hdu.header) for hdu in hdus if hdu.is_image and hdu.header["NAXIS"] >= 2][:1]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} cannot be read as FITS ({error}); give the name of a FITS image") from error
    if not found:
        raise InputError(f"{path} holds no image; give the name of a FITS image")
    return found[0]


def sky_wcs(geometry: Geometry) -> WCS:
    """Return the two celestial axes of a pixel grid."""
    header = fits.Header()
    for axis, cards in enumerate(_sky_axes(geometry), 1):
        _set_axis(header, axis, cards)
    header.update(_frame(geometry))
    return celestial(header)


def celestial(header: fits.Header) -> WCS:
    """Return the coordinates of the first two axes of a header."""
    with warnings.catch_warnings():
        # It reports keywords that it repaired, for instance dates.
        warnings.simplefilter("ignore", FITSFixedWarning)
        return WCS(header).sub([1, 2])


def offset(mask: WCS, geometry: Geometry) -> float:
    """Largest distance in pixels between where a mask and the image put the same place on the sky."""
    if not mask.has_celestial:
        return 0.0
    x, y = np.meshgrid(*(np.array([0, n // 2, n - 1], "f8") for n in geometry.shape), indexing="ij")
    pixels = np.stack([x.ravel(), y.ravel()], axis=1)
    world = sky_wcs(geometry).wcs_pix2world(pixels, 0)
    # The corners of a large image may lie beyond the horizon.
    visible = np.isfinite(world).all(axis=1)
    return float(np.abs(mask.wcs_world2pix(world[visible], 0) - pixels[visible]).max())


def _write(
    path: str | Path,
    planes: Iterable[Real],
    info: HeaderInfo,
    bands: Sequence[Band],
    beams: Sequence[Beam | None],
    overwrite: bool,
) -> None:
    if not len(beams) == len(bands) > 0:
        raise ShapeError(f"{path} was given {len(bands)} bands and {len(beams)} beams; it needs one of each for every plane")
    beams = _without_gaps(beams)
    header = _header(info, bands, beams)
    with staged(path, overwrite) as temporary:
        hdu = fits.StreamingHDU(temporary, header)
        try:
            count = 0
            for count, plane in enumerate(planes, 1):
                if np.shape(plane) != info.geometry.shape or count > len(bands):
                    raise ShapeError(
                        f"plane {count} of {path} has shape {np.shape(plane)} but {len(bands)} planes "
                        f"of {info.geometry.shape} are needed; give the geometry of the image"
                    )
                hdu.write(np.ascontiguousarray(plane.T, dtype="f4"))
        finally:
            hdu.close()
        if count < len(bands):
            raise ShapeError(f"{path} got {count} planes but has {len(bands)} bands; give one plane for each")
        tables = _tables(bands, beams)
        if tables:
            with fits.open(temporary, mode="append") as hdus:
                hdus.extend(tables)


def _header(info: HeaderInfo, bands: Sequence[Band], beams: Sequence[Beam]) -> fits.Header:
    geometry = info.geometry
    if info.unit not in UNITS:
        raise InputError(f"the unit {info.unit!r} is unknown; choose {' or '.join(filter(None, UNITS))}")
    header = fits.Header()
    header["SIMPLE"] = True
    header["BITPIX"] = -32
    header["NAXIS"] = 4
    for axis, n in enumerate((geometry.nx, geometry.ny, len(bands), 1), 1):
        header[f"NAXIS{axis}"] = n
    header["EXTEND"] = True
    header["BUNIT"] = info.unit
    header["BTYPE"] = info.kind
    frequency = _frequency_axis(bands)
    stokes: dict[str, str | float] = dict(CTYPE="STOKES", CRPIX=1.0, CRVAL=float(info.stokes), CDELT=1.0, CUNIT="")
    for axis, cards in enumerate((*_sky_axes(geometry), frequency, stokes), 1):
        _set_axis(header, axis, cards)
    header.update(_frame(geometry))
    header["SPECSYS"] = "TOPOCENT"
    header["RESTFRQ"] = frequency["CRVAL"], "Hz"
    header.update(_beam_cards(beams))
    header.update(_observation_cards(info.observation))
    header["ORIGIN"] = f"pfb {__version__}"
    if len(bands) > 1:
        header.add_comment("Axis 3 is a linear fit; exact frequencies are in extension BANDS.")
    for line in info.history:
        header.add_history(_ascii(line))
    return header


def _set_axis(header: fits.Header, axis: int, cards: dict[str, str | float]) -> None:
    for name, value in cards.items():
        if value != "":
            header[f"{name}{axis}"] = value


def _sky_axes(geometry: Geometry) -> tuple[dict[str, str | float], dict[str, str | float]]:
    # Modulo twice: a tiny negative angle gives exactly 360 the first time.
    ra, dec, cell = np.degrees(geometry.ra) % 360 % 360, np.degrees(geometry.dec), np.degrees(geometry.cell)
    return (
        dict(CTYPE="RA---SIN", CRPIX=1.0 + geometry.nx // 2, CRVAL=float(ra), CDELT=-float(cell), CUNIT="deg"),
        dict(CTYPE="DEC--SIN", CRPIX=1.0 + geometry.ny // 2, CRVAL=float(dec), CDELT=float(cell), CUNIT="deg"),
    )


def _frame(geometry: Geometry) -> dict[str, str | float]:
    if geometry.frame not in EQUINOX:
        raise InputError(f"the frame {geometry.frame!r} is unknown; it must be one of {', '.join(EQUINOX)}")
    equinox = EQUINOX[geometry.frame]
    # Written also where it is the default, because at the pole the default is another one.
    cards: dict[str, str | float] = dict(LONPOLE=180.0, LATPOLE=float(np.degrees(geometry.dec)), RADESYS=geometry.frame)
    return cards if equinox is None else cards | dict(EQUINOX=equinox)


def _frequency_axis(bands: Sequence[Band]) -> dict[str, str | float]:
    freq = np.array([band.freq if np.isfinite(band.freq) else (band.freq_min + band.freq_max) / 2 for band in bands])
    reference = len(bands) // 2
    if len(bands) > 1:
        step, value = np.polyfit(np.arange(len(bands)) - reference, freq, 1)
    else:
        # An axis without a step cannot be inverted, and readers refuse it.
        step, value = (bands[0].freq_max - bands[0].freq_min) or 1.0, freq[0]
    return dict(CTYPE="FREQ", CRPIX=1.0 + reference, CRVAL=float(value), CDELT=float(step), CUNIT="Hz")


def _without_gaps(beams: Sequence[Beam | None]) -> list[Beam]:
    """Give every plane a beam, a blank one that of the nearest: CASA refuses a table with NaN or zero. Empty if none has one."""
    known = [plane for plane, beam in enumerate(beams) if beam is not None]
    nearest = [min(known, key=lambda other: abs(other - plane)) for plane in range(len(beams)) if known]
    return [beam for plane in nearest if (beam := beams[plane]) is not None]


def _beam_cards(beams: Sequence[Beam]) -> Mapping[str, tuple[float | bool, str]]:
    if not beams:
        return {}
    # For readers that do not know the table, the beam of the frequency axis's reference plane.
    reference = len(beams) // 2
    major, minor, pa = (float(value) for value in np.degrees(beams[reference]))
    cards = dict(BMAJ=(major, "deg"), BMIN=(minor, "deg"), BPA=(pa, "deg, North through East"))
    if len(set(beams)) == 1:
        return cards
    return cards | dict(CASAMBM=(True, f"BMAJ is of plane {reference + 1}, all are in BEAMS"))


def _observation_cards(observation: Observation) -> dict[str, str | float]:
    names = dict(TELESCOP=observation.telescope, OBJECT=observation.object, OBSERVER=observation.observer)
    cards: dict[str, str | float] = {name: _ascii(text) for name, text in names.items() if text}
    if observation.start > 0:
        # astropy.time would look up leap seconds, over the network if its list is old.
        start = MJD_EPOCH + timedelta(seconds=observation.start)
        cards |= {"TIMESYS": "UTC", "DATE-OBS": start.isoformat(timespec="milliseconds"), "MJD-OBS": observation.start / 86400}
    return cards


def _tables(bands: Sequence[Band], beams: Sequence[Beam]) -> list[fits.BinTableHDU]:
    if len(bands) == 1:
        return []
    plane = np.arange(len(bands), dtype="i4")
    tables = []
    if len(set(beams)) > 1:
        major, minor, pa = np.degrees(beams).T
        columns = [
            fits.Column("BMAJ", "1E", unit="arcsec", array=major * 3600),
            fits.Column("BMIN", "1E", unit="arcsec", array=minor * 3600),
            fits.Column("BPA", "1E", unit="deg", array=pa),
            fits.Column("CHAN", "1J", array=plane),
            fits.Column("POL", "1J", array=np.zeros_like(plane)),
        ]
        header = fits.Header(dict(NCHAN=len(bands), NPOL=1))
        tables.append(fits.BinTableHDU.from_columns(columns, header, name="BEAMS", ver=1))
    columns = [fits.Column("CHAN", "1J", array=plane)]
    for name in ("freq", "freq_min", "freq_max"):
        columns.append(fits.Column(name.upper(), "1D", unit="Hz", array=np.array([getattr(band, name) for band in bands])))
    tables.append(fits.BinTableHDU.from_columns(columns, name="BANDS", ver=1))
    return tables


def _ascii(text: str) -> str:
    return "".join(character if " " <= character <= "~" else "?" for character in text)
