"""Conjugate gradients for a symmetric positive operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pfb.types import Real


class Solution(NamedTuple):
    """What `conjugate_gradient` found."""

    x: Real
    iterations: int
    residual: float
    """Norm of the residual over that of the right-hand side."""


def conjugate_gradient(operator: Callable[[Real], Real], b: Real, *, x0: Real | None = None, tol: float, maxit: int) -> Solution:
    r"""Solve :math:`H x = b`.

    Parameters
    ----------
    operator
        Applies H, symmetric and positive.
    b : ndarray
        Right-hand side; not changed.
    x0 : ndarray, optional
        Start; zero by default. Not changed.
    tol : float
        Stop when :math:`\lVert b - Hx \rVert < tol \lVert b \rVert`.
    maxit : int
        Iterations at most.

    References
    ----------
    .. [1] Hestenes M. & Stiefel E. 1952, J. Res. Natl. Bur. Stand. 49, 409.
    """
    norm = float(np.vdot(b, b))
    if norm == 0:
        return Solution(np.zeros_like(b), 0, 0.0)
    x = np.zeros_like(b) if x0 is None else x0.copy()
    r = b.copy() if x0 is None else b - operator(x)
    p = r.copy()
    rho = float(np.vdot(r, r))
    iterations = 0
    while rho > tol**2 * norm and iterations < maxit:
        q = operator(p)
        step = rho / float(np.vdot(p, q))
        x += step * p
        r -= step * q
        previous, rho = rho, float(np.vdot(r, r))
        p *= rho / previous
        p += r
        iterations += 1
    return Solution(x, iterations, float(np.sqrt(rho / norm)))
