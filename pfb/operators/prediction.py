"""Predict the visibilities of a model, of whatever kind and wherever it lies, for the rows of a measurement set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pfb.kernels.components import component_visibilities, local_frame, spreads
from pfb.kernels.gridding import degrid
from pfb.kernels.phase_centre import move
from pfb.types import CORRELATIONS, LIGHTSPEED, Complex, Real


class PlacedImage(NamedTuple):
    """A part of a SIN image."""

    image: Real
    """(nx, ny) float64, Jy/pixel; of length zero if there is nothing in it."""
    centre: tuple[float, float]
    """Direction cosines of pixel ``(nx // 2, ny // 2)``, as seen from where the whole image touches the sphere."""


def cropped(image: Real, centre: tuple[float, float], cell: float) -> PlacedImage:
    """Cut off the empty edges of an (nx, ny) image whose pixels are `cell` radians wide; `centre` is as in `PlacedImage`."""
    x, y = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
    if not len(x):
        return PlacedImage(np.zeros((0, 0)), centre)
    part = np.ascontiguousarray(image[x[0] : x[-1] + 1, y[0] : y[-1] + 1])
    shift = [int(own[0]) + n // 2 - size // 2 for own, n, size in zip((x, y), part.shape, image.shape, strict=True)]
    return PlacedImage(part, (centre[0] - shift[0] * cell, centre[1] + shift[1] * cell))


@dataclass(frozen=True)
class ImagePredictor:
    r"""Predicts a Stokes parameter from images, :math:`V_\nu = \sum_k d_{\nu k}\, R\, x_k`.

    Parameters
    ----------
    cell : float
        Pixel size in radians.
    touching : (3, 3) float64
        `pfb.kernels.phase_centre.axes` there, in the frame of the data.
    epsilon : float
        Accuracy of the gridder.
    wgridding : bool
        Account for the w-term.
    nthreads : int
        Threads of each call.
    """

    cell: float
    touching: Real
    epsilon: float = 1e-7
    wgridding: bool = True
    nthreads: int = 1

    def predict(self, uvw: Real, freq: Real, phase_centre: Real, design: Real, images: Sequence[PlacedImage]) -> Complex:
        """Return the visibilities.

        Parameters
        ----------
        uvw : (row, 3) float64
            Metres.
        freq : (chan,) float64
            Hz, ascending.
        phase_centre : (3, 3) float64
            `axes` at the phase centre of the rows.
        design : (chan, image) float64
            What each image adds to each channel.
        images : sequence of PlacedImage
            In Jy/pixel.

        Returns
        -------
        (row, chan) complex128
            Jy.
        """
        elsewhere = not np.allclose(phase_centre, self.touching, rtol=0, atol=1e-14)
        moved, path = move(uvw, phase_centre, self.touching) if elsewhere else (uvw, np.zeros(0))
        vis = np.zeros((len(uvw), len(freq)), np.complex128)
        for (image, centre), share in zip(images, design.T, strict=True):
            used = np.flatnonzero(share)
            if not used.size or not image.size:
                continue
            own = degrid(
                moved, np.ascontiguousarray(freq[used]), image,
                centre=centre, cell=self.cell, epsilon=self.epsilon, wgridding=self.wgridding, nthreads=self.nthreads,
            )  # fmt: skip
            vis[:, used] += own * share[used]
        if elsewhere:
            vis *= np.exp(2j * np.pi / LIGHTSPEED * path[:, None] * freq)
        return vis


@dataclass(frozen=True)
class ComponentPredictor:
    """Predicts I, Q, U and V from point sources and Gaussians, by the direct sum.

    Parameters
    ----------
    ra, dec : (comp,) float64
        Radians, in the frame of the data.
    major, minor, pa : (comp,) float64
        Full widths at half maximum and position angles in radians; zero widths for points.
    """

    ra: Real
    dec: Real
    major: Real
    minor: Real
    pa: Real

    def predict(self, uvw: Real, freq: Real, phase_centre: tuple[float, float], flux: Real) -> Complex:
        """Return the visibilities.

        Parameters
        ----------
        uvw : (row, 3) float64
            Metres.
        freq : (chan,) float64
            Hz.
        phase_centre : (float, float)
            (ra, dec) in radians.
        flux : (stokes, comp, chan) float64
            Jy.

        Returns
        -------
        (stokes, row, chan) complex128
            Jy.
        """
        direction, jacobian = local_frame(self.ra, self.dec, *phase_centre)
        spread = spreads(self.major, self.minor, self.pa, jacobian)
        return component_visibilities(uvw, freq, direction, spread, flux)


def correlate(stokes: Complex, correlations: Sequence[int]) -> Complex:
    """Return the correlations that an ideal interferometer measures of Stokes visibilities.

    Parameters
    ----------
    stokes : (stokes, row, chan) complex
        I, or I, Q, U and V, in Jy.
    correlations : sequence of int
        casacore's numbers, see `CORRELATIONS`.

    Returns
    -------
    (row, chan, corr) complex128
        Jy.
    """
    vis = np.zeros((*stokes.shape[1:], len(correlations)), np.complex128)
    for i, number in enumerate(correlations):
        for factor, plane in zip(CORRELATIONS[number], stokes, strict=False):
            if factor:
                vis[..., i] += factor * plane
    return vis
