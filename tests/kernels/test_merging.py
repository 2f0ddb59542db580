"""Merging of samples that see an image alike."""

from __future__ import annotations

import numpy as np
import pytest

from pfb.kernels.merging import merge

CELL = 1e-4


def naive(uvw, weight, shape, step):
    """Cell by cell, in a dictionary."""
    depth = 1 - np.sqrt(1 - sum((n // 2 * CELL) ** 2 for n in shape))
    sizes = [step / (shape[0] * CELL), step / (shape[1] * CELL), step / depth]
    cells = {}
    for sample, w in zip(uvw.T, weight, strict=True):
        cells.setdefault(tuple(int(c // size) for c, size in zip(sample, sizes, strict=True)), []).append((sample, w))
    out = []
    for members in cells.values():
        total = sum(w for _, w in members)
        out.append([*(sum(s[i] * w for s, w in members) / total for i in range(3)), total])
    return np.array(sorted(out))


def sorted_(uvw, weight):
    return np.array(sorted(np.vstack([uvw, weight]).T.tolist()))


@pytest.mark.parametrize("shape", [(64, 64), (51, 80), (1, 7)])
@pytest.mark.parametrize("step", [0.1, 0.5])
def test_against_the_definition(shape, step, rng):
    uvw = rng.uniform(-1, 1, (3, 400)) * np.array([[300.0], [300.0], [2e6 / 400]])
    uvw[2] = np.abs(uvw[2])
    weight = rng.uniform(0.5, 2, 400)
    found = merge(uvw, weight, shape, CELL, step)
    np.testing.assert_allclose(sorted_(*found), naive(uvw, weight, shape, step), rtol=1e-12)
    assert found[1].sum() == pytest.approx(weight.sum(), rel=1e-13)
    if step == 0.5:
        assert found[1].size < 400


def track(n=2000):
    """A short baseline for hours, every eight seconds."""
    angle = np.linspace(0, 1.2, n)
    return np.stack([500 * np.cos(angle), 300 * np.sin(angle), 50 * np.sin(angle) + 60])


def kernel(uvw, weight, shape):
    """What pixels at all distances do to each other, relative to the sum of weights, without the w-term."""
    x, y = (np.arange(-n + 1, n) * CELL for n in shape)
    phase = 2j * np.pi * (uvw[0, :, None, None] * x[:, None] + uvw[1, :, None, None] * y)
    return np.tensordot(weight, np.exp(phase), 1) / weight.sum(), x, y


@pytest.mark.parametrize(("step", "worst", "half"), [(0.1, 0.033, 0.009), (0.2, 0.13, 0.035)])
def test_the_error_is_as_large_as_is_said(step, worst, half, rng):
    """From corner to corner it has two axes; it is far less between pixels that are nearer."""
    shape = (12, 10)
    cell_of_track = track() / (12 * CELL) * 12 * CELL
    weight = rng.uniform(0.5, 2, cell_of_track.shape[1])
    merged = merge(cell_of_track, weight, shape, CELL, step)
    assert merged[1].size < 0.2 * weight.size
    (found, x, y), (expected, _, _) = kernel(*merged, shape), kernel(cell_of_track, weight, shape)
    error = np.abs(found - expected)
    assert error.max() < worst
    near = (np.abs(x)[:, None] <= x.max() / 2) & (np.abs(y) <= y.max() / 2)
    assert error[near].max() < half
    assert error.max() > 1e-4, "nothing was merged that matters"
    assert error[x.size // 2, y.size // 2] < 1e-14


def test_samples_far_apart_stay_as_they_are(rng):
    uvw = rng.permutation(np.arange(30.0)) * np.array([[1e4], [0.0], [0.0]])
    weight = rng.uniform(1, 2, 30)
    np.testing.assert_allclose(sorted_(*merge(uvw, weight, (64, 64), CELL, 0.1)), sorted_(uvw, weight), rtol=1e-14)


def test_along_w_only_what_the_depth_of_the_image_tells_apart():
    """One turn at the corners of 64 pixels is 97656 wavelengths of w."""
    uvw = np.zeros((3, 3))
    uvw[2] = 0.0, 4_000.0, 16_000.0
    merged, weight = merge(uvw, np.ones(3), (64, 64), CELL, 0.1)
    np.testing.assert_array_equal(weight, [2, 1])
    np.testing.assert_array_equal(merged[2], [2_000.0, 16_000.0])
    # Of a pixel the depth is zero.
    assert merge(uvw, np.ones(3), (1, 1), CELL, 0.1)[1].size == 1


def test_no_sample():
    uvw, weight = merge(np.zeros((3, 0)), np.zeros(0), (8, 8), CELL, 0.1)
    assert uvw.shape == (3, 0)
    assert weight.shape == (0,)
