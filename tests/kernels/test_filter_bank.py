"""Filters of a transform: their sizes, their norms, and where rows are seen whole."""

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.kernels.filter_bank import Morlet, bank, log_frequencies, padded_length, seen_whole


def test_frequencies_fall_in_equal_ratios():
    found = log_frequencies(0.1, 0.4, 3)
    np.testing.assert_allclose(found, [0.4, 0.2, 0.1])


@pytest.mark.parametrize("n", [1, 2, 11, 13, 100, 1351, 7681, 65537])
def test_padded_lengths_are_tight_and_can_be_decimated(n):
    found = padded_length(n)
    odd = found
    while odd % 2 == 0:
        odd //= 2
    assert odd in (1, 3, 5, 7, 9, 11, 15)
    assert n <= found <= 1.17 * n + 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sigma", [1.0, 2.0, 6.0])
def test_white_noise_keeps_its_variance(sigma, dtype):
    """With the norm for energies; a frequency well below Nyquist's, so that the filter is whole."""
    made = bank(Morlet([0.05, 0.1, 0.2], sigma, "energy"), 4000, dtype=dtype)
    power = np.add.reduceat(made.values.astype(float) ** 2, made.start) * made.length
    np.testing.assert_allclose(power, 1, rtol=1e-6)


def test_a_filter_is_left_out_where_it_is_nothing():
    made = bank(Morlet([0.2, 0.02], 2.0), 4096, dtype=np.float64)
    f = np.arange(1, made.length // 2 + 1) / made.length
    dense = 2 * np.exp(-((2 * 2 * np.pi * (f / 0.2 - 1)) ** 2) / 2) / made.length
    own = made.values[: made.bins[0]]
    low = made.first[0]
    np.testing.assert_allclose(own, dense[low - 1 : low - 1 + own.size], rtol=1e-10)
    assert dense[: low - 1].max() < 1e-16 * dense.max()
    assert dense[low - 1 + own.size :].max() < 1e-16 * dense.max()
    assert made.bins[1] < 0.11 * made.bins[0] + 2, "bands are as wide as their frequencies are high"


def test_rows_are_seen_whole_away_from_ends_and_gaps():
    valid = np.ones(40, bool)
    valid[20:22] = False
    morlet = Morlet([1.0, 0.25], 2.0)
    found = seen_whole(morlet, valid, dt=1.0, width=1.0)
    naive = np.array([
        [all(abs(t - e) > 2 / f for e in [-1, *np.flatnonzero(~valid), 40]) for t in range(40)] for f in morlet.freqs
    ])  # fmt: skip
    np.testing.assert_array_equal(found, naive)
    assert found[0].any()
    assert not seen_whole(morlet, np.zeros(40, bool)).any()
    np.testing.assert_array_equal(seen_whole(morlet, valid, dt=0.5, width=1.0)[0], seen_whole(Morlet([0.5]), valid, width=1.0)[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Morlet([]), "frequencies of a transform must be one or more positive numbers"),
        (lambda: Morlet([0.1, -0.1]), "positive numbers"),
        (lambda: Morlet([np.nan]), "positive numbers"),
        (lambda: Morlet([0.1], 0.0), "sigma is 0.0 but must be positive"),
        (lambda: Morlet([0.1], norm="l1"), "norm is 'l1' but must be one of amplitude, energy, fcwt"),
        (lambda: bank(Morlet([0.1]), 10, pad="wrap"), "pad is 'wrap' but must be one of zero, reflect, none"),
        (lambda: bank(Morlet([0.1]), 0), "a series has 0 samples but must have one or more"),
        (lambda: bank(Morlet([0.1, 0.3]), 10, dt=2.0), "the frequency 0.3 is above the 0.25 that samples every 2 allow"),
    ],
)
def test_what_makes_no_filters(make, message):
    with pytest.raises(InputError, match=message):
        make()
