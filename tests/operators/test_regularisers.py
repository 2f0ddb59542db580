"""What every regulariser owes: a value, a proximal map that minimises its definition, immutability."""

import dataclasses
import pickle

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.operators.regularisers import JointPrior, importance
from pfb.testing import check_prox

NBASIS, NCOEFFICIENT = 2, 3
NBANDS = [1, 2, 4, 5]


def l21(nband, rng):
    return JointPrior("l21", nband)


def mean21(nband, rng):
    return JointPrior("mean21", nband)


def weights(rng):
    """Some zero, some large."""
    w = rng.uniform(0.2, 3, (NBASIS, NCOEFFICIENT))
    w[0, 1] = 0
    return w


def weighted_l21(nband, rng):
    return JointPrior("l21", nband, weights(rng))


def reweighted_mean21(nband, rng):
    return JointPrior("mean21", nband).reweighted(weights(rng))


def products_of(nband):
    """Three products that alternate, of which the last lacks some bands; as many as there are bands if these are fewer."""
    return tuple(0 if v == 3 else v % 3 for v in range(nband))


def l21_of_products(nband, rng):
    return JointPrior("l21", nband, weights(rng), products_of(nband))


def mean21_of_products(nband, rng):
    return JointPrior("mean21", nband, weights(rng), products_of(nband))


# A new regulariser adds its factory here, and is tested.
REGULARISERS = [l21, mean21, weighted_l21, reweighted_mean21, l21_of_products, mean21_of_products]


def coefficients(nband, rng):
    return rng.standard_normal((NBASIS, nband, NCOEFFICIENT))


@pytest.mark.parametrize("nband", NBANDS)
@pytest.mark.parametrize("make", REGULARISERS, ids=lambda f: f.__name__)
class TestEveryRegulariser:
    @pytest.mark.parametrize("tau", [0.0, 0.1, 1.0, 10.0])
    def test_prox_minimises_the_definition(self, make, nband, tau, rng):
        g = make(nband, rng)
        check_prox(g.prox, g.value, coefficients(nband, rng), tau, rng)

    def test_moreau(self, make, nband, rng):
        """What the prox takes away is a subgradient of tau g where it ends: tau g(z) >= <u, z>, with equality at p."""
        g, tau, v = make(nband, rng), 0.7, coefficients(nband, rng)
        p, u = g.prox(v, tau), g.project(v, g.factors([v], tau, (0, NCOEFFICIENT)))
        np.testing.assert_allclose(p + u, v, rtol=0, atol=1e-15)
        assert np.vdot(u, p) == pytest.approx(tau * g.value(p), rel=1e-12, abs=1e-13)
        for _ in range(50):
            z = coefficients(nband, rng)
            assert np.vdot(u, z) <= tau * g.value(z) + 1e-13

    def test_zero_step_changes_nothing(self, make, nband, rng):
        g, v = make(nband, rng), coefficients(nband, rng)
        np.testing.assert_array_equal(g.prox(v, 0.0), v)

    def test_scales_with_data_and_step_together(self, make, nband, rng):
        g, v = make(nband, rng), coefficients(nband, rng)
        np.testing.assert_allclose(g.prox(1e4 * v, 1e4 * 0.5), 1e4 * g.prox(v, 0.5), rtol=1e-10, atol=1e-8)
        np.testing.assert_allclose(g.prox(-v, 0.5), -g.prox(v, 0.5), rtol=1e-14, atol=0)

    def test_value_is_a_seminorm(self, make, nband, rng):
        g, a, b = make(nband, rng), coefficients(nband, rng), coefficients(nband, rng)
        assert g.value(np.zeros_like(a)) == 0
        assert g.value(-3 * a) == pytest.approx(3 * g.value(a), rel=1e-13)
        assert g.value(a + b) <= g.value(a) + g.value(b) + 1e-12

    def test_single_precision_stays_single(self, make, nband, rng):
        g, v = make(nband, rng), coefficients(nband, rng).astype("f4")
        p = g.prox(v, 0.5)
        assert p.dtype == np.float32
        np.testing.assert_allclose(p, g.prox(v.astype("f8"), 0.5), rtol=0, atol=2e-6)

    def test_travels_to_a_worker(self, make, nband, rng):
        g, v = make(nband, rng), coefficients(nband, rng)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(g)).prox(v, 0.5), g.prox(v, 0.5))

    def test_has_no_memory(self, make, nband, rng):
        g, v = make(nband, rng), coefficients(nband, rng)
        first = g.prox(v, 0.5)
        g.prox(100 * v, 3.0)
        np.testing.assert_array_equal(g.prox(v, 0.5), first)


# Against their definition


@pytest.mark.parametrize("nband", NBANDS)
def test_value_of_l21_is_the_sum_that_defines_it(nband, rng):
    a, w = coefficients(nband, rng), weights(rng)
    plain = weighted = 0.0
    for basis in range(NBASIS):
        for c in range(NCOEFFICIENT):
            norm = np.sqrt(sum(a[basis, b, c] ** 2 for b in range(nband)))
            plain += norm
            weighted += w[basis, c] * norm
    assert JointPrior("l21", nband).value(a) == pytest.approx(plain, rel=1e-14)
    assert JointPrior("l21", nband, w).value(a) == pytest.approx(weighted, rel=1e-14)


