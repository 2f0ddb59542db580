"""Models that are images in Jy per pixel: those of a dataset, and FITS images and cubes of any program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from astropy.io import fits
from astropy.units import Unit
from astropy.wcs import WCS

from pfb.errors import InputError, ShapeError
from pfb.io import dataset as store
from pfb.io.apparent import apparent_model
from pfb.io.fits import celestial, sky_wcs
from pfb.types import Beam, Observation, Real
from pfb.types import Plane as StoredPlane

UNITS = ("jy/pixel", "jy/pix", "jy pixel-1", "jy pix-1", "jy.pixel-1")
BRIGHTNESS = ("jy/beam", "jy beam-1", "jy.beam-1", "beam-1 jy")
"""How files spell the units of models, and of restored images."""


class Plane(NamedTuple):
    """Where the image of one band is."""

    path: str
    place: tuple[int, ...]
    """Numbers of product and band in a dataset, or what to index the axes of a FITS image with beside those of the sky."""


@dataclass(frozen=True, kw_only=True)
class ModelImage:
    """A model that is still on disk: one image for each band, all on one grid. It is small, so that it may travel."""

    planes: tuple[Plane, ...]
    shape: tuple[int, int]
    """(nx, ny)."""
    header: str
    """Celestial axes, as the text of a FITS header."""
    freq: tuple[float, ...]
    """Frequency of every band in Hz; 0 if the file names none."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Edges of every band in Hz."""
    weight: tuple[float, ...]
    """Weight of every band; 0 for one without data."""
    frame: str
    """``ICRS``, ``FK5``, ``FK4``, or nothing if the file does not say."""
    others: tuple[tuple[str, tuple[Plane, ...]], ...] = ()
    """The same bands of Q, U and V, of those that there are."""

    @property
    def name(self) -> str:
        """The first file."""
        return self.planes[0].path

    def wcs(self) -> WCS:
        """Return the celestial axes."""
        return celestial(fits.Header.fromstring(self.header))


class Place(NamedTuple):
    """Where a SIN image with its north up and square pixels lies."""

    ra: float
    """Right ascension of the point where it touches the sphere, in radians."""
    dec: float
    """Declination of that point in radians."""
    cell: float
    """Pixel size in radians."""
    centre: tuple[float, float]
    """Direction cosines of pixel (nx // 2, ny // 2) in radians."""


def open_model(paths: Sequence[str], units: Sequence[str] = UNITS) -> ModelImage:
    """Open a dataset, a FITS image or cube in Jy/pixel, or several of these whose bands make up one model.

    Parameters
    ----------
    paths : sequence of str
        A ``PREFIX.zarr`` of `pfb clean`, or FITS files.
    units : sequence of str
        What BUNIT may be, in lower case: `BRIGHTNESS` for restored images instead of models.

    Raises
    ------
    InputError
        If one cannot be read, has another unit or no Stokes I, or they are not on one grid.
    """
    parts = [_dataset(path) if _is_dataset(path) else _fits(path, units) for path in paths]
    first = parts[0]
    for part in parts[1:]:
        if part.shape != first.shape:
            raise ShapeError(f"{part.name} has shape {part.shape} but {first.name} {first.shape}; give images of one grid")
        if not np.allclose(_corners(part), _corners(first), rtol=0, atol=1e-3 * _pixel_degrees(first)):
            raise InputError(f"{part.name} and {first.name} lie at different places on the sky; give images of one grid")
    names = ("planes", "freq", "low", "high", "weight")
    chained: dict[str, Any] = {name: tuple(value for part in parts for value in getattr(part, name)) for name in names}
    # Of images of different bands only what all of them have.
    common = [letter for letter, _ in first.others if all(letter in dict(part.others) for part in parts)]
    chained["others"] = tuple((letter, tuple(p for part in parts for p in dict(part.others)[letter])) for letter in common)
    if len(chained["freq"]) > 1 and not all(chained["freq"]):
        raise InputError(f"{first.name} and others do not say their frequencies; add a FREQ axis to their headers")
    if not any(chained["weight"]):
        raise InputError(f"the model {first.name} is blank in all bands; give another")
    return replace(first, **chained)


def read_plane(model: ModelImage, band: int, blank: float = 0.0, product: str = "I") -> Real:
    """Read the (nx, ny) float64 image of a band; blank pixels, which are not finite, become `blank`."""
    path, at = (model.planes if product == "I" else dict(model.others)[product])[band]
    if _is_dataset(path):
        image = apparent_model(path, StoredPlane(*at))
    else:
        with fits.open(path, memmap=True) as hdus:
            # One plane only is read.
            image = _image_hdu(path, hdus).section[(*at, slice(None), slice(None))].T
    return np.nan_to_num(np.asarray(image, np.float64), nan=blank, posinf=blank, neginf=blank)


