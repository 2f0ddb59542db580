"""`pfb fit` on images whose spectra and sources are known."""

from __future__ import annotations

import numpy as np
import pytest
from astropy import units as u
from astropy.io import fits
from astropy.table import Table
from astropy.wcs import WCS
from regions import Regions

from pfb.config import Fit
from pfb.errors import InputError
from pfb.io import dataset
from pfb.io.component_list import read_components
from pfb.io.dataset import Layout
from pfb.io.fits import HeaderInfo, read_image, sky_wcs, write_cube
from pfb.kernels.beam import LN16, gaussian_transfer, restore
from pfb.kernels.convolution import convolve
from pfb.pipeline import fit
from pfb.pipeline.reporting import Silent
from pfb.types import Band, Beam, Geometry, Observation, Plane

ARCSEC = np.deg2rad(1 / 3600)
CELL = float(2 * ARCSEC)
GEOMETRY = Geometry(nx=130, ny=111, cell=CELL, ra=1.1, dec=-0.8, frame="ICRS")
FREQ = np.array([1.0e9, 1.15e9, 1.3e9, 1.4e9, 1.6e9])
BANDS = [Band(index=i, freq_min=f - 4e7, freq_max=f + 5e7, freq=f) for i, f in enumerate(FREQ)]
EMPTY = 2
GOOD = [0, 1, 3, 4]
WSUM = np.array([3e6, 2e6, 0.0, 1e6, 4e6])
BEAMS = [Beam(m * ARCSEC, n * ARCSEC, a) for m, n, a in [(12, 8, 0.3), (11, 8, 0.1), (9, 9, 0.0), (9, 8, 0.0), (8, 7, 0.2)]]
NU0 = 1.3e9
# Pixel, Jy at NU0, spectral index, curvature; a Gaussian of 15 x 10 arcsec, and points.
SOURCES = [((40, 30), 0.5, -0.8, 0.3), ((90, 80), 0.2, 0.5, 0.0), ((95, 20), 1.0, -1.5, -0.4)]
WIDE = Beam(15 * ARCSEC, 10 * ARCSEC, -0.5)
NOISE = 2e-4


def ellipse(beam, shape, x0, y0):
    i, j = np.indices(shape)
    east, north = -(i - x0) * CELL, (j - y0) * CELL
    along, across = east * np.sin(beam.pa) + north * np.cos(beam.pa), east * np.cos(beam.pa) - north * np.sin(beam.pa)
    return np.exp(-LN16 * ((along / beam.major) ** 2 + (across / beam.minor) ** 2))


def sky(freq):
    """Jy/pixel."""
    image = np.zeros(GEOMETRY.shape)
    for (x, y), flux, alpha, curvature in SOURCES:
        flux = flux * (freq / NU0) ** (alpha + curvature * np.log(freq / NU0))
        if (x, y) == (40, 30):
            shape = ellipse(WIDE, GEOMETRY.shape, x, y)
            image += flux * np.where(shape > 1e-6, shape, 0) / shape.sum()
        else:
            image[x, y] = flux
    return image


@pytest.fixture(scope="module")
def noise():
    """White noise seen with the beam of each band, in Jy/beam."""
    rng = np.random.default_rng(5)
    made = []
    for beam in BEAMS:
        seen = convolve(rng.standard_normal((180, 180)), gaussian_transfer(beam, (180, 180), CELL), (180, 180))[25:155, 30:141]
        made.append(NOISE * seen / seen.std())
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory, noise):
    """The dataset of a run that has found all of the sky but the noise."""
    path = tmp_path_factory.mktemp("run") / "run.zarr"
    layout = Layout(
        maker="clean", geometry=GEOMETRY, observation=Observation(telescope="MeerKAT", object="field", start=5.1e9), bands=BANDS,
        psf_shape=(140, 140), bases=("self",), nlevels=1, ncoefficient=10,
    )  # fmt: skip
    dataset.create(path, layout)
    dataset.write(path, "wsum", None, WSUM[None])
    for band, beam in enumerate(BEAMS):
        dataset.write(path, "model", Plane(0, band), sky(FREQ[band]) if band != EMPTY else np.full(GEOMETRY.shape, 7.0))
        if band != EMPTY:
            dataset.write(path, "beam", Plane(0, band), np.array(beam))
            dataset.write(path, "psf", Plane(0, band), WSUM[band] * ellipse(beam, (140, 140), 70, 70))
            dataset.write(path, "residual", Plane(0, band), WSUM[band] * noise[band])
    dataset.finish(path)
    return str(path)


