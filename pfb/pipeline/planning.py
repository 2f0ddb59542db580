"""From options and the selected data to an image grid, to bands, and to what each band reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pfb.config import Clean, Image, PrimaryBeam
from pfb.errors import InputError
from pfb.io.feed_angles import require_feed_angles
from pfb.io.measurement_set import SelectedData, Window, pieces
from pfb.kernels.gridding import good_even
from pfb.kernels.stokes import PRODUCTS, available, require
from pfb.operators.wavelets import Dictionary
from pfb.pipeline.averaging import averaged, averaging_of, fraction_left, smearing
from pfb.pipeline.loading import Loader
from pfb.pipeline.primary_beam import BeamModel, choose
from pfb.types import LIGHTSPEED, Band, Geometry, Plane, Real

DEFAULT_NBAND = 4
DIGITS = 3
"""Significant digits of a default pixel size, in arcseconds."""
LARGEST_DEFAULT = 16384
"""Pixels along an axis above which the default field of view is refused: it needs a decision, not a default."""


@dataclass(frozen=True)
class Plan:
    """What is going to be imaged."""

    geometry: Geometry
    psf_shape: tuple[int, int]
    bands: tuple[Band, ...]
    windows: tuple[tuple[Window, ...], ...]
    """``[band][part]``: the windows that a band has channels of."""
    channels: tuple[tuple[slice, ...], ...]
    """``[band][part]``: which of their channels these are."""
    loaders: tuple[tuple[tuple[Loader, ...], ...], ...]
    """``[band][part][piece]``."""
    warnings: tuple[str, ...]
    longest: float
    """The longest baseline in wavelengths, at the highest frequency."""
    left: tuple[tuple[float, ...], ...] = ()
    """``[band][part]``: samples that averaging leaves of one; empty if there is none."""
    products: str = "I"
    """The Stokes products, in the order that was asked for."""
    beam: BeamModel | None = None
    """The primary beam, if there shall be one."""
    streamed: bool = False
    """Samples are read from disk whenever they are needed."""

    @property
    def planes(self) -> tuple[Plane, ...]:
        """Every image of the run: those of a band together, since they share its samples."""
        return tuple(Plane(s, band) for band in range(len(self.bands)) for s in range(len(self.products)))

    def name(self, plane: Plane) -> str:
        """Return what users are told of a plane: its band, and its product if that is not I alone."""
        stokes = "" if self.products == "I" else f" of Stokes {self.products[plane.stokes]}"
        return f"band {plane.band}{stokes}"


def make(data: SelectedData, config: Image) -> Plan:
    """Plan the images of the selected data.

    Raises
    ------
    InputError
        If the options of the image grid or of the bands contradict each other or the data, or the data do not give
        one of the Stokes products.
    """
    products = parse_products(config.stokes)
    lacking = _lacking(data.windows, products, config.feed_angle)
    geometry, warnings = image_geometry(data, config)
    oversized = [good_even(math.ceil(config.psf_oversize * n)) for n in geometry.shape]
    # Neither the order of the sets nor that of windows in them: sums over the windows of a band are to round the same way.
    ordered = tuple(sorted(data.windows, key=lambda w: (float(w.freq[0]), w.path, w.data_desc_id)))
    slices = band_channels(ordered, config.nband)
    bands, windows, chosen, loaders = [], [], [], []
    for index, channels in enumerate(slices):
        parts = [(w, s) for w, s in zip(ordered, channels, strict=True) if s.stop > s.start]
        low = min(float((w.freq - w.width / 2)[s].min()) for w, s in parts)
        high = max(float((w.freq + w.width / 2)[s].max()) for w, s in parts)
        centre = float(np.concatenate([w.freq[s] for w, s in parts]).mean())
        bands.append(Band(index=index, freq_min=low, freq_max=high, freq=centre))
        windows.append(tuple(w for w, _ in parts))
        chosen.append(tuple(s for _, s in parts))
        loaders.append(tuple(_loaders(w, s, i, config, geometry) for i, (w, s) in enumerate(parts)))
    size = oversized[0], oversized[1]
    left = tuple(tuple(map(fraction_left, own)) for own in loaders)
    warnings += _smeared([own[0] for band in loaders for own in band], config, geometry, data.longest_baseline_wavelengths)
    return Plan(
        geometry, size, tuple(bands), tuple(windows), tuple(chosen), tuple(loaders), (*warnings, *lacking),
        data.longest_baseline_wavelengths, left, products,
        choose(config, geometry, data.observation, bands) if isinstance(config, PrimaryBeam) else None,
    )  # fmt: skip


def _smeared(loaders: Sequence[Loader], config: Image, geometry: Geometry, longest: float) -> list[str]:
    kept = smearing(loaders, geometry, longest)
    if kept >= config.decorrelation:
        return []
    return [
        f"averaging leaves {100 * kept:.3g}% of a source in the corner of the image on the longest baseline, less than the "
        f"--decorrelation of {100 * config.decorrelation:.3g}%: average less, or by --bda"
    ]


def _loaders(window: Window, channels: slice, number: int, config: Image, geometry: Geometry) -> tuple[Loader, ...]:
    freq = np.ascontiguousarray(window.freq[channels])
    found = [
        Loader(
            piece=piece, channels=channels, freq=freq, correlations=window.correlations,
            products=parse_products(config.stokes), rule=config.stokes_weight,
            feed_angle=config.feed_angle if {"Q", "U"} & set(config.stokes.upper()) else "none",
            centre=(geometry.ra, geometry.dec), window=number,
        )
        for piece in pieces(window)
    ]  # fmt: skip
    averaging = averaging_of(config, geometry, window, freq)
    return tuple(found) if averaging is None else averaged(found[0], window, *averaging)


def parse_products(text: str) -> str:
    """Read which Stokes products are asked for, such as ``IQUV``; raises `InputError` for anything else."""
    products = text.replace(",", "").upper()
    if not products or set(products) - set(PRODUCTS) or len(set(products)) < len(products):
        raise InputError(f"--stokes: cannot read {text!r} as Stokes products; write those of I, Q, U, V that you want, e.g. IQUV")
    return products


def _lacking(windows: Iterable[Window], products: str, feed_angle: str) -> list[str]:
    """Say of which windows a product cannot be made; raises `InputError` if it cannot be made of any."""
    sentences = []
    turned = feed_angle != "none" and bool({"Q", "U"} & set(products))
    for window in windows if turned else ():
        require_feed_angles(window, feed_angle)
    for product in products:
        require(product, [w.correlations for w in windows], turned)
        without = [w for w in windows if not available(product, w.correlations, turned)]
        for path in dict.fromkeys(w.path for w in without):
            names = ", ".join(str(w.spw) for w in without if w.path == path)
            sentences.append(f"{path}: the correlations of spectral window {names} give no Stokes {product}, which lacks it")
    return sentences


def band_channels(windows: tuple[Window, ...], nband: int | None) -> list[list[slice]]:
    """Divide the channels of all windows into bands of equal bandwidth.

    Parameters
    ----------
    windows : tuple of Window
        Their channels ascend.
    nband : int, optional
        Bands; by default 4, or the number of channels if there are fewer.

    Returns
    -------
    list of list of slice
        For every band the channels of every window, possibly none.

    Raises
    ------
    InputError
        If there are more bands than channels.
    """
    freq, first = np.unique(np.concatenate([w.freq for w in windows]), return_index=True)
    width = np.concatenate([w.width for w in windows])[first]
    if nband is None:
        nband = min(DEFAULT_NBAND, freq.size)
    if nband > freq.size:
        raise InputError(
            f"--nband is {nband} but the selection has {freq.size} channel{'s' * (freq.size > 1)}: "
            f"use at most {freq.size} band{'s' * (freq.size > 1)}"
        )
    middle = (np.cumsum(width) - width / 2) / width.sum()
    band = np.minimum((middle * nband).astype(int), nband - 1)
    if len(set(band.tolist())) < nband:  # very unequal channels: equal numbers of them instead
        band = np.arange(freq.size) * nband // freq.size
    edges = [(freq[band == i].min(), freq[band == i].max()) for i in range(nband)]
    return [
        [slice(int(np.searchsorted(w.freq, low)), int(np.searchsorted(w.freq, high, side="right"))) for w in windows]
        for low, high in edges
    ]


def dictionary_of(config: Clean, shape: tuple[int, int]) -> Dictionary:
    """Return the bases that the options name, for images of `shape`."""
    return Dictionary(shape, tuple(name.strip() for name in config.bases.split(",")), config.nlevels, precision_of(config))


def precision_of(config: Clean) -> type[np.floating[Any]]:
    """Return the type of the numbers of images while minimising."""
    return np.float32 if config.precision == "single" else np.float64


def image_geometry(data: SelectedData, config: Image) -> tuple[Geometry, list[str]]:
    """Choose pixel and image size; returns the geometry and sentences of warning.

    Raises
    ------
    InputError
        If size, cell and field of view make no image.
    """
    longest = data.longest_baseline_wavelengths
    if longest <= 0:
        raise InputError("UVW is zero in all selected rows, so there is nothing to resolve: compute the baselines of the set")
    nyquist = nyquist_cell(longest)
    cell = default_cell(longest, config.super_resolution) if config.cell is None else _radians(config.cell)
    warnings = []
    if cell > nyquist:
        warnings.append(
            f"--cell {_arcsec(cell):.4g} arcsec is larger than the {_arcsec(nyquist):.4g} arcsec that the longest baseline "
            f"of {longest:.4g} wavelengths needs: detail is lost"
        )
    nx, ny = _size(data, config, cell)
    if np.hypot(nx, ny) * cell / 2 >= 1:
        raise InputError(
            f"{nx} x {ny} pixels of {_arcsec(cell):.4g} arcsec reach beyond the horizon of the projection: "
            "give a smaller --npix, --cell or --fov"
        )
    return Geometry(nx=nx, ny=ny, cell=cell, ra=data.ra, dec=data.dec, frame=data.frame), warnings


def nyquist_cell(longest: float) -> float:
    """Return the largest pixel in radians that samples a baseline of so many wavelengths twice per fringe."""
    return 1 / (2 * longest)


def default_cell(longest: float, super_resolution: float) -> float:
    """Return Nyquist's pixel over `super_resolution` in radians: three digits in arcsec, rounded down, for the user to read."""
    arcsec = _arcsec(nyquist_cell(longest) / super_resolution)
    exponent = math.floor(math.log10(arcsec)) + 1 - DIGITS
    # Through the decimal text, so that who types what is shown has the very same pixels.
    return _radians(float(f"{math.floor(arcsec / 10.0**exponent)}e{exponent}"))


