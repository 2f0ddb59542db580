"""MSv4 stores: what is read from them is what is read from the measurement set that they were made of."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from pfb.errors import InputError
from pfb.io import casa_tables, msv4
from pfb.io.measurement_set import Selection, describe, pieces, read, select
from tests.observations import read_window, small_set, to_store


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A set of two windows of different sizes, one descending, with calibrators, and its store."""
    folder = tmp_path_factory.mktemp("msv4")
    layout = dict(nant=6, calibrators=True, channels=(5, 8), descending=True, scans=2, gain_error=0.1)
    made = small_set(folder / "a.ms", **layout)
    return made.path, to_store(made.path, folder / "a.zarr")


def ordered(window, rows=None):
    """All samples of a window, in an order of rows that does not depend on how they are stored."""
    uvw, vis, weight = read_window(window, rows)
    order = np.lexsort(uvw.T)
    return uvw[order], vis[order], weight[order]


@pytest.mark.parametrize(
    "selection",
    [
        {}, dict(field="J0408-6545", chan="1~3"), dict(scan="3", spw="1"), dict(time="2024-06-10T06:03:00~06:03:40"),
        dict(min_uv="1klambda", max_uv="800m"), dict(data_column="CORRECTED_DATA-DATA"),
    ],
    ids=str,
)  # fmt: skip
def test_samples_are_those_of_the_measurement_set(both, selection):
    path, store = both
    theirs = select([path], Selection(**selection))
    mine = select([store], Selection(**{k: v.replace("-DATA", "-VISIBILITY") for k, v in selection.items()}))
    assert mine.longest_baseline_wavelengths == pytest.approx(theirs.longest_baseline_wavelengths, rel=1e-12)
    assert (mine.ra, mine.dec, mine.frame, mine.dish_diameter) == (theirs.ra, theirs.dec, theirs.frame, theirs.dish_diameter)
    assert replace(mine.observation, start=0) == replace(theirs.observation, start=0)
    assert mine.observation.start == pytest.approx(theirs.observation.start, abs=1e-5)
    assert len(mine.windows) == len(theirs.windows) > 0
    for w in theirs.windows:
        (own,) = (x for x in mine.windows if np.array_equal(x.freq, w.freq))
        assert own.correlations == w.correlations
        np.testing.assert_allclose(own.width, w.width)
        for a, b in zip(ordered(own, rows=11), ordered(w), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.any()


def test_description_is_that_of_the_measurement_set(both):
    a, b = (describe(path) for path in both)
    fields = [[(f.name, f.ra, f.dec, f.frame, f.rows) for f in d.fields] for d in (a, b)]
    assert fields[0] == fields[1]
    assert [f.is_target for f in b.fields] == [False, True, False]
    assert (a.telescope, a.observer, a.antennas, a.scans, a.rows) == (b.telescope, b.observer, b.antennas, b.scans, b.rows)
    assert (b.start, b.end) == (pytest.approx(a.start, abs=1e-5), pytest.approx(a.end, abs=1e-5))
    assert {c.name for c in b.columns} == {"CORRECTED_DATA", "FLAG", "SIGMA_SPECTRUM", "UVW", "VISIBILITY", "WEIGHT"}


def test_antennas_and_feeds_are_those_of_the_measurement_set(both):
    found = []
    for path in both:
        columns = []
        for name, column in (("ANTENNA", "NAME"), ("ANTENNA", "POSITION"), ("ANTENNA", "MOUNT"), ("ANTENNA", "DISH_DIAMETER")):
            with casa_tables.subtable(path, name) as table:
                columns.append(np.asarray(table.getcol(column)))
        with casa_tables.subtable(path, "FEED") as table:
            columns += [np.array(casa_tables.cells(table, "RECEPTOR_ANGLE")), table.getcol("ANTENNA_ID")]
        found.append(columns)
    for mine, theirs in zip(*found, strict=True):
        assert mine.tolist() == theirs.tolist()
    assert casa_tables.subtable(both[1], "SOURCE") is None


def test_a_dataset_of_a_processing_set_is_a_store(both):
    _, store = both
    names = sorted(p.name for p in Path(store).iterdir() if p.is_dir())
    ones = [select([f"{store}/{name}"], Selection()) for name in names]
    assert sum(w.rows for one in ones for w in one.windows) == describe(store).rows
    assert {len(one.windows) for one in ones} == {1}


def test_what_is_read_at_a_time_is_bounded(both, monkeypatch):
    _, store = both
    (w,) = select([store], Selection(spw="1")).windows
    seen = []
    values = xr.DataArray.values.fget
    monkeypatch.setattr(msv4, "_READ", 1)
    monkeypatch.setattr(xr.DataArray, "values", property(lambda self: seen.append(self.shape) or values(self)))
    piece = pieces(w, 20)[1]
    got = read(piece, slice(2, 4))
    blocks = [shape for shape in seen if len(shape) == 4]
    assert blocks
    assert all(shape[0] <= 2 and shape[2] == 2 for shape in blocks), "more than a chunk, or channels that are not asked for"
    for mine, whole in zip(got, read_window(w), strict=True):
        np.testing.assert_array_equal(mine, whole[20:40, 2:4] if whole.ndim == 3 else whole[20:40])


def test_flags_of_many_bits_and_none(both, tmp_path):
    """FLAG may have a bit for each reason, and may be absent."""
    store = str(tmp_path / "a.zarr")
    shutil.copytree(both[1], store)
    plain = read_window(select([store], Selection()).windows[0])[2]
    for _, group in zarr.open_group(store).groups():
        flag = group["FLAG"][:].astype(np.uint16) << 9
        del group["FLAG"]
        group.create_array("FLAG", data=flag, dimension_names=("time", "baseline_id", "frequency", "polarization"))
    np.testing.assert_array_equal(read_window(select([store], Selection()).windows[0])[2], plain)
    for _, group in zarr.open_group(store).groups():
        del group["FLAG"]
    assert (read_window(select([store], Selection()).windows[0])[2] > 0).sum() > (plain > 0).sum()


def spoil(store, function):
    for _, group in zarr.open_group(store).groups():
        function(group)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda g: g.__delitem__("VISIBILITY"), r"is a zarr store without a variable VISIBILITY, so it is no MSv4 store; give"),
        (lambda g: g.__delitem__("scan_name"), r"has no scan_name, which MSv4 demands"),
        (lambda g: g.__delitem__("antenna_xds"), r"has no antenna_xds, which MSv4 demands"),
        (lambda g: g["time"].attrs.update(scale="tdb"), r"has times in tdb, unix; UTC or TAI in seconds since 1970 is needed"),
        (lambda g: g["field_and_source_base_xds"].__delitem__("FIELD_PHASE_CENTER_DIRECTION"), r"has no fixed phase centre"),
        (lambda g: g["polarization"].__setitem__(slice(None), ["PP", "PQ", "QP", "QQ"]), "has correlations PP, PQ, QP, QQ"),
        (lambda g: g["baseline_antenna1_name"].__setitem__(0, "m999"), "has baselines of m999, which its antenna"),
    ],
    ids=["no data", "no scans", "no antennas", "another scale", "no centre", "mixed", "unknown antenna"],
)
def test_what_is_no_store_is_refused(both, tmp_path, function, sentence):
    store = str(tmp_path / "a.zarr")
    shutil.copytree(both[1], store)
    spoil(store, function)
    with pytest.raises(InputError, match=sentence):
        describe(store)


def test_times_in_tai_are_those_of_utc(both, tmp_path):
    """In 2024 TAI is 37 s ahead."""
    store = str(tmp_path / "a.zarr")
    shutil.copytree(both[1], store)
    spoil(store, lambda g: g["time"].attrs.update(scale="tai"))
    assert describe(store).start == pytest.approx(describe(both[1]).start - 37, abs=1e-4)


def test_a_store_that_was_changed_is_read_anew(both, tmp_path):
    store = str(tmp_path / "a.zarr")
    shutil.copytree(both[1], store)
    before = select([store], Selection()).windows[0]
    old = read_window(before)[1]
    spoil(store, lambda g: g["CORRECTED_DATA"].__setitem__(slice(None), 2 * g["CORRECTED_DATA"][:]))
    after = select([store], Selection()).windows[0]
    assert after.stamp > before.stamp
    np.testing.assert_array_equal(read_window(after)[1], 2 * old)
    assert len(casa_tables._handles) == 1