@pytest.fixture
def fitted(tmp_path):
    """Run the command; returns a function that reads a map, or the path of another product."""

    def call(*paths, **options):
        fit.run(paths, Fit(output=str(tmp_path / "out"), overwrite=True, **options), Silent())

        def read(kind):
            path = tmp_path / f"out-{kind}"
            return read_image(f"{path}.fits") if path.with_suffix(".fits").exists() or path.suffix == "" else path

        return read

    return call


def test_maps_have_the_spectra_and_are_blank_elsewhere(run, fitted):
    """The empty band, whose model is nonsense, takes no part."""
    read = fitted(run, curvature=True, ref_freq=NU0 / 1e6)
    (alpha, header), (error, _), (curvature, _), (curved, _) = map(read, ("alpha", "alpha-error", "curvature", "curvature-error"))
    for (x, y), _, index, bend in SOURCES:
        assert abs(alpha[x, y] - index) < 4 * error[x, y]
        assert abs(curvature[x, y] - bend) < 4 * curved[x, y]
        assert error[x, y] < 0.05
    assert np.isnan(alpha[5, 5])
    np.testing.assert_array_equal(np.isnan(alpha), np.isnan(error))
    assert 100 < np.isfinite(alpha).sum() < 0.2 * alpha.size
    i0, of_flux = read("i0")
    common = Beam(12 * ARCSEC, 8 * ARCSEC, 0.3)
    assert i0[90, 80] == pytest.approx(0.2, abs=4 * NOISE)
    assert header["BMAJ"] * 3600 == pytest.approx(np.rad2deg(common.major) * 3600, rel=0.02)
    assert (of_flux["BUNIT"], header["BUNIT"], header["BTYPE"]) == ("Jy/beam", "", "Spectral index")
    assert header["CRVAL3"] == NU0


def test_errors_of_maps_are_right_on_average(run, fitted, noise):
    """Where the Gaussian is: what the map has and what is true differ by one error in the root mean square."""
    read = fitted(run)
    alpha, error = read("alpha")[0], read("alpha-error")[0]
    near = np.isfinite(alpha) & (ellipse(Beam(40 * ARCSEC, 40 * ARCSEC, 0), GEOMETRY.shape, 90, 80) > 0.5)
    # A power law is what the second source has.
    pull = (alpha - 0.5)[near] / error[near]
    assert near.sum() > 50
    # What the noise of every band, at the common beam, makes of a point: its errors are those of a line through four fluxes.
    common = Beam(*(read("alpha")[1][key] * np.pi / 180 for key in ("BMAJ", "BMIN", "BPA")))
    seen = [restore(np.zeros(GEOMETRY.shape), noise[b], CELL, BEAMS[b], common).std() for b in GOOD]
    slope = 0.2 * (FREQ[GOOD] / NU0) ** 0.5 / np.array(seen)
    x = np.log(FREQ[GOOD] / NU0)
    expected = 1 / np.sqrt((slope**2 * (x - np.average(x, weights=slope**2)) ** 2).sum())
    assert error[90, 80] == pytest.approx(expected, rel=0.3)
    assert 0.4 < np.sqrt(np.mean(pull**2)) < 1.6


