"""Stokes I from the hands of both kinds of feeds, and its weights."""

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.kernels.stokes import combine

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
