"""Selections by time, by length of baselines, and by patterns of names, against a mask over all samples."""

from __future__ import annotations

import arcae
import numpy as np
import pytest

from pfb.errors import InputError
from pfb.io.measurement_set import Selection, select
from pfb.io.time_ranges import iso
from pfb.io.uv_range import parse_uv_range
from tests.observations import read_window, small_set

C = 299792458.0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    layout = dict(channels=(5, 8), descending=True, shuffled=True, scans=2, autocorrelations=True)
    return small_set(tmp_path_factory.mktemp("narrow") / "a.ms", **layout)


def everything(path):
    """All cross-correlation samples of every window: TIME, uvw, visibilities and weights, in the stored order."""
    found = {}
    for w in select([path], Selection()).windows:
        with arcae.table(path) as table:
            c = {name: table.getcol(name) for name in ("DATA_DESC_ID", "ANTENNA1", "ANTENNA2", "TIME")}
        rows = (c["DATA_DESC_ID"] == w.data_desc_id) & (c["ANTENNA1"] != c["ANTENNA2"])
        found[w.spw] = (w.freq, c["TIME"][rows], *read_window(w))
    return found


def assert_samples(path, selection, keep):
    """Compare what is selected with all samples for which ``keep(freq, time, uvw)`` holds; returns the selection."""
    data, samples = select([path], Selection(**selection)), everything(path)
    longest = 0.0
    for w in data.windows:
        freq, time, uvw, vis, weight = samples[w.spw]
        inside = np.broadcast_to(keep(freq, time, uvw), (len(time), len(freq)))
        assert 0 < inside.sum() < inside.size
        got = read_window(w, rows=13)
        good, wanted = (got[2] > 0), inside[:, :, None] & (weight > 0)
        assert w.rows == len(got[0])
        np.testing.assert_array_equal(got[1][good], vis[wanted])
        np.testing.assert_array_equal(got[2][good], weight[wanted])
        assert not got[1][~good].any()
        rows = wanted.any(axis=(1, 2))
        waves = np.hypot(uvw[:, 0], uvw[:, 1])[:, None] * freq / C
        longest = max(longest, np.where(inside, waves, 0)[rows].max())
    assert data.longest_baseline_wavelengths == pytest.approx(longest, rel=1e-12)
    return data


def test_times(made):
    times = np.unique(np.concatenate([b.times for b in made.layout.blocks]))
    first, last = times[3], times[-3]
    text = f"{iso(first - 1)}~{iso(first + 1)},{iso(last - 1)}~{iso(times[-1] + 1)}"
    data = assert_samples(made.path, dict(time=text), lambda _, t, uvw: ((t == first) | (t >= last))[:, None])
    assert data.observation.start == pytest.approx(first)
    assert select([made.path], Selection()).observation.start == pytest.approx(times[0])


@pytest.mark.parametrize(
    ("low", "high"), [("400m", None), (None, "3klambda"), ("1klambda", "900m"), ("2000", "6000"), ("6klambda", None)]
)
def test_baselines(made, low, high):
    limits = parse_uv_range(low, high)

    def keep(freq, time, uvw):
        metres = np.hypot(uvw[:, 0], uvw[:, 1])[:, None]
        waves = metres * freq / C
        (a, b), (c, d) = limits.metres, limits.wavelengths
        return (metres >= a) & (metres <= b) & (waves >= c) & (waves <= d)

    assert_samples(made.path, dict(min_uv=low, max_uv=high), keep)


def test_a_set_of_which_nothing_is_left_is_left_out(made, tmp_path):
    later = small_set(tmp_path / "b.ms", start="2024-06-11T06:00:00")
    data = select([made.path, later.path], Selection(time="2024-06-11T00:00~23:00"))
    assert {w.path for w in data.windows} == {later.path}
    assert data.observation.start == pytest.approx(later.layout.blocks[0].times[0])


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        (dict(time="2024-06-11T06:00~07:00"), r"--time 2024.*07:00 leaves no rows of .* \(observed 2024-06-10T06:00:08 to "),
        (dict(scan="1", time="2024-06-10T06:00:09~06:00:10"), r"--scan 1 with --time .* leaves no rows of .* \(observed 2024"),
        (dict(min_uv="80km"), r"--min-uv 80km leaves no rows of .*a\.ms .*; pfb info lists times and baselines"),
        (dict(max_uv="1lambda"), "--max-uv 1lambda leaves no rows"),
        (dict(min_uv="8", max_uv="1"), "--min-uv 8 is above --max-uv 1"),
    ],
)
def test_what_leaves_nothing_is_refused(made, selection, sentence):
    with pytest.raises(InputError, match=sentence):
        select([made.path], Selection(**selection))


def test_baselines_that_are_all_flagged(tmp_path):
    made = small_set(tmp_path / "a.ms", flagged_below=600.0)
    with pytest.raises(InputError, match=r"all selected samples of .*a\.ms within --max-uv 500m are flagged; select others"):
        select([made.path], Selection(max_uv="500m"))


def test_fields_are_chosen_by_patterns(tmp_path):
    made = small_set(tmp_path / "a.ms", calibrators=True)
    assert {w.fields for w in select([made.path], Selection(field="T*")).windows} == {(1,)}
    assert {w.fields for w in select([made.path], Selection(field="J19?9-*")).windows} == {(0,)}
    with pytest.raises(InputError, match="different phase centres"):
        select([made.path], Selection(field="J*"))
    with pytest.raises(InputError, match=r"--field X\* is no id and no name of a field"):
        select([made.path], Selection(field="X*"))
