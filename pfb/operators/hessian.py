"""The Hessian of the data term of one band: through its visibilities, or as a convolution with its PSF."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pfb.errors import ShapeError
from pfb.kernels.convolution import convolve
from pfb.kernels.convolution import transfer as transform
from pfb.kernels.merging import merge
from pfb.kernels.samples import Streamed, coordinates
from pfb.kernels.sampling import Sampling, sampling
from pfb.kernels.toeplitz import Toeplitz
from pfb.kernels.toeplitz import size as size_of_toeplitz
from pfb.kernels.transform import Transform
from pfb.operators.measurement import Gridder
from pfb.types import Real, Visibilities

ACCURACY = 1e-3
"""Of the transforms inside `VisibilityHessian`."""
W_ACCURACY = 0.3
"""The same of the w-term, at worst: for the longest w at the corners of the image. What it makes of H is a few per cent at most
(docs/decisions.md), which major cycles contract, since their residuals are exact."""
STEP = 0.1
"""Turns of the phase over the image within which samples are merged; like the w-term it changes H by per cents."""
PSF_ACCURACY = 1e-5
"""Of the PSFs inside a `Toeplitz`, so that no eigenvalue is negative by more than the rounding error."""
MOST = 4
"""Merged samples per pixel of a streamed band, whose samples do not fit the memory: 32 bytes each while products are prepared."""
LARGEST = 100
"""Bytes per pixel of the image that these PSFs may take; duals and images of a band take about 50."""


class VisibilityHessian:
    r"""Predict, weigh and grid: :math:`H x = R^H W R x / w + \eta x`, in single precision.

    The w-term is a short sum of products, good to `w_accuracy`, all else to `ACCURACY`; the residual of the next major
    cycle is exact. Many samples are worked on as convolutions, few one by one.

    Parameters
    ----------
    band : sequence of Visibilities
        Coordinates and imaging weights of a band; the visibilities themselves are not used. A `Streamed` one is looked at once.
    gridder : Gridder
        The image grid; its accuracy is used if it is lower than `ACCURACY`.
    wsum : float
        Sum of the weights of *all* bands, which the result is divided by.
    eta : float
        Added to the diagonal.
    w_accuracy : float
        Largest error of the w-term of a sample.
    step : float
        Samples within so many turns of each other are merged, see `pfb.kernels.merging`; 0 merges none.
    """

    def __init__(
        self, band: Sequence[Visibilities], gridder: Gridder, wsum: float,
        *, eta: float = 0.0, w_accuracy: float = W_ACCURACY, step: float = STEP,
    ) -> None:  # fmt: skip
        self.domain = self.codomain = gridder.shape
        self.dtype = np.dtype(np.float64)
        self.eta = float(eta)
        self._arguments = gridder, wsum, w_accuracy, step
        self._band: Sequence[Visibilities] = band
        if not isinstance(band, Streamed):
            self._band = [part._replace(vis=part.vis[:0]) for part in band if part.weight.any()]
        uvw, weight = _samples(self._band, self.domain, gridder.cell, step)
        self._product: Callable[[Real], Real] | None = None
        if uvw.size:
            weight = (weight / wsum).astype(np.float32)
            epsilon = max(gridder.epsilon, ACCURACY)
            seen = sampling(uvw, self.domain, gridder.cell, epsilon, w_accuracy if gridder.wgridding else None)
            if as_convolutions(seen, LARGEST * self.domain[0] * self.domain[1]):
                self._product = Toeplitz(seen, weight, PSF_ACCURACY, gridder.nthreads).dot
            else:
                self._product = partial(_through_samples, Transform(seen, epsilon, gridder.nthreads), weight)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it was made of: plans of transforms cannot."""
        gridder, wsum, w_accuracy, step = self._arguments
        return partial(VisibilityHessian, eta=self.eta, w_accuracy=w_accuracy, step=step), (self._band, gridder, wsum)

    def dot(self, x: Real) -> Real:
        """Apply the operator to an image, (nx, ny); the result has the precision of the image."""
        if x.shape != self.domain:
            raise ShapeError(f"VisibilityHessian takes an image of shape {self.domain}, got {x.shape}")
        if self._product is None:
            return self.eta * x
        out = self._product(x.astype(np.float32, copy=False)).astype(x.dtype, copy=False)
        if self.eta:
            out += self.eta * x
        return out

    hdot = dot