def test_the_catalogue(run, fitted, tmp_path):
    fitted(run, curvature=True, ref_freq=NU0 / 1e6)
    table = Table.read(tmp_path / "out-catalogue.ecsv")
    assert len(table) == 3
    assert table["flux"].unit == u.Jy
    wcs, freq = sky_wcs(GEOMETRY), float(table.meta["frequency_hz"])
    for (x, y), flux, alpha, curvature in SOURCES:
        place = wcs.wcs_pix2world([[x, y]], 0)[0]
        offset = np.hypot((table["ra"] - place[0]) * np.cos(GEOMETRY.dec), table["dec"] - place[1])
        line = table[np.argmin(offset)]
        assert abs((line["ra"] - place[0]) * np.cos(GEOMETRY.dec)) * 3600 < 4 * line["ra_error"]
        assert abs(line["dec"] - place[1]) * 3600 < 4 * line["dec_error"]
        # The mean over bands is that of the spectrum at their mean frequency, to the curvature of a power law.
        mean = np.average([flux * (f / NU0) ** (alpha + curvature * np.log(f / NU0)) for f in FREQ[GOOD]], weights=WSUM[GOOD])
        assert line["flux"] == pytest.approx(mean, rel=0.01)
        assert abs(line["alpha"] - alpha) < 4 * line["alpha_error"]
        assert abs(line["curvature"] - curvature) < 4 * line["curvature_error"]
        if (x, y) == (40, 30):
            assert line["major_deconvolved"] == pytest.approx(15, rel=0.02)
            assert line["minor_deconvolved"] == pytest.approx(10, rel=0.03)
            assert np.sin(np.deg2rad(line["pa_deconvolved"]) + 0.5) == pytest.approx(0, abs=0.03)
        else:
            assert line["major_deconvolved"] < 1.5
    assert freq == pytest.approx(np.average(FREQ[GOOD], weights=WSUM[GOOD]))
    assert table["name"][0].startswith("J04")


def test_regions_and_components_of_the_catalogue(run, fitted, tmp_path):
    """DS9's ellipses and the component list are where the sources are, and turned as they are."""
    fitted(run, components="catalogue", maps=False)
    table = Table.read(tmp_path / "out-catalogue.ecsv")
    drawn, components = Regions.read(tmp_path / "out-catalogue.reg", format="ds9"), read_components(tmp_path / "out-sources.txt")
    assert not (tmp_path / "out-alpha.fits").exists()
    wcs = sky_wcs(GEOMETRY)
    for line, region, component in zip(table, drawn, components, strict=True):
        assert (region.center.ra.deg, region.center.dec.deg) == pytest.approx((line["ra"], line["dec"]), abs=1e-7)
        assert region.meta["text"] == line["name"]
        pixel = region.to_pixel(wcs)
        # Inside along the major axis, outside along the minor one as far from the middle.
        from_middle = 0.9 * line["major"] / 2 * ARCSEC / CELL
        pa = np.deg2rad(line["pa"])
        for angle, within in ((pa, True), (pa + np.pi / 2, line["minor"] > 0.9 * line["major"])):
            at = type(pixel.center)(pixel.center.x - from_middle * np.sin(angle), pixel.center.y + from_middle * np.cos(angle))
            assert pixel.contains(at) == within
        assert np.rad2deg(component.ra) == pytest.approx(line["ra"], abs=1e-8)
        assert component.I == pytest.approx(line["flux"])
        assert component.alpha == pytest.approx(line["alpha"])
        assert component.fwhm / ARCSEC == pytest.approx(line["major_deconvolved"], abs=1e-6)


def test_components_of_the_model(run, fitted, tmp_path):
    """Its pixels, in every band as bright as there, if there are as many terms as bands."""
    fitted(run, terms=9, floor=1e-5, maps=False, catalogue=False)
    components = read_components(tmp_path / "out-sources.txt")
    x, y = sky_wcs(GEOMETRY).wcs_world2pix(np.rad2deg([(c.ra, c.dec) for c in components]), 0).round().astype(int).T
    assert len(components) > 50
    for band in GOOD:
        image = np.zeros(GEOMETRY.shape)
        image[x, y] = [c.stokes(FREQ[[band]])[0, 0] for c in components]
        expected = sky(FREQ[band])
        np.testing.assert_allclose(image[x, y], expected[x, y], rtol=1e-6)
        assert image.sum() == pytest.approx(expected.sum(), rel=2e-3)


