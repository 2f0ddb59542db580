"""The dictionary of several bases: a tight frame for any size."""

import numpy as np
import pytest

from pfb.errors import InputError, ShapeError
from pfb.kernels.wavelets import NAMES, analyse, ncoefficient
from pfb.operators.wavelets import Dictionary
from pfb.solvers.lanczos import largest_eigenvalue, start_vector


@pytest.mark.parametrize("bases", [NAMES, ("self",), ("db4", "self", "db1")], ids="-".join)
@pytest.mark.parametrize("shape", [(8, 8), (16, 12), (7, 9), (13, 31), (1, 5), (5, 1), (1, 1)], ids=str)
def test_psi_psi_h_is_the_number_of_bases(shape, bases, rng):
    op = Dictionary(shape, bases, 3)
    x = rng.standard_normal(shape)
    a = op.dot(x)
    np.testing.assert_allclose(op.hdot(a), len(bases) * x, rtol=0, atol=1e-14 * len(bases))
    assert np.vdot(a, a) == pytest.approx(len(bases) * np.vdot(x, x), rel=1e-14)
    assert op.norm_squared == len(bases)


def test_norm_squared_is_the_squared_spectral_norm():
    op = Dictionary((7, 9), NAMES[:4], 2)
    gram = largest_eigenvalue(lambda x: op.hdot(op.dot(x)), lambda x: x, start_vector(op.domain))
    assert gram == pytest.approx(op.norm_squared)


def test_coefficients_of_a_point():
    """Of db1 at one level, (a b; c d) / 2 with the signs of the Haar filters; and the pixels themselves."""
    x = np.zeros((2, 2))
    x[0, 1] = 4.0
    a = Dictionary((2, 2), ("db1", "self"), 1).dot(x)
    np.testing.assert_allclose(a, [[2, -2, -2, 2], [0, 4, 0, 0]], rtol=0, atol=1e-15)


def test_rows_are_the_bases_padded_with_zeros(rng):
    op = Dictionary((7, 9), NAMES, 3)
    x = rng.standard_normal((7, 9))
    a = op.dot(x)
    lengths = [ncoefficient((7, 9), name, 3) for name in NAMES]
    assert op.codomain == (9, max(lengths))
    for name, row, n in zip(NAMES, a, lengths, strict=True):
        expected = np.empty(n)
        analyse(x, name, 3, expected)
        np.testing.assert_array_equal(row[:n], expected)
        np.testing.assert_array_equal(row[n:], 0)


def test_dot_fills_out_whatever_was_in_it(rng):
    op = Dictionary((7, 9), ("self", "db3"), 2)
    x = rng.standard_normal((7, 9))
    cube = np.full((2, 3, op.codomain[1]), np.nan)  # basis, band, coefficient, as solvers keep it
    assert op.dot(x, out=cube[:, 1]).base is cube
    np.testing.assert_array_equal(cube[:, 1], op.dot(x))
    assert np.isnan(cube[:, [0, 2]]).all()


def test_subsets_add_up_to_the_whole(rng):
    op = Dictionary((7, 9), NAMES, 2)
    x = rng.standard_normal((7, 9))
    parts = [op.subset(0, 4), op.subset(4, 9)]
    a = [part.dot(x) for part in parts]
    np.testing.assert_array_equal(np.concatenate(a), op.dot(x))
    back = sum(part.hdot(b) for part, b in zip(parts, a, strict=True))
    np.testing.assert_allclose(back, 9 * x, rtol=0, atol=1e-13)
    assert [part.norm_squared for part in parts] == [4, 5]


@pytest.mark.parametrize(("bases", "message"), [
    (("self", "db9"), "bases are self, db9 but must be different ones of self, db1, .* db8"),
    (("db1", "db1"), "bases are db1, db1 but must be different"),
    ((), "bases are none but must be different"),
])  # fmt: skip
def test_bad_bases_are_refused(bases, message):
    with pytest.raises(InputError, match=message):
        Dictionary((8, 8), bases, 2)


def test_a_coefficient_axis_too_short_is_refused():
    with pytest.raises(ShapeError, match=r"has length 63 but the bases .* need 80"):
        Dictionary((7, 9), ("self", "db1"), 1, size=63)


def test_arrays_of_another_shape_are_refused():
    op = Dictionary((7, 9), ("self",), 1)
    with pytest.raises(ShapeError, match=r"an image of shape \(7, 9\), got \(9, 7\)"):
        op.dot(np.zeros((9, 7)))
    with pytest.raises(ShapeError, match=r"coefficients of shape \(1, 63\), got \(63,\)"):
        op.hdot(np.zeros(63))
