import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from astropy.io import fits

from pfb.config import Restore
from pfb.errors import InputError
from pfb.io import dataset
from pfb.io.dataset import Layout
from pfb.io.fits import read_image
from pfb.kernels.beam import common_beam, encloses
from pfb.pipeline import products, restore
from pfb.pipeline.products import KINDS, product_paths, write_products
from pfb.pipeline.reporting import Silent
from pfb.types import Band, Beam, Geometry, Observation, Plane

ARCSEC = np.radians(1 / 3600)
CELL = 2 * ARCSEC
GEOMETRY = Geometry(nx=60, ny=71, cell=CELL, ra=1.1, dec=-0.8)
FREQ = [1.0e9, 1.1e9, 1.25e9, 1.3e9]
BANDS = [Band(index=i, freq_min=f - 4e7, freq_max=f + 5e7, freq=f) for i, f in enumerate(FREQ)]
WSUM = [3e5, 1e5, 0.0, 2e5]
TOTAL = sum(WSUM)
BEAMS = [Beam(10 * ARCSEC * 1e9 / f, 8 * ARCSEC * 1e9 / f, 0.4) for f in FREQ]
PSF_SHAPE = (84, 100)
EMPTY = 2


def gaussian(beam, shape, x0, y0):
    x, y = np.meshgrid(np.arange(shape[0]) - x0, np.arange(shape[1]) - y0, indexing="ij")
    east, north = -x * CELL, y * CELL
    along = north * np.cos(beam.pa) + east * np.sin(beam.pa)
    across = east * np.cos(beam.pa) - north * np.sin(beam.pa)
    return np.exp(-4 * np.log(2) * ((along / beam.major) ** 2 + (across / beam.minor) ** 2))


def make(path, maker="clean", beams=BEAMS, wsum=WSUM, dtype="f8"):
    """A source of 1 Jy, 0.75 of it in the model, with PSFs that are Gaussians; band 2 has no data."""
    layout = Layout(
        maker=maker, geometry=GEOMETRY, observation=Observation(telescope="MeerKAT", object="field", start=5.1e9), bands=BANDS,
        psf_shape=PSF_SHAPE, options={"nband": 4, "mask": None}, bases=("self",), nlevels=1, ncoefficient=10, dtype=dtype,
    )  # fmt: skip
    dataset.create(path, layout)
    for band, beam in enumerate(beams):
        model = np.zeros(GEOMETRY.shape)
        model[20, 45] = 0.75
        source = gaussian(beam, GEOMETRY.shape, 20, 45)
        planes = dict(dirty=source, residual=0.25 * source, psf=gaussian(beam, PSF_SHAPE, 42, 50))
        dataset.write(path, "wsum", Plane(0, band), wsum[band])
        if wsum[band]:
            dataset.write(path, "beam", Plane(0, band), np.array(beam))
            for name, plane in planes.items():
                if name in dataset.SCHEMA and (maker == "clean" or name != "residual"):
                    dataset.write(path, name, Plane(0, band), wsum[band] * plane)
        if maker == "clean":
            dataset.write(path, "model", Plane(0, band), model)
    dataset.finish(path)
    return path


class Recorder(Silent):
    def __init__(self):
        self.warnings, self.summaries = [], []

    def warning(self, text):
        self.warnings.append(text)

    def summary(self, title, values):
        self.summaries.append((title, values))


@pytest.fixture
def store(tmp_path):
    return make(tmp_path / "run.zarr")


def image(tmp_path, kind, form="mfs", prefix="run"):
    found, header = read_image(tmp_path / f"{prefix}-{kind}-{form}.fits")
    return SimpleNamespace(data=found, header=header)


# All products


