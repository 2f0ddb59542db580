"""Counts, densities and tapers against loops over the samples, weights against their formulae."""

import numpy as np
import pytest

from pfb.kernels.weighting import box_sums, briggs, count, counts_shape, densities, density, taper, uniform
from pfb.types import LIGHTSPEED, Beam

CELL = 1e-4
FREQ = np.array([1.0e9, 1.2e9])
SHAPE = (20, 14)


def uvw_at(u, v, shape=SHAPE, freq=FREQ[0]):
    """Baselines that lie at these cells of the grid of counts."""
    u, v = np.broadcast_arrays(np.asarray(u, float), np.asarray(v, float))
    width = np.array(shape) * CELL * freq / LIGHTSPEED
    return np.stack([u.ravel() / width[0], v.ravel() / width[1], 5 + 0 * u.ravel()], axis=1)


def cells_of(uvw, freq, shape=SHAPE, cell=CELL):
    """The definition, in numbers of cells: nearest, and of a pair of conjugates the one above; None beyond the grid."""
    u = round(uvw[0] * freq / LIGHTSPEED * shape[0] * cell)
    v = uvw[1] * freq / LIGHTSPEED * shape[1] * cell
    if v < 0:
        u, v = -u, -v
    v = round(v)
    if v == 0:
        u = abs(u)
    inside = -shape[0] // 2 <= u < shape[0] // 2 and v <= shape[1] // 2
    return (u, v) if inside else None


def by_loop(uvw, freq, weight, shape=SHAPE):
    """Counts by cell: a dictionary, with no grid at all."""
    counts = {}
    for row, weights in zip(uvw, weight, strict=True):
        for nu, w in zip(freq, weights, strict=True):
            cell = cells_of(row, nu, shape)
            if cell is not None and w > 0:
                counts[cell] = counts.get(cell, 0) + w
    return counts


@pytest.fixture
def samples(rng):
    """300 rows over the grid and a little beyond, a tenth of the weights zero."""
    uvw = uvw_at(*rng.uniform(-11, 11, (2, 300)))
    return uvw, rng.uniform(0.5, 2, (300, 2)) * (rng.random((300, 2)) > 0.1)


