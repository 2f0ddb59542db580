r"""Predict, weigh and grid as convolutions: products whose cost does not depend on the number of samples.

Without a w-term :math:`R^T W R` is the convolution with the PSF. With the w-term as a sum over real screens g (`wterm`) it is

.. math:: (R^T W R\, x)(i) = \sum_{ab} g_a(i) \sum_j r_{ab}(i - j)\, g_b(j)\, x(j), \qquad
          r_{ab}(d) = \Re \sum_k w_k\, \bar a_a(k)\, a_b(k)\, e^{-2\pi i (u_k l_d + v_k m_d)}

with a PSF r for every pair of screens, on a grid twice the image. At every frequency their transforms are a Hermitian matrix.
"""

from __future__ import annotations

import ducc0
import numba
import numpy as np

from pfb.kernels.sampling import Sampling
from pfb.kernels.wterm import modulate, phases
from pfb.types import Real

ROWS, COLUMNS = 8, 16
"""Of the spectra that are worked on at once, both ways: so few that they stay in the cache."""

CHUNK = 256
"""Frequencies that are coupled at once."""

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


class Toeplitz:
    r"""The product :math:`R^T W R\, x` of one band in single precision.

    Parameters
    ----------
    sampling : Sampling
        Its samples.
    weight : (sample,) float
        Their weights.
    epsilon : float
        Accuracy of the PSFs.
    nthreads : int
        Threads of the transforms.
    """

    def __init__(self, sampling: Sampling, weight: Real, epsilon: float, nthreads: int) -> None:
        self._decimation, self._nthreads = sampling.decimation, nthreads
        self._padded = padded(sampling.decimation.shape)
        ones = np.ones(sampling.decimation.shape, np.float32)
        pairs = [modulate(ones, sampling.term, pair, sampling.cell) for pair in range(sampling.term.npair)]
        self._screens = np.stack([part for pair in pairs for part in (pair.real, pair.imag)])
        self._couplings = _couplings(sampling, weight, self._padded, epsilon, nthreads)

    def dot(self, x: Real) -> Real:
        """Apply it to an image, (nx, ny) float32."""
        x = self._decimation.dot(x)
        nscreen, nx, ny = self._screens.shape
        px, py = self._padded
        half, nthreads = py // 2 + 1, self._nthreads
        spectra = np.empty((nscreen, nx, half), np.complex64)
        wide = np.zeros((nscreen, ROWS, py), np.float32)
        for first in range(0, nx, ROWS):
            rows = slice(first, min(first + ROWS, nx))
            some = wide[:, : rows.stop - first]
            np.multiply(self._screens[:, rows], x[rows], out=some[..., :ny])
            spectra[:, rows] = ducc0.fft.r2c(some, axes=(2,), nthreads=nthreads)
        high = np.empty((nscreen, px, COLUMNS), np.complex64)
        for block, couplings in enumerate(self._couplings):
            columns = slice(block * COLUMNS, min((block + 1) * COLUMNS, half))
            width = columns.stop - columns.start
            high[:, :nx, :width], high[:, nx:] = spectra[..., columns], 0
            ducc0.fft.c2c(high, axes=(1,), nthreads=nthreads, out=high)
            _couple(high.view(np.float32).reshape(nscreen, -1), couplings)
            ducc0.fft.c2c(high, axes=(1,), forward=False, inorm=2, nthreads=nthreads, out=high)
            spectra[..., columns] = high[:, :nx, :width]
        out = np.empty((nx, ny), np.float32)
        for first in range(0, nx, ROWS):
            rows = slice(first, min(first + ROWS, nx))
            some = wide[:, : rows.stop - first]
            ducc0.fft.c2r(spectra[:, rows], axes=(2,), forward=False, inorm=2, lastsize=py, nthreads=nthreads, out=some)
            np.einsum("aij,aij->ij", some[..., :ny], self._screens[:, rows], out=out[rows])
        return self._decimation.hdot(out)


def padded(shape: tuple[int, int]) -> tuple[int, int]:
    """Return the size of a grid on which convolutions with images of a size are linear, and fast."""
    return ducc0.fft.good_size(2 * shape[0] - 1), ducc0.fft.good_size(2 * shape[1] - 1, True)


