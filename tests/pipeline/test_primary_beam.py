"""Runs behind a primary beam: the sky before it is found, and images are corrected for it."""

import arcae
import numpy as np
import pytest
from astropy.io import fits
from katbeam import JimBeam

from pfb.config import Clean
from pfb.errors import InputError
from pfb.io.apparent import apparent_model
from pfb.io.measurement_set import Selection, select
from pfb.io.model_image import open_model, read_plane
from pfb.io.simulated_visibilities import predict
from pfb.kernels import stokes
from pfb.kernels.beam import restore
from pfb.kernels.primary_beam import effective
from pfb.pipeline import clean, imaging
from pfb.pipeline import products as products_module
from pfb.pipeline.primary_beam import choose, merged
from pfb.pipeline.reporting import Silent
from pfb.types import Band, Beam, Geometry, Observation, Plane
from tests.observations import change, read_window, small_set
from tests.pipeline.small_runs import ARCSEC, CELL, same, sky, stokes_i
from tests.pipeline.test_checkpoint import killed

N, WIDTH = 64, 70.0
# Pixels right and up of the centre, Jy at 1.284 GHz, spectral index, FWHM: where the beam is 0.9, 0.5, 0.25 in the mean.
SOURCES = [(4, 5, 0.5, -0.7, 0.0), (-14, 9, 1.0, 0.0, 0.0), (15, -18, 2.0, -0.7, 0.0)]
SETTINGS = dict(npix=f"{N}", cell=CELL, nband=4, bases="self,db2", niter=8, pd_maxit=40, rmsfactor=0.3, threads_per_worker=2)


def gaussian(x, y, freq):
    """A beam at angles in radians, whose width goes with the wavelength."""
    return np.exp(-4 * np.log(2) * (x**2 + y**2) * (freq / 1.284e9 / (WIDTH * ARCSEC)) ** 2)


def behind(path, components, response):
    """Put what dishes with a response to every component and channel see of a sky into a set."""
    with arcae.table(f"{path}::SPECTRAL_WINDOW") as table:
        freq = table.getcol("CHAN_FREQ", index=(slice(0, 1),))[0]
    with arcae.table(path) as table:
        uvw = table.getcol("UVW")
    centre = np.deg2rad(63.36), np.deg2rad(-45.0)
    power = np.array([[response(*place, f) for f in freq] for place in components[1]])
    vis = predict(uvw, freq, components[0], centre, (9, 10, 11, 12), response=power)
    for column in ("DATA", "CORRECTED_DATA"):
        change(path, column, lambda old: old + vis)
    return freq


