"""Models on other grids and at other frequencies: `pfb regrid`, and `pfb clean` that starts from one."""

from __future__ import annotations

import numpy as np
import pytest
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.wcs import WCS

from pfb.config import Clean, Regrid
from pfb.errors import InputError
from pfb.io.dataset import open_dataset
from pfb.io.fits import HeaderInfo, read_image, sky_wcs, write_cube
from pfb.io.model_image import open_model, read_plane
from pfb.pipeline import clean, regrid
from pfb.pipeline.reporting import Silent
from pfb.pipeline.transfer import spectral_mix, transferred
from pfb.types import Band, Geometry, Observation
from tests.pipeline.small_runs import FEW

ARCSEC = np.deg2rad(1 / 3600)
OLD = Geometry(nx=61, ny=50, cell=float(4 * ARCSEC), ra=1.1, dec=-0.8, frame="FK5")
FREQ = np.array([1.0e9, 1.2e9, 1.3e9, 1.5e9])
POINTS = {(12, 33): 1.0, (13, 33): 0.5, (44, 9): -0.3}


def band(index, freq, width=1e8):
    return Band(index=index, freq_min=freq - width / 2, freq_max=freq + width / 2, freq=freq)


@pytest.fixture
def model(tmp_path):
    """A cube of points with power laws, and an even square."""
    planes = np.zeros((4, *OLD.shape))
    planes[:, 20:40, 15:35] = 0.01 * (FREQ / 1.2e9)[:, None, None] ** 0.5
    for (x, y), flux in POINTS.items():
        planes[:, x, y] += flux * (FREQ / 1.2e9) ** -0.7
    info = HeaderInfo(geometry=OLD, observation=Observation(), unit="Jy/pixel")
    write_cube(tmp_path / "model.fits", planes, info, [band(i, f) for i, f in enumerate(FREQ)])
    return open_model([str(tmp_path / "model.fits")])


def moments(image, geometry):
    """Sum, and its centre on the sky as a unit vector."""
    x, y = np.nonzero(image)
    place = SkyCoord(*sky_wcs(geometry).wcs_pix2world(np.stack([x, y], axis=1), 0).T, unit="deg", frame=geometry.frame.lower())
    vectors = place.icrs.cartesian.xyz.value
    return image.sum(), vectors @ image[x, y] / image.sum()


NEW = {
    "finer": dict(nx=200, ny=180, cell=float(1.7 * ARCSEC)),
    "coarser": dict(nx=30, ny=33, cell=float(9 * ARCSEC)),
    "elsewhere": dict(nx=90, ny=81, ra=1.1003, dec=-0.7998),
    "another frame": dict(nx=90, ny=81, frame="ICRS"),
}


@pytest.mark.parametrize("change", NEW.values(), ids=list(NEW))
def test_flux_and_position_are_conserved(change, model):
    geometry = Geometry(**(OLD.__dict__ | change))
    image = transferred(model, (1.0, 0.0, 0.0, 0.0), geometry)
    before, after = moments(read_plane(model, 0), OLD), moments(image, geometry)
    assert after[0] == pytest.approx(before[0], rel=1e-9)
    # The chord and the arc between pixels differ in the square of a pixel.
    assert np.linalg.norm(after[1] - before[1]) < 1e-3 * OLD.cell


def test_an_aligned_model_is_unchanged(model):
    first = read_plane(model, 0)
    np.testing.assert_array_equal(transferred(model, (1.0, 0.0, 0.0, 0.0), OLD), first)
    wider = Geometry(**(OLD.__dict__ | dict(nx=70, ny=61)))
    np.testing.assert_allclose(transferred(model, (1.0, 0, 0, 0), wider)[5:66, 5:55], first, atol=1e-12)
    half = transferred(model, (0.5, 0.5, 0, 0), OLD, np.float32)
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, (first + read_plane(model, 1)) / 2, rtol=1e-6)


def test_bands_that_the_model_has_are_its_own_and_others_are_fitted(model):
    bands = [band(0, 1.2e9 + 5e6), band(1, 1.1e9), band(2, 1.4e9)]
    mix = spectral_mix(model, bands)
    np.testing.assert_array_equal(mix[0], [0, 1, 0, 0])
    spectrum = (FREQ / 1.2e9) ** -0.7
    np.testing.assert_allclose(mix @ spectrum, [1.0, (1.1 / 1.2) ** -0.7, (1.4 / 1.2) ** -0.7], rtol=2e-3)
    np.testing.assert_allclose(mix[1:] @ np.ones(4), 1, rtol=1e-12)


def test_one_band_serves_all(tmp_path):
    info = HeaderInfo(geometry=OLD, observation=Observation(), unit="Jy/pixel")
    write_cube(tmp_path / "one.fits", np.ones((1, *OLD.shape)), info, [band(0, 1e9)])
    mix = spectral_mix(open_model([str(tmp_path / "one.fits")]), [band(0, 0.5e9), band(1, 2e9)])
    np.testing.assert_array_equal(mix, [[1], [1]])