def _samples(band: Sequence[Visibilities], shape: tuple[int, int], cell: float, step: float) -> tuple[Real, Real]:
    """Return coordinates, (3, sample), and weights of the samples of a band, merged unless `step` is 0.

    Those of a streamed band are merged part by part; if they become more than `MOST` per pixel, cells that are wider.
    """
    if not isinstance(band, Streamed):
        uvw = np.concatenate([np.zeros((3, 0)), *map(coordinates, band)], axis=1)
        weight = np.concatenate([np.zeros(0), *(part.weight[part.weight != 0] for part in band)])
        return merge(uvw, weight, shape, cell, step) if step and uvw.size else (uvw, weight)
    uvw, weight = np.zeros((3, 0)), np.zeros(0)
    for part in band:
        uvw = np.concatenate([uvw, coordinates(part)], axis=1)
        weight = np.concatenate([weight, part.weight[part.weight != 0]])
        del part
        while step:
            uvw, weight = merge(uvw, weight, shape, cell, step)
            if weight.size <= MOST * shape[0] * shape[1]:
                break
            step *= math.sqrt(2)
    return uvw, weight


def as_convolutions(seen: Sampling, memory: int) -> bool:
    """Return whether a product takes less time as convolutions than through the samples, and fits the memory, in bytes."""
    pixels = seen.decimation.shape[0] * seen.decimation.shape[1]
    through_samples, convolutions = product_costs(pixels, 2 * seen.term.npair, seen.places.size)
    return convolutions < through_samples and size_of_toeplitz(seen) <= memory


def product_costs(pixels: float, screens: int, samples: int) -> tuple[float, float]:
    """Return nanoseconds of a product through the samples, and as convolutions, without the resampling.

    They are those of the machine in docs/decisions.md everywhere, so that the same is decided everywhere.

    Parameters
    ----------
    pixels : float
        Of the coarse image.
    screens : int
        Of the w-term.
    samples : int
    """
    return screens * (6.4 * pixels + 52 * samples), screens * (14 + screens) * pixels


def _through_samples(transform: Transform, weight: Real, x: Real) -> Real:
    vis = transform.predict(x)
    vis *= weight
    return transform.grid(vis)


class PsfHessian:
    r"""Approximate :math:`R^H W R / w` by a convolution, :math:`H x = C F^{-1} |\hat p| F C^T x / w + \eta x`.

    The modulus makes the operator symmetric and positive where the truncation of the PSF does not.

    Parameters
    ----------
    psf : (nx_psf, ny_psf) float
        PSF as gridded, its peak (the sum of the band's weights) at ``(nx_psf // 2, ny_psf // 2)``.
    shape : (int, int)
        Size of the images. The convolution is linear over the whole image if the PSF is twice as
        large; it must not be smaller.
    wsum : float
        Sum of the weights of *all* bands, which the result is divided by.
    eta : float
        Added to the diagonal.
    nthreads : int
        Threads of each convolution.
    dtype
        Precision that it is kept and applied in; that of the PSF by default.
    signed : bool
        Leave out the modulus, so that a point becomes the very PSF, as CLEAN needs it.

    Raises
    ------
    ShapeError
        If the PSF is smaller than the image.
    """

    def __init__(
        self, psf: Real, shape: tuple[int, int], wsum: float,
        *, eta: float = 0.0, nthreads: int = 1, dtype: Any = None, signed: bool = False,
    ) -> None:  # fmt: skip
        if any(m < n for n, m in zip(shape, psf.shape, strict=True)):
            raise ShapeError(
                f"the PSF has shape {psf.shape} but images of shape {shape} need one at least as large: "
                "grid it on a larger field (--psf-oversize)"
            )
        self.domain = self.codomain = tuple(shape)
        self.dtype = np.dtype(dtype or psf.dtype)
        self.eta = float(eta)
        self.nthreads = nthreads
        self.padded = (psf.shape[0], psf.shape[1])
        spectrum = transform(psf, nthreads)
        self.transfer = ((spectrum.real if signed else np.abs(spectrum)) / wsum).astype(self.dtype, copy=False)

    @property
    def bound(self) -> float:
        """An upper bound of the spectral norm, the largest value of the transfer function plus eta."""
        return float(self.transfer.max()) + self.eta

    def dot(self, x: Real) -> Real:
        """Apply the operator to an image; the result has the precision of the image."""
        if x.shape != self.domain:
            raise ShapeError(f"PsfHessian takes an image of shape {self.domain}, got {x.shape}")
        out = convolve(x.astype(self.dtype, copy=False), self.transfer, self.padded, self.nthreads)
        out += self.eta * x
        return out.astype(x.dtype, copy=False)

    hdot = dot
