"""Stokes I from the hands of both kinds of feeds, and its weights."""

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.kernels.stokes import available, combine, require
from pfb.kernels.stokes import stokes as make
from pfb.types import CORRELATION_NAMES

CIRCULAR, LINEAR = (5, 6, 7, 8), (9, 10, 11, 12)


def correlate(kind, i, q, u, v):
    """Visibilities of a polarised source in the order of casacore's numbers."""
    if kind == CIRCULAR:
        return np.stack([i + v, q + 1j * u, q - 1j * u, i - v], axis=-1)
    return np.stack([i + q, u + 1j * v, u - 1j * v, i - q], axis=-1)


@pytest.fixture
def stokes(rng):
    return rng.standard_normal((4, 6, 3)) + 1j * rng.standard_normal((4, 6, 3))


@pytest.mark.parametrize("rule", ["l2", "minvar"])
@pytest.mark.parametrize("kind", [CIRCULAR, LINEAR], ids=["circular", "linear"])
class TestBothFeeds:
    def test_q_u_and_v_do_not_leak(self, kind, rule, stokes, rng):
        weight = rng.uniform(0.1, 10, (6, 3, 4))
        vis, _ = combine(correlate(kind, *stokes), weight, kind, rule)
        np.testing.assert_allclose(vis, stokes[0], rtol=0, atol=1e-14)

    def test_order_and_number_of_correlations_do_not_matter(self, kind, rule, stokes, rng):
        data, weight = correlate(kind, *stokes), rng.uniform(0.1, 10, (6, 3, 4))
        expected = combine(data, weight, kind, rule)
        for order in ([3, 1, 0, 2], [0, 3], [3, 0]):
            found = combine(data[..., order], weight[..., order], tuple(kind[k] for k in order), rule)
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])

    @pytest.mark.parametrize("hand", [0, 3])
    def test_one_flagged_hand_drops_the_sample(self, kind, rule, hand, stokes, rng):
        data, weight = correlate(kind, *stokes), rng.uniform(0.1, 10, (6, 3, 4))
        data[2, 1, hand] = weight[2, 1, hand] = 0
        vis, total = combine(data, weight, kind, rule)
        assert vis[2, 1] == total[2, 1] == 0
        assert np.count_nonzero(total) == total.size - 1

    def test_flagged_cross_hands_do_not_matter(self, kind, rule, stokes):
        data, weight = correlate(kind, *stokes), np.ones((6, 3, 4))
        weight[..., 1:3] = 0
        np.testing.assert_array_equal(combine(data, weight, kind, rule)[1], 2)

    def test_precision_is_double(self, kind, rule, stokes):
        data = correlate(kind, *stokes)
        vis, total = combine(data.astype("c8"), np.ones(data.shape, "f4"), kind, rule)
        assert vis.dtype == np.complex128
        assert total.dtype == np.float64

    def test_inputs_are_not_changed(self, kind, rule, stokes):
        data, weight = correlate(kind, *stokes), np.ones((6, 3, 4))
        before = data.copy(), weight.copy()
        combine(data, weight, kind, rule)
        assert (data == before[0]).all()
        assert (weight == before[1]).all()


def weights_of(wp, wq, rule):
    data = np.ones((1, 1, 2), complex)
    return combine(data, np.array([[[wp, wq]]]), (9, 12), rule)[1][0, 0]


@pytest.mark.parametrize(("wp", "wq"), [(1.0, 1.0), (2.0, 8.0), (1e-6, 3.0), (1e9, 1e9)])
def test_l2_is_the_inverse_variance_of_the_mean(wp, wq):
    variance = (1 / wp + 1 / wq) / 4
    assert weights_of(wp, wq, "l2") == pytest.approx(1 / variance, rel=1e-14)


def test_l2_is_what_the_noise_shows(rng):
    wp, wq = 4.0, 0.25
    noise = rng.standard_normal((20_000, 1, 2)) / np.sqrt([wp, wq])
    vis, weight = combine(noise.astype(complex), np.broadcast_to([wp, wq], noise.shape), (9, 12))
    assert np.var(vis.real) * weight[0, 0] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("wp", "wq", "expected"), [(1.0, 1.0, 2.0), (2.0, 8.0, 4.0), (8.0, 2.0, 4.0), (0.0, 3.0, 0.0)])
def test_minvar_is_twice_the_lesser(wp, wq, expected):
    assert weights_of(wp, wq, "minvar") == expected


def test_stored_stokes_i_is_taken_as_it_is(rng):
    data, weight = rng.standard_normal((5, 2, 2)) + 0j, rng.uniform(1, 2, (5, 2, 2))
    vis, total = combine(data.astype("c8"), weight.astype("f4"), (4, 1))
    np.testing.assert_array_equal(vis, data[..., 1].astype("c8"))
    np.testing.assert_array_equal(total, weight[..., 1].astype("f4"))
    assert (vis.dtype, total.dtype) == (np.complex128, np.float64)


@pytest.mark.parametrize("correlations", [(9,), (5,), (9, 10, 11), (5, 12), (6, 7)], ids=str)
def test_a_missing_hand_is_refused(correlations):
    data = np.ones((2, 1, len(correlations)), complex)
    with pytest.raises(InputError, match="Stokes I needs XX and YY or RR and LL: ask for other products"):
        combine(data, np.ones(data.shape), correlations)


