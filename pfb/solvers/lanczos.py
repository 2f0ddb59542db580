"""The largest eigenvalue of a product of two symmetric positive operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pfb.types import Real


def start_vector(shape: tuple[int, ...]) -> Real:
    """Return the fixed start: noise of all spatial frequencies alike, the same in every run."""
    return np.random.default_rng(1851).standard_normal(shape)


def largest_eigenvalue(
    first: Callable[[Real], Real], second: Callable[[Real], Real], start: Real, *, tol: float = 1e-3, maxit: int = 40
) -> float:
    """Estimate the largest eigenvalue of A B by the Lanczos method; the estimate is never above it.

    A B is symmetric in the inner product of B, which the iteration works in.

    Parameters
    ----------
    first, second
        Apply A and B, both symmetric and positive.
    start : ndarray
        First vector; runs are reproducible because it is given.
    tol : float
        Stop when five iterations change the estimate by less than this fraction.
    maxit : int
        Iterations at most, one application of A and of B each.

    References
    ----------
    .. [1] Lanczos C. 1950, J. Res. Natl. Bur. Stand. 45, 255.
    """
    q, previous = start, np.zeros_like(start)
    bq = second(q)
    norm = float(np.sqrt(np.vdot(q, bq)))
    diagonal: list[float] = []
    beside: list[float] = []
    estimates = [0.0]
    while norm > 0 and len(diagonal) < min(maxit, start.size):
        q, bq = q / norm, bq / norm
        z = first(bq)
        diagonal.append(float(np.vdot(bq, z)))
        z -= diagonal[-1] * q
        if beside:
            z -= beside[-1] * previous
        estimates.append(float(np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))[-1]))
        if len(estimates) > 5 and estimates[-1] - estimates[-6] < tol * estimates[-1]:
            break
        previous, q = q, z
        bq = second(q)
        square = float(np.vdot(q, bq))
        norm = float(np.sqrt(max(square, 0.0)))
        # What is left of q has no direction of its own once it is mere rounding.
        if norm < 1e-6 * diagonal[-1]:
            break
        beside.append(norm)
    return estimates[-1]