def test_regrid_brings_any_projection_to_sin(tmp_path, recorder):
    """A TAN image of 30 arcsec pixels that is turned by 40 degrees, as pfb predict wants it."""
    wcs = WCS(naxis=2)
    wcs.wcs.ctype, wcs.wcs.crval, wcs.wcs.crpix = ["RA---TAN", "DEC--TAN"], [63.0, -45.0], [31.0, 26.0]
    angle = np.deg2rad(40)
    wcs.wcs.cd = 30 / 3600 * np.array([[-np.cos(angle), np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    data = np.zeros((50, 60), "f4")
    data[40, 11] = 2.0
    header = wcs.to_header()
    header["BUNIT"], header["RESTFRQ"] = "Jy/pixel", 1.4e9
    fits.PrimaryHDU(data, header).writeto(tmp_path / "tan.fits")
    regrid.run((str(tmp_path / "tan.fits"),), Regrid(output=str(tmp_path / "sin.fits"), npix="120"), recorder)
    image, found = read_image(tmp_path / "sin.fits")
    assert image.sum() == pytest.approx(2.0, rel=1e-6)
    assert found["CTYPE1"] == "RA---SIN"
    x, y = (image.sum(axis=axis) @ np.arange(120) / image.sum() for axis in (1, 0))
    place = WCS(found).celestial.pixel_to_world(x, y)
    assert place.separation(wcs.pixel_to_world(11, 40)).arcsec < 0.05
    assert recorder.messages == ["2 of 2 Jy, in the mean over the bands, lie on the new grid"]


def test_regrid_like_another(model, tmp_path, pfb):
    info = HeaderInfo(geometry=Geometry(**(OLD.__dict__ | NEW["coarser"])), observation=Observation(), unit="Jy/beam")
    write_cube(tmp_path / "like.fits", np.zeros((2, 30, 33)), info, [band(0, 1.2e9), band(1, 1.4e9)])
    answer = pfb("regrid", model.name, "--like", tmp_path / "like.fits", "-o", tmp_path / "out.fits")
    assert answer.code == 0, answer.err
    out = open_model([str(tmp_path / "out.fits")])
    assert (out.shape, out.freq) == ((30, 33), (1.2e9, 1.4e9))
    assert read_plane(out, 0).sum() == pytest.approx(read_plane(model, 1).sum(), rel=1e-6)
    answer = pfb("regrid", model.name, "-o", tmp_path / "out.fits")
    assert answer.code == 2
    assert "exists already" in answer.err


class TestClean:
    """`pfb clean --model`."""

    def options(self, tmp_path, name, **options):
        return Clean(output=str(tmp_path / name), **(FEW | options))

    def test_goes_on_where_the_model_ends(self, small, tmp_path, dataset_only, recorder):
        """The residual that it starts with is that of the model, which the first table line of a fresh run is far from."""
        clean.run((small,), self.options(tmp_path, "a", niter=4), Silent())
        clean.run((small,), self.options(tmp_path, "b", niter=1, model=(str(tmp_path / "a.zarr"),)), recorder)
        clean.run((small,), self.options(tmp_path, "c", niter=1), Silent())
        one, two, three = (open_dataset(tmp_path / f"{name}.zarr", needs="clean").load() for name in "abc")
        assert any("a.zarr is the first model" in text for text in recorder.messages)
        distance = [np.linalg.norm((ds.model - one.model).values) / np.linalg.norm(one.model.values) for ds in (two, three)]
        assert distance[0] < 0.5 * distance[1]
        assert two.history_rms.values[-1] < three.history_rms.values[-1]

    @pytest.mark.parametrize("algorithm", ["hogbom", "nnls"])
    def test_other_algorithms_start_from_it_too(self, algorithm, small, tmp_path, dataset_only, recorder):
        clean.run((small,), self.options(tmp_path, "a", niter=1), Silent())
        general = {name: FEW[name] for name in ("npix", "cell", "nband", "threads_per_worker")}
        given = dict(algorithm=algorithm, niter=1, model=(str(tmp_path / "a.zarr"),))
        clean.run((small,), Clean(output=str(tmp_path / "b"), **general, **given), recorder)
        assert any("a.zarr is the first model" in text for text in recorder.messages)
        assert open_dataset(tmp_path / "b.zarr", needs="clean").model.values.any()

    def test_obeys_positivity_and_a_mask(self, small, tmp_path, dataset_only):
        clean.run((small,), self.options(tmp_path, "a", niter=1), Silent())
        model = open_dataset(tmp_path / "a.zarr", needs="clean").model.values
        assert (model < 0).any()
        geometry = Geometry(**open_dataset(tmp_path / "a.zarr").attrs["geometry"])
        mask = np.zeros((1, *geometry.shape))
        mask[:, 5:20, 5:20] = 1
        info = HeaderInfo(geometry=geometry, observation=Observation(), unit="Jy/pixel")
        write_cube(tmp_path / "mask.fits", mask, info, [band(0, 1e9)])
        changed = dict(positivity="joint", mask=str(tmp_path / "mask.fits"), model=(str(tmp_path / "a.zarr"),), pd_maxit=1)
        clean.run((small,), self.options(tmp_path, "b", niter=1, **changed), Silent())
        after = open_dataset(tmp_path / "b.zarr", needs="clean").model.values
        assert after.min() == 0
        assert not after[..., mask[0] == 0].any()
        assert after.max() > 0

    def test_a_model_that_is_none_is_refused_before_the_work(self, small, tmp_path, refused):
        words = ["--npix", "30", "--cell", "2", "--model", tmp_path / "nothing.fits"]
        assert "nothing.fits cannot be read as FITS" in refused("clean", small, "-o", tmp_path / "x", *words, folder=tmp_path)


def test_a_grid_that_cannot_be_written_is_refused(model, tmp_path):
    header = fits.getheader(model.name)
    header["CRPIX1"] += 3.5
    fits.PrimaryHDU(np.zeros((4, 50, 61), "f4"), header).writeto(tmp_path / "off.fits")
    with pytest.raises(InputError, match=r"the reference pixel of .*off.fits is not \(31, 26\)"):
        regrid.run((model.name,), Regrid(output=str(tmp_path / "o.fits"), like=str(tmp_path / "off.fits")), Silent())
