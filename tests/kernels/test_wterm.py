"""The w-term as a sum of products, against the exponential itself."""

import numpy as np
import pytest

from pfb.kernels import wterm

SHAPES = [(8, 8), (7, 9), (10, 7), (1, 5), (6, 1), (1, 1)]
CELLS = 6e-3, 9e-3
SINGLE = 1e-5


def depth(shape):
    """n - 1 of every pixel."""
    l, m = ((np.arange(n) - n // 2) * size for n, size in zip(shape, CELLS, strict=True))
    return np.sqrt(1 - l[:, None] ** 2 - m[None, :] ** 2) - 1


def between(table, place):
    """A table (entry, 2), linearly interpolated."""
    k = np.minimum(place.astype(int), len(table) - 2)
    t = (place - k)[..., None]
    return (1 - t) * table[k] + t * table[k + 1]


def screens(term, n_minus_one):
    """g_j, (..., 2 pairs)."""
    place = n_minus_one / (term.deepest or 1) * (term.screens.shape[1] - 1)
    return np.concatenate([between(table, place) for table in term.screens], axis=-1)


def phases(term, w):
    """a_j of samples, (..., 2 pairs)."""
    place = term.places(np.asarray(w)).astype(float)
    return np.concatenate([between(table, place) for table in term.phases], axis=-1)


@pytest.mark.parametrize("accuracy", [0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("w", [(0.0, 100.0), (30.0, 2e3), (0.0, 2e4)], ids=str)
def test_it_is_the_exponential(w, accuracy, rng):
    """At any w and depth, with a few pairs of screens more than cycles of phase."""
    term = wterm.factorise(w, -1e-3, accuracy)
    at = rng.uniform(-1e-3, 0, 300)
    at_w = np.array([*w, *rng.uniform(*w, 100)])
    exact = np.exp(2j * np.pi * at_w[:, None] * at)
    assert np.abs(phases(term, at_w) @ screens(term, at).T - exact).max() < 1.2 * accuracy + 5e-4
    assert term.npair <= w[1] * 1e-3 + 6


@pytest.mark.parametrize(("w", "deepest"), [((0.0, 0.0), -1e-3), ((5.0, 9.0), 0.0), ((0.0, 0.0), 0.0)])
def test_without_phase_there_is_one_pair_of_screens(w, deepest):
    term = wterm.factorise(w, deepest, 0.1)
    assert term.npair == 1
    at = np.linspace(deepest, 0, 5)
    np.testing.assert_allclose(phases(term, [w[1]]) @ screens(term, at).T, 1, rtol=0, atol=SINGLE)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_deepest_pixel_is_the_first(shape):
    assert wterm.deepest(shape, CELLS) == pytest.approx(depth(shape)[0, 0], abs=1e-15)
    assert wterm.deepest((400, 400), (5e-3, 5e-3)) == -1


def term_of(shape):
    return wterm.factorise((0.0, 900.0), wterm.deepest(shape, CELLS), 1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_screens_lie_on_the_image(shape, rng):
    term, image = term_of(shape), rng.standard_normal(shape).astype("f4")
    before = image.copy()
    g = screens(term, depth(shape))
    for pair in range(term.npair):
        found = wterm.modulate(image, term, pair, CELLS)
        assert found.dtype == np.complex64
        np.testing.assert_allclose(found, image * (g[..., 2 * pair] + 1j * g[..., 2 * pair + 1]), rtol=0, atol=1e-4)
    assert (image == before).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_demodulation_is_the_adjoint(shape, rng):
    """Of real images and of complex grids as pairs of real ones; it adds to what is there."""
    term, x = term_of(shape), rng.standard_normal(shape).astype("f4")
    z = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype("c8")
    for pair in range(term.npair):
        out = np.ones(shape, "f4")
        wterm.demodulate(z, term, pair, CELLS, out)
        left = np.vdot(wterm.modulate(x, term, pair, CELLS), z).real
        assert left == pytest.approx(np.vdot(x, out - 1), rel=1e-4, abs=1e-4)


def test_samples_are_made_of_two_real_images(rng):
    """Their transforms are taken apart again by what is opposite: F(g + i h) at u and -u."""
    term, n = term_of((8, 8)), 40
    first, second = (rng.standard_normal(n) + 1j * rng.standard_normal(n) for _ in range(2))
    points = np.array([first + 1j * second, np.conj(first) + 1j * np.conj(second)]).astype("c8")
    w = rng.uniform(0, 900, n)
    for pair in range(term.npair):
        a, b = phases(term, w).T[2 * pair : 2 * pair + 2]
        vis = np.ones(n, "c8")
        wterm.collect(points, term.places(w), term, pair, vis)
        np.testing.assert_allclose(vis, 1 + a * first + b * second, rtol=0, atol=SINGLE * 10)


def test_spreading_is_the_adjoint_of_collecting(rng):
    term, n = term_of((8, 8)), 40
    places = term.places(rng.uniform(0, 900, n))
    points = (rng.standard_normal((2, n)) + 1j * rng.standard_normal((2, n))).astype("c8")
    vis = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype("c8")
    for pair in range(term.npair):
        forward, back = np.zeros(n, "c8"), np.empty((2, n), "c8")
        wterm.collect(points, places, term, pair, forward)
        wterm.spread(vis, places, term, pair, back)
        assert np.vdot(vis, forward).real == pytest.approx(np.vdot(back, points).real, rel=1e-4)