def test_products_of_a_deconvolution(tmp_path, store):
    files = write_products(store, tmp_path / "run")
    expected = [f"run-{kind}-{form}.fits" for kind in ("dirty", "psf", "model", "residual", "image") for form in ("mfs", "cube")]
    assert [file.name for file in files] == [*expected, "run-quicklook.png"]
    assert sorted(os.listdir(tmp_path)) == sorted([*expected, "run-quicklook.png", "run.zarr"])
    for file in files[:-1]:
        with fits.open(file) as hdus:
            hdus.verify("exception")
    for kind in ("dirty", "residual", "image", "psf"):
        assert image(tmp_path, kind).header["BUNIT"] == image(tmp_path, kind, "cube").header["BUNIT"] == "Jy/beam"
    assert image(tmp_path, "model").header["BUNIT"] == image(tmp_path, "model", "cube").header["BUNIT"] == "Jy/pixel"


def test_normalisation(tmp_path, store):
    write_products(store, tmp_path / "run")
    weighted = sum(w * gaussian(beam, GEOMETRY.shape, 20, 45) for w, beam in zip(WSUM, BEAMS, strict=True)) / TOTAL
    np.testing.assert_allclose(image(tmp_path, "dirty").data, weighted, atol=1e-6)
    np.testing.assert_allclose(image(tmp_path, "residual").data, 0.25 * weighted, atol=1e-6)
    assert image(tmp_path, "psf").data[42, 50] == pytest.approx(1, abs=1e-6)
    assert image(tmp_path, "model").data[20, 45] == pytest.approx(0.75)
    for kind, factor, centre in [("dirty", 1, (20, 45)), ("residual", 0.25, (20, 45)), ("psf", 1, (42, 50))]:
        cube = image(tmp_path, kind, "cube").data
        for band in (0, 1, 3):
            np.testing.assert_allclose(cube[band], factor * gaussian(BEAMS[band], cube.shape[1:], *centre), atol=1e-6)


def test_mean_model_has_the_weights_of_the_bands(tmp_path, store):
    for band, flux in enumerate([1.0, 2.0, 50.0, 4.0]):
        dataset.write(store, "model", Plane(0, band), np.full(GEOMETRY.shape, flux))
    write_products(store, tmp_path / "run", kinds=["model"])
    expected = (3 * 1.0 + 1 * 2.0 + 2 * 4.0) / 6
    np.testing.assert_allclose(image(tmp_path, "model").data, expected, rtol=1e-6)
    header = image(tmp_path, "model").header
    assert header["CRVAL3"] == pytest.approx((3 * 1.0e9 + 1.1e9 + 2 * 1.3e9) / 6)
    assert header["CDELT3"] == pytest.approx(1.35e9 - 0.96e9)
    np.testing.assert_allclose(image(tmp_path, "model", "cube").data[2], 50.0)


def test_band_without_data_is_blank_but_has_a_model(tmp_path, store):
    write_products(store, tmp_path / "run")
    for kind in ("dirty", "psf", "residual", "image"):
        cube = image(tmp_path, kind, "cube").data
        assert np.isnan(cube[EMPTY]).all()
        assert np.isfinite(cube[[0, 1, 3]]).all()
        assert np.isfinite(image(tmp_path, kind).data).all()
    model = image(tmp_path, "model", "cube").data
    assert model[EMPTY, 20, 45] == pytest.approx(0.75)
    assert np.isfinite(model).all()


def test_psf_images_have_their_own_size_and_centre(tmp_path, store):
    write_products(store, tmp_path / "run")
    header = image(tmp_path, "psf").header
    assert (header["NAXIS1"], header["NAXIS2"]) == PSF_SHAPE
    assert (header["CRPIX1"], header["CRPIX2"]) == (43, 51)


def test_restored_images_have_the_whole_flux_in_their_native_beams(tmp_path, store):
    write_products(store, tmp_path / "run")
    cube = image(tmp_path, "image", "cube")
    for band in (0, 1, 3):
        np.testing.assert_allclose(cube.data[band], gaussian(BEAMS[band], GEOMETRY.shape, 20, 45), atol=1e-6)
    assert cube.header["CASAMBM"]
    mfs = image(tmp_path, "image")
    assert mfs.data[20, 45] == pytest.approx(1, abs=1e-3)
    beam = Beam(*(np.radians(mfs.header[name]) for name in ("BMAJ", "BMIN", "BPA")))
    # The fit to the sum of several Gaussians is not one of them.
    assert BEAMS[3].major < beam.major < BEAMS[0].major
    np.testing.assert_allclose(mfs.data, gaussian(beam, GEOMETRY.shape, 20, 45), atol=0.01)