@pytest.mark.parametrize("nband", NBANDS)
def test_value_of_mean21_is_the_sum_that_defines_it(nband, rng):
    a, w = coefficients(nband, rng), weights(rng)
    plain = weighted = 0.0
    for basis in range(NBASIS):
        for c in range(NCOEFFICIENT):
            bands = a[basis, :, c]
            mean = sum(bands) / nband
            norm = abs(sum(bands)) / np.sqrt(nband) + np.sqrt(sum((x - mean) ** 2 for x in bands))
            plain += norm
            weighted += w[basis, c] * norm
    assert JointPrior("mean21", nband).value(a) == pytest.approx(plain, rel=1e-14)
    assert JointPrior("mean21", nband, w).value(a) == pytest.approx(weighted, rel=1e-14)


def test_small_deviations_from_a_large_mean_are_not_lost():
    deviation = np.array([1.0, -2.0, 1.0])
    a = (1e4 + 1e-6 * deviation)[None, :, None]
    expected = 1e4 * np.sqrt(3) + 1e-6 * np.sqrt(6)
    assert JointPrior("mean21", 3).value(a) == pytest.approx(expected, rel=1e-14)


def test_values_of_known_bands():
    a = np.array([3.0, 4.0])[None, :, None]
    assert JointPrior("l21", 2).value(a) == pytest.approx(5)
    assert JointPrior("mean21", 2).value(a) == pytest.approx((7 + 1) / np.sqrt(2))


def test_one_band_is_plain_soft_thresholding(rng):
    v = coefficients(1, rng)
    for name in ("l21", "mean21"):
        expected = np.sign(v) * np.maximum(np.abs(v) - 0.4, 0)
        np.testing.assert_allclose(JointPrior(name, 1).prox(v, 0.4), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["l21", "mean21"])