def read_beams(model: ModelImage) -> list[Beam | None]:
    """Return the beam of every band of FITS images: from the table BEAMS, or from BMAJ, BMIN and BPA; None for one without."""
    beams = []
    for path, at in model.planes:
        with fits.open(path, memmap=True) as hdus:
            hdu = _image_hdu(path, hdus)
            table = hdus["BEAMS"] if "BEAMS" in hdus else None
            if table is None:
                values = [float(hdu.header.get(name, np.nan)) for name in ("BMAJ", "BMIN", "BPA")]
            else:
                # Columns may be in degrees or arcsec, and say so.
                row, units = table.data[max(at)], {column.name: column.unit or "arcsec" for column in table.columns}
                values = [float((row[name] * Unit(units[name])).to_value("deg")) for name in ("BMAJ", "BMIN", "BPA")]
        sound = np.isfinite(values).all() and min(values[:2]) > 0
        beams.append(Beam(*np.deg2rad(values).tolist()) if sound else None)
    return beams


def read_observation(model: ModelImage) -> Observation:
    """Return what the header of the first file says of who observed what."""
    with fits.open(model.name, memmap=True) as hdus:
        header = _image_hdu(model.name, hdus).header
    start = float(header.get("MJD-OBS", 0.0)) * 86400
    telescope, target, observer = (str(header.get(card, "")).strip() for card in ("TELESCOP", "OBJECT", "OBSERVER"))
    return Observation(telescope=telescope, object=target, observer=observer, start=start)


def place(model: ModelImage) -> Place:
    """Say where a model lies, if it can be predicted as it is.

    Raises
    ------
    InputError
        If its projection is not SIN, its pixels are not square, or north is not up.
    """
    header = fits.Header.fromstring(model.header)
    wcs = celestial(header)
    kinds = [kind[-3:] for kind in wcs.wcs.ctype]
    matrix = wcs.pixel_scale_matrix
    cell = float(matrix[1, 1])
    square = np.allclose(matrix, [[-cell, 0], [0, cell]], rtol=0, atol=1e-9 * abs(cell)) and cell > 0
    # For a cylinder or a zenithal projection with the pole elsewhere 180 is not north up.
    upright = np.isclose(wcs.wcs.lonpole, 180.0) and not any(value for *_, value in wcs.wcs.get_pv())
    if kinds != ["SIN", "SIN"] or not square or not upright:
        raise InputError(
            f"{model.name} is no SIN projection with square pixels and its north up, which prediction needs; "
            "bring it to one with pfb regrid"
        )
    radians = float(np.deg2rad(cell))
    offset = [n // 2 - (crpix - 1) for n, crpix in zip(model.shape, wcs.wcs.crpix, strict=True)]
    ra, dec = np.deg2rad(wcs.wcs.crval)
    return Place(float(ra % (2 * np.pi)), float(dec), radians, (-offset[0] * radians, offset[1] * radians))


def _is_dataset(path: str) -> bool:
    return Path(path).is_dir()


def _dataset(path: str) -> ModelImage:
    ds = store.open_dataset(path, needs="clean")
    geometry, bands, stokes = store.geometry(ds), store.bands(ds), store.place_of_i(path, ds)
    return ModelImage(
        planes=tuple(Plane(path, (stokes, band.index)) for band in bands),
        shape=geometry.shape,
        header=sky_wcs(geometry).to_header_string(),
        freq=tuple(band.freq for band in bands),
        low=tuple(band.freq_min for band in bands),
        high=tuple(band.freq_max for band in bands),
        weight=tuple(ds["wsum"].values[stokes].tolist()),
        frame=geometry.frame,
        others=tuple(
            (letter, tuple(Plane(path, (i, band.index)) for band in bands))
            for i, letter in enumerate(store.products(ds))
            if letter != "I"
        ),
    )


def _fits(path: str, units: Sequence[str]) -> ModelImage:
    try:
        with fits.open(path, memmap=True) as hdus:
            hdu = _image_hdu(path, hdus)
            header, shape = hdu.header, hdu.shape
            table = hdus["BANDS"].data if "BANDS" in hdus else None
            bands = {} if table is None else {name: table[name].tolist() for name in ("FREQ", "FREQ_MIN", "FREQ_MAX")}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"the model {path} cannot be read as FITS ({error}); give an image in Jy/pixel") from error
    unit = str(header.get("BUNIT", "")).strip()
    if unit.lower() not in units:
        wanted = "a model is in Jy/pixel; give a model" if units is UNITS else "a restored image is in Jy/beam; give one"
        raise InputError(f"{path} is in {unit or 'no unit'} but {wanted}, or set BUNIT if it is one")
    names = [str(header.get(f"CTYPE{axis}", "")) for axis in range(len(shape), 2, -1)]
    spectral = next((i for i, name in enumerate(names) if name.startswith("FREQ")), None)
    products = next((_products(path, header, len(shape) - i) for i, name in enumerate(names) if name == "STOKES"), {"I": 0})
    if long := [n for i, n in enumerate(shape[:-2]) if n > 1 and i != spectral and names[i] != "STOKES"]:
        raise InputError(f"{path} has an axis of length {long[0]} that is no FREQ and no STOKES; give an image or a cube")
    nband = 1 if spectral is None else shape[spectral]
    freq, low, high = _frequencies(header, nband, None if spectral is None else len(shape) - spectral, bands)
    places = {
        letter: tuple(
            Plane(path, tuple(band if i == spectral else at if name == "STOKES" else 0 for i, name in enumerate(names)))
            for band in range(nband)
        )
        for letter, at in products.items()
    }
    planes = places.pop("I")
    weight = float(header.get("WSCIMGWG", 1.0))
    blank = [_blank(path, plane) for plane in planes]
    return ModelImage(
        planes=planes, shape=(shape[-1], shape[-2]), header=celestial(header).to_header_string(), freq=freq, low=low, high=high,
        weight=tuple(0.0 if empty else weight for empty in blank), frame=_frame(header), others=tuple(places.items()),
    )  # fmt: skip


