"""`pfb predict`: against direct sums, against the residual of `pfb clean`, and what it must leave alone."""

from __future__ import annotations

import itertools

import arcae
import numpy as np
import pytest
from astropy.io import fits

from pfb.config import Clean, Image, Predict
from pfb.errors import InputError
from pfb.io.casa_tables import UNFINISHED, release
from pfb.io.component_list import write_components
from pfb.io.fits import HeaderInfo, write_cube
from pfb.io.model_column import exclusive
from pfb.io.simulated_set import CIRCULAR
from pfb.io.sky import Component, direction_cosines, offset, write_sky
from pfb.pipeline import clean, image, predict
from pfb.pipeline.reporting import Silent
from pfb.types import LIGHTSPEED, Band, Geometry, Observation
from tests.observations import change, small_set
from tests.pipeline.small_runs import FEW, stokes_i

ARCSEC = np.deg2rad(1 / 3600)
RA, DEC = np.deg2rad(63.36), np.deg2rad(-45.0)
QUIET = dict(sefd=0.0, rfi=0.0, nchan=6)


def column(path, name, rows=slice(None)):
    release()
    with arcae.table(str(path)) as table:
        return table.getcol(name, index=(rows,))


def columns(path):
    release()
    with arcae.table(str(path)) as table:
        return set(table.columns())


def run(*sets, report=None, **options):
    release()
    where = {} if "scheduler" in options else dict(threads_per_worker=2)
    predict.run(tuple(map(str, sets)), Predict(**where, **options), report or Silent())


@pytest.fixture
def make(tmp_path):
    """Write a small set; returns it as Observed."""
    count = itertools.count()
    return lambda **options: small_set(tmp_path / f"{next(count)}.ms", **options)


@pytest.fixture
def cube(tmp_path):
    """Write a model cube of point sources at pixels, by default around the target; returns its path."""

    def write(fluxes, bands, name="model.fits", shape=(40, 31), cell=20.0, **place):
        geometry = Geometry(nx=shape[0], ny=shape[1], cell=cell * ARCSEC, **(dict(ra=RA, dec=DEC) | place))
        planes = np.zeros((len(bands), *shape))
        for (x, y), flux in fluxes.items():
            planes[:, x, y] = flux
        made = [Band(index=i, freq_min=low, freq_max=high, freq=(low + high) / 2) for i, (low, high) in enumerate(bands)]
        write_cube(tmp_path / name, planes, HeaderInfo(geometry=geometry, observation=Observation(), unit="Jy/pixel"), made)
        return str(tmp_path / name), geometry

    return write


def direct(uvw, freq, geometry, fluxes, ra=RA, dec=DEC):
    """Sum over pixels, seen from a phase centre: (row, chan); `fluxes` gives (chan,) for every pixel."""
    vis = np.zeros((len(uvw), len(freq)), complex)
    for (x, y), flux in fluxes.items():
        l, m = -(x - geometry.nx // 2) * geometry.cell, (y - geometry.ny // 2) * geometry.cell
        place = np.array(direction_cosines(*offset(geometry.ra, geometry.dec, l, m), ra, dec)) - [0, 0, 1]
        vis += flux * np.exp(2j * np.pi / LIGHTSPEED * (uvw @ place)[:, None] * freq)
    return vis


@pytest.mark.parametrize("feeds", [(9, 10, 11, 12), CIRCULAR, (9, 12)], ids=["linear", "circular", "two"])
def test_components_give_the_visibilities_they_were_simulated_from(feeds, make, tmp_path):
    """Points and a Gaussian with I, Q, U and V; the new column is like DATA."""
    made = make(feeds=feeds, **QUIET)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    run(made.path, model=(str(tmp_path / "sky.ecsv"),))
    good = ~column(made.path, "FLAG").astype(bool)
    found, expected = column(made.path, "MODEL_DATA"), column(made.path, "CORRECTED_DATA")
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found[good], expected[good], atol=2e-6)
    with arcae.table(made.path) as table:
        manager = {name: m for m in table.getdminfo().values() for name in m["COLUMNS"]}
        assert manager["MODEL_DATA"]["TYPE"] == manager["DATA"]["TYPE"]
        tile = [m["SPEC"]["HYPERCUBES"]["*1"]["TileShape"] for m in (manager["MODEL_DATA"], manager["DATA"])]
        assert list(tile[0]) == list(tile[1])
        assert UNFINISHED not in table.getcolkeywords("MODEL_DATA")


