"""The Hessian of the data term of one band, as a convolution with its PSF."""

from __future__ import annotations

import numpy as np

from pfb.errors import ShapeError
from pfb.kernels.convolution import convolve
from pfb.kernels.convolution import transfer as transform
from pfb.types import Real


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