def test_headers_say_how_it_was_made(tmp_path, store):
    write_products(store, tmp_path / "run", kinds=["dirty"])
    header = image(tmp_path, "dirty").header
    assert list(header["HISTORY"]) == ["pfb clean", "nband = 4"]
    assert header["OBJECT"] == "field"
    assert header["BMAJ"] * 3600 == pytest.approx(8.9, abs=0.4)
    write_products(store, tmp_path / "run", kinds=["model"])
    assert "BMAJ" not in image(tmp_path, "model").header


def test_products_of_dirty_images(tmp_path):
    store = make(tmp_path / "run.zarr", maker="image")
    files = write_products(store, tmp_path / "run")
    names = ["run-dirty-mfs.fits", "run-dirty-cube.fits", "run-psf-mfs.fits", "run-psf-cube.fits", "run-quicklook.png"]
    assert [file.name for file in files] == names
    assert image(tmp_path, "psf").data.max() == pytest.approx(1, abs=1e-6)
    with pytest.raises(InputError, match="made by pfb image and gives no model, image; choose from dirty, psf, quicklook"):
        write_products(store, tmp_path / "run", kinds=["model", "image"])


def test_single_precision_store(tmp_path):
    write_products(make(tmp_path / "run.zarr", dtype="f4"), tmp_path / "run")
    np.testing.assert_allclose(image(tmp_path, "image", "cube").data[0], gaussian(BEAMS[0], GEOMETRY.shape, 20, 45), atol=1e-5)


def test_beam_that_is_missing_in_the_store_is_fitted(tmp_path, store):
    dataset.write(store, "beam", Plane(0, 1), np.full(3, np.nan))
    write_products(store, tmp_path / "run", kinds=["image"])
    with fits.open(tmp_path / "run-image-cube.fits") as hdus:
        assert hdus["BEAMS"].data["BMAJ"][1] == pytest.approx(BEAMS[1].major / ARCSEC, rel=1e-5)


def test_psf_without_a_lobe_blanks_its_band_only(tmp_path, store):
    dataset.write(store, "beam", Plane(0, 1), np.full(3, np.nan))
    psf = dataset.read(store, "psf", Plane(0, 1))
    psf[42, 50] = 0
    dataset.write(store, "psf", Plane(0, 1), psf)
    report = Recorder()
    write_products(store, tmp_path / "run", kinds=["image"], report=report)
    cube = image(tmp_path, "image", "cube").data
    assert np.isnan(cube[1]).all()
    assert np.isfinite(cube[0]).all()
    assert report.warnings == ["the PSF of band 1 has no central lobe, so there is no restored image of it"]


def test_second_moments_are_announced(tmp_path, store, monkeypatch):
    monkeypatch.setattr("pfb.kernels.beam._least_squares", lambda *lobe: None)
    report = Recorder()
    write_products(store, tmp_path / "run", kinds=["image"], report=report)
    assert report.warnings == ["no Gaussian fits the PSF of all bands together; its beam is from the second moments of the lobe"]


def test_products_appear_together_or_not_at_all(tmp_path, store, monkeypatch):
    write_products(store, tmp_path / "run")
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in os.listdir(tmp_path)}

    def fail(*args, **kwargs):
        raise RuntimeError("no picture")

    monkeypatch.setattr(products, "quicklook", fail)
    with pytest.raises(RuntimeError, match="no picture"):
        write_products(store, tmp_path / "run", overwrite=True)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in os.listdir(tmp_path)} == before


def test_existing_products_are_named(tmp_path, store):
    (tmp_path / "run-psf-mfs.fits").write_text("old")
    (tmp_path / "run-quicklook.png").write_text("old")
    with pytest.raises(InputError, match=r"run-psf-mfs\.fits, .*run-quicklook\.png exists already"):
        write_products(store, tmp_path / "run")
    assert (tmp_path / "run-psf-mfs.fits").read_text() == "old"