@pytest.mark.parametrize("feeds", [(9, 10, 11, 12), CIRCULAR], ids=["linear", "circular"])
def test_q_and_u_are_turned_to_the_feeds(feeds, make, tmp_path):
    """The feeds of the set stand at 35 degrees; without the option they are taken to be upright."""
    made = make(feeds=feeds, receptor_angle=np.deg2rad(35), **QUIET)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    good = ~column(made.path, "FLAG").astype(bool)
    run(made.path, model=(str(tmp_path / "sky.ecsv"),), feed_angle="receptor")
    np.testing.assert_allclose(column(made.path, "MODEL_DATA")[good], column(made.path, "CORRECTED_DATA")[good], atol=2e-6)
    run(made.path, model=(str(tmp_path / "sky.ecsv"),))
    assert np.abs(column(made.path, "MODEL_DATA")[good] - column(made.path, "CORRECTED_DATA")[good]).max() > 0.05


def test_casacore_reads_what_was_written(make, tmp_path):
    tables = pytest.importorskip("casacore.tables")
    made = make(**QUIET)
    write_components(tmp_path / "a.txt", [Component(ra=RA, dec=DEC, I=2.0, alpha=-0.7, ref_freq=1.2e9)])
    run(made.path, model=(str(tmp_path / "a.txt"),))
    with tables.table(made.path, ack=False) as table:
        vis, freq = table.getcol("MODEL_DATA"), made.layout.windows[0].freq
    np.testing.assert_allclose(vis[..., 0], np.broadcast_to(2 * (freq / 1.2e9) ** -0.7, vis.shape[:2]), rtol=1e-6)
    assert not vis[..., 1].any()


@pytest.mark.parametrize("place", [{}, dict(ra=RA + 0.006, dec=DEC - 0.004)], ids=["here", "elsewhere"])
def test_images_are_the_direct_sum_over_their_pixels(place, make, cube):
    """Two bands and what lies beyond them, on an odd grid, also about another centre than the data's."""
    made = make(**QUIET)
    freq = made.layout.windows[0].freq
    edge = (freq[2] + freq[3]) / 2
    fluxes = {(7, 22): np.array([1.0, 3.0]), (30, 4): np.array([-0.5, 0.25])}
    path, geometry = cube(fluxes, [(freq[0], edge), (edge, freq[4])], **place)
    run(made.path, model=(path,), epsilon=1e-9)
    uvw, found = column(made.path, "UVW"), column(made.path, "MODEL_DATA")
    expected = direct(uvw, freq, geometry, {at: flux[[0, 0, 0, 1, 1, 1]] for at, flux in fluxes.items()})
    np.testing.assert_allclose(found[..., 0], expected, atol=1e-6)
    np.testing.assert_array_equal(found[..., 0], found[..., 3])