def size(sampling: Sampling) -> int:
    """Return the bytes that `Toeplitz` keeps."""
    px, py = padded(sampling.decimation.shape)
    nscreen = 2 * sampling.term.npair
    return 4 * (nscreen**2 * px * (py // 2 + COLUMNS) + nscreen * int(np.prod(sampling.decimation.shape)))


def _couplings(sampling: Sampling, weight: Real, grid: tuple[int, int], epsilon: float, nthreads: int) -> Real:
    """Transform the PSFs of all pairs of screens, (block, pair, px COLUMNS) float32.

    Of a pair (a, a) the transform is real; that of (a, b), a < b, has its real part at the place of (a, b) and its imaginary
    part at that of (b, a). A block has COLUMNS columns, so that it is read from one place in memory.
    """
    factors = phases(sampling.term, sampling.places)
    nscreen, half = len(factors), grid[1] // 2 + 1
    nblock = -(-half // COLUMNS)
    out = np.zeros((nblock, nscreen * nscreen, grid[0], COLUMNS), np.float32)
    plan = ducc0.nufft.plan(
        nu2u=True, coord=sampling.coord.reshape(-1, 2), grid_shape=grid, epsilon=epsilon, nthreads=nthreads, periodicity=1.0,
        fft_order=True,
    )  # fmt: skip
    weight = weight.astype(np.float32) / 2
    points = np.empty((2, weight.size), np.complex64)
    waiting = [(a, b) for a in range(nscreen) for b in range(a, nscreen)]
    while waiting:
        now, waiting = waiting[:2], waiting[2:]
        products = [weight * np.conj(factors[a]) * factors[b] for a, b in now] + [np.complex64(0)]
        # Two real images as one complex one, by what is opposite: see `wterm`.
        points[0], points[1] = products[0] + 1j * products[1], np.conj(products[0]) + 1j * np.conj(products[1])
        images = plan.nu2u(points=points.reshape(-1), forward=False)
        for (a, b), image in zip(now, (images.real, images.imag), strict=False):
            spectrum = ducc0.fft.r2c(np.ascontiguousarray(image), axes=(0, 1), nthreads=nthreads)
            for block, first in enumerate(range(0, half, COLUMNS)):
                part = spectrum[:, first : first + COLUMNS]
                out[block, a * nscreen + b, :, : part.shape[1]] = part.real
                if a != b:
                    out[block, b * nscreen + a, :, : part.shape[1]] = part.imag
    return out.reshape(nblock, nscreen * nscreen, -1)


@_jit
def _couple(spectra, couplings):  # type: ignore[no-untyped-def]
    """Multiply the spectra of all screens at every frequency with its Hermitian matrix, in place.

    They are (screen, 2 frequency) float32, real and imaginary parts in turns, which is what the compiler can vectorise.
    """
    nscreen, size = spectra.shape[0], couplings.shape[1]
    out = np.empty((nscreen, 2 * CHUNK), np.float32)
    for first in range(0, size, CHUNK):
        n = min(CHUNK, size - first)
        for a in range(nscreen):
            _scale(couplings[a * nscreen + a, first : first + n], spectra[a, 2 * first : 2 * (first + n)], out[a])
        for a in range(nscreen):
            for b in range(a + 1, nscreen):
                real, imaginary = couplings[a * nscreen + b, first : first + n], couplings[b * nscreen + a, first : first + n]
                p, q = spectra[a, 2 * first : 2 * (first + n)], spectra[b, 2 * first : 2 * (first + n)]
                _add(real, imaginary, q, np.float32(1), out[a])
                _add(real, imaginary, p, np.float32(-1), out[b])
        spectra[:, 2 * first : 2 * (first + n)] = out[:, : 2 * n]


@_jit
def _scale(factor, p, out):  # type: ignore[no-untyped-def]
    for j in range(factor.size):
        out[2 * j] = factor[j] * p[2 * j]
        out[2 * j + 1] = factor[j] * p[2 * j + 1]


@_jit
def _add(real, imaginary, p, sign, out):  # type: ignore[no-untyped-def]
    """Add (real + sign i imaginary) p to out."""
    for j in range(real.size):
        x, y, u, v = real[j], sign * imaginary[j], p[2 * j], p[2 * j + 1]
        out[2 * j] += x * u - y * v
        out[2 * j + 1] += x * v + y * u
