"""Accelerated projected gradients: least squares with a constraint."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pfb.types import LinearOperator, Real


class Point(NamedTuple):
    """Where an iteration is."""

    x: Real
    """Obeys the constraint."""
    ahead: Real
    """Where the next gradient is taken."""
    momentum: float = 1.0


def descend(point: Point, hessian: LinearOperator, before: Real, slope: Real, lipschitz: float) -> Real:
    r"""Take a step down :math:`1/2 \lVert x - x_0 \rVert_H^2 - \langle s, x - x_0 \rangle` from `point.ahead`.

    Parameters
    ----------
    point : Point
    hessian
        H, symmetric and positive.
    before, slope : (nx, ny) float
        x_0, and the steepest descent s there.
    lipschitz : float
        Not below the largest eigenvalue of H, or it diverges.
    """
    gradient = hessian.dot(point.ahead - before) - slope
    return point.ahead - gradient / lipschitz


def advance(point: Point, projected: Real) -> Point:
    """Return the next point, after the step was projected onto the constraint [1]_.

    The momentum starts anew when it points up [2]_.

    References
    ----------
    .. [1] Beck A. & Teboulle M. 2009, SIAM J. Imaging Sci. 2, 183.
    .. [2] O'Donoghue B. & Candes E. 2015, Found. Comput. Math. 15, 715.
    """
    step = projected - point.x
    if float(np.vdot(point.ahead - projected, step)) > 0:
        return Point(projected, projected)
    momentum = (1 + math.sqrt(1 + 4 * point.momentum**2)) / 2
    return Point(projected, projected + step * ((point.momentum - 1) / momentum), momentum)


def solve(
    hessian: LinearOperator, before: Real, slope: Real, project: Callable[[Real], Real], lipschitz: float, maxit: int
) -> Real:
    """Do so many iterations from x_0; see `descend` and `advance`."""
    point = Point(before, before)
    for _ in range(maxit):
        point = advance(point, project(descend(point, hessian, before, slope, lipschitz)))
    return point.x