@pytest.mark.parametrize("feeds", [(9, 10, 11, 12), CIRCULAR], ids=["linear", "circular"])
def test_all_stokes_products_of_a_model(feeds, make, tmp_path):
    """A cube with an axis of I, Q, U and V: the correlations are those of a polarised point at its place."""
    made = make(feeds=feeds, **QUIET)
    geometry = Geometry(nx=20, ny=20, cell=20.0 * ARCSEC, ra=RA, dec=DEC)
    info = HeaderInfo(geometry=geometry, observation=Observation(), unit="Jy/pixel")
    write_cube(tmp_path / "i.fits", np.zeros((1, 20, 20)), info, [Band(index=0, freq_min=0.8e9, freq_max=1.8e9, freq=1.3e9)])
    data = np.zeros((4, 1, 20, 20), "f4")
    data[:, 0, 12, 5] = values = [1.0, 0.25, -0.5, 0.125]
    fits.PrimaryHDU(data, fits.getheader(tmp_path / "i.fits")).writeto(tmp_path / "iquv.fits")
    run(made.path, model=(str(tmp_path / "iquv.fits"),), epsilon=1e-9)
    fringe = direct(column(made.path, "UVW"), made.layout.windows[0].freq, geometry, {(5, 12): np.ones(6)})
    i, q, u, v = values
    expected = [i + v, q + 1j * u, q - 1j * u, i - v] if feeds == CIRCULAR else [i + q, u + 1j * v, u - 1j * v, i - q]
    np.testing.assert_allclose(column(made.path, "MODEL_DATA"), fringe[..., None] * np.array(expected), atol=1e-6)


@pytest.mark.parametrize("spectrum", ["linear", "polynomial"])
def test_spectra_between_bands(spectrum, make, cube):
    made = make(**QUIET)
    freq = made.layout.windows[0].freq
    bands = [(f - 1e6, f + 1e6) for f in (freq[1], freq[4], freq[5])]
    fluxes = {(7, 22): np.array([1.0, 3.0, 2.0]), (30, 4): np.array([0.5, 0.7, 0.0])}
    path, geometry = cube(fluxes, bands)
    run(made.path, model=(path,), spectrum=spectrum, terms=2, epsilon=1e-9)
    middle = freq[[1, 4, 5]]
    if spectrum == "linear":
        at = {pixel: np.interp(freq, middle, flux) for pixel, flux in fluxes.items()}
    else:
        at = {pixel: np.polyval(np.polyfit(middle / 1e9, flux, 1), freq / 1e9) for pixel, flux in fluxes.items()}
    expected = direct(column(made.path, "UVW"), freq, geometry, at)
    np.testing.assert_allclose(column(made.path, "MODEL_DATA")[..., 0], expected, atol=1e-5)


def test_data_less_the_model_image_to_the_residual(tmp_path, no_picture, make):
    """What is left of the data images to the residual of the run that made the model, to 1e-6 of the peak."""
    made = make(nant=12, nchan=7, scan_length=4.0)
    release()
    options = FEW | dict(npix="70,81", cell=15.0)
    clean.run((made.path,), Clean(output=str(tmp_path / "c"), **options), Silent())
    run(made.path, model=(str(tmp_path / "c.zarr"),), column="LESS", subtract=True)
    release()
    kept = {name: value for name, value in options.items() if name in ("npix", "cell", "nband", "threads_per_worker")}
    image.run((made.path,), Image(output=str(tmp_path / "i"), data_column="LESS", **kept), Silent())
    one, other = stokes_i(tmp_path / "c.zarr"), stokes_i(tmp_path / "i.zarr")
    dirty, residual = one.dirty.values.sum(axis=0), one.residual.values.sum(axis=0)
    assert np.abs(residual).max() < 0.7 * np.abs(dirty).max(), "the model is something"
    assert np.abs(other.dirty.values.sum(axis=0) - residual).max() < 1e-6 * np.abs(dirty).max()


def test_subtracting_and_adding_leave_flags_weights_and_data(make, tmp_path):
    made = make(nan_in_flagged=True)
    before = {name: column(made.path, name) for name in columns(made.path) if name not in ("FLAG_CATEGORY",)}
    write_sky(tmp_path / "sky.ecsv", made.sky)
    model = (str(tmp_path / "sky.ecsv"),)
    run(made.path, model=model, subtract=True, column="LESS", data_column="DATA")
    run(made.path, model=model, add=True, column="MORE", data_column="LESS")
    run(made.path, model=model)
    data, vis = before["DATA"], column(made.path, "MODEL_DATA")
    good = np.isfinite(data)
    np.testing.assert_allclose((data - column(made.path, "LESS"))[good], vis[good], atol=2e-6)
    np.testing.assert_allclose(column(made.path, "MORE")[good], data[good], atol=1e-5)
    for name, value in before.items():
        np.testing.assert_array_equal(column(made.path, name), value, err_msg=name)


