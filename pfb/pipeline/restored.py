"""Restored images of bands, all seen with one beam: of a finished run, or from FITS files of any program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from pfb.errors import InputError
from pfb.io import dataset as store
from pfb.io.apparent import apparent_model
from pfb.io.model_image import BRIGHTNESS, open_model, place, read_beams, read_observation, read_plane
from pfb.kernels.beam import common_beam, restore
from pfb.kernels.noise import robust_rms
from pfb.pipeline.products import Images
from pfb.pipeline.reporting import Reporter
from pfb.types import Band, Beam, Geometry, Observation, Plane, Real


class Restored(Protocol):
    """Images in Jy per beam, of those bands that have data and a beam."""

    geometry: Geometry
    observation: Observation
    bands: list[Band]
    beam: Beam

    def mfs(self) -> Real:
        """Return the (nx, ny) mean over the bands."""
        ...

    def plane(self, index: int) -> Real:
        """Return the (nx, ny) image of a band."""
        ...

    def noise(self, index: int) -> float:
        """Return the noise of the image of a band."""
        ...

    @property
    def band(self) -> Band:
        """The interval of frequency of the mean, and its frequency."""
        ...


class RunImages:
    """The images of a finished run of `pfb clean`.

    Parameters
    ----------
    path : str
        Its dataset.
    model : bool
        Leave out the residual: the model alone, seen with the beam.
    report : Reporter
        Is told of beams that could not be fitted.
    """

    def __init__(self, path: str, model: bool, report: Reporter) -> None:
        stokes = store.place_of_i(path, store.open_dataset(path, needs="clean"))
        self.images, self.model = Images(path, "common", report, 0, stokes), model
        self.geometry, self.observation = self.images.geometry, store.observation(self.images.ds)
        self._used = [band for band in self.images.good if self.images.natives[band] is not None]
        self.bands = [self.images.bands[band] for band in self._used]
        targets = [beam for beam in self.images.targets if beam is not None]
        if not self.bands or not targets or self.images.native is None:
            raise InputError(f"no PSF in {path} has a central lobe to fit a beam to; make it again with more data")
        self.beam, self.band = targets[0], self.images.band

    def mfs(self) -> Real:
        """Return the mean over the bands, weighted with their weights."""
        if not self.model:
            return self.images.mfs("image")
        model = self.images.mfs("apparent")
        return restore(model, np.zeros_like(model), self.geometry.cell, self.beam, self.beam, 0)

    def plane(self, index: int) -> Real:
        """Return the image of a band, corrected for its primary beam if it has one: then NaN where that is low."""
        seen = self._restore(index, model=True, residual=not self.model)
        primary = self.images.primary
        return seen if primary is None else primary.correct(seen, self._used[index])

    def noise(self, index: int) -> float:
        """Return the noise of the residual of a band, seen with the common beam."""
        return robust_rms(self._restore(index, model=False, residual=True))

    def _restore(self, index: int, *, model: bool, residual: bool) -> Real:
        number = self._used[index]
        native = self.images.natives[number]
        assert native is not None
        weight, plane = self.images.wsum[number], Plane(self.images.stokes, number)
        left = store.read(self.images.path, "residual", plane) / weight if residual else np.zeros(self.geometry.shape)
        sky = apparent_model(self.images.path, plane) if model else np.zeros(self.geometry.shape)
        return restore(sky, left, self.geometry.cell, native, self.beam, 0)


class FileImages:
    """Restored images or cubes in FITS files, convolved to the smallest beam that encloses all of theirs.

    Parameters
    ----------
    paths : sequence of str
        Files whose planes are bands of one sky.

    Raises
    ------
    InputError
        If they are not in Jy/beam, have no beams, or are no SIN images whose reference pixel is their middle.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._files = open_model(paths, BRIGHTNESS)
        where, (nx, ny) = place(self._files), self._files.shape
        if np.hypot(*where.centre) > 1e-3 * where.cell:
            raise InputError(f"the reference pixel of {paths[0]} is not ({nx // 2 + 1}, {ny // 2 + 1}); regrid it")
        frame = self._files.frame or "FK5"
        self.geometry = Geometry(nx=nx, ny=ny, cell=where.cell, ra=where.ra, dec=where.dec, frame=frame)
        self.observation = read_observation(self._files)
        beams = read_beams(self._files)
        self._used = [i for i, (beam, weight) in enumerate(zip(beams, self._files.weight, strict=True)) if beam and weight > 0]
        natives = [beam for beam in beams if beam]
        if not self._used:
            raise InputError(f"{paths[0]} states no beam (BMAJ, BMIN, BPA); add it to the header")
        self._natives, self.beam = beams, common_beam(natives)
        f = self._files
        self.bands = [Band(index=i, freq_min=f.low[i], freq_max=f.high[i], freq=f.freq[i]) for i in self._used]

    @cached_property
    def _weights(self) -> Real:
        return np.array([self.noise(i) for i in range(len(self._used))]) ** -2.0

    @property
    def band(self) -> Band:
        """The interval of all bands; its frequency is their mean, weighted with the inverse of their variances."""
        mean = float(np.average([band.freq for band in self.bands], weights=self._weights))
        low, high = min(band.freq_min for band in self.bands), max(band.freq_max for band in self.bands)
        return Band(index=0, freq_min=low, freq_max=high, freq=mean)

    def mfs(self) -> Real:
        """Return the mean over the bands, weighted with the inverse of their variances."""
        weights = self._weights
        total: Real = np.zeros(())
        for index, weight in enumerate(weights):
            total = total + weight * self.plane(index)
        return total / weights.sum()

    def plane(self, index: int) -> Real:
        """Return the image of a band; NaN where it is blank."""
        number = self._used[index]
        native = self._natives[number]
        assert native is not None
        image = read_plane(self._files, number, blank=np.nan)
        blank = np.isnan(image)
        seen = restore(np.zeros_like(image), np.where(blank, 0, image), self.geometry.cell, native, self.beam, 0)
        return np.where(blank, np.nan, seen)

    def noise(self, index: int) -> float:
        """Return the noise of a band, whose sources are few of its pixels."""
        return robust_rms(self.plane(index))


def open_restored(paths: Sequence[str], model: bool, report: Reporter) -> Restored:
    """Open a dataset, or restored images in FITS files.

    Raises
    ------
    InputError
        If they cannot be used, or a model is asked of FITS files.
    """
    if len(paths) == 1 and Path(paths[0]).is_dir():
        return RunImages(paths[0], model, report)
    if model:
        raise InputError("--images model needs a dataset of pfb clean, PREFIX.zarr; or leave it out")
    return FileImages(paths)
