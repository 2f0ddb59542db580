"""Bring the images of a model to another grid and to other frequencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pfb.io.fits import sky_wcs
from pfb.io.frames import convert
from pfb.io.model_image import ModelImage, read_plane
from pfb.kernels.regridding import deposit, split
from pfb.kernels.spectra import polynomial
from pfb.types import Band, Geometry, Real

TERMS = 3
"""Coefficients of the spectrum that gives bands other than the model's, if it has so many bands."""

SAME = 0.1
"""Two bands are the same if their frequencies differ by less than this fraction of the narrower one's width."""

BLOCK = 1 << 20
"""Places that are looked up on the sky at a time."""


def spectral_mix(model: ModelImage, bands: Sequence[Band]) -> Real:
    """Return the (band, model band) coefficients that give the images of other bands.

    A band that the model has is taken as it is; others have a polynomial of at most `TERMS` terms that is fitted to all bands
    of the model with data, weighted with their weights.
    """
    weight, freq = np.array(model.weight), np.array(model.freq)
    used = np.flatnonzero(weight > 0)
    wanted = np.array([band.freq for band in bands])
    if len(used) == 1:
        mix = np.zeros((len(bands), len(freq)))
        mix[:, used] = 1
        return mix
    basis = polynomial(wanted, freq, weight, min(TERMS, len(np.unique(freq[used]))))
    mix = basis.design @ basis.mix
    for row, band in zip(mix, bands, strict=True):
        nearest = used[np.argmin(np.abs(freq[used] - band.freq))]
        narrower = min(band.freq_max - band.freq_min, model.high[nearest] - model.low[nearest])
        if abs(freq[nearest] - band.freq) <= SAME * narrower:
            row[:] = 0
            row[nearest] = 1
    return mix


def transferred(model: ModelImage, mix: Sequence[float], geometry: Geometry, dtype: Any = np.float64) -> Real:
    """Return the (nx, ny) image that some bands of a model make up, on another grid, in Jy/pixel.

    Flux and centre of every pixel are conserved; see `pfb.kernels.regridding`.

    Parameters
    ----------
    model : ModelImage
        On any grid that FITS can describe.
    mix : sequence of float
        What of each of its bands is taken.
    geometry : Geometry
        The other grid.
    dtype
        Of the result.
    """
    image = np.zeros(model.shape)
    for band, share in enumerate(mix):
        if share:
            image += share * read_plane(model, band)
    if _aligned(model, geometry):
        return image.astype(dtype)
    x, y = np.nonzero(image)
    flux = image[x, y]
    source = float(np.sqrt(abs(np.linalg.det(model.wcs().pixel_scale_matrix))))
    parts = split(source / np.rad2deg(geometry.cell))
    out = np.zeros(geometry.shape)
    for dx, dy in _offsets(parts):
        for first in range(0, len(x), BLOCK):
            some = slice(first, first + BLOCK)
            out += deposit(flux[some] / parts**2, *_places(model, geometry, x[some] + dx, y[some] + dy), geometry.shape)
    return out.astype(dtype)


def _offsets(parts: int) -> Iterator[tuple[float, float]]:
    """Yield the middles of the parts of a pixel."""
    steps = (np.arange(parts) + 0.5) / parts - 0.5
    for dx in steps.tolist():
        for dy in steps.tolist():
            yield dx, dy


def _places(model: ModelImage, geometry: Geometry, x: Any, y: Any) -> tuple[Real, Real]:
    """Return where pixels of a model are on another grid; NaN beyond its horizon."""
    world = np.deg2rad(model.wcs().wcs_pix2world(np.stack([x, y], axis=1).astype(np.float64), 0))
    seen = np.isfinite(world).all(axis=1)
    ra, dec = convert(world[seen, 0], world[seen, 1], model.frame, geometry.frame)
    out = np.full((2, len(world)), np.nan)
    out[:, seen] = sky_wcs(geometry).wcs_world2pix(np.rad2deg(np.stack([ra, dec], axis=1)), 0).T
    # Beyond the horizon SIN has no pixels, but some versions of the library give some.
    distance = np.sin(dec) * np.sin(geometry.dec) + np.cos(dec) * np.cos(geometry.dec) * np.cos(ra - geometry.ra)
    out[:, np.flatnonzero(seen)[distance <= 0]] = np.nan
    return out[0], out[1]


def _aligned(model: ModelImage, geometry: Geometry) -> bool:
    """Say whether a model is on a grid already."""
    if model.shape != geometry.shape:
        return False
    nx, ny = geometry.shape
    x, y = np.array([0, nx // 2, nx - 1, 0]), np.array([0, ny // 2, 0, ny - 1])
    found = _places(model, geometry, x, y)
    return bool(np.allclose(found[0], x, rtol=0, atol=1e-3) and np.allclose(found[1], y, rtol=0, atol=1e-3))
