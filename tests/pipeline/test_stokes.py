"""Stokes products from the set to the images: both feeds, what is flagged or missing, any number of workers."""

from __future__ import annotations

import numpy as np
import pytest
from astropy.io import fits

from pfb.config import Clean, Simulate
from pfb.io.dataset import open_dataset
from pfb.io.earth import parallactic_angle
from pfb.io.feed_angles import feed_angles
from pfb.io.measurement_set import Selection, pieces, select
from pfb.io.simulated_set import CIRCULAR
from pfb.io.sky import Component, offset, read_sky, write_sky
from pfb.pipeline import clean, products, simulate
from pfb.pipeline.reporting import Silent
from tests.observations import read_window, small_set
from tests.pipeline.small_runs import ARCSEC, CELL

SHAPE = (18, 15)
POLARISED = [(-4, 3, 1.0, 0.1, -0.05, 0.02), (4, -3, 0.5, -0.08, 0.04, 0.0)]
"""Pixels right and up of the centre; I, Q, U, V in Jy."""
C = 299792458.0
SMALL = dict(npix="18,15", cell=CELL, nband=2, bases="self,db1", threads_per_worker=2, precision="double")


def sky(sources=POLARISED, cell=CELL, **spectrum):
    ra0, dec0 = np.deg2rad(63.36), np.deg2rad(-45.0)
    places = [offset(ra0, dec0, -x * cell * ARCSEC, y * cell * ARCSEC) for x, y, *_ in sources]
    return [
        Component(ra=ra, dec=dec, **dict(zip("IQUV", flux, strict=True)), **spectrum)
        for (ra, dec), (_, _, *flux) in zip(places, sources, strict=True)
    ]


def observe(path, **defects):
    return small_set(path, **(dict(sky=sky(), nant=12, sefd=0.0) | defects)).path


def cleaned(path, output, **options):
    clean.run((str(path),), Clean(output=str(output), **(SMALL | options)), Silent())
    return open_dataset(f"{output}.zarr", needs="clean").load()


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    return observe(tmp_path_factory.mktemp("linear") / "a.ms")


