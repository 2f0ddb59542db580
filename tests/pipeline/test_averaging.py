"""Averaging before imaging: the samples of a set, the images, and the options."""

import numpy as np
import pytest

from pfb.config import Image
from pfb.errors import InputError
from pfb.io import time_axis
from pfb.io.measurement_set import Selection, pieces, read, select
from pfb.io.sky import Component, offset
from pfb.io.time_axis import cuts, row_columns
from pfb.io.time_axis import time_axis as read_time_axis
from pfb.kernels.averaging import intervals
from pfb.kernels.samples import join
from pfb.pipeline import averaging, image, planning
from pfb.pipeline.averaging import averaging_of, channels
from tests.observations import change, read_window, small_set
from tests.pipeline.conftest import Recorder
from tests.pipeline.small_runs import stokes_i

ARCSEC = np.deg2rad(1 / 3600)
LONG = dict(nant=7, nchan=12, scans=2, scan_length=3.0, dump=8.0, rfi=0.1, nan_in_flagged=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two scans of 22 time stamps, 21 baselines, 12 channels; a tenth of the samples is flagged and NaN."""
    return small_set(tmp_path_factory.mktemp("long") / "a.ms", **LONG)


@pytest.fixture
def shuffled(tmp_path):
    return small_set(tmp_path / "shuffled.ms", **LONG, shuffled=True).path


def planned(path, **options):
    return planning.make(select([str(path)], Selection()), Image(output="unused", **(dict(npix="32", cell=3.0) | options)))


def load(plan, band=0):
    return join([loader() for loader in plan.loaders[band][0]])[0]


def test_time_axis(made):
    (w,) = select([made.path], Selection()).windows
    axis = read_time_axis(w)
    time, scan = (np.concatenate([getattr(row_columns(p), name) for p in pieces(w)]) for name in ("time", "scan"))
    assert axis.dump == pytest.approx(8.0)
    assert axis.starts == tuple((int(s), float(time[scan == s].min())) for s in np.unique(scan))
    assert len(axis.starts) == 2


def interval(scan, time):
    return np.floor(time / 40.0).astype(np.int64)


@pytest.mark.parametrize("block", [1 << 20, 37])
def test_cuts_part_no_rows_that_belong_together(made, monkeypatch, block):
    (w,) = select([made.path], Selection()).windows
    monkeypatch.setattr(time_axis, "_BLOCK", block)
    found = cuts(w, interval)
    columns = [np.concatenate(c) for c in zip(*(row_columns(p) for p in pieces(w)), strict=True)]
    keys = list(zip(columns[2].tolist(), interval(None, columns[1]).tolist(), strict=True))
    expected = [0] + [i for i in range(1, len(keys)) if keys[i] != keys[i - 1]] + [len(keys)]
    assert found.tolist() == expected
    assert len(found) > 5


def test_cuts_of_rows_in_any_order():
    """By definition: everything of a baseline, scan and interval is on one side."""
    rng = np.random.default_rng(3)
    time = np.concatenate([rng.permutation(np.repeat(np.arange(8.0) * 10 + k, 3)) for k in (0, 1000, 2000)])
    scan, one = np.repeat([1, 1, 4], 24), rng.integers(0, 2, 72)
    found = time_axis._cuts_of_any_order((time, scan, one, one + 1), interval)
    keys = [*zip(one.tolist(), scan.tolist(), interval(scan, time).tolist(), strict=True)]
    assert found.tolist() == [i for i in range(73) if not set(keys[:i]) & set(keys[i:])]
    assert len(found) >= 4


def test_pieces_begin_and_end_where_they_may(made):
    (w,) = select([made.path], Selection()).windows
    allowed = np.array([0, 10, 25, 300, 310, w.rows])
    edges = [(p.first, p.last) for p in pieces(w, 30, allowed)]
    assert edges == [(0, 25), (25, 300), (300, 310), (310, w.rows)]


@pytest.mark.parametrize("piece", [1 << 22, 600], ids=["one piece", "pieces"])
@pytest.mark.parametrize("order", ["by time", "shuffled"])
def test_samples_are_averaged_over_time_and_channels(made, shuffled, monkeypatch, piece, order):
    """Against sums over the set, sample by sample; whatever it is cut into."""
    path, step = (made.path, 1 << 19) if order == "by time" else (shuffled, 100)
    monkeypatch.setattr(averaging, "PIECE", piece)
    monkeypatch.setattr("pfb.pipeline.loading.READ", step)
    plan = planned(path, nband=1, average_time=24.0, average_chan="5")
    assert (len(plan.loaders[0][0]) > 5) == (piece == 600 and order == "by time")
    found = load(plan)
    (part,) = found

    (w,) = select([path], Selection()).windows
    uvw, vis, weight = read_window(w)
    time, scan, one, other = (np.concatenate(c) for c in zip(*(row_columns(p)[1:] for p in pieces(w)), strict=True))
    good = (weight[..., 0] > 0) & (weight[..., 3] > 0)
    stokes = np.where(good, (vis[..., 0].astype(complex) + vis[..., 3]) / 2, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(good, 4 / (1 / weight[..., 0].astype(float) + 1 / weight[..., 3].astype(float)), 0)
    begin = np.array([time[scan == s].min() for s in scan])
    keys = [*zip(scan.tolist(), np.floor((time - begin + 0.01) / 24).tolist(), one.tolist(), other.tolist(), strict=True)]
    assert len(part.uvw) == len(set(keys))
    for i, key in enumerate(sorted(set(keys))):
        own = [r for r, k in enumerate(keys) if k == key]
        for k, c in enumerate([slice(0, 5), slice(5, 10), slice(10, 12)]):
            total = inverse[own, c].sum()
            assert part.weight[i, k] == pytest.approx(total, rel=1e-12)
            mean = (inverse[own, c] * stokes[own, c]).sum() / total if total else 0
            np.testing.assert_allclose(part.vis[i, k], mean, rtol=1e-10, atol=1e-12)
        heavy = inverse[own].sum(axis=1)
        np.testing.assert_allclose(part.uvw[i], heavy @ uvw[own] / heavy.sum(), rtol=1e-11, atol=1e-9)
    for k, c in enumerate([slice(0, 5), slice(5, 10), slice(10, 12)]):
        assert part.freq[k] == pytest.approx((inverse[:, c] * w.freq[c]).sum() / inverse[:, c].sum(), rel=1e-14)
    assert plan.left[0][0] == pytest.approx(part.vis.size / stokes.size, rel=0.1)


def test_bands_are_not_mixed(made):
    plan = planned(made.path, nband=3, average_chan="64")
    for band in range(3):
        (part,) = load(plan, band)
        assert part.freq.size == 1
        assert plan.bands[band].freq_min < part.freq[0] < plan.bands[band].freq_max


def edge_source(tmp_path, x, y, **options):
    """The flux found at pixels (x, y) from the centre, where the only source is, with and without averaging."""
    cell, size = 20.0, 96
    ra, dec = offset(np.deg2rad(63.36), np.deg2rad(-45.0), -x * cell * ARCSEC, y * cell * ARCSEC)
    sky = [Component(ra=ra, dec=dec, I=1.0)]
    made = small_set(tmp_path / "edge.ms", sky=sky, sefd=0.0, **(LONG | dict(nchan=32, dump=4.0, nant=10, rfi=0.0)))
    peaks, told = [], []
    for name, given in (("plain", {}), ("averaged", options)):
        config = Image(output=str(tmp_path / name), npix=str(size), cell=cell, weighting="natural", nband=1, quiet=True, **given)
        recorder = Recorder()
        image.run((made.path,), config, recorder)
        ds = stokes_i(tmp_path / f"{name}.zarr")
        peaks.append(float(ds.dirty[0, size // 2 + x, size // 2 + y] / ds.wsum[0]))
        told.append(recorder)
    return peaks, told[1]


def test_a_source_in_the_corner_keeps_its_flux_by_bda(tmp_path, dataset_only):
    (plain, left), recorder = edge_source(tmp_path, -46, 45, bda=True)
    assert 0.99 < left / plain < 0.99999
    assert any("averaging makes about" in text for text in recorder.messages)
    assert not any("--decorrelation" in text for text in recorder.warnings)


def test_a_source_in_the_corner_is_smeared_by_the_same_average_for_all_and_that_is_said(tmp_path, dataset_only):
    (plain, left), recorder = edge_source(tmp_path, -46, 45, average_time=60.0, average_chan="16")
    assert left / plain < 0.97
    assert any("less than the --decorrelation of 99%" in text for text in recorder.warnings)


@pytest.mark.parametrize(("text", "width", "number"), [("4", 1e6, 4), ("2MHz", 250e3, 8), ("1e3 kHz", 4e5, 2), ("5Hz", 1e6, 1)])
def test_channels(text, width, number):
    assert channels(text, width) == number


@pytest.mark.parametrize("text", ["0", "x", "-2", "3 km", "MHz", ""])
def test_channels_that_cannot_be_read(text):
    with pytest.raises(InputError, match="--average-chan: cannot read"):
        channels(text, 1e6)


def test_bda_looks_no_further_than_it_is_told(made):
    (w,) = select([made.path], Selection()).windows
    config = Image(output="unused", npix="32", cell=3.0, bda=True, average_time=24.0, average_chan="3")
    setting, _ = averaging_of(config, planned(made.path).geometry, w, w.freq)
    assert (setting.time, setting.chan, setting.dump) == (24.0, 3, pytest.approx(8.0))
    times = np.array([setting.starts[0][1] + t for t in (0, 16, 24)])
    assert intervals(setting, np.full(3, setting.starts[0][0]), times).tolist() == [0, 0, 1]


def test_an_interval_is_shorter_where_there_are_too_many_samples(made, monkeypatch):
    (w,) = select([made.path], Selection()).windows
    config = Image(output="unused", npix="32", cell=3.0, bda=True)
    geometry = planned(made.path).geometry
    assert averaging_of(config, geometry, w, w.freq)[0].time == 120.0
    monkeypatch.setattr(averaging, "PIECE", 3 * 21 * 12)
    assert averaging_of(config, geometry, w, w.freq)[0].time == pytest.approx(24.0)


def test_uvw_that_are_not_finite_average_with_nothing(tmp_path):
    path = small_set(tmp_path / "a.ms", **LONG).path

    def spoil(uvw):
        return np.where((np.arange(len(uvw)) == 5)[:, None], np.nan, uvw)

    change(path, "UVW", spoil)
    for options in (dict(bda=True), dict(average_time=40.0)):
        for part in load(planned(path, **options)):
            assert np.isfinite(part.uvw).all()
            assert np.isfinite(part.vis).all()
    assert np.isfinite(read(pieces(select([path], Selection()).windows[0])[0]).uvw).all()
