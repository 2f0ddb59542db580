"""Coarser grids: the same Fourier sums up to the band edge, none beyond; and the adjoint."""

import numpy as np
import pytest

from pfb.kernels.decimation import REACH, Decimation
from pfb.testing import check_adjoint

SHAPES = [(200, 160), (161, 203), (470, 1), (1, 1), (64, 3)]
ACCURACY = 1e-3


class Operator:
    """What the shared check of adjoints takes."""

    def __init__(self, shape, band, accuracy):
        op = Decimation(shape, band, accuracy)
        self.domain, self.codomain, self.dtype = shape, op.shape, np.dtype("f4")
        self.dot, self.hdot = op.dot, op.hdot


def sums(x, frequency, cell=1.0):
    """Fourier sums of a line at frequencies per fine pixel, counted from the middle."""
    place = (np.arange(len(x)) - len(x) // 2) * cell
    return np.exp(-2j * np.pi * np.multiply.outer(frequency, place)) @ x


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("band", [(0.25, 0.25), (0.05, 0.31), (0.1, 0.5), (0.02, 0.001)], ids=str)
def test_it_has_an_adjoint(shape, band, rng):
    check_adjoint(Operator(shape, band, ACCURACY), rng, rtol=1e-6)


@pytest.mark.parametrize("accuracy", [1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("band", [0.05, 0.1, 0.25, 0.3])
@pytest.mark.parametrize("n", [800, 801])
def test_fourier_sums_stay_what_they_are(n, band, accuracy, rng):
    """Of single pixels, at the ends too, and of noise."""
    op = Decimation((n, 1), (band, 0.5), accuracy)
    assert op.shape[0] < 0.9 * n
    frequency = np.append(rng.uniform(-band, band, 50), [band, -band, 0])
    for x in (*np.eye(n, dtype="f4")[[0, 1, n // 2, n - 1]], rng.standard_normal(n).astype("f4")):
        found = sums(op.dot(x[:, None])[:, 0], frequency, op.ratio[0])
        limit = accuracy * np.linalg.norm(x) * (1 if np.count_nonzero(x) == 1 else 4) + 1e-5
        assert np.abs(found - sums(x, frequency)).max() < limit


def test_nothing_folds_into_the_band(rng):
    """A wave that the coarse grid would show as a slow one."""
    n, band = 600, 0.1
    op = Decimation((n, 1), (band, 0.5), ACCURACY)
    place = np.arange(n) - n // 2
    wave = np.cos(2 * np.pi * (1 / op.ratio[0] - 0.05) * place) * np.exp(-0.5 * (place / 60) ** 2)
    assert np.abs(op.dot(wave.astype("f4")[:, None])).max() < 2 * ACCURACY
    slow = np.cos(2 * np.pi * 0.05 * place) * np.exp(-0.5 * (place / 60) ** 2)
    assert np.abs(op.dot(slow.astype("f4")[:, None])).max() == pytest.approx(op.ratio[0], rel=0.01)


def test_axes_are_told_apart(rng):
    op = Decimation((900, 310), (0.05, 0.2), ACCURACY)
    assert op.ratio == pytest.approx((8.0, 2.0))
    x = rng.standard_normal((900, 310)).astype("f4")
    u, v = rng.uniform(-0.05, 0.05, 20), rng.uniform(-0.2, 0.2, 20)
    for a, b in zip(u, v, strict=True):
        exact = sums(x @ np.exp(-2j * np.pi * b * (np.arange(310) - 155)), np.array([a]))
        y = op.dot(x)
        inner = y @ np.exp(-2j * np.pi * b * op.ratio[1] * (np.arange(y.shape[1]) - y.shape[1] // 2))
        assert sums(inner, np.array([a]), op.ratio[0]) == pytest.approx(exact, abs=float(5 * ACCURACY * np.linalg.norm(x)))


@pytest.mark.parametrize("band", [0.45, 0.5, 3.0])
def test_what_needs_all_pixels_keeps_them(band, rng):
    x = rng.standard_normal((50, 60)).astype("f4")
    op = Decimation((50, 60), (band, band), ACCURACY)
    assert op.shape == (50, 60)
    assert op.ratio == (1.0, 1.0)
    assert op.dot(x) is x
    assert op.hdot(x) is x


@pytest.mark.parametrize("band", [0.0, 1e-6])
def test_the_filter_stays_near_the_image(band):
    op = Decimation((300, 300), (band, 0.2), ACCURACY)
    assert 300 < op.shape[0] * op.ratio[0] < 300 * (1 + REACH) + 3 * op.ratio[0]


def test_inputs_are_not_changed(rng):
    op = Decimation((200, 220), (0.1, 0.1), ACCURACY)
    x, y = rng.standard_normal((200, 220)).astype("f4"), rng.standard_normal(op.shape).astype("f4")
    before = x.copy(), y.copy()
    op.dot(x)
    op.hdot(y)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])