def test_paths_are_known_beforehand():
    paths = [path for group in product_paths("out/run", KINDS["clean"]).values() for path in group]
    assert len(paths) == 11
    assert str(paths[0]) == "out/run-dirty-mfs.fits"
    assert str(paths[-1]) == "out/run-quicklook.png"


def test_run_without_any_data(tmp_path):
    store = make(tmp_path / "run.zarr", wsum=[0.0] * 4)
    with pytest.raises(InputError, match="has no band with data"):
        write_products(store, tmp_path / "run")


def test_plane_that_is_not_finite(tmp_path, store):
    residual = dataset.read(store, "residual", Plane(0, 3))
    residual[4, 5] = np.nan
    dataset.write(store, "residual", Plane(0, 3), residual)
    with pytest.raises(InputError, match=r"the residual of band 3 in .* is not finite everywhere"):
        write_products(store, tmp_path / "run")
    assert os.listdir(tmp_path) == ["run.zarr"]


# pfb restore


def test_restore_makes_the_images_of_the_run(tmp_path, store):
    write_products(store, tmp_path / "run", kinds=["image"])
    report = Recorder()
    restore.run(str(store), Restore(output=str(tmp_path / "again")), report)
    for form in ("mfs", "cube"):
        np.testing.assert_array_equal(image(tmp_path, "image", form).data, image(tmp_path, "image", form, "again").data)
    assert sorted(report.summaries[0][1]) == ["again-image-cube.fits", "again-image-mfs.fits"]


def test_restore_takes_the_prefix_from_the_dataset(tmp_path, store):
    restore.run(str(store), Restore(), Silent())
    assert sorted(os.listdir(tmp_path)) == ["run-image-cube.fits", "run-image-mfs.fits", "run.zarr"]
    with pytest.raises(InputError, match="exists already"):
        restore.run(str(store), Restore(), Silent())
    restore.run(f"{store}/", Restore(overwrite=True), Silent())


def test_common_beam_is_that_of_all_planes(tmp_path, store):
    restore.run(str(store), Restore(common_beam=True), Silent())
    mfs, cube = image(tmp_path, "image"), image(tmp_path, "image", "cube")
    beam = Beam(*(np.radians(mfs.header[name]) for name in ("BMAJ", "BMIN", "BPA")))
    np.testing.assert_allclose(beam, common_beam([BEAMS[band] for band in (0, 1, 3)]), rtol=1e-6)
    assert all(encloses(beam, BEAMS[band]) for band in (0, 1, 3))
    assert cube.header["BMAJ"] == mfs.header["BMAJ"]
    assert "CASAMBM" not in cube.header
    for band in (0, 1, 3):
        np.testing.assert_allclose(cube.data[band], gaussian(beam, GEOMETRY.shape, 20, 45), atol=1e-4)
    assert np.isnan(cube.data[EMPTY]).all()


@pytest.mark.parametrize(
    ("text", "beam"), [("15", (15, 15, 0)), ("15,12,-40", (15, 12, -40)), (" 15 , 12 , 140 ", (15, 12, 140))]
)
def test_beam_of_choice(tmp_path, store, text, beam):
    restore.run(str(store), Restore(beam=text), Silent())
    beam = Beam(beam[0] * ARCSEC, beam[1] * ARCSEC, np.radians(beam[2]))
    header = image(tmp_path, "image", "cube").header
    assert header["BMAJ"] * 3600 == pytest.approx(15)
    assert header["BPA"] == pytest.approx(np.degrees(beam.pa))
    for band in (0, 1, 3):
        np.testing.assert_allclose(image(tmp_path, "image", "cube").data[band], gaussian(beam, GEOMETRY.shape, 20, 45), atol=1e-5)
    # All in one beam, so the MFS image of a flat spectrum is the same up to the fit of its native beam.
    np.testing.assert_allclose(image(tmp_path, "image").data, gaussian(beam, GEOMETRY.shape, 20, 45), atol=5e-3)


