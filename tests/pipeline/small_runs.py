"""Runs on few pixels of a small set, and what is seen there."""

from __future__ import annotations

import numpy as np

from pfb.io.dataset import open_dataset
from pfb.io.sky import Component, offset

ARCSEC = np.deg2rad(1 / 3600)
CELL = 2.0
# Pixels right and up of the centre, Jy at 1.284 GHz, spectral index, FWHM in arcsec.
NEAR = [(-6, 3, 1.0, -0.7, 4.0), (5, 7, 0.5, 0.4, 0.0), (6, -8, 0.3, 0.0, 5.0)]
FEW = dict(npix="30,27", cell=CELL, nband=3, bases="self,db1", niter=2, pd_maxit=30, rmsfactor=0.3, threads_per_worker=2)


def sky(sources):
    ra0, dec0 = np.deg2rad(63.36), np.deg2rad(-45.0)
    placed = [(offset(ra0, dec0, -x * CELL * ARCSEC, y * CELL * ARCSEC), rest) for x, y, *rest in sources]
    return [Component(ra=ra, dec=dec, I=flux, alpha=alpha, fwhm=fwhm * ARCSEC) for (ra, dec), (flux, alpha, fwhm) in placed]


def same(one, other, names=("dirty", "psf", "model", "residual", "update", "dual", "wsum", "freq")):
    assert all(np.nanmax(np.abs(one[name].values)) > 0 for name in names)
    return [name for name in names if not np.array_equal(one[name].values, other[name].values, equal_nan=True)]


def stokes_i(path, needs="image"):
    """The dataset of a run in Stokes I, without its axis of products."""
    return open_dataset(path, needs=needs).isel(stokes=0)
