"""The reader against an independent one, on sets with every defect that real sets have."""

import contextlib
import multiprocessing
import os
import pickle
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.io import casa_tables, window
from pfb.io.measurement_set import Selection, describe, pieces, read, release, select
from pfb.io.selection import parse_ranges
from pfb.io.simulated_set import CIRCULAR, lay_out, write_set
from tests.observations import change, read_window, small_set, unpack_real

C = 299792458.0

LAYOUTS = {
    "as MeerKAT writes it": {},
    "calibrators": dict(calibrators=True, scans=2),
    "one channel": dict(nchan=1),
    "descending": dict(descending=True, nspw=2),
    "windows of different size": dict(channels=(5, 9, 1)),
    "unused descriptions": dict(unused_descriptions=True, channels=(5, 9)),
    "autocorrelations": dict(autocorrelations=True),
    "shuffled": dict(shuffled=True, nspw=2, autocorrelations=True, scans=2),
    "circular": dict(feeds=CIRCULAR),
    "two correlations": dict(feeds=(9, 12)),
    "flagged channels": dict(flagged_channels=(3, 4), nan_in_flagged=True),
    "not finite": dict(nan_unflagged=True),
    "flagged window": dict(flagged_windows=(0,), nspw=2),
    "flagged rows": dict(flagged_rows=True),
    "no uvw": dict(nan_uvw=True),
    "negative weights": dict(weight_spectrum="negative"),
    "infinite weight": dict(infinite_weight=(1, 2)),
    "WEIGHT alone": dict(weight_spectrum="absent"),
    "empty WEIGHT_SPECTRUM": dict(empty_columns=("WEIGHT_SPECTRUM",), channels=(5, 9)),
    "no CORRECTED_DATA": dict(corrected_data=False, gain_error=0.1),
}
SELECTIONS = {
    "everything": Selection(),
    "some channels": Selection(chan="0,2~4,6"),
    "one scan": Selection(scan="4~9"),
    "gains left in": Selection(data_column="DATA", weight_column="WEIGHT"),
}
REAL = {"3c273_vla_8ghz": {}, "3c345_vlba_43ghz": {}, "m87_eht_227ghz": {}, "ngc5921_vla_hi": dict(field="N5921_2", scan="2~4")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return small_set(tmp_path_factory.mktemp("plain") / "plain.ms", calibrators=True, nspw=2, scans=2, autocorrelations=True)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Sets of all layouts, each written once."""
    folder, made = tmp_path_factory.mktemp("layouts"), {}

    def get(name):
        if name not in made:
            made[name] = small_set(folder / f"{len(made)}.ms", **{"dump": 40.0, "scan_length": 1.5, **LAYOUTS[name]})
        return made[name]

    return get


def independent(path, data_desc_id, field, scans, channels, data, weight):
    """Read with python-casacore, row by row: uvw, vis, weight of the cross-correlations, unusable samples zero."""
    tables = pytest.importorskip("casacore.tables")
    with tables.table(f"{path}::DATA_DESCRIPTION", ack=False) as t:
        spw = t.getcell("SPECTRAL_WINDOW_ID", data_desc_id)
    with tables.table(f"{path}::SPECTRAL_WINDOW", ack=False) as t:
        freq, width = t.getcell("CHAN_FREQ", spw), t.getcell("CHAN_WIDTH", spw)
    channels = range(len(freq)) if channels is None else channels
    order = sorted((c for c in channels if c < len(freq)), key=lambda c: freq[c])
    rows = []
    with tables.table(path, ack=False) as t:
        for i in range(t.nrows()):
            a, b = t.getcell("ANTENNA1", i), t.getcell("ANTENNA2", i)
            wanted = t.getcell("DATA_DESC_ID", i) == data_desc_id and t.getcell("FIELD_ID", i) == field
            if not wanted or a == b or (scans and t.getcell("SCAN_NUMBER", i) not in scans):
                continue
            uvw, vis, flag = t.getcell("UVW", i), t.getcell(data, i)[order], t.getcell("FLAG", i)[order]
            w = t.getcell(weight, i)
            w = w[order] if w.ndim == 2 else np.array([w] * len(order))
            off = t.getcell("FLAG_ROW", i) or not np.isfinite(uvw).all()
            bad = flag | off | ~np.isfinite(vis) | ~((w > 0) & (w < np.inf))
            rows.append((np.where(np.isfinite(uvw).all(), uvw, 0), np.where(bad, 0, vis), np.where(bad, 0, w)))
    uvw, vis, weight = (np.array(x) for x in zip(*rows, strict=True))
    return freq[order], abs(width[order]), uvw, vis, weight


def assert_same_as_independent(path, selection, rows):
    data = select([path], selection)
    wanted = None if selection.chan is None else [c for a, b in parse_ranges(selection.chan, "") for c in range(a, b + 1)]
    for w in data.windows:
        freq, width, uvw, vis, weight = independent(
            path, w.data_desc_id, w.fields[0], w.scans, wanted, w.data_column, w.weight_column
        )
        np.testing.assert_array_equal(w.freq, freq)
        np.testing.assert_array_equal(w.width, width)
        assert w.rows == len(uvw) > 0
        ours = read_window(w, rows)
        for mine, theirs in zip(ours, (uvw, vis, weight), strict=True):
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
    return data


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=list(SELECTIONS))
@pytest.mark.parametrize("name", LAYOUTS)
def test_samples_are_those_an_independent_reader_finds(sets, name, selection):
    made, layout = sets(name), LAYOUTS[name]
    if selection.chan and layout.get("nchan") == 1:
        selection = replace(selection, chan="0")
    if selection.scan and not layout.get("calibrators"):
        selection = replace(selection, scan="1")
    data = assert_same_as_independent(made.path, selection, rows=37)
    weights = [read_window(w)[2] for w in data.windows]
    assert any((w > 0).any() for w in weights)
    assert any((w == 0).any() for w in weights) or max(len(w.freq) for w in made.layout.windows) < 8
    vis = np.concatenate([read_window(w)[1].ravel() for w in data.windows])
    # Interference adds 30 Jy and a dish sees 420 Jy of itself; the sky has 2 Jy.
    assert 0.1 < abs(vis).max() < (8 if layout.get("gain_error") else 3)


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_real_samples_are_those_an_independent_reader_finds(tmp_path, name):
    data = assert_same_as_independent(unpack_real(name, tmp_path), Selection(**REAL[name]), rows=1000)
    assert data.notes


@pytest.mark.parametrize("column", ["DATA", "CORRECTED_DATA"])
def test_visibilities_are_the_model_within_the_noise(tmp_path, column):
    made = small_set(tmp_path / "a.ms", sefd=4.2)
    (w,) = select([made.path], Selection(data_column=column)).windows
    uvw, vis, weight = read_window(w)
    field = made.layout.fields[0]
    expected = np.zeros_like(vis)
    for c in made.sky:
        d = c.ra - field.ra
        l, m = np.cos(c.dec) * np.sin(d), np.sin(c.dec) * np.cos(field.dec) - np.cos(c.dec) * np.sin(field.dec) * np.cos(d)
        phase = 2j * np.pi * (uvw @ [l, m, np.sqrt(1 - l**2 - m**2) - 1])[:, None] * w.freq / C
        size = np.exp(-((np.pi * c.fwhm * w.freq / C) ** 2) / (4 * np.log(2)) * (uvw[:, :1] ** 2 + uvw[:, 1:2] ** 2))
        seen = np.exp(phase) * size * (w.freq / c.ref_freq) ** c.alpha
        for i, factor in enumerate((c.I + c.Q, c.U + 1j * c.V, c.U - 1j * c.V, c.I - c.Q)):
            expected[..., i] += seen * factor
    error = (vis - expected)[weight > 0]
    assert abs(expected).max() > 1
    assert abs(error).max() < 6 * made.layout.noise
    np.testing.assert_allclose([error.real.std(), error.imag.std()], made.layout.noise, rtol=0.05)
    # Weights are the inverse variance of the real part, which is also that of the imaginary part, within 20 %.
    np.testing.assert_allclose(weight[weight > 0] * made.layout.noise**2, 1, atol=0.21)


@pytest.mark.parametrize("channels", [slice(0, 3), slice(2, 3), slice(4, None), slice(1, 5, 2)], ids=str)
@pytest.mark.parametrize("layout", ["flagged channels", "descending"])
@pytest.mark.parametrize("chan", [None, "0,2~4,6"])
def test_channels_are_counted_in_ascending_frequency(sets, layout, channels, chan):
    w = select([sets(layout).path], Selection(chan=chan)).windows[-1]
    assert (np.diff(w.freq) > 0).all()
    whole, part = read_window(w), read_window(w, 50, channels)
    np.testing.assert_array_equal(part[0], whole[0])
    np.testing.assert_array_equal(part[1], whole[1][:, channels])
    np.testing.assert_array_equal(part[2], whole[2][:, channels])


def test_descending_channels_give_the_same_samples(tmp_path):
    up, down = (small_set(tmp_path / f"{d}.ms", descending=d, sefd=0.0, rfi=0.0) for d in (False, True))
    (a,), (b,) = select([up.path], Selection()).windows, select([down.path], Selection()).windows
    np.testing.assert_array_equal(a.freq, b.freq)
    np.testing.assert_array_equal(a.width, b.width)
    np.testing.assert_array_equal(b.channels, a.channels[::-1])
    np.testing.assert_allclose(read_window(a)[1], read_window(b)[1], atol=1e-6)


@pytest.mark.parametrize("rows", [1, 13, 10_000, None])
def test_pieces_cover_the_rows_once_whatever_their_size(plain, rows):
    w = select([plain.path], Selection()).windows[1]
    cut = pieces(w, rows)
    assert [p.first for p in cut] == [0, *(p.last for p in cut[:-1])]
    assert cut[-1].last == w.rows == 2 * 8 * 28
    if rows != 1:
        for mine, whole in zip(read_window(w, rows), read_window(w, 50), strict=True):
            np.testing.assert_array_equal(mine, whole)


def test_a_piece_is_small_and_reads_the_same_in_threads_and_processes(plain):
    cut = pieces(select([plain.path], Selection()).windows[0], 40)
    expected = [read(p) for p in cut]
    assert max(len(pickle.dumps(p)) for p in cut) < 1000
    release()
    with ThreadPoolExecutor(4) as pool:
        threads = list(pool.map(read, cut * 4))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        processes = list(pool.map(read, cut[:3]))
    for got, wanted in zip([*threads, *processes], [*expected * 4, *expected[:3]], strict=True):
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_handles_are_shared_bounded_and_let_go(tmp_path, monkeypatch):
    def open_files(path):
        names = []
        for entry in Path("/proc/self/fd").glob("*"):
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink(entry))
        return [name for name in names if str(path) in name]

    def wait_until_closed(path):
        # The library closes files in its own threads, soon after it is told to.
        patience = time.monotonic() + 10
        while open_files(path) and time.monotonic() < patience:
            time.sleep(0.01)
        assert not open_files(path)

    monkeypatch.setattr(casa_tables, "_KEPT", 2)
    paths = [small_set(tmp_path / f"{i}.ms", nant=3).path for i in range(3)]
    windows = [select([p], Selection()).windows[0] for p in paths]
    for w in windows:
        read_window(w)
    assert open_files(paths[-1])
    wait_until_closed(paths[0])
    assert len(casa_tables._handles) == 2
    first = casa_tables.main_table(paths[-1], windows[-1].stamp)
    assert casa_tables.main_table(paths[-1], windows[-1].stamp) is first
    del first
    release(paths[-1])
    wait_until_closed(paths[-1])
    assert open_files(tmp_path)
    release()
    wait_until_closed(tmp_path)


def test_a_set_has_one_handle_however_its_path_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_set("a.ms")
    for path in ("a.ms", "./a.ms/", str(tmp_path / "a.ms")):
        read_window(select([path], Selection()).windows[0])
        assert len(casa_tables._handles) == 1
    release("a.ms")
    assert not casa_tables._handles


def test_a_set_that_was_replaced_is_read_anew(tmp_path):
    made = small_set(tmp_path / "a.ms")
    (before,) = select([made.path], Selection()).windows
    old = read_window(before)[1]
    change(made.path, "CORRECTED_DATA", lambda v: 2 * v)
    (after,) = select([made.path], Selection()).windows
    assert after.stamp > before.stamp
    np.testing.assert_array_equal(read_window(after)[1], 2 * old)
    write_set(made.path, lay_out(replace(made.layout.simulation, seed=9), made.sky), overwrite=True)
    (last,) = select([made.path], Selection()).windows
    assert last.stamp > after.stamp
    assert (read_window(last)[1] != 2 * old).any()
    assert len(casa_tables._handles) == 1


def test_row_chunks_are_whole_tiles_within_the_bound(tmp_path, monkeypatch):
    made = small_set(tmp_path / "a.ms", nchan=64, dump=4.0)
    (w,) = select([made.path], Selection()).windows
    tile = (1 << 20) // (8 * 4 * 64)
    assert w.row_chunk % tile == 0
    assert 0.9 * window._CHUNK_BYTES < w.row_chunk * 64 * 4 * 13 <= window._CHUNK_BYTES
    monkeypatch.setattr(window, "_CHUNK_BYTES", 64 * 4 * 13 * 100)
    assert w.row_chunk == 100
    assert [p.last - p.first for p in pieces(w)][:-1] == [100] * (w.rows // 100)


def test_runs_of_rows_are_those_of_the_list(rng):
    rows = np.flatnonzero(rng.random(300) < 0.8)
    halves = [casa_tables.RowRuns.of(rows[:100]), casa_tables.RowRuns.of(rows[100:])]
    for runs in (casa_tables.RowRuns.of(rows), casa_tables.RowRuns.joined(halves)):
        assert len(runs) == len(rows)
        for first, last in [(0, len(rows)), (17, 18), (95, 130)]:
            taken = runs.take(first, last)
            taken = np.arange(taken.start, taken.stop) if isinstance(taken, slice) else taken
            np.testing.assert_array_equal(taken, rows[first:last])
    assert casa_tables.RowRuns.of(np.arange(5, 900)).take(3, 50) == slice(8, 55)


# What a set holds


@pytest.mark.parametrize("layout", [{}, LAYOUTS["shuffled"], LAYOUTS["unused descriptions"]], ids=["plain", "shuffled", "unused"])
def test_description_is_what_an_independent_reader_finds(tmp_path, layout):
    tables = pytest.importorskip("casacore.tables")
    made = small_set(tmp_path / "a.ms", **layout, calibrators=True)
    d = describe(made.path)
    with tables.table(made.path, ack=False) as t:
        column = {c: t.getcol(c) for c in ("FIELD_ID", "SCAN_NUMBER", "DATA_DESC_ID", "TIME", "ANTENNA1", "ANTENNA2")}
        array_columns = {c for c in t.colnames() if not t.isscalarcol(c)}
    assert d.rows == len(column["TIME"])
    assert d.autocorrelations == (column["ANTENNA1"] == column["ANTENNA2"]).sum()
    assert (d.start, d.end) == (column["TIME"].min(), column["TIME"].max())
    assert d.scans == tuple(np.unique(column["SCAN_NUMBER"]))
    assert (d.telescope, d.observer, d.antennas, d.dish_diameter) == ("MeerKAT", "pfb", 8, 13.5)
    assert [f.name for f in d.fields] == ["J1939-6342", "T0413-4500", "J0408-6545"]
    assert [f.rows for f in d.fields] == np.bincount(column["FIELD_ID"]).tolist()
    assert [f.is_target for f in d.fields] == [False, True, False]
    np.testing.assert_allclose([d.fields[1].ra, d.fields[1].dec], np.deg2rad([63.36, -45.0]), rtol=1e-14)
    ids, counts = np.unique(column["DATA_DESC_ID"], return_counts=True)
    assert {x.id: x.rows for x in d.data_descriptions} == dict(zip(ids, counts, strict=True))
    with tables.table(f"{made.path}::SPECTRAL_WINDOW", ack=False) as t:
        for w in d.spectral_windows:
            np.testing.assert_array_equal(w.freq, t.getcell("CHAN_FREQ", w.id))
            np.testing.assert_array_equal(w.width, t.getcell("CHAN_WIDTH", w.id))
    assert sum(w.rows for w in d.spectral_windows) == d.rows
    assert [w.correlations for w in d.spectral_windows if w.rows] == [(9, 10, 11, 12)] * len(made.layout.windows)
    assert {c.name for c in d.columns} == array_columns
    assert d.visibility_columns == ("CORRECTED_DATA", "DATA")
    assert not next(c for c in d.columns if c.name == "FLAG_CATEGORY").has_cells


@pytest.mark.real
def test_a_ragged_set_with_a_dangling_keyword_is_described(tmp_path):
    d = describe(unpack_real("alma_mssel_test_small", tmp_path))
    assert (d.telescope, d.rows, d.scans) == ("ALMA", 1058, (1, 3))
    assert [len(w.freq) for w in d.spectral_windows] == [4, 64, 1]
    assert [w.rows for w in d.spectral_windows] == [0, 529, 529]
    assert [x.id for x in d.data_descriptions] == [1, 2]
    assert [f.frame for f in d.fields] == ["FK5", "FK5"]
    assert not next(c for c in d.columns if c.name == "WEIGHT_SPECTRUM").has_cells
    (a, b) = select([d.path], Selection(field="J1423-7829", scan="3")).windows
    assert (len(a.freq), len(b.freq), a.weight_column) == (64, 1, "WEIGHT")
    assert (np.diff(a.freq) > 0).all()
    for w in (a, b):
        vis, weight = read_window(w)[1:]
        assert abs(vis).max() > 0
        assert (weight > 0).any()


@pytest.mark.real
def test_a_set_without_states_and_in_an_old_frame_is_described(tmp_path):
    d = describe(unpack_real("3c273_vla_8ghz", tmp_path))
    assert (d.fields[0].frame, d.fields[0].intents, d.dish_diameter) == ("FK4", (), 25.0)
    data = select([d.path], Selection())
    assert (data.frame, data.observation.object, data.observation.telescope) == ("FK4", "3C273", "VLA")
    # 12h26m33.25s +2d19m43.3s in B1950.
    ra, dec = 15 * (12 + 26 / 60 + 33.25 / 3600), 2 + 19 / 60 + 43.3 / 3600
    np.testing.assert_allclose([data.ra, data.dec], np.deg2rad([ra, dec]), atol=1e-6)


@pytest.mark.real
def test_real_meerkat_data_that_are_all_flagged_are_refused(tmp_path):
    path = unpack_real("meerkat_cdfs25_lband_tDish", tmp_path)
    with pytest.raises(InputError, match=r"all selected samples of .*tDish.MS are flagged; select others"):
        select([path], Selection())
