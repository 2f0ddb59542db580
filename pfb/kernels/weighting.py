"""Imaging weights from the density of samples in the uv-plane (Briggs 1995)."""

from __future__ import annotations

import math

import numba
import numpy as np

from pfb.types import Real

LIGHTSPEED = 299792458.0
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


def briggs(weight: Real, density: Real, counts: Real, robust: float) -> Real:
    r"""Weight by :math:`w / (1 + f^2 c)` with :math:`f^2 = (5 \cdot 10^{-R})^2 \sum c / \sum c^2`.

    Parameters
    ----------
    weight, density : (row, chan) float64
        Natural weights, and the counts c of their cells.
    counts : (nu, nv // 2 + 1) float64
        All counts, pooled over the bands that are weighted together.
    robust : float
        R: -2 is nearly uniform, 2 nearly natural.

    Returns
    -------
    (row, chan) float64
    """
    squares = float(np.vdot(counts, counts))
    if squares == 0:
        return np.zeros_like(weight)
    factor = (5 * 10**-robust) ** 2 * float(counts.sum()) / squares
    return np.where(density > 0, weight / (1 + factor * density), 0)


def uniform(weight: Real, density: Real) -> Real:
    """Weight by w / c, zero where nothing was counted; arrays of shape (row, chan)."""
    return np.divide(weight, density, out=np.zeros_like(weight), where=density > 0)


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