@pytest.mark.parametrize("feeds", [(9, 10, 11, 12), CIRCULAR, (12, 10, 9, 11), (8, 5, 7, 6)], ids=str)
@pytest.mark.usefixtures("dataset_only")
def test_dirty_images_are_the_explicit_sums_of_every_product(pfb, tmp_path, feeds):
    made = small_set(tmp_path / "a.ms", sky=sky(), nant=6, sefd=300.0, feeds=feeds)
    words = ["--stokes", "VIUQ", "--npix", f"{SHAPE[0]},{SHAPE[1]}", "--cell", CELL, "--nband", 1, "--weighting", "natural"]
    assert pfb("image", made.path, "-o", tmp_path / "out", *words).code == 0
    ds = open_dataset(tmp_path / "out.zarr")
    (window,) = select([made.path], Selection()).windows
    uvw, vis, weight = read_window(window)
    place = {number: k for k, number in enumerate(feeds)}
    factors = {  # the inverse of what each feed sees
        "I": {9: 0.5, 12: 0.5, 5: 0.5, 8: 0.5}, "Q": {9: 0.5, 12: -0.5, 6: 0.5, 7: 0.5},
        "U": {10: 0.5, 11: 0.5, 6: -0.5j, 7: 0.5j}, "V": {10: -0.5j, 11: 0.5j, 5: 0.5, 8: -0.5},
    }  # fmt: skip
    l = -(np.arange(SHAPE[0]) - SHAPE[0] // 2)[:, None] * CELL * ARCSEC
    m = (np.arange(SHAPE[1]) - SHAPE[1] // 2)[None] * CELL * ARCSEC
    for product, own in factors.items():
        used = [(place[number], factor) for number, factor in own.items() if number in place]
        combined = sum(factor * vis[..., k].astype(complex) for k, factor in used)
        variance = sum(1 / np.where(weight[..., k] > 0, weight[..., k], np.nan).astype(float) for k, _ in used) / 4
        w = np.nan_to_num(1 / variance)
        expected = np.zeros(SHAPE)
        for k, nu in enumerate(window.freq):
            u, v, w_ = (uvw * nu / C).T[..., None, None]
            phase = 2 * np.pi * (u * l + v * m + w_ * (np.sqrt(1 - l**2 - m**2) - 1))
            expected += ((w[:, k] * combined[:, k])[:, None, None] * np.exp(-1j * phase)).real.sum(axis=0)
        found, total = ds.dirty.sel(stokes=product)[0].values, float(ds.wsum.sel(stokes=product)[0])
        assert total == pytest.approx(w.sum(), rel=1e-12)
        np.testing.assert_allclose(found / total, expected / total, rtol=0, atol=1e-6)
        assert np.abs(found).max() / total > 5e-3


@pytest.mark.parametrize("feeds", [(9, 10, 11, 12), CIRCULAR], ids=["linear", "circular"])
@pytest.mark.usefixtures("dataset_only")
def test_what_the_sky_has_is_recovered(tmp_path, feeds):
    """Without noise, to a ten-thousandth of the brightest source in every product and band."""
    path = observe(tmp_path / "a.ms", feeds=feeds, sky=sky(cell=3.0))
    ds = cleaned(path, tmp_path / "out", stokes="IQUV", cell=3.0, niter=22, tol=0.0, pd_maxit=60)
    assert ds.sizes["stokes"] == 4
    for x, y, *flux in POLARISED:
        found = ds.model[..., SHAPE[0] // 2 + x, SHAPE[1] // 2 + y].values
        np.testing.assert_allclose(found, np.array(flux)[:, None] * [1, 1], rtol=0, atol=1e-4)
    for product, peak in zip("IQUV", ds.history_peak.values[-1], strict=True):
        assert peak < 1e-4, product


@pytest.mark.usefixtures("dataset_only")
def test_the_subset_and_order_that_are_asked_for(linear, tmp_path):
    every = cleaned(linear, tmp_path / "a", stokes="IQUV", niter=2, pd_maxit=3)
    some = cleaned(linear, tmp_path / "b", stokes="v,q", niter=2, pd_maxit=3)
    assert some.stokes.values.tolist() == ["V", "Q"]
    assert some.history_rms.shape == (2, 2)
    for product in "VQ":
        np.testing.assert_array_equal(some.wsum.sel(stokes=product), every.wsum.sel(stokes=product))


@pytest.mark.usefixtures("dataset_only")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--stokes", "IQX"], "cannot read 'IQX' as Stokes products"),
        (["--stokes", "II"], "write those of I, Q, U, V that you want"),
        (["--stokes", ""], "cannot read '' as Stokes products"),
    ],
)
def test_products_that_there_are_not(refused, linear, tmp_path, words, sentence):
    assert sentence in refused("clean", linear, "-o", tmp_path / "x", "--npix", 16, *words, folder=tmp_path)


@pytest.mark.parametrize(("feeds", "stokes", "sentence"), [
    ((9, 12), "IQUV", "the data have the correlations XX, YY but Stokes U needs XY and YX or RL and LR"),
    ((5, 8), "Q", "the data have the correlations RR, LL but Stokes Q needs XX and YY or RL and LR"),
])  # fmt: skip
def test_a_product_whose_correlations_are_missing_is_refused(refused, tmp_path, feeds, stokes, sentence):
    path = observe(tmp_path / "a.ms", feeds=feeds)
    assert sentence in refused("image", path, "-o", tmp_path / "x", "--npix", 16, "--stokes", stokes, folder=tmp_path)


def test_a_flagged_correlation_blanks_what_needs_it(pfb, tmp_path, no_picture):
    """Cross-hands are flagged: U and V are blank, I and Q are what they are without them."""
    whole, part = tmp_path / "whole.ms", tmp_path / "part.ms"
    observe(whole, sefd=200.0)
    observe(part, sefd=200.0, flagged_correlations=(1, 2))
    words = ["--npix", "18,15", "--cell", CELL, "--nband", 2, "--niter", 2, "--pd-maxit", 4, "--bases", "self"]
    both = ["--weighting", "natural", *words]
    answer = pfb("clean", part, "-o", tmp_path / "a", "--stokes", "IQUV", *both)
    assert answer.code == 0, answer
    for product in "UV":
        assert f"Stokes {product} has no unflagged data: all its images are blank" in answer.out
    assert pfb("clean", whole, "-o", tmp_path / "b", "--stokes", "IQ", *both).code == 0
    found, expected = (open_dataset(tmp_path / f"{name}.zarr") for name in "ab")
    for name in ("dirty", "model", "residual", "psf"):
        np.testing.assert_array_equal(found[name].sel(stokes=["I", "Q"]), expected[name])
        assert np.isnan(found[name].sel(stokes=["U", "V"])).all()
    assert (found.wsum.sel(stokes=["U", "V"]) == 0).all()
    for product in "IQUV":
        for kind in ("dirty-mfs", "image-cube", "model-mfs"):
            blank = np.isnan(fits.getdata(tmp_path / f"a-{product}-{kind}.fits"))
            assert blank.all() if product in "UV" else not blank.any()


@pytest.mark.usefixtures("dataset_only")
def test_an_empty_band(tmp_path):
    path = observe(tmp_path / "a.ms", flagged_channels=(4, 5, 6, 7))
    ds = cleaned(path, tmp_path / "out", stokes="IQ", niter=2, pd_maxit=4)
    assert (ds.wsum.values > 0).tolist() == [[True, False]] * 2
    np.testing.assert_array_equal(ds.model[:, 1], ds.model[:, 0])


@pytest.mark.usefixtures("dataset_only")
def test_only_i_is_positive(linear, tmp_path):
    for positivity in ("clip", "joint"):
        ds = cleaned(linear, tmp_path / positivity, stokes="QIU", niter=3, pd_maxit=10, positivity=positivity)
        lowest = ds.model.min(("band", "x", "y"))
        assert float(lowest.sel(stokes="I")) >= 0
        assert float(lowest.sel(stokes="Q")) < -0.01
        assert float(lowest.sel(stokes="U")) < -0.01


def test_files_of_every_product(pfb, linear, tmp_path, no_picture):
    words = ["--npix", "18,15", "--cell", CELL, "--nband", 2, "--niter", 1, "--pd-maxit", 2]
    assert pfb("clean", linear, "-o", tmp_path / "a", "--stokes", "IVQ", *words).code == 0
    for product, number in (("I", 1), ("Q", 2), ("V", 4)):
        for kind in ("dirty", "psf", "model", "residual", "image"):
            for form, nplane in (("mfs", 1), ("cube", 2)):
                header = fits.getheader(tmp_path / f"a-{product}-{kind}-{form}.fits")
                assert (header["CTYPE4"], header["CRVAL4"], header["NAXIS4"], header["NAXIS3"]) == ("STOKES", number, 1, nplane)
    ds = open_dataset(tmp_path / "a.zarr")
    image = fits.getdata(tmp_path / "a-V-dirty-mfs.fits").squeeze().T
    expected = ds.dirty.sel(stokes="V").sum("band") / ds.wsum.sel(stokes="V").sum()
    np.testing.assert_allclose(image, expected, rtol=1e-5, atol=1e-9)
    assert pfb("restore", tmp_path / "a.zarr", "-o", tmp_path / "b", "--common-beam").code == 0
    beams = {fits.getheader(tmp_path / f"b-{p}-image-mfs.fits")["BMAJ"] for p in "IVQ"}
    assert len(beams) == 1
    assert pfb("clean", linear, "-o", tmp_path / "c", *words).code == 0
    assert (tmp_path / "c-image-mfs.fits").exists()
    assert not list(tmp_path.glob("c-I-*"))


def test_the_picture_shows_polarised_intensity(linear, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(products, "quicklook", lambda path, panels, *_, **__: (seen.extend(panels), path.write_bytes(b"")))
    cleaned(linear, tmp_path / "a", stokes="QUI", niter=1, pd_maxit=2)
    assert [panel.title for panel in seen] == ["Residual", "Model", "Restored image", "Polarised intensity"]
    q, u = (fits.getdata(tmp_path / f"a-{p}-image-mfs.fits").squeeze().T for p in "QU")
    np.testing.assert_allclose(seen[-1].image, np.hypot(q, u), rtol=1e-5)


@pytest.mark.cluster
@pytest.mark.usefixtures("dataset_only")
def test_workers_and_a_checkpoint_do_not_change_a_bit(linear, tmp_path):
    options = dict(stokes="IQUV", niter=3, pd_maxit=6, tol=0.0, positivity="joint")
    expected = cleaned(linear, tmp_path / "one", **options)
    names = ("dirty", "psf", "model", "residual", "update", "dual", "wsum", "history_rms")

    def differences(ds):
        return [name for name in names if not np.array_equal(ds[name].values, expected[name].values)]

    assert differences(cleaned(linear, tmp_path / "two", **options, workers=2)) == []

    class Ended(Exception):
        pass

    class Ending(Silent):
        def row(self, values):
            if values["cycle"] == 1:
                raise Ended

    with pytest.raises(Ended):
        clean.run((linear,), Clean(output=str(tmp_path / "end"), checkpoint=4, **SMALL | options), Ending())
    assert (tmp_path / "end.checkpoint").exists()
    assert differences(cleaned(linear, tmp_path / "end", **options, resume=True)) == []


@pytest.mark.parametrize("feeds", [(9, 10, 11, 12), CIRCULAR], ids=["linear", "circular"])
@pytest.mark.usefixtures("dataset_only")
def test_feeds_that_are_turned(pfb, tmp_path, feeds):
    observe(tmp_path / "up.ms", feeds=feeds)
    observe(tmp_path / "turned.ms", feeds=feeds, receptor_angle=0.4)
    images = {}
    for name, path, mode in (("up", "up", "none"), ("turned", "turned", "receptor"), ("wrong", "turned", "none")):
        words = ["--npix", 16, "--cell", CELL, "--nband", 1, "--stokes", "IQUV", "--feed-angle", mode]
        assert pfb("image", tmp_path / f"{path}.ms", "-o", tmp_path / name, *words).code == 0
        ds = open_dataset(tmp_path / f"{name}.zarr")
        images[name] = (ds.dirty / ds.wsum)[:, 0].values
    assert np.abs(images["wrong"][1:3] - images["up"][1:3]).max() > 0.02
    np.testing.assert_allclose(images["turned"], images["up"], rtol=0, atol=3e-3)  # weights differ
    np.testing.assert_allclose(images["wrong"][[0, 3]], images["turned"][[0, 3]], rtol=0, atol=1e-4)


def test_parallactic_angles_are_casacores(tmp_path):
    """Which counts from the pole of date: 25 years of precession are half a degree."""
    taql = pytest.importorskip("casacore.tables").taql
    path = observe(tmp_path / "a.ms", receptor_angle=0.3)
    data = select([path], Selection())
    (piece,) = pieces(data.windows[0])
    found = feed_angles(piece, (data.ra, data.dec), "parallactic")
    table = taql(f"select mscal.PA1() as A, mscal.PA2() as B from {path}")
    expected = 0.3 + (table.getcol("A") + table.getcol("B")) / 2
    assert np.abs(np.angle(np.exp(1j * (found - expected)))).max() < 0.01
    assert np.ptp(found) > 1e-3
    assert feed_angles(piece, (data.ra, data.dec), "none") is None


def test_the_zenith_is_north_when_a_southern_source_culminates():
    """At the North pole the zenith is the pole of the sky, whose position angle is zero."""
    pole = np.array([[0.0, 0.0, 6356752.0]])
    assert abs(parallactic_angle(np.array([5.2e9]), pole, 1.0, 0.3)[0, 0]) < 3e-3


@pytest.mark.usefixtures("dataset_only")
def test_a_set_that_does_not_say_how_its_feeds_are_turned(refused, tmp_path):
    path = observe(tmp_path / "a.ms", missing_tables=("FEED",))
    words = ["image", path, "-o", tmp_path / "x", "--npix", 16, "--stokes", "Q", "--feed-angle", "receptor"]
    assert "has no sub-table FEED" in refused(*words, folder=tmp_path)


def test_averaging_of_products(pfb, linear, tmp_path, dataset_only):
    words = ["--npix", 16, "--cell", CELL, "--nband", 1, "--stokes", "QV", "--weighting", "natural"]
    assert pfb("image", linear, "-o", tmp_path / "a", *words, "--average-chan", 2).code == 0
    assert pfb("image", linear, "-o", tmp_path / "b", *words).code == 0
    one, other = ((ds.dirty / ds.wsum).values for ds in (open_dataset(tmp_path / f"{n}.zarr") for n in "ab"))
    np.testing.assert_allclose(one, other, rtol=0, atol=2e-3)
    assert np.abs(other).max() > 0.01


@pytest.mark.parametrize("feed", ["linear", "circular"])
def test_a_simulated_sky_is_polarised(tmp_path, feed):
    config = Simulate(nant=4, nchan=4, nsource=3, scan_length=0.5, polarised=0.2, feed=feed, sefd=0.0)
    simulate.run(str(tmp_path / "a.ms"), config, Silent())
    truth = read_sky(tmp_path / "a-truth.ecsv")
    assert all(np.hypot(c.Q, c.U) == pytest.approx(0.2 * c.I) and c.rm for c in truth)
    found = select([str(tmp_path / "a.ms")], Selection()).windows[0].correlations
    assert found == ((9, 10, 11, 12) if feed == "linear" else CIRCULAR)


def test_faraday_rotation(tmp_path):
    c = Component(ra=0.1, dec=0.2, I=1.0, Q=0.3, U=0.4, ref_freq=1e9, alpha=-0.5, rm=25.0)
    freq = np.array([1e9, 1.3e9])
    i, q, u, v = c.stokes(freq)
    expected = (0.3 + 0.4j) * (freq / 1e9) ** -0.5 * np.exp(2j * 25.0 * ((C / freq) ** 2 - (C / 1e9) ** 2))
    np.testing.assert_allclose(q + 1j * u, expected, rtol=1e-12)
    np.testing.assert_allclose(i, (freq / 1e9) ** -0.5)
    assert not v.any()
    write_sky(tmp_path / "a.ecsv", [c])
    (back,) = read_sky(tmp_path / "a.ecsv")
    assert back.rm == pytest.approx(25.0)



@pytest.mark.usefixtures("dataset_only")
def test_an_automatic_mask_of_q_has_what_is_negative(tmp_path):
    path = observe(tmp_path / "a.ms", sky=sky([(-4, 3, 1.0, -0.5, 0.0, 0.0)]), sefd=500.0)
    ds = cleaned(path, tmp_path / "out", stokes="Q", niter=3, pd_maxit=10, auto_mask=5.0, npix="64", auto_mask_at="0")
    assert float(ds.model.min()) < -0.05
