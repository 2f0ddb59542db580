"""The w-term as a sum of products, against the exponential itself."""

import numpy as np
import pytest

from pfb.kernels import wterm

SHAPES = [(8, 8), (7, 9), (10, 7), (1, 5), (6, 1), (1, 1)]
CELL = 6e-3
CELLS = CELL, 1.5 * CELL
SINGLE = 1e-5


def depth(shape, cell=(CELL, CELL)):
    """n - 1 of every pixel."""
    l, m = ((np.arange(n) - n // 2) * size for n, size in zip(shape, cell, strict=True))
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


def missing(term, w, at):
    """The error of the phase factor, (w, depth)."""
    return np.abs(phases(term, w) @ screens(term, at).T - np.exp(2j * np.pi * w[:, None] * at))


@pytest.mark.parametrize("accuracy", [0.1, 1e-2, 1e-4])
@pytest.mark.parametrize("w", [(0.0, 100.0), (30.0, 2e3), (0.0, 2e4)], ids=str)
def test_it_is_the_exponential(w, accuracy, rng):
    """In the mean as good as asked for and, where w and depth are largest, at most 30 times worse; few pairs."""
    at, at_w = rng.uniform(-1e-3, 0, 300), np.array([*w, *rng.uniform(*w, 300)])
    term = wterm.factorise(at_w, np.ones(at_w.size), np.append(at, -1e-3), accuracy)
    error = missing(term, at_w, at)
    assert np.sqrt(np.mean(error**2)) < 1.2 * accuracy + 3e-4
    assert error.max() < 30 * accuracy + 2e-3
    assert term.npair <= w[1] * 1e-3 + 6


def test_it_is_best_where_most_samples_and_pixels_are(rng):
    """With as few screens; what has no weight is left to last."""
    w = np.append(rng.uniform(0, 1500, 1000), rng.uniform(0, 9000, 1000))
    weight = np.where(np.arange(w.size) < 1000, 1.0, 1e-3)
    at = -1e-3 * rng.random(2000) ** 4
    deepest = np.append(at, -1e-3)
    heavy, even = (wterm.factorise(w, each, deepest, 0.05) for each in (weight, np.ones(w.size)))
    assert heavy.npair < even.npair
    spread = wterm.factorise(w, weight, np.linspace(-1e-3, 0, 500), 0.05)
    assert heavy.npair < spread.npair
    error = missing(heavy, w[:1000], at)
    assert np.sqrt(np.mean(error**2)) < 0.05
    # A tenth counts everywhere, so that even there it is an approximation.
    rare = missing(heavy, w[1000:], at)
    assert 0.02 < np.sqrt(np.mean(rare**2)) < 0.5


@pytest.mark.parametrize(("w", "deepest"), [((0.0, 0.0), -1e-3), ((5.0, 9.0), 0.0), ((0.0, 0.0), 0.0)])
def test_without_phase_there_is_one_pair_of_screens(w, deepest):
    term = wterm.factorise(np.array(w), np.ones(2), np.array([0.0, deepest]), 0.1)
    assert term.npair == 1
    at = np.linspace(deepest, 0, 5)
    np.testing.assert_allclose(phases(term, [w[1]]) @ screens(term, at).T, 1, rtol=0, atol=SINGLE)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_depths_are_those_of_the_pixels(shape):
    np.testing.assert_allclose(wterm.depths(shape, (CELL, CELL)), depth(shape).ravel(), rtol=0, atol=1e-15)


def test_some_depths_stand_for_those_of_a_large_image():
    some, all_of_them = wterm.depths((1000, 700), (1e-4, 3e-4)), depth((1000, 700), (1e-4, 3e-4)).ravel()
    assert some.min() == all_of_them.min()
    assert some.size < all_of_them.size / 20
    counts = [np.histogram(d, 10, (some.min(), 0))[0] / d.size for d in (some, all_of_them)]
    np.testing.assert_allclose(*counts, rtol=0, atol=0.02)
    assert wterm.depths((400, 400), (5e-3, 5e-3)).min() == -1


def term_of(shape):
    return wterm.factorise(np.linspace(0, 900, 50), np.ones(50), wterm.depths(shape, CELLS), 1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_screens_lie_on_the_image(shape, rng):
    term, image = term_of(shape), rng.standard_normal(shape).astype("f4")
    before = image.copy()
    g = screens(term, depth(shape, CELLS))
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
