"""Imaging weights from the density of samples in the uv-plane (Briggs 1995), and tapers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from pfb.kernels.beam import LN16, spread
from pfb.types import LIGHTSPEED, Beam, Real

GRID_OVERSIZE = 1.7
"""Size of the grid of counts over that of the image."""


def counts_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """Return the size of the grid of counts, both even, for an image of `shape`."""
    nu, nv = (2 * math.ceil(GRID_OVERSIZE * n / 2) for n in shape)
    return nu, nv


def count(uvw: Real, freq: Real, weight: Real, shape: tuple[int, int], cell: float) -> Real:
    """Sum the weights in every cell of the uv-plane, folded onto v >= 0 (the sky is real).

    Parameters
    ----------
    uvw : (row, 3) float64
        Baseline coordinates in metres.
    freq : (chan,) float64
        Channel centres in Hz.
    weight : (row, chan) float64
        Natural weights.
    shape : (int, int)
        Size of the grid as of `counts_shape`.
    cell : float
        Pixel size of the image in radians.

    Returns
    -------
    (nu, nv // 2 + 1) float64
        Samples beyond the grid are not counted.
    """
    counts = np.zeros((shape[0], shape[1] // 2 + 1))
    _count(uvw, freq / LIGHTSPEED, weight, counts, shape[0] * cell, shape[1] * cell)
    return counts


def density(uvw: Real, freq: Real, counts: Real, shape: tuple[int, int], cell: float) -> Real:
    """Look up the counts of every sample's cell.

    Parameters
    ----------
    uvw, freq, shape, cell
        As for `count`.
    counts : (nu, nv // 2 + 1) float64

    Returns
    -------
    (row, chan) float64
        Zero beyond the grid.
    """
    out = np.zeros((uvw.shape[0], freq.size))
    _lookup(uvw, freq / LIGHTSPEED, counts, out, shape[0] * cell, shape[1] * cell)
    return out


class Density(NamedTuple):
    """What samples are divided by."""

    grid: Real
    """(nu, nv // 2 + 1) float64: the density in every cell."""
    mean: float
    """Over the samples, with their natural weights; 0 if there are none."""


def densities(counts: Real, box: int = 0, floor: float = 0.0) -> Density:
    r"""Turn counts into the density of every cell.

    Parameters
    ----------
    counts : (nu, nv // 2 + 1) float64
        As of `count`, of all samples that are weighted together.
    box : int
        Cells that are counted on every side of a cell, as of `box_sums`.
    floor : float
        The least density over the median of those of the cells that hold samples: a lower one is raised, so that
        samples that are alone are not blown up.

    Returns
    -------
    Density
        Its grid is `counts` itself if there is neither a box nor a floor.
    """
    grid = box_sums(counts, box) if box else counts
    held = counts > 0
    if floor > 0 and held.any():
        grid = np.where(held, np.maximum(grid, floor * np.median(grid[held])), grid)
    total = float(counts.sum())
    return Density(grid, float(np.vdot(counts, grid)) / total if total else 0.0)


def box_sums(counts: Real, box: int) -> Real:
    """Sum the counts over the `2 box + 1` cells squared around every cell, as super-uniform weighting does.

    Parameters
    ----------
    counts : (nu, nv // 2 + 1) float64
        Folded onto v >= 0. For the sums they are continued to v < 0, where the conjugates are; beyond the grid is nothing.
    box : int
        Cells on every side.

    Returns
    -------
    (nu, nv // 2 + 1) float64
    """
    nu, nhalf = counts.shape
    low = min(box, nhalf - 1)
    plane = np.zeros((nu + 2 * box, low + nhalf + box))
    inside = plane[box : box + nu]
    inside[:, low : low + nhalf] = np.fft.fftshift(counts, axes=0)
    # The row v = 0 holds every pair of conjugates once, at u >= 0. The largest -u has no conjugate on the grid.
    inside[1 : nu // 2, low] = inside[: nu // 2 : -1, low]
    for v in range(1, low + 1):
        inside[1:, low - v] = inside[:0:-1, low + v]
    over_u = sum(plane[shift : shift + nu] for shift in range(2 * box + 1))
    padded = np.pad(over_u, ((0, 0), (box - low, 0)))
    sums = sum(padded[:, shift : shift + nhalf] for shift in range(2 * box + 1))
    return np.ascontiguousarray(np.fft.ifftshift(sums, axes=0))


def briggs(weight: Real, density: Real, mean: float, robust: float) -> Real:
    r"""Weight by :math:`w / (1 + f^2 c)` with :math:`f^2 = (5 \cdot 10^{-R})^2 / \bar c`.

    Parameters
    ----------
    weight, density : (row, chan) float64
        Natural weights, and the density c of their cells.
    mean : float
        The mean density :math:`\bar c` over all samples that are weighted together; for plain counts
        :math:`\sum c^2 / \sum c`.
    robust : float
        R: -2 is nearly uniform, 2 nearly natural.

    Returns
    -------
    (row, chan) float64
    """
    if mean == 0:
        return np.zeros_like(weight)
    factor = (5 * 10**-robust) ** 2 / mean
    return np.where(density > 0, weight / (1 + factor * density), 0)


def uniform(weight: Real, density: Real) -> Real:
    """Weight by w / c, zero where nothing was counted; arrays of shape (row, chan)."""
    return np.divide(weight, density, out=np.zeros_like(weight), where=density > 0)


def taper(uvw: Real, freq: Real, beam: Beam) -> Real:
    r"""Return the factor of weights that smooths the image with a Gaussian beam.

    .. math:: \exp\left(-\frac{\pi^2}{4 \ln 2}\, k^T S k\right), \quad k = (-u, v)

    with u, v in wavelengths and S the beam's `spread`: the Fourier transform of the beam, 1 for a baseline of no length.

    Parameters
    ----------
    uvw : (row, 3) float64
        Metres.
    freq : (chan,) float64
        Hz.
    beam : Beam
        Widths and angle in radians.

    Returns
    -------
    (row, chan) float64
    """
    # l = -x: the spread is that of the axes x, y of an image.
    baseline = uvw[:, :2] * [-1, 1]
    exponent = np.einsum("ri,ij,rj->r", baseline, spread(beam), baseline) * (np.pi**2 / LN16)
    return np.exp(-exponent[:, None] * np.square(freq / LIGHTSPEED))


@numba.njit(nogil=True, cache=True)
def _cell_of(u, v, nu, nv):  # type: ignore[no-untyped-def]
    """Nearest cell, folded onto v >= 0; -1 beyond the grid."""
    if v < 0:
        u, v = -u, -v
    i, j = round(u), round(v)
    if j == 0:  # this row holds every pair of conjugates once
        i = abs(i)
    if i < -(nu // 2) or i >= nu // 2 or j > nv:
        return -1, -1
    return i % nu, j


@numba.njit(nogil=True, cache=True)
def _count(uvw, wavenumber, weight, counts, width_x, width_y):  # type: ignore[no-untyped-def]
    nu, nv = counts.shape[0], counts.shape[1] - 1
    for r in range(uvw.shape[0]):
        for c in range(wavenumber.size):
            if weight[r, c] > 0:
                i, j = _cell_of(uvw[r, 0] * wavenumber[c] * width_x, uvw[r, 1] * wavenumber[c] * width_y, nu, nv)
                if i >= 0:
                    counts[i, j] += weight[r, c]


@numba.njit(nogil=True, cache=True)
def _lookup(uvw, wavenumber, counts, out, width_x, width_y):  # type: ignore[no-untyped-def]
    nu, nv = counts.shape[0], counts.shape[1] - 1
    for r in range(uvw.shape[0]):
        for c in range(wavenumber.size):
            i, j = _cell_of(uvw[r, 0] * wavenumber[c] * width_x, uvw[r, 1] * wavenumber[c] * width_y, nu, nv)
            if i >= 0:
                out[r, c] = counts[i, j]
