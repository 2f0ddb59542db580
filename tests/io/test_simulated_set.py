"""Simulated sets, read back with python-casacore: true geometry, the direct sum of the sky, and each defect as it says."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.io import simulated_set
from pfb.io.simulated_array import RECEIVERS
from pfb.io.simulated_set import CIRCULAR, LINEAR, Defects, Simulation, lay_out, write_set
from pfb.io.simulated_visibilities import predict
from pfb.io.sky import Component, offset
from tests.observations import SMALL, small_set, small_sky

C = 299792458.0
FEEDS = {
    5: lambda c: c.I + c.V, 6: lambda c: c.Q + 1j * c.U, 7: lambda c: c.Q - 1j * c.U, 8: lambda c: c.I - c.V,
    9: lambda c: c.I + c.Q, 10: lambda c: c.U + 1j * c.V, 11: lambda c: c.U - 1j * c.V, 12: lambda c: c.I - c.Q,
}  # fmt: skip


def columns(made, *names, subtable=""):
    tables = pytest.importorskip("casacore.tables")
    with tables.table(f"{made.path}{subtable and '::'}{subtable}", ack=False) as t:
        return [t.getcol(name) for name in names]


def cells(made, name, subtable):
    tables = pytest.importorskip("casacore.tables")
    with tables.table(f"{made.path}::{subtable}", ack=False) as t:
        return [t.getcell(name, i) for i in range(t.nrows())]


def direct_sum(uvw, freq, sky, ra0, dec0, correlations):
    """The definition, written naively."""
    vis = np.zeros((len(uvw), len(freq), len(correlations)), complex)
    for r, (u, v, w) in enumerate(uvw):
        for k, nu in enumerate(freq):
            for c in sky:
                d = c.ra - ra0
                l = np.cos(c.dec) * np.sin(d)
                m = np.sin(c.dec) * np.cos(dec0) - np.cos(c.dec) * np.sin(dec0) * np.cos(d)
                n = np.sqrt(1 - l**2 - m**2)
                seen = np.exp(2j * np.pi * (u * l + v * m + w * (n - 1)) * nu / C) * (nu / c.ref_freq) ** c.alpha
                seen *= np.exp(-((np.pi * c.fwhm * np.hypot(u, v) * nu / C) ** 2) / (4 * np.log(2)))
                vis[r, k] += [seen * FEEDS[p](c) for p in correlations]
    return vis


def test_uvw_agree_with_casacore(tmp_path):
    tables = pytest.importorskip("casacore.tables")
    made = small_set(tmp_path / "a.ms", nant=16, scans=2, scan_length=5.0)
    with tables.table(made.path, ack=False) as t:
        query = tables.taql("select UVW, mscal.UVWJ2000() as THEIRS from $1", tables=[t])
        uvw, theirs = query.getcol("UVW"), query.getcol("THEIRS")
    assert np.linalg.norm(uvw, axis=1).max() > 4000
    # casacore counts antenna 2 minus antenna 1, and corrects for aberration, 1e-4 of a baseline at most.
    np.testing.assert_allclose(uvw, -theirs, atol=1e-4 * np.linalg.norm(uvw, axis=1).max())


@pytest.mark.parametrize("start", ["yesterday", "2024-13-01T00:00:00", ""])
def test_a_start_that_is_no_time_is_refused(start):
    with pytest.raises(InputError, match=r"cannot read the start .*; write it as 2024-06-10T06:00:00"):
        lay_out(Simulation(**SMALL | {"start": start}), small_sky())


# Visibilities


@pytest.mark.parametrize("correlations", [LINEAR, CIRCULAR, (9, 12), (12,)], ids=str)
@pytest.mark.parametrize(("ra0", "dec0"), [(1.1, -0.8), (0.0, -np.pi / 2), (2 * np.pi - 1e-9, 0.5)])
@pytest.mark.parametrize("step", [13e6, -13e6])
def test_prediction_is_the_direct_sum(rng, correlations, ra0, dec0, step):
    uvw, freq = 3000 * rng.standard_normal((7, 3)), 1.4e9 + step * np.arange(5)
    sky = [
        Component(ra=ra, dec=dec, I=1.0, Q=q, U=0.2 * q, V=0.1, alpha=-0.7, fwhm=fwhm)
        for (ra, dec), q, fwhm in zip([offset(ra0, dec0, l, m) for l, m in 0.02 * rng.standard_normal((3, 2))],
                                      (0.3, -0.1, 0.0), (0.0, 1e-4, 0.0), strict=True)
    ]  # fmt: skip
    expected = direct_sum(uvw, freq, sky, ra0, dec0, correlations)
    assert abs(expected).min(axis=(0, 1)).max() > 0.01
    vis = predict(uvw, freq, sky, (ra0, dec0), correlations)
    assert vis.dtype == np.complex64
    np.testing.assert_allclose(vis, expected, atol=1e-6)


def test_prediction_does_not_depend_on_how_rows_are_cut(rng):
    uvw, sky = 1000 * rng.standard_normal((9000, 3)), small_sky()
    whole = predict(uvw, np.array([1.4e9]), sky, (1.1, -0.8), LINEAR)
    np.testing.assert_array_equal(whole[4000:5000], predict(uvw[4000:5000], np.array([1.4e9]), sky, (1.1, -0.8), LINEAR))


def test_columns_hold_the_sky_its_noise_the_gains_and_the_interference(tmp_path):
    made = small_set(tmp_path / "a.ms", gain_error=0.2, dump=4.0, rfi=0.1)
    uvw, data, corrected, flag, a, b = columns(made, "UVW", "DATA", "CORRECTED_DATA", "FLAG", "ANTENNA1", "ANTENNA2")
    field, (window,) = made.layout.fields[0], made.layout.windows
    clean = predict(uvw, window.freq, made.sky, (field.ra, field.dec), LINEAR)
    noise = made.layout.noise
    assert noise == pytest.approx(420 / np.sqrt(2 * 107e6 * 4.0))
    assert flag[:, 0].all()
    assert flag[:, -1].all()
    inner = flag[:, 1:-1]
    assert 0.08 < inner.mean() < 0.12
    assert (inner == inner[..., :1]).all()
    error = (corrected - clean)[~flag]
    np.testing.assert_allclose([error.real.std(), error.imag.std()], noise, rtol=0.02)
    assert abs(error.mean()) < 5 * noise / np.sqrt(error.size)
    np.testing.assert_allclose((corrected - clean)[flag].mean(), 30, atol=5 * noise)
    # What corrupts DATA is a product of antennas' gains: its closure phase is zero.
    ratio = np.where(flag, 1, data / np.where(corrected == 0, 1, corrected))[:, 3, 0]
    times = len(a) // 28
    gain = {(p, q): ratio.reshape(times, 28)[:, i] for i, (p, q) in enumerate(zip(a[:28], b[:28], strict=True))}
    good = ~flag.reshape(times, 28, *flag.shape[1:])[:, :, 3, 0].any(axis=1)
    closure = np.angle(gain[0, 1] * gain[1, 2] * gain[0, 2].conj())[good]
    assert good.any()
    assert abs(closure).max() < 1e-4
    phases = np.array([np.angle(g[good]).mean() for g in gain.values()])
    assert 0.1 < phases.std() < 0.6


def test_without_noise_gains_or_interference_the_columns_are_the_sky(tmp_path):
    made = small_set(tmp_path / "a.ms", sefd=0.0, rfi=0.0, gain_error=0.0, nchan=4)
    uvw, data, corrected, flag, weight = columns(made, "UVW", "DATA", "CORRECTED_DATA", "FLAG", "WEIGHT_SPECTRUM")
    field = made.layout.fields[0]
    expected = direct_sum(uvw[:5], made.layout.windows[0].freq, made.sky, field.ra, field.dec, LINEAR)
    np.testing.assert_allclose(corrected[:5], expected, atol=1e-6)
    np.testing.assert_array_equal(data, corrected)
    assert not flag.any()
    assert (abs(weight - 1) < 0.21).all()


def test_runs_are_repeatable_and_seeds_differ(tmp_path):
    data = [columns(small_set(tmp_path / f"{i}.ms", seed=seed), "DATA")[0] for i, seed in enumerate((1, 1, 2))]
    np.testing.assert_array_equal(data[0], data[1])
    assert (data[0] != data[2]).all()


# Layout


def test_scans_alternate_between_calibrators_and_target(tmp_path):
    made = small_set(tmp_path / "a.ms", calibrators=True, scans=2, nspw=2)
    scan, field, state, ddid, time = columns(made, "SCAN_NUMBER", "FIELD_ID", "STATE_ID", "DATA_DESC_ID", "TIME")
    modes = columns(made, "OBS_MODE", subtable="STATE")[0]
    names = columns(made, "NAME", subtable="FIELD")[0]
    order = {s: (names[f], modes[k]) for s, f, k in zip(scan, field, state, strict=True)}
    target = ("T0413-4500", "TARGET")
    phase = ("J0408-6545", "CALIBRATE_PHASE")
    assert order == {1: ("J1939-6342", "CALIBRATE_BANDPASS,CALIBRATE_FLUX"), 2: phase, 3: target, 4: phase, 5: target}
    assert set(ddid) == {0, 1}
    # Rounded to whole dumps of 16 s: a minute is 4, two minutes are 8, with 20 s between scans.
    assert [len(set(time[scan == s])) for s in range(1, 6)] == [4, 4, 8, 4, 8]
    assert time[scan == 2].min() - time[scan == 1].max() == pytest.approx(36.0)
    assert len(time) == made.layout.rows == 2 * 28 * 28


@pytest.mark.parametrize("band", RECEIVERS)
def test_windows_share_the_band(tmp_path, band):
    made = small_set(tmp_path / "a.ms", band=band, nspw=2)
    freq, width = (np.concatenate(cells(made, c, "SPECTRAL_WINDOW")) for c in ("CHAN_FREQ", "CHAN_WIDTH"))
    low, high = RECEIVERS[band]
    np.testing.assert_allclose(freq, low + (np.arange(16) + 0.5) * (high - low) / 16)
    np.testing.assert_allclose(width, (high - low) / 16)


def test_large_scans_are_cut_into_blocks():
    layout = lay_out(Simulation(**SMALL | {"nant": 64, "nchan": 256, "scan_length": 5.0, "dump": 8.0}), small_sky())
    assert len(layout.blocks) > 30
    assert layout.rows == 38 * 2016
    assert max(len(b.times) for b in layout.blocks) * 2016 * 256 * 4 < 3 << 20
    np.testing.assert_allclose(np.diff(np.concatenate([b.times for b in layout.blocks])), 8.0)


def test_a_component_behind_the_sky_is_refused():
    sky = [*small_sky(), Component(ra=0.0, dec=np.pi / 2, I=1.0)]
    with pytest.raises(InputError, match="component 4 of the sky is 90 deg or more from the target; move it"):
        lay_out(Simulation(**SMALL), sky)


# Writing


def test_a_set_appears_when_it_is_complete_and_only_then(tmp_path, monkeypatch):
    layout = lay_out(Simulation(**SMALL | {"nspw": 2, "scans": 2}), small_sky())
    told = []

    def progress(done):
        told.append(done)
        assert not (tmp_path / "a.ms").exists()

    write_set(str(tmp_path / "a.ms"), layout, progress=progress)
    assert sum(told) == len(layout.blocks) == 4
    assert os.listdir(tmp_path) == ["a.ms"]

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(simulated_set, "write_subtables", fail)
    with pytest.raises(OSError, match="no space"):
        write_set(str(tmp_path / "b.ms"), layout)
    assert os.listdir(tmp_path) == ["a.ms"]


def test_a_set_that_exists_is_replaced_only_if_asked(tmp_path):
    made = small_set(tmp_path / "a.ms")
    with pytest.raises(InputError, match=r"a\.ms exists already"):
        write_set(made.path, made.layout)
    longer = lay_out(replace(made.layout.simulation, scan_length=4.0), made.sky)
    write_set(made.path + "/", longer, overwrite=True)
    assert len(columns(made, "TIME")[0]) == longer.rows > made.layout.rows


def test_subtables_belong_to_the_set_wherever_it_is_moved(tmp_path):
    made = small_set(tmp_path / "a.ms")
    moved = made._replace(path=str(tmp_path / "moved.ms"))
    os.rename(made.path, moved.path)
    assert len(columns(moved, "NAME", subtable="ANTENNA")[0]) == 8
    tables = pytest.importorskip("casacore.tables")
    with tables.table(moved.path, ack=False) as t:
        assert {os.path.dirname(t.getkeyword(k)[7:]) for k in t.keywordnames() if k != "MS_VERSION"} == {moved.path}


# Defects


def test_plain_sets_have_none(tmp_path):
    made = small_set(tmp_path / "a.ms")
    data, uvw, flag, row, a, b = columns(made, "DATA", "UVW", "FLAG", "FLAG_ROW", "ANTENNA1", "ANTENNA2")
    weight, spectrum, sigma, time = columns(made, "WEIGHT", "WEIGHT_SPECTRUM", "SIGMA", "TIME")
    assert np.isfinite(data).all()
    assert np.isfinite(uvw).all()
    np.testing.assert_array_equal(row, flag.all(axis=(1, 2)))
    assert (a < b).all()
    assert (np.diff(time) >= 0).all()
    np.testing.assert_allclose(weight, spectrum.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(sigma, weight**-0.5, rtol=1e-5)
    assert (spectrum > 0).all()


def test_feeds_and_frame(tmp_path):
    tables = pytest.importorskip("casacore.tables")
    made = small_set(tmp_path / "a.ms", feeds=CIRCULAR, frame="ICRS")
    assert cells(made, "CORR_TYPE", "POLARIZATION")[0].tolist() == [5, 6, 7, 8]
    assert cells(made, "CORR_PRODUCT", "POLARIZATION")[0].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert cells(made, "POLARIZATION_TYPE", "FEED")[0] == ["R", "L"]
    with tables.table(f"{made.path}::FIELD", ack=False) as t:
        assert t.getcolkeyword("PHASE_DIR", "MEASINFO")["Ref"] == "ICRS"


def test_turned_feeds(tmp_path):
    """Feeds turned by an angle see Q cos 2a + U sin 2a as Q, and -Q sin 2a + U cos 2a as U."""
    source = [Component(ra=np.deg2rad(SMALL["ra"]), dec=np.deg2rad(SMALL["dec"]), I=1.0, Q=0.3, U=0.1)]
    made = small_set(tmp_path / "a.ms", sky=source, sefd=0.0, rfi=0.0, receptor_angle=0.3)
    assert cells(made, "RECEPTOR_ANGLE", "FEED")[0].tolist() == [0.3, 0.3]
    data, flag = columns(made, "DATA", "FLAG")
    xx, xy, yx, yy = data[~flag.any(axis=2)].T
    np.testing.assert_allclose((xx + yy) / 2, 1.0, rtol=1e-5)
    np.testing.assert_allclose((xx - yy) / 2, 0.3 * np.cos(0.6) + 0.1 * np.sin(0.6), rtol=1e-5)
    np.testing.assert_allclose((xy + yx) / 2, -0.3 * np.sin(0.6) + 0.1 * np.cos(0.6), rtol=1e-5)


def test_two_correlations(tmp_path):
    made = small_set(tmp_path / "a.ms", feeds=(9, 12))
    assert columns(made, "DATA")[0].shape[1:] == (8, 2)
    assert cells(made, "CORR_PRODUCT", "POLARIZATION")[0].tolist() == [[0, 0], [1, 1]]


def test_channels_differ_between_windows(tmp_path):
    tables = pytest.importorskip("casacore.tables")
    made = small_set(tmp_path / "a.ms", channels=(5, 9))
    assert [len(f) for f in cells(made, "CHAN_FREQ", "SPECTRAL_WINDOW")] == [5, 9]
    with tables.table(made.path, ack=False) as t:
        shapes = {(t.getcell("DATA_DESC_ID", i), t.getcell("DATA", i).shape) for i in range(t.nrows())}
    assert shapes == {(0, (5, 4)), (1, (9, 4))}


def test_descending(tmp_path):
    made = small_set(tmp_path / "a.ms", descending=True)
    (freq,), (width,) = cells(made, "CHAN_FREQ", "SPECTRAL_WINDOW"), cells(made, "CHAN_WIDTH", "SPECTRAL_WINDOW")
    np.testing.assert_allclose(np.diff(freq), width[1:])
    assert (width < 0).all()


def test_unused_descriptions(tmp_path):
    made = small_set(tmp_path / "a.ms", nspw=2, unused_descriptions=True)
    spw, polarization = columns(made, "SPECTRAL_WINDOW_ID", "POLARIZATION_ID", subtable="DATA_DESCRIPTION")
    assert (spw.tolist(), polarization.tolist()) == ([0, 2, 1, 0], [0, 1, 1, 0])
    assert set(columns(made, "DATA_DESC_ID")[0]) == {1, 2}
    assert [len(f) for f in cells(made, "CHAN_FREQ", "SPECTRAL_WINDOW")] == [3, 8, 8]
    assert cells(made, "CHAN_FREQ", "SPECTRAL_WINDOW")[2][0] < cells(made, "CHAN_FREQ", "SPECTRAL_WINDOW")[1][0]


def test_autocorrelations(tmp_path):
    made = small_set(tmp_path / "a.ms", autocorrelations=True)
    a, b, uvw, data = columns(made, "ANTENNA1", "ANTENNA2", "UVW", "DATA")
    same = a == b
    assert same.sum() == 8 * 8
    assert not uvw[same].any()
    assert abs(data[same]).min() > 400 > abs(data[~same]).max()


def test_shuffled(tmp_path):
    plain, made = (small_set(tmp_path / f"{s}.ms", shuffled=s, scans=2) for s in (False, True))
    time, uvw = columns(made, "TIME", "UVW")
    assert 0.4 < (np.diff(time[time != np.roll(time, 1)]) < 0).mean() < 0.6
    in_order = columns(plain, "UVW")[0]
    np.testing.assert_array_equal(uvw[np.lexsort(uvw.T)], in_order[np.lexsort(in_order.T)])


def test_flags(tmp_path):
    made = small_set(tmp_path / "a.ms", nspw=2, flagged_channels=(3,), flagged_windows=(1,), nan_in_flagged=True)
    ddid, flag, data, corrected = columns(made, "DATA_DESC_ID", "FLAG", "DATA", "CORRECTED_DATA")
    assert flag[ddid == 1].all()
    assert flag[:, 3].all()
    assert not flag[ddid == 0][:, [1, 2, 4, 5]].all(axis=0).any()
    for vis in (data, corrected):
        np.testing.assert_array_equal(np.isnan(vis), flag)
    assert columns(small_set(tmp_path / "b.ms", all_flagged=True), "FLAG")[0].all()
    flag = columns(small_set(tmp_path / "c.ms", flagged_correlations=(1, 2)), "FLAG")[0]
    assert flag.all(axis=(0, 1)).tolist() == [False, True, True, False]


def test_flagged_rows_and_missing_uvw(tmp_path):
    made = small_set(tmp_path / "a.ms", flagged_rows=True, nan_uvw=True)
    flag, row, uvw, data = columns(made, "FLAG", "FLAG_ROW", "UVW", "DATA")
    assert row[::3].all()
    assert not flag[::3].all(axis=(1, 2)).any()
    assert abs(data[::3][~flag[::3]]).min() > 25
    np.testing.assert_array_equal(np.isnan(uvw).all(axis=1), np.arange(len(uvw)) % 5 == 0)


def test_unflagged_visibilities_that_are_not_finite(tmp_path):
    flag, data, corrected = columns(small_set(tmp_path / "a.ms", nan_unflagged=True), "FLAG", "DATA", "CORRECTED_DATA")
    for vis in (data, corrected):
        np.testing.assert_array_equal(~np.isfinite(vis).all(axis=(1, 2)), np.isin(np.arange(len(vis)) % 7, (0, 3)))
        assert not flag[~np.isfinite(vis)].all()


def test_weights(tmp_path):
    def weights(i, **defects):
        return columns(small_set(tmp_path / f"{i}.ms", **defects), "WEIGHT_SPECTRUM", "WEIGHT")

    spectrum, weight = weights(0, weight_spectrum="zero")
    assert not spectrum.any()
    assert (weight > 0).all()
    assert (weights(1, weight_spectrum="one")[0] == 1).all()
    np.testing.assert_array_equal((weights(2, weight_spectrum="negative")[0] < 0).any(axis=(1, 2)), np.arange(224) % 4 == 0)
    assert not weights(3, weight="zero")[1].any()
    spectrum, _ = weights(4, infinite_weight=(1, 2))
    np.testing.assert_array_equal(np.isinf(spectrum).all(axis=(0, 1)), [False, True, True, False])


def test_columns_that_are_absent_empty_or_misshaped(tmp_path):
    tables = pytest.importorskip("casacore.tables")
    made = small_set(tmp_path / "a.ms", empty_columns=("WEIGHT_SPECTRUM",), corrected_data=False, model_data=True)
    with tables.table(made.path, ack=False) as t:
        assert "CORRECTED_DATA" not in t.colnames()
        assert not t.iscelldefined("WEIGHT_SPECTRUM", 0)
        assert t.getcell("MODEL_DATA", 0).shape == (9, 4)
    with tables.table(small_set(tmp_path / "b.ms", weight_spectrum="absent").path, ack=False) as t:
        assert "WEIGHT_SPECTRUM" not in t.colnames()


def test_columns_that_were_never_filled(tmp_path):
    made = small_set(tmp_path / "a.ms", zero_columns=("CORRECTED_DATA",), empty_columns=("DATA",))
    tables = pytest.importorskip("casacore.tables")
    assert not columns(made, "CORRECTED_DATA")[0].any()
    with tables.table(made.path, ack=False) as t:
        assert not any(t.iscelldefined("DATA", row) for row in range(t.nrows()))


def test_interference_that_nobody_flagged(tmp_path):
    plain, made = (small_set(tmp_path / f"{f}.ms", unflagged_rfi=f) for f in (0.0, 0.1))
    (flag, clean), (same, found) = (columns(m, "FLAG", "DATA") for m in (plain, made))
    np.testing.assert_array_equal(flag, same)
    np.testing.assert_array_equal(found[flag], clean[flag])
    hit = np.where(flag, 0, np.abs(found - clean))
    assert not hit[:, 2:].any()
    assert 0.08 < (hit[:, 1] > 0).mean() < 0.12
    np.testing.assert_allclose(hit[hit > 0], 30, rtol=1e-5)


def test_weights_of_a_wrong_scale(tmp_path):
    names = ("WEIGHT", "WEIGHT_SPECTRUM", "SIGMA")
    right, wrong = (columns(small_set(tmp_path / f"{f}.ms", weight_factor=f), *names) for f in (1.0, 4.0))
    for one, other, factor in zip(right, wrong, (4, 4, 1), strict=True):
        np.testing.assert_allclose(other, factor * one, rtol=1e-6)


def test_short_baselines_may_be_flagged(tmp_path):
    uvw, flag, row = columns(small_set(tmp_path / "a.ms", rfi=0.0, flagged_below=500.0), "UVW", "FLAG", "FLAG_ROW")
    short = np.hypot(uvw[:, 0], uvw[:, 1]) < 500
    assert 0.1 < short.mean() < 0.9
    np.testing.assert_array_equal(row, short)
    np.testing.assert_array_equal(flag[:, 3].all(axis=1), short)


def test_what_is_said_of_place_and_time_may_be_wrong(tmp_path):
    names = ("UVW", "TIME", "TIME_CENTROID", "DATA")
    plain = columns(small_set(tmp_path / "a.ms"), *names)
    wrong = dict(uvw_factor=(-1, 2, 1), time_shift=60.0, centre_error=0.5, dish_diameter=False, telescope="X")
    made = small_set(tmp_path / "b.ms", **wrong)
    found = columns(made, *names)
    np.testing.assert_array_equal(found[0], plain[0] * [-1, 2, 1])
    np.testing.assert_array_equal(found[1:3], np.array(plain[1:3]) + 60)
    np.testing.assert_array_equal(found[3], plain[3])
    assert np.rad2deg(cells(made, "PHASE_DIR", "FIELD")[0]).ravel()[1] == pytest.approx(-44.5)
    assert not columns(made, "DISH_DIAMETER", subtable="ANTENNA")[0].any()
    assert columns(made, "TELESCOPE_NAME", subtable="OBSERVATION")[0] == ["X"]


def test_rows_that_are_there_twice(tmp_path):
    names = ("UVW", "TIME", "ANTENNA1", "ANTENNA2", "DATA", "FLAG", "WEIGHT")
    plain, found = (columns(small_set(tmp_path / f"{d}.ms", duplicated_rows=d), *names) for d in (False, True))
    rows = np.arange(len(plain[0]))
    rows[8::9] -= 1
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_array_equal(other, one[rows])


def test_widths_and_tables_may_be_missing(tmp_path):
    made = small_set(tmp_path / "a.ms", zero_widths=True, missing_tables=("SOURCE", "STATE"))
    assert not cells(made, "CHAN_WIDTH", "SPECTRAL_WINDOW")[0].any()
    tables = pytest.importorskip("casacore.tables")
    with tables.table(made.path, ack=False) as t:
        assert {"SOURCE", "STATE"} <= set(t.keywordnames())
    assert not {"SOURCE", "STATE"} & set(os.listdir(made.path))


def test_a_set_that_nobody_may_write(tmp_path):
    made = small_set(tmp_path / "a.ms", read_only=True)
    places = [Path(made.path), *Path(made.path).rglob("*")]
    assert len(places) > 50
    assert not any(place.stat().st_mode & 0o222 for place in places)


def test_no_defect_is_untested():
    tested = {
        "feeds", "receptor_angle",
        "frame", "channels", "descending", "unused_descriptions", "autocorrelations", "shuffled", "flagged_channels",
        "flagged_windows", "flagged_correlations",
        "all_flagged", "flagged_rows", "nan_in_flagged", "nan_unflagged", "nan_uvw", "weight_spectrum",
        "weight", "infinite_weight", "corrected_data", "model_data", "zero_columns", "empty_columns", "unflagged_rfi",
        "weight_factor", "flagged_below", "uvw_factor", "centre_error", "time_shift", "duplicated_rows", "zero_widths",
        "dish_diameter", "telescope", "missing_tables", "read_only",
    }  # fmt: skip
    assert set(Defects.__dataclass_fields__) == tested