@pytest.fixture(scope="module")
def beam_file(tmp_path_factory):
    """The beam, fixed to the sky, at one frequency."""
    x = (np.arange(201) - 100) * 2.0
    values = gaussian(x[:, None] * ARCSEC, x * ARCSEC, 1.284e9)
    header = fits.Header()
    for axis, kind, step in ((1, "L", -2.0), (2, "M", 2.0)):
        header.update({f"CTYPE{axis}": kind, f"CRPIX{axis}": 101.0, f"CDELT{axis}": step, f"CUNIT{axis}": "arcsec"})
    header.update(dict(CTYPE3="FREQ", CRVAL3=1.284e9, CRPIX3=1.0, CDELT3=1e6, CUNIT3="Hz"))
    path = tmp_path_factory.mktemp("beam") / "beam.fits"
    fits.writeto(path, values.T[None], header)
    return str(path)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Three sources behind the beam, seen by 24 dishes in four channels, one for each band."""
    path = str(tmp_path_factory.mktemp("seen") / "a.ms")
    small_set(path, sky=sky([(0, 0, 1e-2, 0.0, 0.0)]), nant=24, sefd=3000.0, nchan=4, nspw=1, rfi=0.0)
    places = [(-x * CELL * ARCSEC, y * CELL * ARCSEC) for x, y, *_ in SOURCES]
    behind(path, (sky(SOURCES), places), gaussian)
    return path


def make(path, prefix, report=None, **options):
    """Clean a set and return its dataset."""
    config = Clean(**(dict(output=str(prefix)) | SETTINGS | options))
    clean.run((path,), config, report or Silent())
    return stokes_i(f"{config.output}.zarr", needs="clean").load()


@pytest.fixture(scope="module")
def found(seen, beam_file, tmp_path_factory):
    """What is found behind the beam, and where it is stored."""
    prefix = tmp_path_factory.mktemp("found") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imaging, "write_products", lambda *_, **__: [])
        return make(seen, prefix, beam_model=beam_file), f"{prefix}.zarr"


FEW = SETTINGS | dict(niter=2, pd_maxit=20)


@pytest.fixture
def run(dataset_only, seen, beam_file, tmp_path):
    """Clean with the beam, for a short time, and return the dataset."""
    count = 0

    def again(report=None, **options):
        nonlocal count
        count += 1
        return make(seen, tmp_path / f"out{count}", report, **(FEW | dict(beam_model=beam_file) | options))

    return again


def fluxes(model, source, half=3):
    """Flux of every band in a square about a source."""
    x, y = N // 2 + source[0], N // 2 + source[1]
    return model[:, x - half : x + half + 1, y - half : y + half + 1].sum(axis=(1, 2))


def index(flux, freq):
    return np.polyfit(np.log(freq), np.log(flux), 1)[0]


def beams_of(ds):
    """The beams of the bands by their formula."""
    i, j = np.mgrid[:N, :N]
    x, y = (N // 2 - i) * CELL * ARCSEC, (j - N // 2) * CELL * ARCSEC
    return np.stack([gaussian(x, y, f) for f in ds.freq.values])


def test_fluxes_and_spectra_are_those_before_the_beam(found):
    ds, _ = found
    freq, apparent = ds.freq.values, ds.model.values * beams_of(ds)
    for source in SOURCES:
        flux = fluxes(ds.model.values, source)
        np.testing.assert_allclose(flux, source[2] * (freq / 1.284e9) ** source[3], rtol=0.01)
        assert index(flux, freq) == pytest.approx(source[3], abs=0.015)
    assert index(fluxes(apparent, SOURCES[2]), freq) < -2.5  # what an image shows without a correction


def test_beams_are_stored_and_bound_the_model(found):
    ds, _ = found
    beams = beams_of(ds)
    np.testing.assert_allclose(ds.primary_beam.values, beams, atol=1e-4)
    assert ds.primary_beam.attrs["units"] == "1"
    assert ds.attrs["primary_beam"]["applied"] == "model"
    mean = effective(ds.primary_beam.values, ds.wsum.values)
    assert 0.05 < (mean < 0.1).mean() < 0.9
    assert (ds.model.values[:, mean < 0.1] == 0).all()
    assert (ds["update"].values[:, mean < 0.1] == 0).all()


def test_the_residual_is_that_of_an_explicit_sum_behind_the_beam(run, seen, tmp_path, rng):
    ds, path = run(weighting="natural"), tmp_path / "out1.zarr"
    (window,) = select([seen], Selection()).windows
    band = 1
    uvw, raw, raw_weight = read_window(window, channels=slice(band, band + 1))
    part = stokes.combine(raw, raw_weight, window.correlations)
    vis, weight = (a[:, 0] for a in part)
    assert weight.sum() == pytest.approx(float(ds.wsum[band]))

    def fringe(i, j):
        l, m = (N // 2 - i) * CELL * ARCSEC, (j - N // 2) * CELL * ARCSEC
        n = np.sqrt(1 - l**2 - m**2)
        return np.exp(2j * np.pi * float(ds.freq[band]) / 299792458.0 * (uvw @ np.array([l, m, n - 1])))

    sky_behind = ds.model.values[band] * beams_of(ds)[band]
    np.testing.assert_allclose(apparent_model(path, Plane(0, band)), ds.model.values[band] * ds.primary_beam.values[band])
    for i, j in np.argwhere(sky_behind):
        vis = vis - sky_behind[i, j] * fringe(i, j)
    for i, j in rng.integers(0, N, (5, 2)):
        expected = (weight * vis * fringe(i, j).conj()).real.sum()
        assert ds.residual.values[band, i, j] == pytest.approx(expected, abs=2e-5 * float(ds.wsum[band]))


def test_the_model_stays_apparent_if_images_alone_are_corrected(run):
    ds = run(beam_use="images")
    assert same(ds, run(beam_model="none")) == []
    np.testing.assert_allclose(ds.primary_beam.values, beams_of(ds), atol=1e-4)


def test_it_is_the_same_on_workers_and_after_an_interruption(run, cluster, seen, beam_file, tmp_path):
    options = dict(auto_mask=5.0, positivity="clip")
    ds = run(**options)
    assert same(ds, run(scheduler=cluster.scheduler_address, threads_per_worker=None, **options)) == []
    with killed(4):
        make(seen, tmp_path / "killed", **(FEW | dict(beam_model=beam_file, checkpoint=10) | options))
    again = make(seen, tmp_path / "killed", **(FEW | dict(beam_model=beam_file, checkpoint=10, resume=True) | options))
    assert same(ds, again) == []


def test_a_band_without_data_has_a_beam_and_a_model(dataset_only, tmp_path, beam_file):
    made = small_set(tmp_path / "a.ms", sky=sky(SOURCES[:1]), nant=12, channels=(1, 1, 1), flagged_windows=(1,), rfi=0.0)
    ds = make(made.path, tmp_path / "out", **(FEW | dict(nband=3, beam_model=beam_file)))
    assert float(ds.wsum[1]) == 0
    np.testing.assert_allclose(ds.primary_beam.values, beams_of(ds), atol=1e-4)
    assert np.isfinite(ds.model.values).all()
    assert ds.model.values[1].max() > 0.1


def test_a_run_starts_from_the_model_of_another(found, run, recorder):
    """One cycle without iterations to speak of leaves the model what it was."""
    ds, path = found
    again = run(report=recorder, model=(str(path),), niter=1, pd_maxit=1, gamma=0.01)
    bright = ds.model.values > 0.05
    np.testing.assert_allclose(again.model.values[bright], ds.model.values[bright], rtol=0.05)


# Products


@pytest.fixture(scope="module")
def products(seen, beam_file, tmp_path_factory):
    """A run with its images, and where they are."""
    folder = tmp_path_factory.mktemp("products")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products_module, "quicklook", lambda path, *_, **__: path.write_bytes(b""))
        return make(seen, folder / "out", beam_model=beam_file, beam_cutoff=0.2, **(FEW | dict(niter=3))), folder


def image(path):
    return fits.getdata(path)[0].swapaxes(1, 2).astype("f8")


def test_images_are_corrected(products):
    ds, folder = products
    names = {f"out-{kind}-{form}.fits" for kind in ("image-pbcor", "pb") for form in ("mfs", "cube")}
    assert names <= {path.name for path in folder.iterdir()}
    beams, wsum = ds.primary_beam.values, ds.wsum.values
    mean = effective(beams, wsum)
    np.testing.assert_allclose(image(folder / "out-pb-cube.fits"), beams, atol=1e-6)
    np.testing.assert_allclose(image(folder / "out-pb-mfs.fits")[0], mean, atol=1e-6)
    plain, cube = image(folder / "out-image-cube.fits"), image(folder / "out-image-pbcor-cube.fits")
    np.testing.assert_array_equal(np.isnan(cube), beams < 0.2)
    inside = beams >= 0.2
    np.testing.assert_allclose(cube[inside], (plain / beams)[inside], rtol=1e-4, atol=1e-6)
    corrected = image(folder / "out-image-pbcor-mfs.fits")[0]
    np.testing.assert_array_equal(np.isnan(corrected), mean < 0.2)
    assert 0 < (mean < 0.2).mean() < 0.9


def test_the_corrected_mfs_image_is_the_least_squares_flux(products):
    """Restored with the beam of the MFS PSF, the bands weigh w P^2."""
    ds, folder = products
    beams, wsum = ds.primary_beam.values, ds.wsum.values
    header = fits.getheader(folder / "out-image-mfs.fits")
    beam = Beam(*np.radians([header["BMAJ"], header["BMIN"], header["BPA"]]))
    weights = wsum[:, None, None] * beams / wsum.sum()
    mean = np.sqrt((weights * beams).sum(axis=0))
    model = (weights * beams * ds.model.values).sum(axis=0)
    residual = (beams * ds.residual.values).sum(axis=0) / wsum.sum()
    expected = restore(model, residual, CELL * ARCSEC, beam, beam) / mean**2
    found = image(folder / "out-image-pbcor-mfs.fits")[0]
    inside = np.isfinite(found)
    np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-4, atol=1e-5)
    for x, y, flux, _, _ in SOURCES[:2]:
        assert found[N // 2 + x, N // 2 + y] == pytest.approx(flux, rel=0.1)


def test_headers_of_corrected_images(products):
    _, folder = products
    for form in ("mfs", "cube"):
        corrected, beam = (fits.getheader(folder / f"out-{kind}-{form}.fits") for kind in ("image-pbcor", "pb"))
        assert (corrected["BUNIT"], corrected["BTYPE"]) == ("Jy/beam", "Intensity")
        assert corrected["BMAJ"] > 0
        assert beam["BTYPE"] == "Primary beam"
        assert beam.get("BUNIT", "") == ""
        assert "BMAJ" not in beam
        assert any("beam_cutoff = 0.2" in str(line) for line in corrected["HISTORY"])


def test_restoring_corrects_too(products, pfb, tmp_path):
    _, folder = products
    assert pfb("restore", folder / "out.zarr", "-o", tmp_path / "b").code == 0
    for kind in ("image", "image-pbcor", "pb"):
        for form in ("mfs", "cube"):
            one, other = (image(f"{prefix}-{kind}-{form}.fits") for prefix in (folder / "out", tmp_path / "b"))
            np.testing.assert_array_equal(one, other)


def test_a_finished_run_is_corrected(run, pfb, refused, beam_file, products, tmp_path, monkeypatch):
    ds = run(beam_model="none")
    assert pfb("restore", tmp_path / "out1.zarr", "-o", tmp_path / "b", "--beam-model", beam_file, "--beam-cutoff", 0.3).code == 0
    cube, beams = image(tmp_path / "b-image-pbcor-cube.fits"), image(tmp_path / "b-pb-cube.fits")
    np.testing.assert_allclose(beams, beams_of(ds), atol=1e-4)
    np.testing.assert_array_equal(np.isnan(cube), beams < 0.3)
    inside = beams >= 0.3
    np.testing.assert_allclose(cube[inside], (image(tmp_path / "b-image-cube.fits") / beams)[inside], rtol=1e-4, atol=1e-6)
    _, folder = products
    sentence = refused("restore", folder / "out.zarr", "-o", tmp_path / "c", "--beam-model", beam_file, folder=tmp_path)
    assert "was deconvolved behind the beam" in sentence


def test_a_model_behind_a_beam_predicts_what_is_seen(found, seen, tmp_path):
    ds, path = found
    model = open_model([path])
    for band in range(4):
        np.testing.assert_allclose(read_plane(model, band), ds.model.values[band] * ds.primary_beam.values[band])


# Which beam

BAND = Band(index=0, freq_min=1.2e9, freq_max=1.3e9, freq=1.25e9)
GEOMETRY = Geometry(nx=41, ny=36, cell=np.deg2rad(0.05), ra=1.1, dec=-0.8)
TURNED = Observation(parallactic=((0.5, 1.0), (0.52, 1.0), (1.5, 2.0)))


def test_beams_of_dishes_turn_with_the_sky():
    model = choose(Clean(output="x", beam_model="katbeam"), GEOMETRY, TURNED, [BAND])
    assert model.source == "katbeam:L"
    total = np.zeros(GEOMETRY.shape)
    i, j = np.mgrid[:41, :36]
    l, m = (20 - i) * GEOMETRY.cell, (j - 18) * GEOMETRY.cell
    for angle, weight in model.angles:
        right, up = -l * np.cos(angle) + m * np.sin(angle), l * np.sin(angle) + m * np.cos(angle)
        total += weight / 4 * JimBeam("MKAT-AA-L-JIM-2020").I(np.rad2deg(right), np.rad2deg(up), 1250.0)
    # The difference of an angle and its sine: a quarter of a thousandth of a degree at the edge, where the beam is steep.
    np.testing.assert_allclose(model.image(1.25e9), total, atol=1e-3)
    still = choose(Clean(output="x", beam_model="katbeam", beam_average="azimuth"), GEOMETRY, Observation(), [BAND])
    around = still.image(1.25e9)
    np.testing.assert_allclose(around[20, 18 + 8], around[20 + 8, 18], rtol=1e-4)
    assert np.abs(around - total).max() > 1e-3


def test_angles_are_merged():
    found = merged([(0.5, 1.0), (0.51, 3.0), (1.5, 2.0)])
    np.testing.assert_allclose(found, [(np.radians(28), 4.0), (np.radians(84), 2.0)])


def test_which_beam():
    bands = [Band(index=i, freq_min=f - 1e7, freq_max=f + 1e7, freq=f) for i, f in enumerate((2.8e9, 3.2e9))]
    assert choose(Clean(output="x"), GEOMETRY, TURNED, bands) is None
    with pytest.raises(InputError, match="are not in UHF"):
        choose(Clean(output="x", beam_model="katbeam"), GEOMETRY, TURNED, bands)
    with pytest.raises(InputError, match=r"has no positions of antennas, .*: give --beam-average azimuth"):
        choose(Clean(output="x", beam_model="katbeam"), GEOMETRY, Observation(), [BAND])


def test_a_cube_without_the_frequency_of_a_band(refused, seen, tmp_path):
    header = fits.Header()
    for axis, kind in ((1, "X"), (2, "Y")):
        header.update({f"CTYPE{axis}": kind, f"CRPIX{axis}": 3.0, f"CDELT{axis}": 0.1})
    header.update(dict(CTYPE3="FREQ", CRVAL3=1.0e9, CRPIX3=1.0, CDELT3=1e8))
    fits.writeto(tmp_path / "b.fits", np.ones((3, 5, 5)), header)
    sentence = refused("clean", seen, "-o", tmp_path / "out", "--nband", 4, "--beam-model", tmp_path / "b.fits", folder=tmp_path)
    assert "has 1000-1200 MHz but band 2 is at" in sentence


def test_an_algorithm_that_finds_the_apparent_sky(refused, seen, beam_file, tmp_path, dataset_only):
    words = ["--beam-model", beam_file, "--algorithm", "hogbom"]
    sentence = refused("clean", seen, "-o", tmp_path / "out", *words, folder=tmp_path)
    assert "--algorithm hogbom finds the sky as the dishes see it: correct its images with --beam-use images" in sentence
    options = dict(npix=f"{N}", cell=CELL, nband=4, niter=2, beam_model=beam_file, beam_use="images", algorithm="hogbom")
    clean.run((seen,), Clean(output=str(tmp_path / "out"), **options), Silent())
    ds = stokes_i(tmp_path / "out.zarr", needs="clean")
    np.testing.assert_allclose(ds.primary_beam.values, beams_of(ds), atol=1e-4)
    assert (ds.model.values != 0).any()


def test_a_beam_that_is_not_there(refused, seen, tmp_path):
    sentence = refused("clean", seen, "-o", tmp_path / "out", "--beam-model", tmp_path / "none.fits", folder=tmp_path)
    assert "none.fits cannot be read as FITS" in sentence