def test_rows_and_channels_that_are_not_selected(make, tmp_path):
    """A new MODEL_DATA is zero there, a new column of data has the data, an old one what it had."""
    made = make(calibrators=True, **QUIET)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    model = (str(tmp_path / "sky.ecsv"),)
    target = next(i for i, f in enumerate(made.layout.fields) if f.intent == "TARGET")
    run(made.path, model=model, chan="1~3")
    here = column(made.path, "FIELD_ID") == target
    assert here.any()
    assert not here.all()
    vis = column(made.path, "MODEL_DATA")
    assert np.abs(vis[here][:, 1:4, 0]).min() > 1e-4
    assert not vis[~here].any()
    assert not vis[:, [0, 4, 5]].any()
    run(made.path, model=model, chan="0,3~5", subtract=True, column="LESS")
    data, less = column(made.path, "CORRECTED_DATA"), column(made.path, "LESS")
    np.testing.assert_array_equal(less[~here], data[~here])
    np.testing.assert_array_equal(less[:, 1:3], data[:, 1:3])
    np.testing.assert_allclose(less[here][:, 1:5][:, 2:], 0, atol=2e-6)
    change(made.path, "MODEL_DATA", lambda old: np.full_like(old, 7))
    run(made.path, model=model, chan="2")
    again = column(made.path, "MODEL_DATA")
    np.testing.assert_array_equal(again[here][:, 2], vis[here][:, 2])
    assert (again[~here] == 7).all()
    assert (np.delete(again, 2, axis=1) == 7).all()


def test_every_field_is_predicted_about_its_own_centre(make, tmp_path):
    made = make(calibrators=True, **QUIET)
    ids = range(len(made.layout.fields))
    write_components(tmp_path / "a.txt", [Component(ra=RA + 0.001, dec=DEC + 0.002, I=1.5)])
    run(made.path, model=(str(tmp_path / "a.txt"),), field=",".join(map(str, ids)))
    field, uvw, vis = (column(made.path, name) for name in ("FIELD_ID", "UVW", "MODEL_DATA"))
    freq = made.layout.windows[0].freq
    for i, f in enumerate(made.layout.fields):
        place = np.array(direction_cosines(RA + 0.001, DEC + 0.002, f.ra, f.dec)) - [0, 0, 1]
        expected = 1.5 * np.exp(2j * np.pi / LIGHTSPEED * (uvw[field == i] @ place)[:, None] * freq)
        # The list has 1e-5 arcsec; calibrators are a radian away.
        np.testing.assert_allclose(vis[field == i, :, 0], expected, atol=1e-4)


def test_windows_of_different_sizes_and_order(make, tmp_path):
    """Cells differ in shape from row to row, channels descend, and rows are in no order."""
    made = make(nspw=2, channels=(4, 7), descending=True, shuffled=True, sefd=0.0, rfi=0.0)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    run(made.path, model=(str(tmp_path / "sky.ecsv"),))
    release()
    with arcae.table(made.path) as table:
        description = table.getcol("DATA_DESC_ID")
        for number in np.unique(description):
            rows = np.flatnonzero(description == number)
            flag = table.getcol("FLAG", index=(rows,)).astype(bool)
            found, expected = (table.getcol(name, index=(rows,)) for name in ("MODEL_DATA", "CORRECTED_DATA"))
            np.testing.assert_allclose(found[~flag], expected[~flag], atol=2e-6)