@pytest.mark.parametrize("rule", ["l2", "minvar"])
@pytest.mark.parametrize("kind", [CIRCULAR, LINEAR], ids=["circular", "linear"])
class TestAllProducts:
    @pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]], ids=str)
    def test_each_is_what_was_correlated(self, kind, rule, order, stokes, rng):
        data, weight = correlate(kind, *stokes), rng.uniform(0.1, 10, (6, 3, 4))
        numbers = tuple(kind[k] for k in order)
        for products in ("IQUV", "VQ", "U"):
            found = make(data[..., order], weight[..., order], numbers, products, rule)
            for product, (vis, _) in zip(products, found, strict=True):
                np.testing.assert_allclose(vis, stokes["IQUV".index(product)], rtol=0, atol=1e-14)

    def test_weights_are_those_of_the_two_correlations(self, kind, rule, stokes, rng):
        weight = rng.uniform(0.1, 10, (6, 3, 4))
        for product, (_, total) in zip("IQUV", make(correlate(kind, *stokes), weight, kind, "IQUV", rule), strict=True):
            parallel = product in ("IV" if kind == CIRCULAR else "IQ")
            p, q = (weight[..., k] for k in ((0, 3) if parallel else (1, 2)))
            expected = 1 / ((1 / p + 1 / q) / 4) if rule == "l2" else 2 * np.minimum(p, q)
            np.testing.assert_allclose(total, expected, rtol=1e-13)

    @pytest.mark.parametrize("flagged", [(0,), (1,), (1, 2), (0, 1, 2, 3)], ids=str)
    def test_a_flagged_correlation_drops_what_needs_it_and_nothing_else(self, kind, rule, flagged, stokes, rng):
        data, weight = correlate(kind, *stokes), rng.uniform(0.1, 10, (6, 3, 4))
        data[..., flagged] = weight[..., flagged] = 0
        for product, (vis, total) in zip("IQUV", make(data, weight, kind, "IQUV", rule), strict=True):
            parallel = product in ("IV" if kind == CIRCULAR else "IQ")
            there = not set(flagged) & {*((0, 3) if parallel else (1, 2))}
            assert np.isfinite(total).all()
            assert (total > 0).all() == there
            assert vis.any() == there

    @pytest.mark.parametrize("angle", [0.3, -np.pi / 2, np.pi / 4])
    def test_turned_feeds(self, kind, rule, angle, stokes, rng):
        i, q, u, v = stokes
        seen = (q + 1j * u) * np.exp(-2j * angle), (q - 1j * u) * np.exp(2j * angle)
        data = correlate(kind, i, sum(seen) / 2, (seen[0] - seen[1]) / 2j, v)
        weight = rng.uniform(0.1, 10, (6, 3, 4))
        found = make(data, weight, kind, "UIQV", rule, np.full(6, angle))
        for (vis, total), expected in zip(found, (u, i, q, v), strict=True):
            np.testing.assert_allclose(vis, expected, rtol=0, atol=1e-14)
            assert (total > 0).all()
        upright = dict(zip("UIQV", make(data, weight, kind, "UIQV", rule), strict=True))
        c, s = np.cos(2 * angle) ** 2, np.sin(2 * angle) ** 2
        np.testing.assert_allclose(1 / found[2][1], c / upright["Q"][1] + s / upright["U"][1], rtol=1e-12)

    def test_a_right_angle_needs_no_other_product(self, kind, rule, stokes):
        data, weight = correlate(kind, *stokes), np.ones((6, 3, 4))
        weight[..., 1:3] = 0
        (q, wq), (u, wu) = make(data, weight, kind, "QU", rule, np.full(6, -np.pi / 2))
        parallel = kind == LINEAR
        assert (wq > 0).all() == q.any() == parallel
        assert not wu.any()
        assert not u.any()
        if parallel:
            np.testing.assert_allclose(q, -stokes[1], atol=1e-14)


def test_stored_products_are_taken_as_they_are_and_not_turned(rng):
    data, weight = rng.standard_normal((5, 2, 4)) + 0j, rng.uniform(1, 2, (5, 2, 4))
    for angle in (None, np.full(5, 0.4)):
        found = make(data, weight, (4, 1, 3, 2), "IQUV", "l2", angle)
        for k, (vis, total) in zip((1, 3, 2, 0), found, strict=True):
            np.testing.assert_array_equal(vis, data[..., k])
            np.testing.assert_array_equal(total, weight[..., k])


@pytest.mark.parametrize(
    ("correlations", "there"), [((9, 12), "IQ"), ((5, 8), "IV"), ((10, 11), "UV"), ((6, 7), "QU"), ((9,), "")]
)
def test_what_two_correlations_give(correlations, there):
    data = np.ones((2, 1, len(correlations)), complex)
    found = make(data, np.ones(data.shape), correlations, "IQUV")
    assert "".join(p for p, own in zip("IQUV", found, strict=True) if own) == there
    for product in "IQUV":
        assert available(product, correlations) == (product in there)
    for product in set("IQUV") - set(there):
        names = ", ".join(CORRELATION_NAMES[c] for c in correlations)
        with pytest.raises(InputError, match=f"the data have the correlations {names} but Stokes {product} needs"):
            require(product, [correlations])


def test_turned_q_needs_u():
    assert not available("Q", (9, 12), turned=True)
    assert available("Q", (6, 7), turned=True)
    with pytest.raises(InputError, match="XX, YY but Stokes Q needs XX, XY, YX and YY or RL and LR, as the feeds are turned"):
        require("Q", [(9, 12)], turned=True)
