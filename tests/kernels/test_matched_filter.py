"""Matched filters against the sums that define them."""

import numpy as np
import pytest

from pfb.errors import InputError, ShapeError
from pfb.kernels.matched_filter import FAMILIES, boxcar, flare, gauss, significance, templates

WIDTHS = [1.0, 3.0, 8.0]


def shape(family, width, t):
    """A template at times t after its own, in closed form; cut where it is below 4e-4."""
    if family == "boxcar":
        return ((t >= -((width - 1) // 2)) & (t < width - (width - 1) // 2)).astype(float)
    if family == "gauss":
        return np.where(np.abs(t) <= np.ceil(8 * width), np.exp(-(t**2) / (2 * width**2)), 0)
    rise, fall = np.exp(np.minimum(t, 0) / (0.1 * width)), np.exp(-np.maximum(t, 0) / width)
    return np.where((t >= -np.ceil(0.8 * width)) & (t <= np.ceil(8 * width)), np.where(t < 0, rise, fall), 0)


def naive(family, x, weight):
    """(row, n); also the sums that are divided by."""
    t = np.arange(x.size)
    out, seen = np.zeros((len(WIDTHS), x.size)), np.zeros((len(WIDTHS), x.size))
    for row, width in enumerate(WIDTHS):
        for at in t:
            h = shape(family, width, t - at)
            use = weight > 0
            seen[row, at] = (weight * h**2)[use].sum()
            if seen[row, at] > 0:
                out[row, at] = (weight[use] * x[use] * h[use]).sum() / np.sqrt(seen[row, at])
    return out, seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [1, 50, 97])
@pytest.mark.parametrize("gaps", [False, True])
def test_it_is_the_sum_that_defines_it(n, gaps, family, dtype, rng):
    """NaN in gaps; templates longer than the series."""
    x = rng.standard_normal((2, n)).astype(dtype)
    weight = rng.uniform(0.5, 2, (2, n)).astype(dtype)
    if gaps and n > 1:
        weight[:, n // 3 : n // 2] = 0
        weight[1, 1::5] = 0
        x[weight == 0] = np.nan
    found = significance(x, weight, templates(family, WIDTHS, n, dtype))
    assert found.dtype == dtype
    for one, own, made in zip(x, weight, found, strict=True):
        expected, seen = naive(family, one.astype(float), own.astype(float))
        certain = seen > 0.01 * seen.max(axis=1, keepdims=True)
        tolerance = 2e-5 if dtype is np.float32 else 1e-12
        np.testing.assert_allclose(made[certain], expected[certain], atol=tolerance * max(1, np.abs(expected).max()))
        assert (made[seen == 0] == 0).all()


def test_weights_may_be_shared(rng):
    x, weight = rng.standard_normal((3, 60)), rng.uniform(0, 1, 60)
    bank = templates("flare", WIDTHS, 60, np.float64)
    np.testing.assert_array_equal(significance(x, weight, bank), significance(x, np.tile(weight, (3, 1)), bank))


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_is_standard_normal(family, rng):
    """Whatever the weights are."""
    n = 400
    sigma = rng.uniform(0.5, 2, n)
    x = sigma * rng.standard_normal((200, n))
    found = significance(x, sigma**-2, templates(family, WIDTHS, n, np.float64))
    np.testing.assert_allclose(found.std(axis=(0, 2)), 1, atol=0.03)
    np.testing.assert_allclose(found.mean(axis=(0, 2)), 0, atol=0.05)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_stands_out_at_its_own_time_and_width(family):
    t = np.arange(300)
    x = 5.0 * shape(family, 8.0, t - 123)[None]
    found = significance(x, np.full(300, 0.25), templates(family, WIDTHS, 300, np.float64))[0]
    assert np.unravel_index(found.argmax(), found.shape) == (2, 123)
    assert found.max() == pytest.approx(5 * 0.5 * np.linalg.norm(shape(family, 8.0, t - 123)))


def test_a_batch_is_a_loop_to_the_bit(rng):
    x, weight = rng.standard_normal((5, 120)).astype(np.float32), rng.uniform(0.5, 1, (5, 120)).astype(np.float32)
    bank = templates("gauss", WIDTHS, 120)
    loop = [significance(x[i : i + 1], weight[i : i + 1], bank) for i in range(5)]
    np.testing.assert_array_equal(significance(x, weight, bank), np.concatenate(loop))


def test_shapes():
    assert boxcar(0.2).tolist() == [1]
    assert boxcar(4.0).tolist() == [1] * 4
    assert gauss(2.0).max() == gauss(2.0)[gauss(2.0).size // 2] == 1
    made = flare(10.0)
    top = made.argmax()
    assert made[top + 10] == pytest.approx(np.exp(-1))
    assert made[top - 1] == pytest.approx(np.exp(-1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: templates("sinc", [1], 5), "the family 'sinc' is unknown: choose one of boxcar, gauss, flare"),
        (lambda: templates("gauss", [], 5), "widths of templates must be one or more positive numbers of samples"),
        (lambda: templates("gauss", [1, 0], 5), "positive numbers"),
    ],
)
def test_what_makes_no_templates(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_what_it_does_not_take():
    bank = templates("gauss", [1.0], 10)
    for x, weight in (((2, 10), (2, 9)), ((10,), (10,))):
        with pytest.raises(ShapeError, match=r"the filter takes \(series, n\) and weights of that shape"):
            significance(np.zeros(x, np.float32), np.ones(weight, np.float32), bank)
    with pytest.raises(ShapeError, match="in the precision of complex64"):
        significance(np.zeros((1, 10)), np.ones(10), bank)
