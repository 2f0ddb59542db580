"""A preconditioner for the primal-dual iteration of one band."""

from __future__ import annotations

import numpy as np

from pfb.kernels.convolution import convolve, neighbourhood_maximum
from pfb.operators.hessian import PsfHessian
from pfb.types import Real


class Preconditioner:
    r"""A symmetric positive operator T that replaces the step size of the primal.

    It inverts the Hessian where the data constrain the image and is a plain step elsewhere,

    .. math:: T = \frac{1}{c}\, C F^{-1} \left(\frac{\hat m + \eta}{\gamma} + s\right)^{-1} F C^T,

    where :math:`\hat m` is the largest :math:`|\hat p|` among a uv-cell and its neighbours: the w-term
    and the edge of the image spread a sample over them. The iteration converges if
    :math:`T^{-1} - s > H / (2\gamma)`; c is there to make that true.

    Parameters
    ----------
    hessian : PsfHessian
        Convolution with the PSF p.
    gamma : float
        Step of the forward-backward iteration; the smooth term is H / gamma.
    shift : float
        s, the squared norms of the dual operators times their step sizes.
    scale : float
        c.

    Attributes
    ----------
    domain, codomain, dtype
        Those of the Hessian.
    """

    def __init__(self, hessian: PsfHessian, gamma: float, shift: float, scale: float = 1.0) -> None:
        self.domain, self.codomain, self.dtype = hessian.domain, hessian.codomain, hessian.dtype
        self.nthreads = hessian.nthreads
        self._padded = hessian.padded
        largest = neighbourhood_maximum(hessian.transfer, hessian.padded)
        self._transfer = (1 / (scale * ((largest + hessian.eta) / gamma + shift))).astype(np.float32)

    def dot(self, x: Real) -> Real:
        """Apply the operator to an image, (nx, ny): in single precision, the result in that of the image."""
        single = convolve(x.astype(np.float32, copy=False), self._transfer, self._padded, self.nthreads)
        return single.astype(x.dtype, copy=False)

    hdot = dot
