"""What every linear operator owes: adjoint, linearity, purity, precision, pickling, on any size."""

import pickle

import dask
import numpy as np
import pytest

from pfb.kernels.wavelets import NAMES
from pfb.operators.hessian import PsfHessian, VisibilityHessian
from pfb.operators.measurement import Gridder, Measurement
from pfb.operators.preconditioner import Preconditioner
from pfb.operators.primary_beam import Screened
from pfb.operators.wavelets import Dictionary
from pfb.testing import check_adjoint, check_linear, refuse
from pfb.types import Visibilities

# Even, non-square, odd, length one in one or both axes, prime.
SHAPES = [(8, 8), (8, 6), (7, 9), (1, 5), (5, 1), (1, 1), (13, 17), (31, 2)]


def dictionary(shape, dtype, rng):
    return Dictionary(shape, NAMES, 3, dtype)


def padded_dictionary(shape, dtype, rng):
    largest = Dictionary(shape, NAMES, 3).codomain[1]
    return Dictionary(shape, ("db4", "self", "db1"), 2, dtype, size=largest + 3)


def subset_of_dictionary(shape, dtype, rng):
    return Dictionary(shape, NAMES, 3, dtype).subset(2, 5)


def psf_hessian(shape, dtype, rng):
    """Of a symmetric PSF, twice the image."""
    psf = rng.standard_normal([2 * n + 1 for n in shape])
    return PsfHessian((psf + psf[::-1, ::-1]).astype(dtype), shape, 3.0, eta=0.1)


def psf_hessian_of_an_asymmetric_psf(shape, dtype, rng):
    """As wide as the image, even in y: the least that is allowed."""
    psf = rng.standard_normal((shape[0], shape[1] + shape[1] % 2)).astype(dtype)
    return PsfHessian(psf, shape, 3.0)


def preconditioner(shape, dtype, rng):
    return Preconditioner(psf_hessian(shape, dtype, rng), 0.9, 0.3)


def visibility_hessian(shape, dtype, rng):
    """Wide field, long w, weights of some of the samples zero."""
    weight = rng.uniform(0, 2, (12, 3)) * (rng.random((12, 3)) > 0.2)
    freq = np.array([1.0e9, 1.1e9, 1.3e9])
    part = Visibilities(20 * rng.standard_normal((12, 3)), freq, np.zeros(weight.shape, complex), weight.astype(dtype))
    return VisibilityHessian([part], Gridder(shape, 2e-3), weight.sum(), eta=0.1)


def measurement(shape, dtype, rng):
    """Wide field, long w, tight tolerance where the precision allows one."""
    uvw = 200 * rng.standard_normal((12, 3))
    epsilon = 1e-12 if np.dtype(dtype) == np.float64 else 1e-4
    return Measurement(uvw, np.array([1.0e9, 1.1e9, 1.3e9]), Gridder(shape, 2e-3, epsilon), dtype)


def measurement_without_w(shape, dtype, rng):
    uvw = 200 * rng.standard_normal((12, 3))
    return Measurement(uvw, np.array([1.0e9]), Gridder(shape, 2e-3, 1e-4, wgridding=False), dtype)


def screened(shape, dtype, rng):
    return Screened(psf_hessian(shape, dtype, rng), rng.uniform(0, 2, shape).astype(dtype), 0.1)


OPERATORS = [  # a new operator adds its factory here, and is tested
    dictionary,
    padded_dictionary,
    subset_of_dictionary,
    psf_hessian,
    preconditioner,
    screened,
    psf_hessian_of_an_asymmetric_psf,
    visibility_hessian,
    measurement,
    measurement_without_w,
]
SINGLE = {preconditioner, visibility_hessian}
"""Those that work in single precision whatever their input has, and are checked to it."""