@pytest.mark.parametrize("shape", [(20, 14), (14, 20), (2, 2)], ids=str)
def test_counts_are_sums_over_the_samples_of_each_cell(shape, samples):
    uvw, weight = samples
    expected = by_loop(uvw, FREQ, weight, shape)
    counts = count(uvw, FREQ, weight, shape, CELL)
    assert counts.shape == (shape[0], shape[1] // 2 + 1)
    for (u, v), total in expected.items():
        assert counts[u % shape[0], v] == pytest.approx(total, rel=1e-13)
    assert np.count_nonzero(counts) == len(expected)


def test_density_is_the_count_of_the_cell_of_every_sample(samples):
    uvw, weight = samples
    expected = by_loop(uvw, FREQ, weight)
    found = density(uvw, FREQ, count(uvw, FREQ, weight, SHAPE, CELL), SHAPE, CELL)
    assert found.shape == weight.shape
    beyond = 0
    for row, values in zip(uvw, found, strict=True):
        for nu, value in zip(FREQ, values, strict=True):
            cell = cells_of(row, nu)
            beyond += cell is None
            assert value == pytest.approx(expected.get(cell, 0), rel=1e-13)
    assert beyond > 10


@pytest.mark.parametrize(("u", "v", "cell"), [
    (0, 0, (0, 0)),
    (3, 2, (3, 2)),
    (-3, 2, (17, 2)),
    (3, -2, (17, 2)),  # the conjugate of (-3, 2)
    (-3, -2, (3, 2)),
    (4, 0, (4, 0)),
    (-4, 0, (4, 0)),  # the row v = 0 is folded, too
    (-4, 0.3, (4, 0)),
    (-4, -0.3, (4, 0)),
    (2.4, 1.6, (2, 2)),
    (-2.6, 1.4, (17, 1)),
    (9.4, 7.4, (9, 7)),
    (-10.4, 1, (10, 1)),
    (10, -1, (10, 1)),
    (9.6, 1, None),
    (-10.6, 1, None),
    (0, 7.6, None),
    (0, -7.6, None),
    (10, 0, None),
    (-10, 0, None),
    (1e9, 1, None),
])  # fmt: skip
def test_the_cell_of_a_sample(u, v, cell):
    counts = count(uvw_at(u, v), FREQ[:1], np.ones((1, 1)), SHAPE, CELL)
    if cell is None:
        assert not counts.any()
    else:
        assert counts[cell] == counts.sum() == 1


def test_the_sign_of_a_baseline_does_not_matter(samples, rng):
    uvw, weight = samples
    on_the_axis = uvw_at([-10, -4, 4, 10, 0], 0)
    uvw, weight = np.concatenate([uvw, on_the_axis]), np.concatenate([weight, np.ones((5, 2))])
    flipped = uvw * rng.choice([-1, 1], (len(uvw), 1))
    a, b = (count(x, FREQ, weight, SHAPE, CELL) for x in (uvw, flipped))
    np.testing.assert_allclose(a, b, rtol=1e-13)
    np.testing.assert_array_equal(density(uvw, FREQ, a, SHAPE, CELL), density(flipped, FREQ, a, SHAPE, CELL))


def test_counts_of_parts_add_up(samples):
    uvw, weight = samples
    parts = [count(uvw[i::3], FREQ, weight[i::3], SHAPE, CELL) for i in range(3)]
    np.testing.assert_allclose(sum(parts), count(uvw, FREQ, weight, SHAPE, CELL), rtol=1e-13)


def test_nothing_and_flagged_samples_do_not_count():
    assert not count(np.zeros((0, 3)), FREQ, np.zeros((0, 2)), SHAPE, CELL).any()
    assert not count(np.zeros((4, 3)), FREQ, np.zeros((4, 2)), SHAPE, CELL).any()
    assert density(np.zeros((0, 3)), FREQ, np.ones((20, 8)), SHAPE, CELL).shape == (0, 2)


@pytest.mark.parametrize(("shape", "expected"), [
    ((100, 100), (170, 170)), ((101, 64), (172, 110)), ((1, 5), (2, 10)), ((10, 20), (18, 34)),
])  # fmt: skip
def test_the_grid_of_counts_is_even_and_larger_than_the_image(shape, expected):
    assert counts_shape(shape) == expected


# Densities


def boxed(counts, cell, box, shape=SHAPE):
    """The definition: of every cell of a box the count, where cells of conjugates have the same, and none beyond the grid."""
    total = 0
    for u in range(cell[0] - box, cell[0] + box + 1):
        for v in range(cell[1] - box, cell[1] + box + 1):
            if abs(u) < shape[0] // 2 or u == -shape[0] // 2:
                key = (u, v) if v > 0 else (-u, -v) if v < 0 else (abs(u), 0)
                total += counts.get(key, 0)
    return total


@pytest.mark.parametrize("box", [1, 2, 9, 25])
@pytest.mark.parametrize("shape", [(20, 14), (14, 20), (2, 2)], ids=str)
def test_box_sums_count_the_cells_around(shape, box, samples):
    uvw, weight = samples
    counts = by_loop(uvw, FREQ, weight, shape)
    found = box_sums(count(uvw, FREQ, weight, shape, CELL), box)
    assert found.shape == (shape[0], shape[1] // 2 + 1)
    for u in range(-shape[0] // 2 + 1, shape[0] // 2):
        for v in range(shape[1] // 2 + 1):
            assert found[u % shape[0], v] == pytest.approx(boxed(counts, (u, v), box, shape), rel=1e-12)


def test_a_box_of_one_cell_changes_nothing(samples):
    uvw, weight = samples
    counts = count(uvw, FREQ, weight, SHAPE, CELL)
    assert densities(counts).grid is counts
    np.testing.assert_array_equal(box_sums(counts, 0)[:, 1:], counts[:, 1:])


@pytest.mark.parametrize(("box", "floor"), [(0, 0.0), (0, 0.8), (1, 0.0), (2, 0.9)])
def test_densities_of_cells_and_their_mean_over_the_samples(box, floor, samples):
    uvw, weight = samples
    uvw = uvw * np.linspace(0.05, 1, len(uvw))[:, None] ** 2
    cells = by_loop(uvw, FREQ, weight)
    dense = {cell: boxed(cells, cell, box) for cell in cells}
    least = floor * np.median(list(dense.values()))
    found = densities(count(uvw, FREQ, weight, SHAPE, CELL), box, floor)
    raised = 0
    for (u, v), value in dense.items():
        raised += value < least
        assert found.grid[u % SHAPE[0], v] == pytest.approx(max(value, least), rel=1e-12)
    assert (raised > 10) == (floor > 0)
    mean = sum(c * max(dense[cell], least) for cell, c in cells.items()) / sum(cells.values())
    assert found.mean == pytest.approx(mean, rel=1e-12)


def test_nothing_has_no_density():
    found = densities(np.zeros((4, 3)), 1, 0.5)
    assert (found.mean, found.grid.any()) == (0, False)


# Weights


def test_briggs_is_its_formula():
    weight, c = np.array([[2.0, 3.0], [1.0, 0.0]]), np.array([[10.0, 3.0], [1.0, 10.0]])
    counts = np.array([[10.0, 3.0], [1.0, 0.0]])
    f2 = (5 * 10**-0.5) ** 2 * 14 / 110
    expected = [[2 / (1 + 10 * f2), 3 / (1 + 3 * f2)], [1 / (1 + f2), 0]]
    np.testing.assert_allclose(briggs(weight, c, densities(counts).mean, 0.5), expected, rtol=1e-14)


@pytest.fixture
def counted(samples):
    """Weights of samples within the grid, in a dense middle and a sparse outskirt; their density; all counts; the mean."""
    uvw, weight = samples
    uvw = uvw * np.linspace(0.05, 0.55, len(uvw))[:, None]
    counts = count(uvw, FREQ, weight, SHAPE, CELL)
    return uvw, weight, density(uvw, FREQ, counts, SHAPE, CELL), counts, densities(counts).mean


def test_uniform_weights_sum_to_one_in_every_cell(counted):
    uvw, weight, found, counts, _ = counted
    flat = count(uvw, FREQ, uniform(weight, found), SHAPE, CELL)
    np.testing.assert_allclose(flat[counts > 0], 1, rtol=1e-12)
    assert not flat[counts == 0].any()
    assert not uniform(weight, found)[weight == 0].any()


def test_briggs_flattens_more_the_lower_robust_is(counted):
    """From natural (the weights as they are) to uniform (all cells alike), but for a common factor."""
    uvw, weight, found, counts, mean = counted

    def spread(weights):
        cells = count(uvw, FREQ, weights, SHAPE, CELL)[counts > 0]
        return cells.std() / cells.mean()

    spreads = [spread(briggs(weight, found, mean, robust)) for robust in (-2.0, -1.0, 0.0, 1.0, 2.0)]
    assert (np.diff(spreads) > 0).all()
    assert spreads[0] < 0.01 * spread(weight)
    assert spreads[-1] > 0.97 * spread(weight)


def test_briggs_tends_to_natural_and_to_uniform(counted):
    _, weight, found, _, mean = counted
    np.testing.assert_allclose(briggs(weight, found, mean, 2.0), weight, rtol=0.03)
    nearly = briggs(weight, found, mean, -2.0)
    np.testing.assert_allclose(nearly / nearly.sum(), uniform(weight, found) / uniform(weight, found).sum(), rtol=0.01)


@pytest.mark.parametrize("robust", [-2.0, 0.0, 2.0])
def test_scaling_all_natural_weights_scales_briggs_weights(robust, counted):
    _, weight, found, _, mean = counted
    scaled = briggs(7 * weight, 7 * found, 7 * mean, robust)
    np.testing.assert_allclose(scaled, 7 * briggs(weight, found, mean, robust), rtol=1e-13)


def test_samples_beyond_the_grid_and_empty_sets_get_no_weight():
    weight, nothing = np.ones((2, 2)), np.zeros((2, 2))
    assert not uniform(weight, nothing).any()
    assert not briggs(weight, nothing, 1.0, 0.0).any()
    assert not briggs(nothing, nothing, 0.0, 0.0).any()


# Tapers

BEAM = Beam(3e-4, 1.5e-4, 0.6)


def test_a_taper_is_the_transform_of_its_beam(rng):
    """Sum the beam over a fine grid of the sky, where u goes with l to the East, v with m to the North."""
    uvw = rng.uniform(-1, 1, (6, 3)) * [700, 700, 50]
    step = 1e-5
    l, m = np.meshgrid(*[np.arange(-80, 81) * step] * 2, indexing="ij")
    along = l * np.sin(BEAM.pa) + m * np.cos(BEAM.pa)
    across = l * np.cos(BEAM.pa) - m * np.sin(BEAM.pa)
    gaussian = np.exp(-4 * np.log(2) * ((along / BEAM.major) ** 2 + (across / BEAM.minor) ** 2))
    found = taper(uvw, FREQ, BEAM)
    for row, values in zip(uvw, found, strict=True):
        for nu, value in zip(FREQ, values, strict=True):
            wave = 2 * np.pi * nu / LIGHTSPEED * (row[0] * l + row[1] * m)
            assert value == pytest.approx((gaussian * np.cos(wave)).sum() / gaussian.sum(), abs=1e-9)
    assert found.min() < 0.5 < found.max()


def test_a_taper_halves_at_the_known_baseline():
    """2 ln 2 / (pi FWHM) wavelengths."""
    length = 2 * np.log(2) / (np.pi * 1e-4) * LIGHTSPEED / FREQ[0]
    found = taper(np.array([[0, length, 3e3], [0, 0, 9.0]]), FREQ[:1], Beam(1e-4, 1e-4, 0.0))
    np.testing.assert_allclose(found[:, 0], [0.5, 1])
