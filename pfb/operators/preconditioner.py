"""A preconditioner for the primal-dual iteration of one band."""

from __future__ import annotations

import numpy as np

from pfb.kernels.convolution import convolve
from pfb.operators.hessian import PsfHessian
from pfb.types import Real

ITERATIONS = 60
"""Of the power method: after so many the norm of the preconditioned Hessian stands within 1 %."""
MARGIN = 1.05
"""What the norm is multiplied by, since a power method approaches it from below."""


class Preconditioner:
    r"""A symmetric positive operator T that may replace the step size of the primal.

    It inverts the Hessian where the data constrain the image and is a plain step elsewhere,

    .. math:: T = \frac{1}{c}\, C F^{-1} \left(\frac{|\hat p| + \eta}{\gamma} + s\right)^{-1} F C^T,

    with c such that :math:`T^{-1} - s > H / (2\gamma)`, the bound of the iteration: the crop C makes
    the circulant inverse differ from the true one, so c is measured.

    Parameters
    ----------
    hessian : PsfHessian
        H.
    gamma : float
        Step of the forward-backward iteration; the smooth term is H / gamma.
    shift : float
        s, the squared norms of the dual operators times their step sizes.

    Attributes
    ----------
    domain, codomain, dtype
        Those of the Hessian.
    scale : float
        c.
    """

    def __init__(self, hessian: PsfHessian, gamma: float, shift: float) -> None:
        self.domain, self.codomain, self.dtype = hessian.domain, hessian.codomain, hessian.dtype
        self.nthreads = hessian.nthreads
        self._padded = hessian.padded
        self._transfer = 1 / ((hessian.transfer + hessian.eta) / gamma + shift)
        self.scale = MARGIN * self._norm(hessian, gamma, shift)
        self._transfer /= self.scale

    def dot(self, x: Real) -> Real:
        """Apply the operator to an image."""
        return convolve(x, self._transfer.astype(x.dtype, copy=False), self._padded, self.nthreads)

    hdot = dot

    def _norm(self, hessian: PsfHessian, gamma: float, shift: float) -> float:
        """Largest eigenvalue of T (H / (2 gamma) + s): similar to a symmetric operator, so the power method finds it."""
        x: Real = np.random.default_rng(1851).standard_normal(self.domain).astype(self.dtype)
        norm = 1.0
        for _ in range(ITERATIONS):
            x /= np.linalg.norm(x)
            x = self.dot(hessian.dot(x) / (2 * gamma) + shift * x)
            norm = float(np.linalg.norm(x))
        return norm
