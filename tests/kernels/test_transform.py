"""The planned transform against the sum that defines it."""

import numpy as np
import pytest

from pfb.kernels.transform import Transform

CELL = 6e-3
EPSILON = 1e-4


def samples(rng, n=50):
    uvw = rng.uniform(-60, 60, (3, n))
    uvw[2] = rng.uniform(0, 900, n)
    return uvw


def definition(uvw, shape, flat=False):
    """e^{+2 pi i (u l + v m + w (n - 1))}, (sample, nx, ny); l falls with x."""
    l = -(np.arange(shape[0]) - shape[0] // 2)[:, None] * CELL
    m = (np.arange(shape[1]) - shape[1] // 2)[None, :] * CELL
    n = np.sqrt(1 - l**2 - m**2) - 1
    u, v, w = uvw[:, :, None, None]
    return np.exp(2j * np.pi * (u * l + v * m + (0 if flat else w * n)))


@pytest.mark.parametrize("flat", [False, True], ids=["w-term", "flat"])
@pytest.mark.parametrize("shape", [(16, 16), (15, 22), (9, 7), (1, 12), (11, 1), (1, 1)], ids=str)
def test_it_is_the_definition_both_ways(shape, flat, rng):
    uvw, x = samples(rng), rng.standard_normal(shape).astype("f4")
    op = Transform(uvw, shape, CELL, EPSILON, None if flat else EPSILON, 1)
    matrix = definition(uvw, shape, flat)
    expected = np.tensordot(matrix, x, 2)
    found = op.predict(x)
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, expected, rtol=0, atol=30 * EPSILON * np.linalg.norm(x))
    vis = (rng.standard_normal(50) + 1j * rng.standard_normal(50)).astype("c8")
    image = op.grid(vis)
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, np.tensordot(vis, matrix.conj(), 1).real, rtol=0, atol=30 * EPSILON * np.linalg.norm(vis))


@pytest.mark.parametrize("w_accuracy", [None, 0.3, 1e-4])
def test_gridding_is_the_adjoint_of_predicting_whatever_the_accuracy(w_accuracy, rng):
    op = Transform(samples(rng), (15, 22), CELL, 1e-2, w_accuracy, 1)
    x = rng.standard_normal((15, 22)).astype("f4")
    vis = (rng.standard_normal(50) + 1j * rng.standard_normal(50)).astype("c8")
    left, right = np.vdot(vis, op.predict(x)).real, np.vdot(x, op.grid(vis))
    assert abs(left - right) < 1e-5 * np.linalg.norm(x) * np.linalg.norm(vis) * np.sqrt(50)


def test_the_w_term_matters_here(rng):
    uvw = samples(rng)
    assert np.abs(definition(uvw, (16, 16)) - definition(uvw, (16, 16), flat=True)).max() > 1


def test_inputs_are_not_changed(rng):
    uvw, x = samples(rng), rng.standard_normal((8, 9)).astype("f4")
    vis = np.ones(50, "c8")
    before = uvw.copy(), x.copy(), vis.copy()
    op = Transform(uvw, (8, 9), CELL, EPSILON, EPSILON, 1)
    op.predict(x)
    op.grid(vis)
    for now, then in zip((uvw, x, vis), before, strict=True):
        np.testing.assert_array_equal(now, then)