def test_the_model_alone_has_no_noise(run, fitted):
    read = fitted(run, images="model", catalogue=False, ref_freq=NU0 / 1e6, curvature=True)
    alpha, error = read("model-alpha")[0], read("model-alpha-error")[0]
    for (x, y), _, index, _ in SOURCES[1:]:
        assert alpha[x, y] == pytest.approx(index, abs=1e-4)
        assert 2e-4 < error[x, y] < 1e-2, "of the noise of the residuals"


@pytest.fixture
def cubes(tmp_path, noise):
    """Restored images as FITS cubes with a beam for every plane, of the bands given."""

    def write(bands, unit="Jy/beam", name="cube.fits", beams=True):
        planes = [convolve(sky(FREQ[b]), gaussian_transfer(BEAMS[b], (200, 200), CELL), (200, 200)) + noise[b] for b in bands]
        planes = [np.full(GEOMETRY.shape, np.nan) if b == EMPTY else plane for b, plane in zip(bands, planes, strict=True)]
        info = HeaderInfo(geometry=GEOMETRY, observation=Observation(), unit=unit)
        own = [BEAMS[b] if beams and b != EMPTY else None for b in bands]
        write_cube(tmp_path / name, planes, info, [BANDS[b] for b in bands], own)
        return str(tmp_path / name)

    return write


def test_cubes_of_any_program(cubes, fitted, tmp_path):
    """Each plane has its own beam, one is blank; several files give the same."""
    read = fitted(cubes(range(5)), ref_freq=NU0 / 1e6, curvature=True)
    alpha, error = read("alpha")[0], read("alpha-error")[0]
    for (x, y), _, index, _ in SOURCES:
        assert abs(alpha[x, y] - index) < 4 * error[x, y]
    assert len(Table.read(tmp_path / "out-catalogue.ecsv")) == 3
    again = fitted(*(cubes([b], name=f"{b}.fits") for b in GOOD), ref_freq=NU0 / 1e6, curvature=True)("alpha")[0]
    np.testing.assert_allclose(again, alpha, atol=1e-5)
    assert WCS(fits.getheader(tmp_path / "out-alpha.fits")).celestial.wcs.crval == pytest.approx(np.rad2deg([1.1, -0.8]))


@pytest.mark.parametrize(("bands", "options", "message"), [
    ([0], {}, "index has rank 2, for which 2 bands with data are needed, but there is 1: image more bands, or give --no-maps"),
    ([0, 1], dict(curvature=True), "curvature has rank 3, .* but there are 2: image more bands, or leave out --curvature"),
    ([0, EMPTY], {}, "but there is 1"),
    ([0, 1], dict(images="model"), "--images model needs a dataset"),
    ([0, 1], dict(components="model"), "--components model needs a dataset"),
    ([0, 1], dict(ref_freq=10.0), "--ref-freq 10 MHz is far from the bands"),
])  # fmt: skip
def test_what_cannot_be_fitted_is_refused_and_nothing_written(bands, options, message, cubes, fitted, tmp_path):
    path = cubes(bands)
    with pytest.raises(InputError, match=message):
        fitted(path, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["cube.fits"]


def test_one_band_has_a_catalogue_but_no_spectra(cubes, fitted, tmp_path):
    fitted(cubes([0]), maps=False)
    table = Table.read(tmp_path / "out-catalogue.ecsv")
    assert len(table) == 3
    assert "alpha" not in table.colnames
    assert {c.alpha for c in read_components(tmp_path / "out-sources.txt")} == {0.0}


def test_other_files_are_refused(cubes, fitted, run, tmp_path):
    with pytest.raises(InputError, match="is in Jy/pixel but a restored image is in Jy/beam"):
        fitted(cubes([0, 1], unit="Jy/pixel"))
    with pytest.raises(InputError, match="states no beam"):
        fitted(cubes([0, 1], beams=False, name="no-beams.fits"))
    fitted(run)
    with pytest.raises(InputError, match="exists already"):
        fit.run((run,), Fit(output=str(tmp_path / "out")), Silent())


def test_the_command(run, pfb, tmp_path):
    answer = pfb("fit", run, "-o", tmp_path / "x")
    assert answer.code == 0, answer.err
    assert "3 sources in 3 islands" in answer.out + answer.err
    assert (tmp_path / "x-alpha.fits").exists()
