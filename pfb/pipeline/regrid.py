"""`pfb regrid`: a model on another grid, and at other frequencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pfb.config import Regrid
from pfb.errors import InputError
from pfb.io.fits import HeaderInfo, write_cube
from pfb.io.model_image import BRIGHTNESS, UNITS, ModelImage, open_model, place, read_plane
from pfb.io.staging import require_writable
from pfb.pipeline.planning import parse_npix
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.transfer import spectral_mix, transferred
from pfb.types import Band, Geometry, Observation, Real


def run(paths: tuple[str, ...], config: Regrid, report: Reporter) -> None:
    """Write a model as a FITS cube in Jy/pixel.

    Parameters
    ----------
    paths : tuple of str
        A dataset of `pfb clean`, or FITS images and cubes in Jy/pixel of any projection.
    config : Regrid
        Options of the command.
    report : Reporter
        Is told the progress, and how much of the flux lies on the new grid.

    Raises
    ------
    InputError
        If the model or the grid cannot be used, or the product exists.
    """
    model = open_model(paths)
    like = model if config.like is None else open_model([config.like], (*UNITS, *BRIGHTNESS))
    geometry = _geometry(like, config)
    bands = [Band(index=i, freq_min=low, freq_max=high, freq=freq)
             for i, (low, high, freq) in enumerate(zip(like.low, like.high, like.freq, strict=True))]  # fmt: skip
    target = Path(config.output)
    require_writable([target], config.overwrite)
    before, after = np.zeros(len(bands)), np.zeros(len(bands))
    mix = spectral_mix(model, bands)

    def planes(done: Callable[[int], None]) -> Iterator[Real]:
        for i, row in enumerate(mix):
            before[i] = sum(share * float(read_plane(model, b).sum()) for b, share in enumerate(row) if share)
            plane = transferred(model, row.tolist(), geometry)
            after[i] = plane.sum()
            done(1)
            yield plane

    info = HeaderInfo(geometry=geometry, observation=Observation(), unit="Jy/pixel", history=("pfb regrid", *paths))
    with report.stage("regrid", len(bands)) as done:
        write_cube(target, planes(done), info, bands, overwrite=config.overwrite)
    report.message(f"{after.mean():.6g} of {before.mean():.6g} Jy, in the mean over the bands, lie on the new grid")
    report.summary("pfb regrid", {target.name: str(target.parent)})


def _geometry(like: ModelImage, config: Regrid) -> Geometry:
    """Return the grid of another image, or one about the middle of the model with its mean pixel size; options change it."""
    try:
        where = place(like)
    except InputError:
        if config.like is not None:
            raise
        wcs, (nx, ny) = like.wcs(), like.shape
        ra, dec = np.deg2rad(wcs.wcs_pix2world([[nx // 2, ny // 2]], 0)[0]).tolist()
        cell = float(np.deg2rad(np.sqrt(abs(np.linalg.det(wcs.pixel_scale_matrix)))))
    else:
        ra, dec, cell = where.ra, where.dec, where.cell
        if config.like is not None and np.hypot(*where.centre) > 1e-3 * cell:
            nx, ny = like.shape
            raise InputError(f"the reference pixel of {config.like} is not ({nx // 2 + 1}, {ny // 2 + 1}); choose another")
    size = like.shape if config.npix is None else parse_npix(config.npix)
    cell = cell if config.cell is None else float(np.deg2rad(config.cell / 3600))
    return Geometry(nx=size[0], ny=size[1], cell=cell, ra=ra % (2 * np.pi), dec=dec, frame=like.frame or "FK5")
