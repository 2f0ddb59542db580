"""The Lanczos method against dense generalised eigenvalues."""

import numpy as np
import pytest
from scipy.linalg import eigh

from pfb.solvers.lanczos import largest_eigenvalue, start_vector

SHAPES = [(1, 1), (1, 2), (1, 7), (7, 1), (3, 4), (5, 6), (9, 11)]
# Of the largest eigenvalue, relative: rounding of a few tens of dense products.
ROUNDING = 1e-12


def operator(matrix):
    return lambda x: (matrix.astype(x.dtype) @ x.ravel()).reshape(x.shape)


def identity(x):
    return x


def definite(size, rng, values=None):
    """A symmetric matrix with these eigenvalues."""
    q, _ = np.linalg.qr(rng.standard_normal((size, size)))
    values = rng.uniform(0.1, 1, size) if values is None else values
    return (q * values) @ q.T


def truth(a, b):
    """The largest eigenvalue of A B: A B x = k x is B x = k A^-1 x."""
    return eigh(b, np.linalg.inv(a), eigvals_only=True)[-1]


class Counted:
    """An operator that counts how often it is applied."""

    def __init__(self, matrix):
        self.apply, self.count = operator(matrix), 0

    def __call__(self, x):
        self.count += 1
        return self.apply(x)


@pytest.fixture(params=range(3))
def pair(request, shape):
    """Two positive matrices for images of a shape, and the largest eigenvalue of their product."""
    rng = np.random.default_rng(request.param)
    a, b = (definite(shape[0] * shape[1], rng) for _ in range(2))
    return operator(a), operator(b), truth(a, b)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_largest_generalised_eigenvalue(shape, pair):
    first, second, largest = pair
    found = largest_eigenvalue(first, second, start_vector(shape), tol=0.0, maxit=200)
    assert found == pytest.approx(largest, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_with_its_defaults_it_is_close_and_never_above(shape, pair):
    first, second, largest = pair
    found = largest_eigenvalue(first, second, start_vector(shape))
    assert 0.99 * largest < found <= largest * (1 + ROUNDING)


@pytest.mark.parametrize("maxit", range(1, 60, 4))
def test_each_iteration_comes_closer_from_below(maxit, rng):
    a, b = definite(30, rng), definite(30, rng)
    few, more = (largest_eigenvalue(operator(a), operator(b), start_vector((5, 6)), tol=0.0, maxit=n) for n in (maxit, maxit + 1))
    largest = truth(a, b)
    assert few <= more * (1 + ROUNDING)
    assert more <= largest * (1 + ROUNDING)


@pytest.mark.parametrize("one", ["first", "second"])
def test_identity_as_one_of_them(one, rng):
    matrix = definite(30, rng)
    pair = (operator(matrix), identity) if one == "first" else (identity, operator(matrix))
    found = largest_eigenvalue(*pair, start_vector((5, 6)), tol=0.0, maxit=100)
    assert found == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-10)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_multiple_of_the_identity_is_exact(scale):
    found = largest_eigenvalue(lambda x: scale * x, identity, start_vector((5, 6)))
    assert found == pytest.approx(scale, rel=1e-14)


CLUSTERED = {
    "two values": np.repeat([0.2, 3.0], [20, 10]),
    "a cluster at the top": np.concatenate([np.linspace(0.1, 1, 20), 3 + 1e-6 * np.arange(10)]),
    "a cluster below the top": np.concatenate([1 + 1e-6 * np.arange(29), [3.0]]),
    "mostly zero": np.repeat([0.0, 3.0], [27, 3]),
}


@pytest.mark.parametrize("values", CLUSTERED.values(), ids=list(CLUSTERED))
def test_clustered_eigenvalues(values, rng):
    """The Krylov space is used up early, and what follows would be rounding."""
    matrix = definite(30, rng, values)
    found = largest_eigenvalue(operator(matrix), identity, start_vector((5, 6)), tol=0.0, maxit=200)
    assert found == pytest.approx(values.max(), rel=1e-5)
    assert found <= values.max() * (1 + ROUNDING)


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 0), (0, 0)])
def test_nothing_has_no_eigenvalue_but_zero(a, b):
    assert largest_eigenvalue(lambda x: a * x, lambda x: b * x, start_vector((5, 6))) == 0.0


