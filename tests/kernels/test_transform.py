"""The planned transform against the sum that defines it."""

import numpy as np
import pytest

from pfb.kernels.sampling import sampling
from pfb.kernels.transform import Transform

CELL = 6e-3
EPSILON = 1e-4


def samples(rng, n=50):
    uvw = rng.uniform(-60, 60, (3, n))
    uvw[2] = rng.uniform(0, 900, n)
    return uvw


def planned(uvw, shape, w_accuracy, cell=CELL, epsilon=EPSILON):
    return Transform(sampling(uvw, shape, cell, epsilon, w_accuracy), epsilon, 1)


def definition(uvw, shape, flat=False, cell=CELL):
    """e^{+2 pi i (u l + v m + w (n - 1))}, (sample, nx, ny); l falls with x."""
    l = -(np.arange(shape[0]) - shape[0] // 2)[:, None] * cell
    m = (np.arange(shape[1]) - shape[1] // 2)[None, :] * cell
    n = np.sqrt(1 - l**2 - m**2) - 1
    u, v, w = uvw[:, :, None, None]
    return np.exp(2j * np.pi * (u * l + v * m + (0 if flat else w * n)))


@pytest.mark.parametrize("flat", [False, True], ids=["w-term", "flat"])
@pytest.mark.parametrize("shape", [(16, 16), (15, 22), (9, 7), (1, 12), (11, 1), (1, 1)], ids=str)
def test_it_is_the_definition_both_ways(shape, flat, rng):
    uvw, x = samples(rng), rng.standard_normal(shape).astype("f4")
    op = planned(uvw, shape, None if flat else EPSILON)
    matrix = definition(uvw, shape, flat)
    expected = np.tensordot(matrix, x, 2)
    found = op.predict(x)
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, expected, rtol=0, atol=30 * EPSILON * np.linalg.norm(x))
    vis = (rng.standard_normal(50) + 1j * rng.standard_normal(50)).astype("c8")
    image = op.grid(vis)
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, np.tensordot(vis, matrix.conj(), 1).real, rtol=0, atol=30 * EPSILON * np.linalg.norm(vis))


@pytest.mark.parametrize("shape", [(15, 22), (60, 1)], ids=str)
@pytest.mark.parametrize("w_accuracy", [None, 0.3, 1e-4])
def test_gridding_is_the_adjoint_of_predicting_whatever_the_accuracy(w_accuracy, shape, rng):
    op = planned(samples(rng), shape, w_accuracy, epsilon=1e-2)
    x = rng.standard_normal(shape).astype("f4")
    vis = (rng.standard_normal(50) + 1j * rng.standard_normal(50)).astype("c8")
    left, right = np.vdot(vis, op.predict(x)).real, np.vdot(x, op.grid(vis))
    assert abs(left - right) < 1e-5 * np.linalg.norm(x) * np.linalg.norm(vis) * np.sqrt(50)


@pytest.mark.parametrize("scale", [(0.1, 0.2), (0.5, 0.02), (1.0, 0.1)], ids=str)
def test_short_baselines_are_seen_on_coarser_pixels(scale, rng):
    """Up to the corner of an image that is a third of a radian wide."""
    shape, cell = (300, 201), CELL / 5
    uvw = samples(rng, 20)
    uvw *= np.array([*scale, 0.1])[:, None] * CELL / cell
    op = planned(uvw, shape, EPSILON, cell)
    coarse = op._sampling.decimation.shape
    assert coarse[0] * coarse[1] < 0.9 * shape[0] * shape[1]
    matrix = definition(uvw, shape, cell=cell)
    assert np.abs(matrix - definition(uvw, shape, flat=True, cell=cell)).max() > 1
    corner = np.eye(1, shape[0] * shape[1], shape[1] - 1, dtype="f4").reshape(shape)
    for x in (corner, rng.standard_normal(shape).astype("f4")):
        limit = 10 * EPSILON * np.linalg.norm(x)
        np.testing.assert_allclose(op.predict(x), np.tensordot(matrix, x, 2), rtol=0, atol=limit)
    vis = (rng.standard_normal(20) + 1j * rng.standard_normal(20)).astype("c8")
    expected = np.tensordot(vis, matrix.conj(), 1).real
    np.testing.assert_allclose(op.grid(vis), expected, rtol=0, atol=10 * EPSILON * np.linalg.norm(vis))


def test_the_w_term_matters_here(rng):
    uvw = samples(rng)
    assert np.abs(definition(uvw, (16, 16)) - definition(uvw, (16, 16), flat=True)).max() > 1


def test_inputs_are_not_changed(rng):
    uvw, x = samples(rng), rng.standard_normal((8, 9)).astype("f4")
    vis = np.ones(50, "c8")
    before = uvw.copy(), x.copy(), vis.copy()
    op = planned(uvw, (8, 9), EPSILON)
    op.predict(x)
    op.grid(vis)
    for now, then in zip((uvw, x, vis), before, strict=True):
        np.testing.assert_array_equal(now, then)
