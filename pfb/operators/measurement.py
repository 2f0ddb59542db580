"""The measurement operator of a band, and the images that its visibilities give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pfb.kernels import chi_squared, gridding
from pfb.types import Complex, Real, Visibilities


class Spread(NamedTuple):
    """How large the visibilities are that a model leaves of a band."""

    variance: float
    """Of the pixels of their image if they were incoherent, as noise is: half the sum of (weight |V|)^2."""
    power: Real
    """Half the sums of weight |V|^2, by the length of the baseline; see `pfb.kernels.chi_squared`."""


class Residual(NamedTuple):
    """What the data of a band have that a model has not."""

    image: Real
    """Dirty image, (nx, ny) float64, not divided by the sum of the weights."""
    spread: Spread


@dataclass(frozen=True)
class Gridder:
    """What the images of all bands have in common; small, so it travels with every task.

    Parameters
    ----------
    shape : (int, int)
        Size ``(nx, ny)`` of the images.
    cell : float
        Pixel size in radians.
    epsilon : float
        Accuracy of the gridder.
    wgridding : bool
        Account for the w-term.
    nthreads : int
        Threads of each call.
    """

    shape: tuple[int, int]
    cell: float
    epsilon: float = 1e-7
    wgridding: bool = True
    nthreads: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of the kernels."""
        return dict(cell=self.cell, epsilon=self.epsilon, wgridding=self.wgridding, nthreads=self.nthreads)

    def dirty(self, band: Sequence[Visibilities]) -> Real:
        """Return the dirty image of a band, (nx, ny), not divided by the sum of the weights."""
        image = np.zeros(self.shape)
        for part in band:
            image += gridding.grid(part.uvw, part.freq, part.vis, part.weight, shape=self.shape, **self.options)
        return image

    def psf(self, band: Sequence[Visibilities], shape: tuple[int, int]) -> Real:
        """Return the PSF of a band on a grid of `shape`; its peak is the sum of the weights."""
        image = np.zeros(shape)
        for part in band:
            image += gridding.grid_psf(part.uvw, part.freq, part.weight, shape=shape, **self.options)
        return image

    def subtract(self, part: Visibilities, model: Real) -> Complex:
        """Return visibilities less those of a model in Jy/pixel, (nx, ny): (row, chan), zero where the weight is."""
        model = model.astype(np.float64, copy=False)
        vis = gridding.degrid(part.uvw, part.freq, model, weight=part.weight, **self.options)
        return np.subtract(part.vis, vis, out=vis)

    def residual(self, band: Sequence[Visibilities], model: Real) -> Residual:
        """Subtract a model in Jy/pixel, (nx, ny), from a band's data and grid what is left."""
        image = np.zeros(self.shape)
        variance, power = 0.0, np.zeros(chi_squared.NBIN)
        for part in band:
            vis = self.subtract(part, model)
            image += gridding.grid(part.uvw, part.freq, vis, part.weight, shape=self.shape, **self.options)
            power += chi_squared.power(part.uvw, vis, part.weight)
            np.multiply(vis, part.weight, out=vis)
            variance += float(np.vdot(vis, vis).real) / 2
        return Residual(image, Spread(variance, power))


class Measurement:
    r"""Predict visibilities, :math:`V = R x`, and grid them, :math:`R^H V`; no weights.

    Parameters
    ----------
    uvw : (row, 3) float64
        Baseline coordinates in metres.
    freq : (chan,) float64
        Channel centres in Hz, ascending.
    gridder : Gridder
        The image grid.
    dtype
        float32 or float64, of the images.

    Attributes
    ----------
    domain, codomain : tuple of int
        ``(nx, ny)`` and ``(row, chan)``.
    """

    def __init__(self, uvw: Real, freq: Real, gridder: Gridder, dtype: Any = np.float64) -> None:
        self.domain = gridder.shape
        self.codomain = (len(uvw), len(freq))
        self.dtype = np.dtype(dtype)
        self.uvw = uvw
        self.freq = freq
        self.gridder = gridder

    def dot(self, x: Real) -> Complex:
        """Predict: (nx, ny) real to (row, chan) complex."""
        return gridding.degrid(self.uvw, self.freq, x, **self.gridder.options)

    def hdot(self, y: Complex) -> Real:
        """Grid: (row, chan) complex to (nx, ny) real, the real part of the adjoint."""
        weight = np.ones(y.shape, y.real.dtype)
        return gridding.grid(self.uvw, self.freq, y, weight, shape=self.domain, **self.gridder.options)
