"""Averages over time and channels, against sums that are written out, and what they take from a source at the edge."""

import numpy as np
import pytest

from pfb.kernels.averaging import Averaging, Means, Rows, average, groups, intervals, turns_allowed
from pfb.types import LIGHTSPEED

NANT, DUMP, NTIME = 4, 8.0, 13
CORNER = (0.012, 0.015, 0.0002)
OMEGA = 2 * np.pi / 86164.1


def track(rng, ntime=NTIME, nant=NANT, reach=4000.0, unordered=False):
    """Rows of two scans that the turning Earth moves."""
    a1, a2 = np.triu_indices(nant, 1)
    place = rng.uniform(-reach, reach, (nant, 3))
    time = 5e9 + DUMP * np.concatenate([np.arange(ntime), 1000.5 + np.arange(ntime)])
    scan = np.repeat([3, 7], ntime)
    angle = OMEGA * (time - time[0])[:, None]
    d = place[a1] - place[a2]
    uvw = np.stack(
        [d[:, 0] * np.cos(angle) + d[:, 1] * np.sin(angle), d[:, 1] * np.cos(angle) - d[:, 0] * np.sin(angle),
         np.broadcast_to(0.1 * d[:, 2], (len(time), len(a1)))], axis=-1,
    ).reshape(-1, 3)  # fmt: skip
    n = len(a1)
    rows = Rows(uvw, np.repeat(time, n), np.repeat(scan, n), np.tile(a1, len(time)), np.tile(a2, len(time)))
    order = rng.permutation(len(uvw)) if unordered else slice(None)
    return Rows(*(column[order] for column in rows))


def starts(rows):
    return tuple((int(s), float(rows.time[rows.scan == s].min())) for s in np.unique(rows.scan))