@pytest.mark.parametrize("text", ["", "wide", "10,8", "10,8,30,2", "8,10,0", "0", "-3", "nan", "10,0,0", "inf"])
def test_beam_that_cannot_be_read(store, text):
    with pytest.raises(
        InputError, match="is not a beam with BMAJ >= BMIN > 0; write BMAJ or BMAJ,BMIN,BPA in arcsec and degrees"
    ):
        restore.run(str(store), Restore(beam=text), Silent())


def test_beam_that_is_too_narrow_is_refused_before_any_work(tmp_path, store):
    with pytest.raises(InputError, match=r'beam 9.5" x 9.5" at 0.0 deg is narrower than the beam 10" x 8" at 22.9 deg of band 0'):
        restore.run(str(store), Restore(beam="9.5"), Silent())
    assert os.listdir(tmp_path) == ["run.zarr"]


def test_beam_and_common_beam_exclude_each_other(store):
    with pytest.raises(InputError, match="--beam 15 and --common-beam exclude each other"):
        restore.run(str(store), Restore(beam="15", common_beam=True), Silent())


def test_dirty_images_cannot_be_restored(tmp_path):
    store = make(tmp_path / "run.zarr", maker="image")
    with pytest.raises(InputError, match="made by pfb image and has no model"):
        restore.run(str(store), Restore(), Silent())


def test_dataset_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.zarr does not exist"):
        restore.run(str(tmp_path / "nothing.zarr"), Restore(), Silent())


def test_one_band_has_the_same_image_twice(tmp_path):
    wsum = [0.0, 2e5, 0.0, 0.0]
    store = make(tmp_path / "run.zarr", beams=[beam._replace(pa=-1.2) for beam in BEAMS], wsum=wsum)
    restore.run(str(store), Restore(common_beam=True), Silent())
    np.testing.assert_allclose(image(tmp_path, "image").data, image(tmp_path, "image", "cube").data[1], atol=1e-6)


def test_geometry_is_that_of_the_dataset(tmp_path, store):
    restore.run(str(store), Restore(), Silent())
    header = image(tmp_path, "image").header
    assert header["CRVAL1"] == pytest.approx(np.degrees(GEOMETRY.ra))
    assert replace(GEOMETRY, nx=header["NAXIS1"], ny=header["NAXIS2"]) == GEOMETRY


# Beams of pfb clean

SMALL_RUN = ["--npix", "30,27", "--cell", "2", "--nband", "3", "--bases", "self,db1", "--niter", "1", "--pd-maxit", "5"]


@pytest.mark.parametrize(("own", "other"), [(["--restoring-beam", "40,35,20"], ["--beam", "40,35,20"]), (["--common-beam"],) * 2])
def test_clean_restores_as_restore_does(own, other, pfb, small, tmp_path, no_picture):
    assert pfb("clean", small, "-o", tmp_path / "a", *SMALL_RUN, *own).code == 0
    assert pfb("restore", tmp_path / "a.zarr", "-o", tmp_path / "b", *other).code == 0
    for form in ("mfs", "cube"):
        one, two = image(tmp_path, "image", form, "a"), image(tmp_path, "image", form, "b")
        np.testing.assert_array_equal(one.data, two.data)
        assert one.header["BMAJ"] == two.header["BMAJ"]
    # One beam for all.
    assert "CASAMBM" not in image(tmp_path, "image", "cube", "a").header
    assert "CASAMBM" in image(tmp_path, "residual", "cube", "a").header


@pytest.mark.parametrize(("words", "sentence"), [
    (["--restoring-beam", "2"], "--restoring-beam 2 is narrower than the beam"),
    (["--restoring-beam", "2", "--common-beam"], "--restoring-beam 2 and --common-beam exclude each other; give one of them"),
    (["--restoring-beam", "x"], "--restoring-beam x is not a beam"),
], ids=str)  # fmt: skip
def test_a_beam_that_cannot_be_is_refused_before_the_first_cycle(words, sentence, refused, small, tmp_path, monkeypatch):
    monkeypatch.setattr("pfb.pipeline.clean.run_major_cycles", None)
    assert sentence in refused("clean", small, "-o", tmp_path / "a", *SMALL_RUN, *words, folder=tmp_path)
