"""The spectral norm of a symmetric positive operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pfb.types import Real


def start_vector(shape: tuple[int, ...], dtype: object = np.float64) -> Real:
    """Return the fixed start of the power method: noise of all spatial frequencies alike, the same in every run."""
    # Of no mean: a positive vector is nearly an eigenvector of a convolution (its mean), where the estimate
    # stands still before the frequencies of larger eigenvalues have grown.
    x = np.random.default_rng(1851).standard_normal(shape)
    return x.astype(np.dtype(dtype))  # type: ignore[call-overload]


def spectral_norm(operator: Callable[[Real], Real], start: Real, *, tol: float = 1e-3, maxit: int = 100) -> float:
    """Estimate the largest eigenvalue by the power method; the estimate is never above it.

    Parameters
    ----------
    operator
        Applies the operator, symmetric and positive.
    start : ndarray
        First vector, e.g. of `start_vector`; runs are reproducible because it is given.
    tol : float
        Stop when an iteration changes the estimate by less than this fraction.
    maxit : int
        Iterations at most.
    """
    x = start / np.linalg.norm(start)
    estimate = 0.0
    for _ in range(maxit):
        x = operator(x)
        previous, estimate = estimate, float(np.linalg.norm(x))
        if estimate == 0 or abs(estimate - previous) < tol * estimate:
            break
        x /= estimate
    return estimate
