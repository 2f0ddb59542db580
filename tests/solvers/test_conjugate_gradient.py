"""Conjugate gradients against a dense solver."""

import numpy as np
import pytest

from pfb.solvers.conjugate_gradient import conjugate_gradient

SHAPE = (4, 5)


@pytest.fixture
def matrix(rng):
    """Symmetric and positive, its eigenvalues from 1 to 30."""
    q = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    return (q * np.linspace(1, 30, 20)) @ q.T


@pytest.fixture
def operator(matrix):
    """The matrix on images, which counts how often it is applied."""

    def apply(x):
        apply.calls += 1
        return (matrix.astype(x.dtype) @ x.ravel()).reshape(x.shape)

    apply.calls = 0
    return apply


def relative(operator, x, b):
    return np.linalg.norm(b - operator(x)) / np.linalg.norm(b)


def test_solution_is_that_of_a_dense_solver(matrix, operator, rng):
    b = rng.standard_normal(SHAPE)
    found = conjugate_gradient(operator, b, tol=1e-12, maxit=100)
    np.testing.assert_allclose(found.x.ravel(), np.linalg.solve(matrix, b.ravel()), rtol=1e-10, atol=1e-11)
    assert found.residual < 1e-12


def test_as_many_iterations_as_distinct_eigenvalues(rng):
    diagonal = np.repeat([1.0, 3.0, 10.0, 40.0], 5).reshape(SHAPE)
    found = conjugate_gradient(lambda x: diagonal * x, rng.standard_normal(SHAPE), tol=1e-10, maxit=100)
    assert found.iterations == 4


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_it_stops_at_the_tolerance_and_says_where(tol, operator, rng):
    b = rng.standard_normal(SHAPE)
    found = conjugate_gradient(operator, b, tol=tol, maxit=100)
    assert relative(operator, found.x, b) == pytest.approx(found.residual, rel=1e-6)
    assert found.residual < tol
    before = conjugate_gradient(operator, b, tol=0.0, maxit=found.iterations - 1)
    assert before.residual >= tol


@pytest.mark.parametrize("maxit", [0, 1, 3])
def test_it_stops_at_the_limit(maxit, operator, rng):
    b = rng.standard_normal(SHAPE)
    found = conjugate_gradient(operator, b, tol=1e-14, maxit=maxit)
    assert found.iterations == operator.calls == maxit
    assert found.residual == pytest.approx(relative(operator, found.x, b))


def test_every_iteration_lowers_the_energy(matrix, operator, rng):
    b = rng.standard_normal(SHAPE)

    def energy(x):
        return 0.5 * np.vdot(x, operator(x)) - np.vdot(b, x)

    energies = [energy(conjugate_gradient(operator, b, tol=0.0, maxit=k).x) for k in range(15)]
    assert (np.diff(energies) < 0).all()


def test_a_warm_start_from_nearby_is_shorter(matrix, operator, rng):
    b = rng.standard_normal(SHAPE)
    near = np.linalg.solve(matrix, b.ravel()).reshape(SHAPE) + 1e-3 * rng.standard_normal(SHAPE)
    cold = conjugate_gradient(operator, b, tol=1e-5, maxit=100)
    warm = conjugate_gradient(operator, b, x0=near, tol=1e-5, maxit=100)
    assert warm.iterations < cold.iterations
    assert relative(operator, warm.x, b) < 1e-5


def test_a_start_at_the_solution_stays(matrix, operator, rng):
    b = rng.standard_normal(SHAPE)
    x0 = np.linalg.solve(matrix, b.ravel()).reshape(SHAPE)
    found = conjugate_gradient(operator, b, x0=x0, tol=1e-6, maxit=100)
    assert found.iterations == 0
    np.testing.assert_array_equal(found.x, x0)
    assert found.x is not x0


@pytest.mark.parametrize("start", [None, 1.0])
def test_nothing_has_the_solution_nothing(start, operator):
    x0 = None if start is None else np.full(SHAPE, start)
    found = conjugate_gradient(operator, np.zeros(SHAPE), x0=x0, tol=1e-3, maxit=10)
    assert not found.x.any()
    assert (found.iterations, found.residual) == (0, 0.0)


def test_inputs_are_not_changed(operator, rng):
    b, x0 = rng.standard_normal(SHAPE), rng.standard_normal(SHAPE)
    before = b.copy(), x0.copy()
    conjugate_gradient(operator, b, x0=x0, tol=1e-6, maxit=20)
    conjugate_gradient(operator, b, tol=1e-6, maxit=20)
    assert (b == before[0]).all()
    assert (x0 == before[1]).all()


def test_single_precision_stays_single(matrix, operator, rng):
    b = rng.standard_normal(SHAPE).astype("f4")
    found = conjugate_gradient(operator, b, tol=1e-4, maxit=100)
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x.ravel(), np.linalg.solve(matrix, b.ravel()), rtol=0, atol=1e-3)
