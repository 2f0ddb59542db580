"""From options and the selected data to an image grid, to bands, and to what each band reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from pfb.config import Image
from pfb.errors import InputError
from pfb.io.measurement_set import SelectedData, Window, pieces
from pfb.kernels.gridding import good_even
from pfb.kernels.weighting import LIGHTSPEED
from pfb.pipeline.loading import load
from pfb.types import Band, Geometry, Visibilities

DEFAULT_NBAND = 4
LARGEST_DEFAULT = 16384
"""Pixels along an axis above which the default field of view is refused: it needs a decision, not a default."""

Loader = Callable[[], Visibilities]


@dataclass(frozen=True)
class Plan:
    """What is going to be imaged."""

    geometry: Geometry
    psf_shape: tuple[int, int]
    bands: tuple[Band, ...]
    loaders: tuple[tuple[tuple[Loader, ...], ...], ...]
    """``[band][window][piece]``."""
    warnings: tuple[str, ...]


def make(data: SelectedData, config: Image) -> Plan:
    """Plan the images of the selected data.

    Raises
    ------
    InputError
        If the options of the image grid or of the bands contradict each other or the data.
    """
    geometry, warnings = image_geometry(data, config)
    oversized = [good_even(math.ceil(config.psf_oversize * n)) for n in geometry.shape]
    slices = band_channels(data.windows, config.nband)
    bands, loaders = [], []
    for index, channels in enumerate(slices):
        parts = [(w, s) for w, s in zip(data.windows, channels, strict=True) if s.stop > s.start]
        low = min(float((w.freq - w.width / 2)[s].min()) for w, s in parts)
        high = max(float((w.freq + w.width / 2)[s].max()) for w, s in parts)
        centre = float(np.concatenate([w.freq[s] for w, s in parts]).mean())
        bands.append(Band(index=index, freq_min=low, freq_max=high, freq=centre))
        loaders.append(tuple(_loaders(w, s, config.stokes_weight) for w, s in parts))
    return Plan(geometry, (oversized[0], oversized[1]), tuple(bands), tuple(loaders), tuple(warnings))


def _loaders(window: Window, channels: slice, rule: str) -> tuple[Loader, ...]:
    freq = np.ascontiguousarray(window.freq[channels])
    return tuple(partial(load, piece, channels, freq, window.correlations, rule) for piece in pieces(window))


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


def image_geometry(data: SelectedData, config: Image) -> tuple[Geometry, list[str]]:
    """Choose pixel and image size; returns the geometry and sentences of warning.

    Raises
    ------
    InputError
        If size, cell and field of view make no image.
    """
    nyquist = 1 / (2 * data.longest_baseline_wavelengths)
    cell = _round_down(nyquist / config.super_resolution) if config.cell is None else _radians(config.cell)
    warnings = []
    if cell <= 0:
        raise InputError(f"--cell is {config.cell} arcsec but must be positive; Nyquist's is {_arcsec(nyquist):.4g} arcsec")
    if cell > nyquist:
        warnings.append(
            f"--cell {_arcsec(cell):.4g} arcsec is larger than the {_arcsec(nyquist):.4g} arcsec that the longest baseline "
            f"of {data.longest_baseline_wavelengths:.4g} wavelengths needs: detail is lost"
        )
    nx, ny = _size(data, config, cell)
    if np.hypot(nx, ny) * cell / 2 >= 1:
        raise InputError(
            f"{nx} x {ny} pixels of {_arcsec(cell):.4g} arcsec reach beyond the horizon of the projection: "
            "give a smaller --npix, --cell or --fov"
        )
    return Geometry(nx=nx, ny=ny, cell=cell, ra=data.ra, dec=data.dec, frame=data.frame), warnings


def _size(data: SelectedData, config: Image, cell: float) -> tuple[int, int]:
    if config.npix is not None:
        if config.fov is not None:
            raise InputError(f"--npix {config.npix} and --fov {config.fov} both set the image size: give one of them")
        return parse_npix(config.npix)
    if config.fov is not None:
        fov = math.radians(config.fov)
    elif data.dish_diameter > 0:
        freq = np.concatenate([w.freq for w in data.windows])
        fov = 2.44 * LIGHTSPEED / float(freq.min() + freq.max()) * 2 / data.dish_diameter
    else:
        raise InputError("the set does not say how large its dishes are, so the image size is unknown: give --npix or --fov")
    n = math.ceil(fov / cell)
    if n < 1:
        raise InputError(f"--fov {config.fov} degrees is less than a pixel of {_arcsec(cell):.4g} arcsec: give a larger one")
    if config.fov is None and n > LARGEST_DEFAULT:
        raise InputError(
            f"the primary beam is {math.degrees(fov):.3g} degrees wide, {n} pixels of {_arcsec(cell):.4g} arcsec: "
            "choose the part to image with --npix or --fov, or larger pixels with --cell"
        )
    return good_even(n), good_even(n)


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


def _round_down(cell: float) -> float:
    """Keep three significant digits of a pixel size, in arcseconds, for the user to read."""
    arcsec = _arcsec(cell)
    unit = 10.0 ** (math.floor(math.log10(arcsec)) - 2)
    return _radians(math.floor(arcsec / unit) * unit)


def _arcsec(angle: float) -> float:
    return math.degrees(angle) * 3600


def _radians(arcsec: float) -> float:
    return math.radians(arcsec / 3600)
