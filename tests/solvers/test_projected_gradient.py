"""Least squares with a constraint, against a solver that tries which pixels are zero."""

import numpy as np
import pytest
from scipy.optimize import nnls

from pfb.solvers.projected_gradient import Point, advance, descend, solve


class Matrix:
    def __init__(self, matrix):
        self.matrix = matrix

    def dot(self, x):
        return (self.matrix @ x.ravel()).reshape(x.shape)


@pytest.fixture
def problem(rng):
    """A Hessian, its norm, a start and the slope there, and the solution without negative numbers."""
    a, b, before = rng.standard_normal((30, 12)), rng.standard_normal(30), rng.random((4, 3))
    h = a.T @ a
    slope = (a.T @ b - h @ before.ravel()).reshape(before.shape)
    return Matrix(h), np.linalg.eigvalsh(h)[-1], before, slope, nnls(a, b)[0].reshape(before.shape)


def test_it_finds_the_least_squares(problem):
    hessian, norm, before, slope, expected = problem
    start = before.copy()
    found = solve(hessian, before, slope, lambda x: np.maximum(x, 0), norm, 400)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert (expected == 0).any()
    assert (expected > 0).any()
    assert (before == start).all()


def test_it_diverges_beyond_its_bound_only(problem):
    hessian, norm, before, slope, _ = problem

    def error(lipschitz):
        return np.abs(solve(hessian, before, slope, lambda x: x, lipschitz, 60)).max()

    assert error(norm) < 1e2
    assert not error(norm / 4) < 1e6


def test_a_first_step_is_steepest_descent(problem):
    hessian, norm, before, slope, _ = problem
    np.testing.assert_allclose(descend(Point(before, before), hessian, before, slope, norm), before + slope / norm)


def test_momentum_grows_and_starts_anew_when_it_points_up():
    x = np.array([1.0, 0.0])
    on = advance(Point(x, x + 0.1, 2.0), x + 0.5)
    assert on.momentum == pytest.approx((1 + np.sqrt(17)) / 2)
    np.testing.assert_allclose(on.ahead, x + 0.5 + 0.5 / on.momentum)
    back = advance(Point(x, x + 0.5, 2.0), x + 0.1)
    assert back.momentum == 1
    assert (back.ahead == back.x).all()