def rounding(make):
    """The tolerance of a check; None is that of the operator's precision."""
    return 50 * float(np.finfo("f4").eps) if make in SINGLE else None


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", OPERATORS, ids=lambda f: f.__name__)
class TestEveryOperator:
    def test_adjoint_pure_and_of_one_precision(self, make, shape, dtype, rng):
        check_adjoint(make(shape, dtype, rng), rng, rounding(make))

    def test_linear(self, make, shape, dtype, rng):
        check_linear(make(shape, dtype, rng), rng, rounding(make))

    def test_travels_to_a_worker(self, make, shape, dtype, rng):
        op = make(shape, dtype, rng)
        x = rng.standard_normal(op.domain).astype(dtype)
        copy = pickle.loads(pickle.dumps(op))
        y = op.dot(x)
        np.testing.assert_array_equal(copy.dot(x), y)
        np.testing.assert_array_equal(copy.hdot(y), op.hdot(y))

    def test_same_bits_whatever_the_layout_in_memory(self, make, shape, dtype, rng):
        op = make(shape, dtype, rng)
        x = rng.standard_normal(op.domain).astype(dtype)
        wide = np.zeros([2 * n for n in op.domain], dtype)[::2, ::2]
        wide[...] = x
        for same in (np.asfortranarray(x), wide):
            np.testing.assert_array_equal(op.dot(same), op.dot(x))


# The checks find what they are for.


@pytest.fixture
def matrix(rng):
    """A real matrix as an operator, whose parts a test may spoil."""

    class Matrix:
        domain, codomain, dtype = (3,), (4,), np.dtype("f8")
        rows = rng.standard_normal((4, 3))

        def dot(self, x):
            return self.rows @ x

        def hdot(self, y):
            return self.rows.T @ y

    return Matrix()


def test_checks_pass_a_matrix(matrix, rng):
    check_adjoint(matrix, rng)
    check_linear(matrix, rng)


def test_check_adjoint_names_a_factor_of_two(matrix, rng):
    matrix.hdot = lambda y: 2 * (matrix.rows.T @ y)
    with pytest.raises(AssertionError, match=r"Matrix\(3,\): .*\(ratio 2\)"):
        check_adjoint(matrix, rng)


def test_check_adjoint_catches_a_missing_conjugate(rng):
    op = measurement((7, 9), "f8", rng)
    hdot = op.hdot
    op.hdot = lambda y: hdot(y.conj())
    with pytest.raises(AssertionError, match="ratio"):
        check_adjoint(op, rng)


def test_check_adjoint_catches_a_missing_transpose(matrix, rng):
    matrix.domain, matrix.rows = (4,), rng.standard_normal((4, 4))
    matrix.hdot = matrix.dot
    with pytest.raises(AssertionError, match="ratio"):
        check_adjoint(matrix, rng)


def test_check_adjoint_catches_a_wrong_shape(matrix, rng):
    matrix.codomain = (5,)
    matrix.hdot = lambda y: np.zeros(3)
    with pytest.raises(AssertionError, match=r"dot returns shape \(4,\), not \(5,\)"):
        check_adjoint(matrix, rng)


def test_check_adjoint_catches_a_changed_input(matrix, rng):
    def hdot(y):
        image = matrix.rows.T @ y
        y *= 2
        return image

    matrix.hdot = hdot
    with pytest.raises(AssertionError, match="hdot changed its input"):
        check_adjoint(matrix, rng)


def test_check_adjoint_catches_a_changed_precision(matrix, rng):
    matrix.dtype = np.dtype("f4")
    with pytest.raises(AssertionError, match="changed the precision to float64"):
        check_adjoint(matrix, rng)


@pytest.mark.parametrize("part", ["dot", "hdot"])
@pytest.mark.parametrize("spoil", [np.square, lambda y: y + 1], ids=["square", "offset"])
def test_check_linear_catches(part, spoil, matrix, rng):
    honest = getattr(matrix, part)

    def spoilt(x):
        return spoil(honest(x))

    setattr(matrix, part, spoilt)
    with pytest.raises(AssertionError, match="spoilt is not linear"):
        check_linear(matrix, rng)


def test_refuse_lets_nothing_run():
    lazy = dask.delayed(abs)(-1)
    with dask.config.set(scheduler=refuse), pytest.raises(AssertionError, match="the builder computed"):
        lazy.compute()
    assert lazy.compute(scheduler="sync") == 1