def first_null_width(freq: Real, dish_diameter: float) -> float:
    """Return the width in radians between the first nulls of the primary beam, 2.44 lambda / D, in the middle of the band."""
    return 2.44 * LIGHTSPEED / float(freq.min() + freq.max()) * 2 / dish_diameter


def default_npix(fov: float, cell: float) -> int:
    """Return how many pixels span a field, both in radians: an even number that is good for Fourier transforms."""
    return good_even(math.ceil(round(fov / cell, 6)))  # 100.0000000001 pixels are 100


def _size(data: SelectedData, config: Image, cell: float) -> tuple[int, int]:
    if config.npix is not None:
        if config.fov is not None:
            raise InputError(f"--npix {config.npix} and --fov {config.fov} both set the image size: give one of them")
        return parse_npix(config.npix)
    if config.fov is not None:
        fov = math.radians(config.fov)
        if fov < cell:
            raise InputError(f"--fov {config.fov} degrees is less than a pixel of {_arcsec(cell):.4g} arcsec: give a larger one")
        n = default_npix(fov, cell)
    elif data.dish_diameter > 0:
        fov = first_null_width(np.concatenate([w.freq for w in data.windows]), data.dish_diameter)
        n = default_npix(fov, cell)
        if n > LARGEST_DEFAULT:
            raise InputError(
                f"the primary beam is {math.degrees(fov):.3g} degrees wide, {n} pixels of {_arcsec(cell):.4g} arcsec: "
                "choose the part to image with --npix or --fov, or larger pixels with --cell"
            )
    else:
        raise InputError("the set does not say how large its dishes are, so the image size is unknown: give --npix or --fov")
    return n, n


def parse_npix(text: str) -> tuple[int, int]:
    """Read ``NX[,NY]``; raises `InputError` for anything else."""
    words = text.split(",")
    try:
        sizes = [int(word) for word in words]
    except ValueError:
        sizes = []
    if len(sizes) not in (1, 2) or min(sizes, default=0) < 1:
        raise InputError(f"--npix: cannot read {text!r} as a size; write one or two positive numbers, e.g. 1024 or 1024,800")
    return sizes[0], sizes[-1]


def _arcsec(angle: float) -> float:
    return math.degrees(angle) * 3600


def _radians(arcsec: float) -> float:
    return math.radians(arcsec / 3600)