def _image_hdu(path: str, hdus: fits.HDUList) -> Any:
    found = [hdu for hdu in hdus if hdu.is_image and hdu.header["NAXIS"] >= 2]
    if not found:
        raise InputError(f"{path} holds no image; give an image in Jy/pixel")
    return found[0]


def _blank(path: str, plane: Plane) -> bool:
    with fits.open(path, memmap=True) as hdus:
        return not np.isfinite(_image_hdu(path, hdus).section[(*plane.place, slice(None), slice(None))]).any()


def _products(path: str, header: fits.Header, axis: int) -> dict[str, int]:
    """Return the places of I, which must be there, Q, U and V on their axis."""
    first, step, reference = (float(header.get(f"{name}{axis}", 1.0)) for name in ("CRVAL", "CDELT", "CRPIX"))
    places = {letter: round((value - first) / (step or 1.0) + reference - 1) for value, letter in enumerate("IQUV", 1)}
    found = {letter: at for letter, at in places.items() if 0 <= at < header[f"NAXIS{axis}"]}
    if "I" not in found:
        raise InputError(f"{path} has no Stokes I; give a model that has")
    return found


def _frequencies(
    header: fits.Header, nband: int, axis: int | None, bands: dict[str, list[float]]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Frequencies and edges of the bands: from the table that pfb writes, else from the axis."""
    if len(bands.get("FREQ", [])) == nband:
        return tuple(bands["FREQ"]), tuple(bands["FREQ_MIN"]), tuple(bands["FREQ_MAX"])
    if axis is None:
        freq = float(header.get("RESTFRQ", header.get("RESTFREQ", 0.0)))
        return (freq,), (freq,), (freq,)
    value, step, reference = (float(header.get(f"{name}{axis}", float(name == "CRPIX"))) for name in ("CRVAL", "CDELT", "CRPIX"))
    freq_ = value + (np.arange(nband) + 1 - reference) * step
    half = abs(step) / 2
    return tuple(freq_.tolist()), tuple((freq_ - half).tolist()), tuple((freq_ + half).tolist())


def _frame(header: fits.Header) -> str:
    if "RADESYS" in header:
        return str(header["RADESYS"]).strip().upper()
    # Programs that write no RADESYS mean the frame of their data.
    return "FK4" if float(header.get("EQUINOX", header.get("EPOCH", 2000.0))) == 1950.0 else ""


def _corners(model: ModelImage) -> Real:
    nx, ny = model.shape
    at: Real = np.asarray(model.wcs().wcs_pix2world([[0, 0], [nx // 2, ny // 2], [nx - 1, 0], [0, ny - 1]], 0))
    return at


def _pixel_degrees(model: ModelImage) -> float:
    return float(np.sqrt(abs(np.linalg.det(model.wcs().pixel_scale_matrix))))