def test_weights_scale_the_threshold_of_their_coefficient(name, rng):
    v, w = 2 * coefficients(4, rng), weights(rng)
    p = JointPrior(name, 4, w).prox(v, 0.5)
    plain = JointPrior(name, 4)
    for basis in range(NBASIS):
        for c in range(NCOEFFICIENT):
            one = plain.prox(v[basis : basis + 1, :, c : c + 1], 0.5 * w[basis, c])
            np.testing.assert_allclose(p[basis, :, c], one[0, :, 0], rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(p[0, :, 1], v[0, :, 1])  # of weight zero


def test_radius_of_a_part_of_the_coefficients(rng):
    w = weights(rng)
    np.testing.assert_array_equal(JointPrior("l21", 4, w).radius(2.0, slice(1, 3)), 2 * w[:, 1:3])
    assert JointPrior("l21", 4).radius(2.0, slice(1, 3)) == 2.0


@pytest.mark.parametrize("part", [(0, 23), (5, 19), (7, 8)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["l21", "mean21"])
def test_passes_in_chunks_over_blocks_of_bands_change_no_bit(name, dtype, part, rng, monkeypatch):
    """Four bands in blocks of two, one and one; every coefficient has its own weight."""
    v = rng.standard_normal((2, 4, 23)).astype(dtype)
    g = JointPrior(name, 4, rng.uniform(0, 2, (2, 23)).astype(dtype))
    whole = g.factor(g.statistic([v]), g.radius(0.5))[..., slice(*part)]
    monkeypatch.setattr("pfb.operators.regularisers.CHUNK", 4)
    found = g.factors([v[:, :2], v[:, 2:3], v[:, 3:]], 0.5, part)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["l21", "mean21"])
def test_a_dual_is_renewed_in_one_pass(name, dtype, weighted, spread, rng, monkeypatch):
    """The bits of the steps one after the other, whether chunks are inside of the ball, beyond, or both."""
    dual, a = (spread * rng.standard_normal((2, 4, 23)).astype(dtype) for _ in range(2))
    a[:, :, 8:12] *= 1e-6  # whole chunks
    dual[:, :, 8:12] *= 1e-6
    g = JointPrior(name, 4, rng.uniform(0.2, 2, (2, 23)).astype(dtype) if weighted else None)
    v = dual + np.asarray(0.3, dtype) * a
    expected = g.project(v, g.factors([v], 0.5, (0, 23)))
    assert (expected != v).any() == (spread > 0.1)
    monkeypatch.setattr("pfb.operators.regularisers.CHUNK", 4)
    before, apart = dual.copy(), a.copy()
    g.ascend(dual, apart, 0.3)
    np.testing.assert_array_equal(apart, v)
    g.renew(dual, a, 0.3, 0.5)
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(dual, before)


def test_reweighting_makes_a_new_object(rng):
    plain, w = JointPrior("l21", 4), weights(rng)
    other = plain.reweighted(w)
    assert other is not plain
    assert plain.weight is None
    assert other.weight is w
    assert (other.name, other.nband) == (plain.name, plain.nband)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.weight = w


def test_an_unknown_prior_is_refused():
    with pytest.raises(InputError, match="prior 'l1' is unknown; choose from l21, mean21"):
        JointPrior("l1", 4)


# The check finds what it is for.


def soft(v, tau):
    return np.sign(v) * np.maximum(np.abs(v) - tau, 0)


def l1(a):
    return float(np.abs(a).sum())


def by_sum(v, tau):
    """Threshold every band by |sum over bands|, which is no proximal map."""
    total = np.abs(v.sum(axis=1, keepdims=True))
    return v * np.maximum(1 - tau / np.maximum(total, 1e-12), 0)


def test_value_of_several_products_is_the_sum_that_defines_it(rng):
    """Means are over the bands of a product; norms are over everything."""
    products = (0, 1, 0, 1, 1)
    a, w = coefficients(5, rng), weights(rng)
    expected = 0.0
    for basis, place in np.ndindex(NBASIS, NCOEFFICIENT):
        own = [a[basis, [v for v in range(5) if products[v] == s], place] for s in (0, 1)]
        common = np.sqrt(sum(x.sum() ** 2 / len(x) for x in own))
        left = np.sqrt(sum(((x - x.mean()) ** 2).sum() for x in own))
        expected += w[basis, place] * (common + left)
    assert JointPrior("mean21", 5, w, products).value(a) == pytest.approx(expected, rel=1e-13)
    assert JointPrior("l21", 5, w, products).value(a) == JointPrior("l21", 5, w).value(a)
    assert JointPrior("mean21", 5, w, (0,) * 5).value(a) == JointPrior("mean21", 5, w).value(a)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_projection_of_several_products_does_not_depend_on_how_their_planes_are_grouped(dtype, rng):
    g = JointPrior("mean21", 6, rng.uniform(0, 2, (2, 23)).astype(dtype), (0, 1, 2, 0, 1, 2))
    v = rng.standard_normal((2, 6, 23)).astype(dtype)
    whole = g.statistic([v])
    assert len(whole) == g.nstatistic == 4
    parts = [v[:, :4], v[:, 4:]]
    np.testing.assert_array_equal(whole, g.statistic(parts[:1]) + g.statistic(parts[1:], first=4))
    factor = g.factor(whole, g.radius(0.5))
    np.testing.assert_array_equal(factor, g.factors(parts, 0.5, (0, 23)))
    expected = g.project(v, factor)
    np.testing.assert_array_equal(expected, np.concatenate([g.project(p, factor, at) for p, at in zip(parts, (0, 4))], axis=1))  # noqa: B905
    renewed = v.copy()
    g.renew(np.zeros_like(v), renewed, 1.0, 0.5)
    np.testing.assert_array_equal(renewed, expected)
    assert not np.array_equal(expected, v)


def test_check_prox_passes_soft_thresholding(rng):
    check_prox(soft, l1, coefficients(4, rng), 0.5, rng)
    check_prox(soft, l1, coefficients(4, rng).astype("f4"), 0.5, rng)


@pytest.mark.parametrize("wrong", [
    lambda v, tau: soft(v, 1.1 * tau),
    lambda v, tau: soft(v, 0.9 * tau),
    lambda v, tau: 0.99 * soft(v, tau),
    lambda v, tau: np.zeros_like(v),
    lambda v, tau: v.copy(),
    lambda v, tau: v - soft(v, tau),
], ids=["+10 %", "-10 %", "shrunk", "zero", "identity", "conjugate"])  # fmt: skip
def test_check_prox_catches(wrong, rng):
    with pytest.raises(AssertionError, match="not the minimiser"):
        check_prox(wrong, l1, coefficients(4, rng), 0.5, rng)


def test_check_prox_catches_thresholding_by_the_sum(rng):
    with pytest.raises(AssertionError, match="not the minimiser"):
        check_prox(by_sum, JointPrior("l21", 4).value, coefficients(4, rng), 0.5, rng)


def test_check_prox_catches_a_changed_input_and_precision(rng):
    v = coefficients(4, rng)
    with pytest.raises(AssertionError, match="changed its input"):
        check_prox(lambda v, tau: np.multiply(v, 0.5, out=v), l1, v, 0.5, rng)
    with pytest.raises(AssertionError, match=r"made an array of .*float64.* from one of .*float32"):
        check_prox(lambda v, tau: soft(v, tau).astype("f8"), l1, v.astype("f4"), 0.5, rng)


@pytest.mark.parametrize(
    ("bases", "expected"),
    [(("self",), (1,)), (("self", "db1"), (1, 1)), (("db2", "self", "db1", "db3"), (1, 3, 1, 1)), (("db1", "db2"), (1, 1))],
    ids=str,
)
def test_the_pixels_weigh_as_much_as_all_wavelets(bases, expected):
    assert importance(bases) == expected
