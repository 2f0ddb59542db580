"""The Hessian of the data term of one band: through its visibilities, or as a convolution with its PSF."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pfb.errors import ShapeError
from pfb.kernels.convolution import convolve
from pfb.kernels.convolution import transfer as transform
from pfb.kernels.samples import coordinates
from pfb.kernels.transform import Transform
from pfb.operators.measurement import Gridder
from pfb.types import Real, Visibilities

ACCURACY = 1e-3
"""Of the transforms inside `VisibilityHessian`."""
W_ACCURACY = 0.3
"""The same of the w-term, at worst: for the longest w at the corners of the image. What it makes of H is a few per cent at most
(docs/decisions.md), which major cycles contract, since their residuals are exact."""


class VisibilityHessian:
    r"""Predict, weigh and grid: :math:`H x = R^H W R x / w + \eta x`, in single precision.

    The w-term is a short sum of products, good to `w_accuracy`, all else to `ACCURACY`; the residual of the next major
    cycle is exact.

    Parameters
    ----------
    band : sequence of Visibilities
        Coordinates and imaging weights of a band; the visibilities themselves are not used.
    gridder : Gridder
        The image grid; its accuracy is used if it is lower than `ACCURACY`.
    wsum : float
        Sum of the weights of *all* bands, which the result is divided by.
    eta : float
        Added to the diagonal.
    w_accuracy : float
        Largest error of the w-term of a sample.
    """

    def __init__(
        self, band: Sequence[Visibilities], gridder: Gridder, wsum: float, *, eta: float = 0.0, w_accuracy: float = W_ACCURACY
    ) -> None:
        self.domain = self.codomain = gridder.shape
        self.dtype = np.dtype(np.float64)
        self.eta = float(eta)
        self._arguments = gridder, wsum, w_accuracy
        self._band = [part._replace(vis=part.vis[:0]) for part in band if part.weight.any()]
        uvw = np.concatenate([np.zeros((3, 0))] + [coordinates(part) for part in self._band], axis=1)
        self._transform: Transform | None = None
        if uvw.size:
            weight = np.concatenate([part.weight[part.weight != 0] for part in self._band])
            self._weight = (weight / wsum).astype(np.float32)
            self._transform = Transform(
                uvw, self.domain, gridder.cell, max(gridder.epsilon, ACCURACY),
                w_accuracy if gridder.wgridding else None, gridder.nthreads,
            )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it was made of: plans of transforms cannot."""
        gridder, wsum, w_accuracy = self._arguments
        return partial(VisibilityHessian, eta=self.eta, w_accuracy=w_accuracy), (self._band, gridder, wsum)

    def dot(self, x: Real) -> Real:
        """Apply the operator to an image, (nx, ny); the result has the precision of the image."""
        if x.shape != self.domain:
            raise ShapeError(f"VisibilityHessian takes an image of shape {self.domain}, got {x.shape}")
        out = self.eta * x
        if self._transform is not None:
            vis = self._transform.predict(x.astype(np.float32, copy=False))
            vis *= self._weight
            out += self._transform.grid(vis)
        return out

    hdot = dot


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

    Raises
    ------
    ShapeError
        If the PSF is smaller than the image.
    """

    def __init__(self, psf: Real, shape: tuple[int, int], wsum: float, *, eta: float = 0.0, nthreads: int = 1) -> None:
        if any(m < n for n, m in zip(shape, psf.shape, strict=True)):
            raise ShapeError(
                f"the PSF has shape {psf.shape} but images of shape {shape} need one at least as large: "
                "grid it on a larger field (--psf-oversize)"
            )
        self.domain = self.codomain = tuple(shape)
        self.dtype = psf.dtype
        self.eta = float(eta)
        self.nthreads = nthreads
        self.padded = (psf.shape[0], psf.shape[1])
        self.transfer = np.abs(transform(psf, nthreads))
        self.transfer /= wsum

    @property
    def bound(self) -> float:
        """An upper bound of the spectral norm, the largest value of the transfer function plus eta."""
        return float(self.transfer.max()) + self.eta

    def dot(self, x: Real) -> Real:
        """Apply the operator to an image."""
        if x.shape != self.domain:
            raise ShapeError(f"PsfHessian takes an image of shape {self.domain}, got {x.shape}")
        out = convolve(x, self.transfer.astype(x.dtype, copy=False), self.padded, self.nthreads)
        out += self.eta * x
        return out

    hdot = dot