def test_a_convolution_is_not_mistaken_for_its_mean(rng):
    """The largest eigenvalues of a Hessian often belong to a few frequencies, and the mean has one of middling size."""
    transfer = rng.uniform(0, 0.1, (64, 33))
    transfer[0, 0], transfer[3, 5] = 0.7, 1.0
    found = largest_eigenvalue(lambda x: np.fft.irfft2(transfer * np.fft.rfft2(x), x.shape), identity, start_vector((64, 64)))
    assert 0.99 < found <= 1 + ROUNDING


@pytest.mark.parametrize("maxit", [1, 2, 7, 20])
def test_each_iteration_applies_both_once(maxit, rng):
    a, b = Counted(definite(30, rng)), Counted(definite(30, rng))
    largest_eigenvalue(a, b, start_vector((5, 6)), tol=0.0, maxit=maxit)
    assert a.count == maxit
    assert b.count <= maxit + 1


def test_no_more_iterations_than_pixels(rng):
    a = Counted(definite(3, rng))
    largest_eigenvalue(a, identity, start_vector((1, 3)), tol=0.0, maxit=100)
    assert a.count <= 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_more_iterations_than_different_eigenvalues(number, rng):
    """Then the direction that is left is mere rounding."""
    a = Counted(definite(30, rng, np.arange(1, number + 1)[np.arange(30) % number]))
    found = largest_eigenvalue(a, identity, start_vector((5, 6)), tol=0.0, maxit=20)
    assert a.count == number
    assert found == pytest.approx(number, rel=1e-12)


def test_the_tolerance_stops_it(rng):
    values = np.linspace(0, 1, 400) ** 0.5  # dense up to the largest
    counts = []
    for tol in (1e-1, 1e-3, 0.0):
        a = Counted(definite(400, rng, values))
        largest_eigenvalue(a, identity, start_vector((20, 20)), tol=tol, maxit=40)
        counts.append(a.count)
    assert counts[0] < counts[1] < counts[2] == 40


def test_fewer_applications_than_the_power_method_needs(rng):
    """For an error of 1 %, with eigenvalues dense up to the largest, as those of a convolution are."""
    matrix = definite(900, rng, np.linspace(0, 1, 900) ** 0.5)
    counted = Counted(matrix)
    found = largest_eigenvalue(counted, identity, start_vector((30, 30)), tol=1e-3)
    assert found > 0.99
    x, powers, norm = start_vector((30, 30)).ravel(), 0, 0.0
    while norm < 0.99:
        x = matrix @ (x / np.linalg.norm(x))
        norm, powers = np.linalg.norm(x), powers + 1
    assert 2 * counted.count < powers


def test_it_scales_with_the_operators(rng):
    a, b = definite(30, rng), definite(30, rng)
    one, three = (largest_eigenvalue(operator(s * a), operator(b), start_vector((5, 6))) for s in (1, 3))
    assert three == pytest.approx(3 * one, rel=1e-10)


@pytest.mark.parametrize("single", ["first", "second", "both"])
def test_operators_that_work_in_single_precision(single, rng):
    a, b = definite(30, rng), definite(30, rng)

    def rounded(matrix):
        return lambda x: operator(matrix)(x.astype("f4")).astype("f8")

    first = (operator if single == "second" else rounded)(a)
    second = (operator if single == "first" else rounded)(b)
    found = largest_eigenvalue(first, second, start_vector((5, 6)), tol=0.0)
    assert found == pytest.approx(truth(a, b), rel=1e-5)


def test_runs_repeat_to_the_bit(rng):
    a, b = definite(30, rng), definite(30, rng)
    np.random.seed(1)
    first = largest_eigenvalue(operator(a), operator(b), start_vector((5, 6)))
    np.random.seed(2)
    assert largest_eigenvalue(operator(a), operator(b), start_vector((5, 6))) == first


def test_start_is_not_changed(rng):
    start = start_vector((5, 6))
    largest_eigenvalue(identity, identity, start)
    largest_eigenvalue(operator(definite(30, rng)), identity, start)
    np.testing.assert_array_equal(start, start_vector((5, 6)))


def test_start_is_fixed_and_has_all_frequencies_alike():
    x = start_vector((40, 30))
    assert (x.shape, x.dtype) == ((40, 30), np.float64)
    np.testing.assert_array_equal(x, start_vector((40, 30)))
    power = np.abs(np.fft.fft2(x)) ** 2
    assert power[0, 0] < 10 * power.mean()  # a positive vector's is as large as all others together
    assert power.min() > 0
