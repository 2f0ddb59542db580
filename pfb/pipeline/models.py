"""Models of the sky from whatever holds them, as what tasks predict visibilities from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pfb.errors import InputError
from pfb.io.component_list import is_component_list, read_components
from pfb.io.description import Field
from pfb.io.feed_angles import feed_angles
from pfb.io.fits import sky_wcs
from pfb.io.frames import convert_axes
from pfb.io.measurement_set import pieces as reading_pieces
from pfb.io.model_column import Piece, read_uvw
from pfb.io.model_image import ModelImage, Place, open_model, place, read_plane
from pfb.io.regions import inside, read_regions
from pfb.io.sky import Component, read_sky
from pfb.kernels.phase_centre import axes
from pfb.kernels.spectra import SpectralBasis, linear, nearest_band, polynomial
from pfb.operators.prediction import ComponentPredictor, ImagePredictor, PlacedImage, correlate, cropped
from pfb.types import Complex, Geometry, Real

TABLES = (".ecsv", ".yaml", ".yml")
"""What the names of skies end in that `pfb simulate` takes, too."""


@dataclass(frozen=True)
class Cut:
    """What of a model is used: what lies in regions, or outside them; everything without."""

    regions: str | None = None
    outside: bool = False


@dataclass(frozen=True)
class Spectrum:
    """How images of bands become images of channels."""

    kind: str
    """``band``, ``linear`` or ``polynomial``."""
    terms: int

    def basis(self, model: ModelImage, freq: Real) -> SpectralBasis:
        """Return the basis for the (chan,) frequencies in Hz; bands of weight zero take no part."""
        used = [i for i, weight in enumerate(model.weight) if weight > 0]
        centre, low, high = (np.array(values)[used] for values in (model.freq, model.low, model.high))
        if self.kind == "band":
            found = nearest_band(freq, low, high)
        elif self.kind == "linear":
            found = linear(freq, centre)
        else:
            found = polynomial(freq, centre, np.array(model.weight)[used], self.terms)
        mix = np.zeros((len(found.mix), len(model.freq)))
        mix[:, used] = found.mix
        return SpectralBasis(found.design, mix)


class Images:
    """A model that is images of bands.

    Parameters
    ----------
    model : ModelImage
        From `open_model`.
    spectrum : Spectrum
        How they are interpolated over frequency.
    cut : Cut
        What of them is used.

    Raises
    ------
    InputError
        If the images must be regridded first, or have too few bands for the spectrum.
    """

    def __init__(self, model: ModelImage, spectrum: Spectrum, cut: Cut) -> None:
        self.model, self.spectrum, self.cut, self.place = model, spectrum, cut, place(model)
        if cut.regions is not None:
            read_regions(cut.regions)  # refuses here what it would in a task
        self._mix = spectrum.basis(model, np.array(model.freq)).mix

    def loaders(self, frame: str) -> list[Any]:
        """Return callables that load one image each: those of I first, then those of the other products."""
        products = ("I", *(letter for letter, _ in self.model.others))
        rows = [tuple(row.tolist()) for row in self._mix]
        return [partial(load_image, self.model, row, self.place, self.cut, product) for product in products for row in rows]

    def predictor(self, frame: str, options: dict[str, Any], feed_angle: str) -> Any:
        """Return what predicts pieces in a frame: a function of a piece, its field and the images."""
        touching = convert_axes(axes(self.place.ra, self.place.dec), self.model.frame, frame)
        return partial(
            predict_images, ImagePredictor(self.place.cell, touching, **options), self.model, self.spectrum, feed_angle
        )

    @property
    def largest(self) -> int:
        """Pixels of an image."""
        return self.model.shape[0] * self.model.shape[1]

    @property
    def pixels(self) -> int:
        """Pixels of all images."""
        return len(self._mix) * (1 + len(self.model.others)) * self.largest


class Components:
    """A model that is components.

    Parameters
    ----------
    paths : sequence of str
        Component lists, ECSV tables or YAML lists.
    cut : Cut
        What of them is used.
    """

    pixels = largest = 0

    def __init__(self, paths: Sequence[str], cut: Cut) -> None:
        self.paths, self.cut = tuple(paths), cut
        load_components(self.paths, "FK5", cut)  # refuses here what it would in a task

    def loaders(self, frame: str) -> list[Any]:
        """Return a callable that loads all components."""
        return [partial(load_components, self.paths, frame, self.cut)]

    def predictor(self, frame: str, options: dict[str, Any], feed_angle: str) -> Any:
        """Return what predicts pieces: a function of a piece, its field and the components."""
        return partial(predict_components, feed_angle)


def open_any(paths: Sequence[str], spectrum: Spectrum, cut: Cut) -> Images | Components:
    """Open a model: a dataset, FITS images in Jy/pixel, or lists of components.

    Raises
    ------
    InputError
        If it cannot be read, or the paths name models of both kinds.
    """
    lists = [path for path in paths if path.endswith(TABLES) or is_component_list(path)]
    if not lists:
        return Images(open_model(paths), spectrum, cut)
    if len(lists) < len(paths):
        other = next(path for path in paths if path not in lists)
        raise InputError(f"{lists[0]} has components and {other} images; predict one, then --add the other")
    return Components(paths, cut)


def load_image(model: ModelImage, mix: Sequence[float], where: Place, cut: Cut, product: str) -> PlacedImage:
    """Read the bands that make up an image, mixed, and cut out what is used."""
    image = np.zeros(model.shape)
    for band, share in enumerate(mix):
        if share:
            image += share * read_plane(model, band, product=product)
    if cut.regions is not None:
        x, y = np.nonzero(image)
        keep = inside(read_regions(cut.regions), model.wcs(), x, y) ^ cut.outside
        image[x[~keep], y[~keep]] = 0
    return cropped(image, where.centre, where.cell)


class LoadedComponents(NamedTuple):
    """Components, and where they are."""

    components: list[Component]
    predictor: ComponentPredictor


def load_components(paths: Sequence[str], frame: str, cut: Cut) -> LoadedComponents:
    """Read components, whose right ascensions and declinations are in `frame`."""
    found = [c for path in paths for c in (read_sky(path) if path.endswith(TABLES) else read_components(path))]
    if cut.regions is not None:
        found = _chosen(found, frame, cut)
    columns = [(c.ra, c.dec, c.fwhm, c.fwhm if c.minor is None else c.minor, c.pa) for c in found]
    return LoadedComponents(found, ComponentPredictor(*np.array(columns).reshape(-1, 5).T))


def predict_images(
    predictor: ImagePredictor,
    model: ModelImage,
    spectrum: Spectrum,
    feed_angle: str,
    piece: Piece,
    field: Field,
    images: list[PlacedImage],
) -> Complex:
    """Predict the (row, chan, corr) visibilities of a piece from images."""
    freq = piece.window.freq
    design = spectrum.basis(model, freq).design
    uvw, centre = read_uvw(piece), axes(field.ra, field.dec)
    products, number = ("I", *(letter for letter, _ in model.others)), design.shape[1]
    stokes = np.zeros((4 if model.others else 1, len(uvw), len(freq)), np.complex128)
    for i, product in enumerate(products):
        own = images[i * number : (i + 1) * number]
        stokes["IQUV".index(product)] = predictor.predict(uvw, freq, centre, design, own)
    return correlate(_turned(stokes, piece, field, feed_angle), piece.window.correlations)


def predict_components(feed_angle: str, piece: Piece, field: Field, loaded: list[LoadedComponents]) -> Complex:
    """Predict the (row, chan, corr) visibilities of a piece from components."""
    ((components, predictor),) = loaded
    freq = piece.window.freq
    polarised = any(c.Q or c.U or c.V for c in components)
    flux = np.array([c.stokes(freq) for c in components]).reshape(-1, 4, len(freq)).swapaxes(0, 1)
    stokes = predictor.predict(read_uvw(piece), freq, (field.ra, field.dec), np.ascontiguousarray(flux[: 4 if polarised else 1]))
    return correlate(_turned(stokes, piece, field, feed_angle), piece.window.correlations)


def _turned(stokes: Complex, piece: Piece, field: Field, feed_angle: str) -> Complex:
    """Turn Q and U of the sky to the feeds, of (stokes, row, chan) visibilities: Q + iU has their angle, twice, less."""
    if len(stokes) == 1 or feed_angle == "none":
        return stokes
    rows = replace(reading_pieces(piece.window)[0], first=piece.first, last=piece.last)
    angle = feed_angles(rows, (field.ra, field.dec), feed_angle)
    assert angle is not None
    cosine, sine = (function(2 * angle)[:, None] for function in (np.cos, np.sin))
    i, q, u, v = stokes
    return np.stack([i, q * cosine + u * sine, u * cosine - q * sine, v])


def _chosen(components: list[Component], frame: str, cut: Cut) -> list[Component]:
    """Leave the components whose places are chosen."""
    first = components[0]
    wcs = sky_wcs(Geometry(nx=2, ny=2, cell=float(np.deg2rad(1 / 3600)), ra=first.ra, dec=first.dec, frame=frame))
    world = np.rad2deg([(c.ra, c.dec) for c in components])
    x, y = wcs.wcs_world2pix(world, 0).T
    seen = np.isfinite(x) & np.isfinite(y)
    keep = inside(read_regions(str(cut.regions)), wcs, np.where(seen, x, 0), np.where(seen, y, 0)) & seen
    return [c for c, kept in zip(components, keep ^ cut.outside, strict=True) if kept]
