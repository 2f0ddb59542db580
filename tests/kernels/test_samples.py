"""Small operations on samples."""

import pickle
from functools import partial

import numpy as np
import pytest

from pfb.kernels.samples import Streamed, chain, clip_strongest, concatenate, each, join, strongest
from pfb.types import Visibilities


def piece(amplitude, weight=None):
    """Samples of these amplitudes, (row, chan), with phases of no matter."""
    amplitude = np.asarray(amplitude, float)
    rows, channels = amplitude.shape
    weight = np.ones(amplitude.shape) if weight is None else np.asarray(weight, float)
    vis = amplitude * np.exp(1j * np.arange(amplitude.size).reshape(amplitude.shape))
    return Visibilities(np.arange(3.0 * rows).reshape(rows, 3), 1e9 + np.arange(channels), vis, weight)


@pytest.fixture
def band(rng):
    """Amplitudes 1 ... 100 in random places of two pieces of different channels."""
    amplitudes = rng.permutation(np.arange(1.0, 101))
    return piece(amplitudes[:60].reshape(20, 3)), piece(amplitudes[60:].reshape(20, 2))


@pytest.mark.parametrize(("fraction", "dropped"), [(0.01, 1), (0.05, 5), (0.2, 20), (0.5, 50)])
def test_the_strongest_of_the_whole_band_are_dropped(fraction, dropped, band):
    clipped = clip_strongest(band, fraction)
    for before, after in zip(band, clipped, strict=True):
        strong = np.abs(before.vis) > 100.5 - dropped
        np.testing.assert_array_equal(after.weight == 0, strong)
        np.testing.assert_array_equal(after.vis, np.where(strong, 0, before.vis))
        assert after.uvw is before.uvw
        assert after.freq is before.freq
    assert sum((p.weight == 0).sum() for p in clipped) == dropped


def test_nothing_is_dropped_by_default_of_zero(band):
    for before, after in zip(band, clip_strongest(band, 0.0), strict=True):
        assert after is before


def test_the_fraction_is_of_the_samples_with_weight():
    """Flagged ones are neither counted nor, being zero, strong."""
    amplitude, weight = np.arange(1.0, 21).reshape(20, 1), np.ones((20, 1))
    amplitude[:10] = weight[:10] = 0
    (clipped,) = clip_strongest([piece(amplitude, weight)], 0.2)
    assert (clipped.weight[-2:] == 0).all()
    assert clipped.weight.sum() == 8


def test_the_weights_that_stay_are_unchanged(rng):
    weight = rng.uniform(1, 2, (50, 2))
    before = piece(rng.uniform(0, 1, (50, 2)), weight)
    (after,) = clip_strongest([before], 0.1)
    kept = after.weight > 0
    assert kept.sum() == 90
    np.testing.assert_array_equal(after.weight[kept], weight[kept])


def test_the_input_is_not_changed(band):
    before = [(p.vis.copy(), p.weight.copy()) for p in band]
    clip_strongest(band, 0.3)
    for (vis, weight), p in zip(before, band, strict=True):
        assert (p.vis == vis).all()
        assert (p.weight == weight).all()


@pytest.mark.parametrize("band", [(), (piece(np.zeros((0, 3))),), (piece(np.zeros((4, 3)), np.zeros((4, 3))),)])
def test_an_empty_band_stays_as_it_is(band):
    clipped = clip_strongest(band, 0.1)
    assert len(clipped) == len(band)
    for before, after in zip(band, clipped, strict=True):
        assert after is before


def test_pieces_are_joined_row_after_row(rng):
    a, b = piece(rng.random((3, 2))), piece(rng.random((4, 2)), rng.random((4, 2)))
    joined = concatenate([a, b])
    for name in ("uvw", "vis", "weight"):
        np.testing.assert_array_equal(getattr(joined, name)[:3], getattr(a, name))
        np.testing.assert_array_equal(getattr(joined, name)[3:], getattr(b, name))
    assert joined.freq is a.freq
    assert concatenate([a]) is a


# One part after the other


def streamed(parts):
    return Streamed([partial(tuple.__getitem__, tuple(parts), i) for i in range(len(parts))])


def assert_alike(one, other):
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def heavier(part):
    return part._replace(weight=2 * part.weight)


def test_a_streamed_band_is_what_its_sources_give_after_its_functions(band):
    found = each(each(streamed(band), heavier), heavier)
    assert len(found) == 2
    assert_alike(found, [part._replace(weight=4 * part.weight) for part in band])
    assert_alike(found[1:], list(found)[1:])
    assert_alike(each(band, heavier), each(streamed(band), heavier))
    assert_alike(pickle.loads(pickle.dumps(streamed(band))), band)


def test_a_streamed_band_fetches_again_whenever_it_is_looked_at(band):
    count = []
    stream = Streamed([lambda: (count.append(1), band[0])[1]] * 3)
    assert count == []
    assert len(list(stream)) == len(count) == 3
    list(stream)
    assert len(count) == 6


def test_windows_are_chained(band):
    assert chain([band[:1], band[1:]]) == band
    assert chain([]) == ()
    assert_alike(chain([streamed(band[:1]), streamed(band[1:])]), band)


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.05, 0.2, 0.37, 0.5])
def test_the_limit_of_a_streamed_band_is_the_same_number(fraction, rng):
    many = piece(rng.rayleigh(1.0, (211, 3)), rng.integers(0, 2, (211, 3)))
    parts = [many, piece(rng.rayleigh(3.0, (40, 1))), piece(np.ones((5, 1)))]
    used = np.concatenate([np.abs(p.vis)[p.weight > 0] for p in parts])
    assert strongest(streamed(parts), fraction) == np.quantile(used, 1 - fraction)
    assert_alike(clip_strongest(streamed(parts), fraction), clip_strongest(parts, fraction))
    assert strongest(streamed([piece(np.zeros((4, 2)), np.zeros((4, 2)))]), fraction) is None


def test_pieces_are_joined_by_their_channels_and_frequencies_are_weighted(rng):
    one, two, few = piece(rng.random((3, 2))), piece(rng.random((4, 2)), rng.random((4, 2))), piece(rng.random((2, 1)))
    two = two._replace(freq=two.freq + [0.0, 1e6])
    (found,) = join([((one, few),), ((two,),)])
    assert [part.vis.shape for part in found] == [(7, 2), (2, 1)]
    totals = one.weight.sum(axis=0), two.weight.sum(axis=0)
    expected = (totals[0] * one.freq + totals[1] * two.freq) / (totals[0] + totals[1])
    np.testing.assert_allclose(found[0].freq, expected, rtol=1e-15)
    assert found[0].freq[0] == one.freq[0]
    nothing = [part._replace(weight=0 * part.weight) for part in (one, two)]
    np.testing.assert_array_equal(join([((nothing[0],),), ((nothing[1],),)])[0][0].freq, one.freq)
