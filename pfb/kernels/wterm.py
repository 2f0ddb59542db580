r"""The w-term as a short sum of products: a screen on the image times a phase of the sample.

Over the w of the samples and the n - 1 of the pixels

.. math:: e^{2\pi i w (n - 1)} \approx \sum_j a_j(w)\, g_j(n - 1)

with real screens g, which are singular vectors of the left side: twice the largest :math:`w (n - 1)`, in cycles, and a few
more are enough. Two real images are transformed as one complex image, so a prediction takes half as many Fourier
transforms as there are screens; w-stacking takes one for every plane of w.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from pfb.types import Complex, Real

FINEST = 256
"""Entries of a table per cycle of phase: linear interpolation between them is off by 8e-5."""

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


class WTerm(NamedTuple):
    """The factors of the w-term, in pairs, as tables to interpolate in."""

    screens: Real
    """(pair, entry, 2) float32: g_j at equidistant depths, from n = 1 to the corner of the image."""
    phases: Complex
    """(pair, entry, 2) complex64: a_j at equidistant w."""
    first: float
    """w of the first entry, in wavelengths."""
    last: float
    """w of the last entry."""
    deepest: float
    """n - 1 of the corner."""

    @property
    def npair(self) -> int:
        """How many Fourier transforms an image takes: one for two screens."""
        return len(self.screens)

    def places(self, w: Real) -> Real:
        """Return where samples of these w, in wavelengths, lie in the table, as (sample,) float32."""
        span = self.last - self.first
        last = self.phases.shape[1] - 1
        return np.clip((w - self.first) * (last / span if span > 0 else 0.0), 0, last).astype(np.float32)


def deepest(shape: tuple[int, int], cell: tuple[float, float]) -> float:
    """Return the smallest n - 1 of an image, that of its corner, as a number <= 0; -1 beyond the horizon."""
    square = float(sum((n // 2 * size) ** 2 for n, size in zip(shape, cell, strict=True)))
    return float(np.sqrt(max(1 - square, 0)) - 1)


def factorise(w: tuple[float, float], deepest: float, accuracy: float) -> WTerm:
    """Factorise the w-term.

    Parameters
    ----------
    w : (float, float)
        Smallest and largest w in wavelengths, of samples turned so that it is not negative.
    deepest : float
        The smallest n - 1.
    accuracy : float
        Largest error of the phase factor at any w and pixel; the fewest pairs of screens are used that reach it.
    """
    cycles = w[1] * -deepest
    entry = 2 + int(FINEST * cycles)
    nodes, quadrature = legendre.leggauss(24 + int(4 * cycles))
    n_minus_one = (nodes + 1) / 2 * deepest
    root = np.sqrt(quadrature)

    exact = np.exp(2j * np.pi * np.linspace(*w, 2 * nodes.size)[:, None] * n_minus_one)
    scaled = exact * root
    _, _, vectors = np.linalg.svd(np.concatenate([scaled.real, scaled.imag]), full_matrices=False)
    count = 2 * max(int(cycles), 1)  # fewer never do
    while count < nodes.size - 1:
        error = scaled - (scaled @ vectors[:count].T) @ vectors[:count]
        if np.abs(error / root).max() <= accuracy:
            break
        count += 2
    vectors = vectors[:count]
    phases = np.exp(2j * np.pi * np.linspace(*w, entry)[:, None] * n_minus_one) @ (root * vectors).T
    # What is known at the nodes, elsewhere: by its Legendre series.
    degrees = np.arange(nodes.size)
    series = (root * vectors) @ legendre.legvander(nodes, degrees[-1]) * (degrees + 0.5)
    screens = legendre.legvander(np.linspace(-1, 1, entry), degrees[-1]) @ series.T
    return WTerm(_pairs(screens, np.float32), _pairs(phases, np.complex64), *w, deepest)


def _pairs(table: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return np.ascontiguousarray(table.reshape(len(table), -1, 2).swapaxes(0, 1), dtype)


def modulate(image: Real, term: WTerm, pair: int, cell: tuple[float, float]) -> Complex:
    """Multiply an image by two screens, one for the real and one for the imaginary part.

    Parameters
    ----------
    image : (nx, ny) float32
    term : WTerm
    pair : int
        The screens 2 pair and 2 pair + 1.
    cell : (float, float)
        Pixel sizes in radians.

    Returns
    -------
    (nx, ny) complex64
    """
    out = np.empty(image.shape, np.complex64)
    _modulate(image, term.screens[pair], cell, term.deepest, out)
    return out


def demodulate(grid: Complex, term: WTerm, pair: int, cell: tuple[float, float], out: Real) -> None:
    """Add real and imaginary part, each times its screen, to `out`: the adjoint of `modulate`.

    Parameters
    ----------
    grid : (nx, ny) complex64
    term, pair, cell
        As for `modulate`.
    out : (nx, ny) float32
    """
    _demodulate(grid, term.screens[pair], cell, term.deepest, out)


def phases(term: WTerm, places: Real) -> Complex:
    """Return a_j of samples, (2 pairs, sample) complex64; places as from `WTerm.places`."""
    out = np.empty((2 * term.npair, places.size), np.complex64)
    for pair, table in enumerate(term.phases):
        _tabulate(table, places, out[2 * pair], out[2 * pair + 1])
    return out


def collect(points: Complex, places: Real, term: WTerm, pair: int, vis: Complex) -> None:
    r"""Add :math:`a_j F_j + a_{j+1} F_{j+1}` of every sample to `vis`.

    Parameters
    ----------
    points : (2, sample) complex64
        The transform of :math:`g_j x + i g_{j+1} x` at the samples, and opposite to them.
    places : (sample,) float32
        From `WTerm.places`.
    term, pair
        As for `modulate`.
    vis : (sample,) complex64
    """
    _collect(points, places, term.phases[pair], vis)


def spread(vis: Complex, places: Real, term: WTerm, pair: int, points: Complex) -> None:
    """Write what `collect` takes from `points` to it: its adjoint; parameters as there."""
    _spread(vis, places, term.phases[pair], points)


@_jit
def _lookup(offset, table, cell, deepest, p, q):  # type: ignore[no-untyped-def]
    """Interpolate two screens at the depths of a row of pixels, so many rows from the middle; both halves of it are alike."""
    one, zero, last = np.float32(1), np.float32(0), table.shape[0] - 2
    scale = np.float32((last + 1) / -deepest) if deepest < 0 else zero
    row, step, middle = np.float32((offset * cell[0]) ** 2), np.float32(cell[1]), p.size // 2
    for j in range(middle + 1):
        y = np.float32(j - middle) * step
        square = row + y * y
        place = scale * square / (one + np.sqrt(max(one - square, zero)))
        k = min(np.int32(place), last)
        t = place - np.float32(k)
        p[j] = table[k, 0] + t * (table[k + 1, 0] - table[k, 0])
        q[j] = table[k, 1] + t * (table[k + 1, 1] - table[k, 1])
    for j in range(middle + 1, p.size):
        p[j], q[j] = p[2 * middle - j], q[2 * middle - j]


@_jit
def _alike(offset, nx):  # type: ignore[no-untyped-def]
    """The one or two rows that lie so many from the middle."""
    return range(nx // 2 - offset, min(nx // 2 + offset + 1, nx), max(2 * offset, 1))


@_jit
def _modulate(image, table, cell, deepest, out):  # type: ignore[no-untyped-def]
    nx, ny = image.shape
    p, q = np.empty(ny, np.float32), np.empty(ny, np.float32)
    for offset in range(nx // 2 + 1):
        _lookup(offset, table, cell, deepest, p, q)
        for i in _alike(offset, nx):
            for j in range(ny):
                out[i, j] = complex(image[i, j] * p[j], image[i, j] * q[j])


@_jit
def _demodulate(grid, table, cell, deepest, out):  # type: ignore[no-untyped-def]
    nx, ny = out.shape
    p, q = np.empty(ny, np.float32), np.empty(ny, np.float32)
    for offset in range(nx // 2 + 1):
        _lookup(offset, table, cell, deepest, p, q)
        for i in _alike(offset, nx):
            for j in range(ny):
                out[i, j] += grid[i, j].real * p[j] + grid[i, j].imag * q[j]


@_jit
def _phases(table, place):  # type: ignore[no-untyped-def]
    """Interpolate between two entries."""
    k = min(int(place), table.shape[0] - 2)
    t = place - np.float32(k)
    s = np.float32(1) - t
    return s * table[k, 0] + t * table[k + 1, 0], s * table[k, 1] + t * table[k + 1, 1]


@_jit
def _tabulate(table, places, first, second):  # type: ignore[no-untyped-def]
    for k in range(places.size):
        first[k], second[k] = _phases(table, places[k])


@_jit
def _collect(points, places, table, vis):  # type: ignore[no-untyped-def]
    half = np.float32(0.5)
    for k in range(vis.size):
        a, b = _phases(table, places[k])
        here, there = points[0, k], np.conj(points[1, k])
        both, difference = here + there, here - there
        # Over i: the part that the second screen made.
        second = complex(difference.imag, -difference.real)
        vis[k] += half * (a * both + b * second)


@_jit
def _spread(vis, places, table, points):  # type: ignore[no-untyped-def]
    half = np.float32(0.5)
    for k in range(vis.size):
        a, b = _phases(table, places[k])
        first, second = half * np.conj(a) * vis[k], half * np.conj(b) * vis[k]
        points[0, k] = first + complex(-second.imag, second.real)
        points[1, k] = np.conj(first) + complex(second.imag, second.real)