def samples(rng, rows, nchan):
    """Visibilities and weights; a fifth has no weight and is NaN, among them a whole row, a channel and a baseline."""
    shape = len(rows.uvw), nchan
    vis = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    weight = rng.uniform(0.5, 2.0, shape)
    weight[rng.random(shape) < 0.2] = 0
    weight[5] = 0
    weight[:, nchan // 2] = 0
    weight[(rows.antenna1 == 0) & (rows.antenna2 == 2)] = 0
    vis[weight == 0] = np.nan
    return vis, weight


def naive(rows, freq, vis, weight, interval, factor):
    """{(scan, interval, baseline): (uvw, vis, weight) of the channels}, and the frequencies, one sample after the other."""
    nchan = -(-len(freq) // factor)
    sums, moments = {}, np.zeros((nchan, 2))
    for r in range(len(vis)):
        key = int(rows.scan[r]), int(interval[r]), int(rows.antenna1[r]), int(rows.antenna2[r])
        own = sums.setdefault(key, [np.zeros(3), 0.0, np.zeros(nchan, complex), np.zeros(nchan)])
        for c in range(len(freq)):
            if weight[r, c] > 0:
                own[0] = own[0] + weight[r, c] * rows.uvw[r]
                own[1] += weight[r, c]
                own[2][c // factor] += weight[r, c] * vis[r, c]
                own[3][c // factor] += weight[r, c]
                moments[c // factor] += weight[r, c] * freq[c], weight[r, c]
    return sums, moments


@pytest.mark.parametrize("unordered", [False, True], ids=["ordered", "shuffled"])
@pytest.mark.parametrize(("seconds", "chan", "nchan"), [(24.0, 3, 7), (0.0, 2, 6), (20.0, 1, 5), (1e4, 99, 3), (16.0, 4, 1)])
def test_means_of_every_channel_row_and_baseline(rng, seconds, chan, nchan, unordered):
    rows, freq = track(rng, unordered=unordered), 1e9 + 1e6 * np.arange(nchan) ** 1.3
    vis, weight = samples(rng, rows, nchan)
    setting = Averaging(time=seconds, chan=chan, starts=starts(rows))
    (group,) = made = groups(setting, rows, freq)
    assert group.factor == min(chan, nchan)
    (found,) = average(made, rows, freq, vis, weight)

    since = rows.time - np.array([dict(starts(rows))[s] for s in rows.scan.tolist()])
    interval = np.floor((since + 1e-3) / (seconds or DUMP))
    sums, moments = naive(rows, freq, vis, weight, interval, group.factor)
    assert len(found.uvw) == len(sums) == group.averages
    expected = np.divide(moments[:, 0], moments[:, 1], out=np.full(len(moments), np.nan), where=moments[:, 1] > 0)
    used = moments[:, 1] > 0
    np.testing.assert_allclose(found.freq[used], expected[used], rtol=1e-14)
    assert np.isfinite(found.freq).all()
    for i, key in enumerate(sorted(sums)):  # by scan, interval and baseline
        uvw, total, products, weights = sums[key]
        assert set(np.flatnonzero(group.member == i)) == {
            r for r in range(len(vis)) if (rows.scan[r], interval[r], rows.antenna1[r], rows.antenna2[r]) == key
        }
        np.testing.assert_allclose(found.weight[i], weights, rtol=1e-13)
        np.testing.assert_allclose(found.vis[i][weights > 0], (products / np.where(weights, weights, 1))[weights > 0], rtol=1e-12)
        assert (found.vis[i][weights == 0] == 0).all()
        middle = uvw / total if total else rows.uvw[group.member == i].mean(axis=0)
        np.testing.assert_allclose(found.uvw[i], middle, rtol=1e-12, atol=1e-9)


def test_what_is_averaged_alone_is_what_it_was(rng):
    rows, freq = track(rng), 1e9 + 1e6 * np.arange(5)
    vis, weight = samples(rng, rows, 5)
    (found,) = average(groups(Averaging(starts=starts(rows)), rows, freq), rows, freq, vis, weight)
    np.testing.assert_array_equal(found.freq, freq)
    np.testing.assert_array_equal(found.weight, weight)
    np.testing.assert_allclose(found.uvw, rows.uvw, rtol=1e-14)
    np.testing.assert_allclose(found.vis, np.where(weight > 0, vis, 0), rtol=1e-14)


def test_rows_may_come_in_pieces(rng):
    rows, freq = track(rng), 1e9 + 1e6 * np.arange(4)
    vis, weight = samples(rng, rows, 4)
    made = groups(Averaging(time=30.0, chan=2, starts=starts(rows)), rows, freq)
    means = Means(made, freq)
    for first in range(0, len(vis), 17):
        own = slice(first, first + 17)
        means.add(own, rows.uvw[own], vis[own], weight[own])
    for one, other in zip(means.result(), average(made, rows, freq, vis, weight), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_intervals_are_counted_from_the_start_of_a_scan():
    setting = Averaging(time=16.0, starts=((2, 100.0), (9, 1003.0)))
    time = np.array([100, 108, 116.00001, 131.99999, 1003, 1018.9999999, 1019])
    found = intervals(setting, np.array([2, 2, 2, 2, 9, 9, 9]), time)
    np.testing.assert_array_equal(found, [0, 0, 1, 2, 0, 1, 1])


@pytest.mark.parametrize("kept", [0.999, 0.99, 0.9, 0.5])
def test_turns_allowed(kept):
    n = turns_allowed(kept)
    phase = 2 * np.pi * n * (np.arange(100_000) + 0.5) / 100_000
    assert abs(np.exp(1j * phase).mean()) == pytest.approx(kept, rel=1e-6)


def predict(uvw, freq, corner):
    l, m, n = corner
    return np.exp(2j * np.pi / LIGHTSPEED * (uvw @ [l, m, -n])[:, None] * freq)


@pytest.mark.parametrize("unordered", [False, True], ids=["ordered", "shuffled"])
@pytest.mark.parametrize("decorrelation", [0.99, 0.9])
def test_no_baseline_loses_more_of_a_source_in_a_corner_than_it_may(rng, decorrelation, unordered):
    """And it loses something, as all is averaged that may be."""
    rows, freq = track(rng, ntime=40, nant=9, unordered=unordered), 1e9 + 5e4 * np.arange(64)
    setting = Averaging(time=160.0, chan=64, corner=CORNER, decorrelation=decorrelation, dump=DUMP, starts=starts(rows))
    made = groups(setting, rows, freq)
    assert [g.factor for g in made] == sorted(g.factor for g in made)
    assert len(made) >= 2
    assert (sum((g.member >= 0).astype(int) for g in made) == 1).all()
    found, worst = 0, 1.0
    for signs in ((1, 1), (1, -1)):
        corner = (signs[0] * CORNER[0], signs[1] * CORNER[1], CORNER[2])
        vis = predict(rows.uvw, freq, corner)
        for part in average(made, rows, freq, vis, np.ones(vis.shape)):
            kept = part.vis / predict(part.uvw, part.freq, corner)
            worst = min(worst, np.abs(kept).min())
            np.testing.assert_allclose(np.angle(kept), 0, atol=0.02)
            found += part.vis.size
    assert decorrelation <= worst < 1 - (1 - decorrelation) / 8
    assert found / 2 < (0.8 if decorrelation > 0.95 else 0.3) * vis.size


def test_time_stamps_alone_are_kept_where_nothing_says_how_long_they_are(rng):
    rows, freq = track(rng), 1e9 + 5e4 * np.arange(4)
    made = groups(Averaging(time=80.0, chan=4, corner=CORNER, starts=starts(rows), dump=0.0), rows, freq)
    assert sum(g.averages for g in made) == 2 * 2 * NANT * (NANT - 1) // 2


def test_no_rows():
    nothing = np.zeros(0, int)
    rows = Rows(np.zeros((0, 3)), np.zeros(0), nothing, nothing, nothing)
    for corner in (None, CORNER):
        setting = Averaging(time=8.0, chan=2, corner=corner, dump=DUMP, starts=((1, 0.0),))
        assert groups(setting, rows, np.array([1e9, 1.1e9])) == []
