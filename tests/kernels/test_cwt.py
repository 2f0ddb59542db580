"""Wavelet transforms against the sum that defines them."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from pfb.errors import ShapeError
from pfb.kernels.cwt import octaves, spectrum, steps, transform
from pfb.kernels.filter_bank import Morlet, bank, log_frequencies, seen_whole

# Of the largest value: rounding of the transforms, and what is cut off of the filters.
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-12}
AMPLITUDE = {"amplitude": 2.0, "fcwt": np.sqrt(2 * np.pi) * np.pi**-0.25}


def naive(x, freqs, dt=1.0, sigma=2.0, amplitude=2.0):
    """Sum of samples times the conjugate of the wavelet, (row, n); zero outside the series."""
    t = np.arange(x.size)
    out = np.empty((len(freqs), x.size), complex)
    for row, f in enumerate(freqs):
        s = 1 / (f * dt)
        u = t[None, :] - t[:, None]
        wavelet = amplitude / (np.sqrt(2 * np.pi) * sigma * s) * np.exp(-(u**2) / (2 * (sigma * s) ** 2) - 2j * np.pi * u / s)
        out[row] = wavelet @ x
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm", ["amplitude", "fcwt"])
@pytest.mark.parametrize(
    ("n", "rows"), [(300, 20), (301, 20), (256, 20), (256, 6), (60, 6), (1, 1), (2, 3)], ids=lambda value: str(value)
)
def test_it_is_the_sum_that_defines_it(n, rows, norm, dtype, rng):
    """Odd, a power of two, rows far apart, series shorter than the widest wavelet."""
    freqs = log_frequencies(0.01, 0.27, rows)  # higher ones would alias
    x = rng.standard_normal((3, n)).astype(dtype)
    found = transform(x, bank(Morlet(freqs, norm=norm), n, dtype=dtype))
    expected = np.array([naive(series.astype(float), freqs, amplitude=AMPLITUDE[norm]) for series in x])
    assert found.dtype == np.result_type(dtype, np.complex64)
    assert np.abs(found - expected).max() < TOLERANCE[dtype] * np.abs(expected).max()


@pytest.mark.parametrize("dt", [0.5, 8.0])
def test_time_has_a_unit(dt, rng):
    freqs = np.array([0.2, 0.05]) / dt
    x = rng.standard_normal((1, 200))
    found = transform(x, bank(Morlet(freqs, 3.0), 200, dt, dtype=np.float64))[0]
    np.testing.assert_allclose(found, naive(x[0], freqs, dt, 3.0), atol=1e-12)


@pytest.mark.parametrize("order", [1, -1])
def test_every_row_has_the_amplitude_of_its_tone(order):
    """Reversed rows would not; nor would an amplitude that depends on the scale."""
    freqs = log_frequencies(0.02, 0.24, 12)[::order]
    n = 2000
    made = bank(Morlet(freqs), n, dtype=np.float64)
    whole = seen_whole(Morlet(freqs), np.ones(n, bool), width=6.0)
    for row, f in enumerate(freqs):
        tone = 0.7 * np.cos(2 * np.pi * f * np.arange(n) + 0.3)
        found = transform(tone[None], made)[0, row, whole[row]]
        np.testing.assert_allclose(np.abs(found), 0.7, rtol=1e-5)
        phase = 2 * np.pi * f * np.flatnonzero(whole[row]) + 0.3
        np.testing.assert_allclose(np.angle(found * np.exp(-1j * phase)), 0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_series_turn_one_way(dtype, rng):
    freqs = np.array([0.1, 0.05])
    n = 400
    kind = np.result_type(dtype, np.complex64)
    x = (rng.standard_normal((2, n)) + 1j * rng.standard_normal((2, n))).astype(kind)
    found = transform(x, bank(Morlet(freqs), n, dtype=dtype))
    expected = np.array([naive(series.astype(complex), freqs) for series in x])
    assert np.abs(found - expected).max() < TOLERANCE[dtype] * np.abs(expected).max()
    turning = np.exp(-2j * np.pi * 0.1 * np.arange(n)).astype(kind)[None]
    assert np.abs(transform(turning, bank(Morlet(freqs), n, dtype=dtype))[0, 0, 100:300]).max() < 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [700, 701, 1024])
def test_octaves_are_samples_of_the_whole(n, dtype, rng):
    freqs = log_frequencies(0.01, 0.4, 30)
    x = rng.standard_normal((3, n)).astype(dtype)
    made = bank(Morlet(freqs), n, dtype=dtype)
    whole = transform(x, made)
    found = octaves(x, made)
    assert sorted(row for octave in found for row in octave.rows) == list(range(30))
    assert [octave.step for octave in found] == sorted({octave.step for octave in found})
    assert len(found) > 3
    for rows, step, values in found:
        assert np.abs(values - whole[:, rows, ::step]).max() < TOLERANCE[dtype] * np.abs(whole).max()
    size = sum(values.size for _, _, values in found)
    assert size < 0.45 * whole.size


def test_no_bins_of_a_row_fall_together():
    made = bank(Morlet(log_frequencies(0.005, 0.4, 40)), 3000)
    every = steps(made)
    assert (made.length // every >= 2 * made.bins).all()
    assert (every[1:] >= every[:-1]).all(), "lower rows need no more samples"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_a_batch_is_a_loop_to_the_bit(dtype, rng):
    n = 1350
    made = bank(Morlet(log_frequencies(0.005, 0.4, 37)), n, dtype=np.float64 if dtype is np.float64 else np.float32)
    x = rng.standard_normal((9, n)).astype(dtype)
    for function in (lambda y: [transform(y, made)], lambda y: [octave.values for octave in octaves(y, made)]):
        whole = function(x)
        for cuts in ([0, 9], list(range(10)), [0, 4, 9]):
            pieces = [x[a:b] for a, b in pairwise(cuts)]
            with ThreadPoolExecutor(3) as pool:
                parts = list(pool.map(function, pieces))
            for k, expected in enumerate(whole):
                np.testing.assert_array_equal(np.concatenate([part[k] for part in parts]), expected)


def test_a_reflected_series_has_no_edge(rng):
    """A constant would else fall to zero at its ends."""
    n, freqs = 300, np.array([0.05, 0.02])
    x = np.full((1, n), 3.0)
    made = [bank(Morlet(freqs), n, pad=pad, dtype=np.float64) for pad in ("zero", "reflect")]
    zero, reflected = (np.abs(transform(x, one)).max() for one in made)
    assert zero > 0.1
    assert reflected < 1e-10
    y = rng.standard_normal((1, n))
    found = transform(y, bank(Morlet(freqs), n, pad="reflect", dtype=np.float64))
    expected = naive(np.tile(np.concatenate([y[0], y[0, ::-1]]), 5), freqs)[:, 4 * n : 5 * n]
    np.testing.assert_allclose(found[0], expected, atol=1e-11)


def test_without_padding_the_ends_meet(rng):
    n, freqs = 243, np.array([0.1, 0.03])
    x = rng.standard_normal((1, n))
    found = transform(x, bank(Morlet(freqs), n, pad="none", dtype=np.float64))
    expected = naive(np.tile(x[0], 7), freqs)[:, 3 * n : 4 * n]
    np.testing.assert_allclose(found[0], expected, atol=1e-12)


def test_a_constant_is_no_oscillation():
    """However wide the filter is."""
    made = bank(Morlet([0.1], 0.5), 64, pad="none", dtype=np.float64)
    assert np.abs(transform(np.ones((1, 64)), made)).max() < 1e-15


def test_what_it_does_not_take(rng):
    made = bank(Morlet([0.1]), 100)
    for wrong in (rng.standard_normal((2, 100)), rng.standard_normal(100).astype(np.float32), np.zeros((1, 9999), np.float32)):
        with pytest.raises(ShapeError, match=r"takes \(series, n\) float32 or complex64 of at most \d+ samples, got"):
            spectrum(wrong, made)