def test_regions_divide_a_model(make, cube, tmp_path):
    """What lies inside and what lies outside add up; so for images, so for components."""
    made = make(**QUIET)
    freq = made.layout.windows[0].freq
    fluxes = {(7, 22): np.array([1.0]), (30, 4): np.array([0.5])}
    path, geometry = cube(fluxes, [(freq[0], freq[-1])])
    ra, dec = np.rad2deg(offset(RA, DEC, 13 * 20 * ARCSEC, 7 * 20 * ARCSEC))
    (tmp_path / "a.reg").write_text(f'# Region file format: DS9\nfk5\ncircle({ra},{dec},90")\n')
    uvw = column(made.path, "UVW")
    sources = [Component(ra=np.deg2rad(ra), dec=np.deg2rad(dec), I=1.0), Component(ra=RA, dec=DEC, I=4.0)]
    write_components(tmp_path / "a.txt", sources)
    for outside, pixel in ((False, (7, 22)), (True, (30, 4))):
        run(made.path, model=(path,), region=str(tmp_path / "a.reg"), outside=outside, epsilon=1e-9)
        expected = direct(uvw, freq, geometry, {pixel: np.full(len(freq), fluxes[pixel][0])})
        np.testing.assert_allclose(column(made.path, "MODEL_DATA")[..., 0], expected, atol=1e-6)
        run(made.path, model=(str(tmp_path / "a.txt"),), region=str(tmp_path / "a.reg"), outside=outside)
        np.testing.assert_allclose(np.abs(column(made.path, "MODEL_DATA")[..., 0]), 4.0 if outside else 1.0, rtol=1e-6)


def test_several_sets_and_an_empty_region(make, tmp_path, recorder):
    one, two = make(**QUIET), make(seed=3, **QUIET)
    write_sky(tmp_path / "sky.ecsv", one.sky)
    (tmp_path / "a.reg").write_text('fk5\ncircle(10,10,1")\n')
    run(one.path, two.path, model=(str(tmp_path / "sky.ecsv"),), region=str(tmp_path / "a.reg"), report=recorder)
    assert not column(one.path, "MODEL_DATA").any()
    assert not column(two.path, "MODEL_DATA").any()
    assert recorder.messages[-1] == f"{two.path}: the model is in MODEL_DATA"


def test_baselines_that_are_not_finite_get_a_finite_model(make, tmp_path):
    made = make(nan_uvw=True, **QUIET)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    run(made.path, model=(str(tmp_path / "sky.ecsv"),))
    assert np.isfinite(column(made.path, "MODEL_DATA")).all()


def test_a_column_that_a_dead_run_left_is_told_from_a_complete_one(make, tmp_path, monkeypatch, recorder):
    made = make(**QUIET)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    model = (str(tmp_path / "sky.ecsv"),)

    def die(*_):
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(predict, "write", die)
        with pytest.raises(RuntimeError, match="the machine is gone"):
            run(made.path, model=model)
    with arcae.table(made.path) as table:
        assert UNFINISHED in table.getcolkeywords("MODEL_DATA")
    with pytest.raises(InputError, match=r"MODEL_DATA of .* was left unfinished by an earlier run; write it again"):
        run(made.path, model=model, subtract=True, data_column="MODEL_DATA", column="NEW")
    with pytest.raises(InputError, match=r"MODEL_DATA of .* was left unfinished by pfb predict"):
        image.run((made.path,), Image(output=str(tmp_path / "o"), data_column="MODEL_DATA", npix="32", cell=20.0), Silent())
    run(made.path, model=model, report=recorder)
    assert any("was left unfinished by an earlier run and is written anew" in text for text in recorder.messages)
    good = ~column(made.path, "FLAG").astype(bool)
    np.testing.assert_allclose(column(made.path, "MODEL_DATA")[good], column(made.path, "CORRECTED_DATA")[good], atol=2e-6)


@pytest.mark.cluster
def test_workers_write_the_same(make, cube, cluster):
    one, two = make(nspw=2, **QUIET), make(nspw=2, **QUIET)
    freq = one.layout.windows[0].freq
    path, _ = cube({(7, 22): np.array([1.0, 2.0])}, [(freq[0], freq[1]), (freq[2], freq[-1])])
    run(one.path, model=(path,))
    run(two.path, model=(path,), scheduler=cluster.scheduler_address)
    np.testing.assert_array_equal(column(one.path, "MODEL_DATA"), column(two.path, "MODEL_DATA"))


BAD = {
    "both": (dict(subtract=True, add=True), "--subtract and --add exclude each other"),
    "nameless": (dict(subtract=True), "--subtract needs --column"),
    "in place": (dict(subtract=True, column="DATA", data_column="DATA"), "--column DATA is also the --data-column"),
    "no data": (dict(data_column="DATA"), "is used with --subtract or --add only"),
    "outside": (dict(outside=True), "--outside needs --region"),
    "over DATA": (dict(column="DATA"), "has a column DATA already; choose another name, or replace it with --overwrite"),
    "weights": (dict(column="WEIGHT_SPECTRUM", overwrite=True), "column of weights or flags, which are never written"),
    "no visibilities": (dict(column="UVW", overwrite=True), "UVW of .* holds double and no visibilities"),
    "no source": (dict(add=True, column="X", data_column="NONE"), "has no visibility column NONE"),
    "terms": (dict(spectrum="polynomial", terms=3), "3 terms has rank 3 but the model has 1 band"),
    "region": (dict(region="nothing.reg"), "the regions nothing.reg cannot be read"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=list(BAD))
def test_what_cannot_be_done_is_refused_before_anything_is_written(options, message, make, cube):
    made = make(**QUIET)
    path, _ = cube({(7, 22): np.array([1.0])}, [(1e9, 1.5e9)])
    before = columns(made.path)
    with pytest.raises(InputError, match=message):
        run(made.path, model=(path,), **options)
    assert columns(made.path) == before


DEFECTS = {
    "another shape": (dict(model_data=True), r"MODEL_DATA .* has cells of shape \(7, 4\) .*, which needs \(6, 4\); remove it"),
    "read only": (dict(read_only=True), "is not writable, so nothing can be written"),
}


@pytest.mark.parametrize(("defect", "message"), DEFECTS.values(), ids=list(DEFECTS))
def test_a_set_that_cannot_be_written_is_refused_before_the_work_starts(defect, message, make, tmp_path, monkeypatch):
    made = make(**defect, **QUIET)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    monkeypatch.setattr("pfb.io.model_column.os.access", lambda path, mode: not defect.get("read_only"))
    monkeypatch.setattr(predict, "open_engine", None)
    with pytest.raises(InputError, match=message):
        run(made.path, model=(str(tmp_path / "sky.ecsv"),))


def test_a_full_disk_another_writer_and_little_memory_are_refused(make, cube, monkeypatch):
    made = make(**QUIET)
    path, _ = cube({(7, 22): np.array([1.0])}, [(1e9, 1.5e9)])
    with exclusive([made.path]), pytest.raises(InputError, match="is being written by another pfb predict"):
        run(made.path, model=(path,))
    with monkeypatch.context() as patch:
        patch.setattr("pfb.io.model_column.shutil.disk_usage", lambda _: type("Usage", (), dict(free=1000)))
        with pytest.raises(InputError, match=r"takes .* GiB but 9.31e-07 GiB of the disk are free"):
            run(made.path, model=(path,))
    monkeypatch.setattr(predict, "memory_limit", lambda: 2**28)
    with pytest.raises(InputError, match=r"predicting takes up to .* GiB on 2 threads but there are 0.25 GiB"):
        run(made.path, model=(path,))
    assert "MODEL_DATA" not in columns(made.path)


def test_the_command(make, tmp_path, pfb):
    made = make(**QUIET)
    write_sky(tmp_path / "sky.ecsv", made.sky)
    answer = pfb("predict", made.path, "--model", tmp_path / "sky.ecsv", "--quiet")
    assert answer.code == 0, answer.err
    assert np.abs(column(made.path, "MODEL_DATA")).max() > 1
    answer = pfb("predict", made.path, "--model", tmp_path / "nothing.fits")
    assert answer.code == 2
    assert "nothing.fits cannot be read as FITS" in answer.err
