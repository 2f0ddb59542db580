import os
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS

from pfb import __version__
from pfb.errors import InputError, ShapeError
from pfb.io.fits import HeaderInfo, read_image, sky_wcs, write_cube, write_mfs
from pfb.types import Band, Beam, Geometry, Observation

ARCSEC = np.radians(1 / 3600)
GEOMETRY = Geometry(nx=24, ny=37, cell=4 * ARCSEC, ra=1.1, dec=-0.8)
OBSERVATION = Observation(telescope="MeerKAT", object="J0413-8000", observer="Someone", start=59375.25 * 86400 + 0.5)
INFO = HeaderInfo(geometry=GEOMETRY, observation=OBSERVATION, unit="Jy/beam", history=("pfb clean --nband 4",))
FREQ = [1.0e9, 1.1e9, 1.25e9, 1.3e9]
BANDS = [Band(index=i, freq_min=f - 4e7, freq_max=f + 5e7, freq=f) for i, f in enumerate(FREQ)]
BEAMS = [Beam(12 * ARCSEC / f, 9 * ARCSEC / f, 0.3) for f in (1.0, 1.1, 1.25, 1.3)]

CENTRES = [(0.0, 30.0), (359.99, 30.0), (0.0, -90.0), (77.0, -90.0), (15.0, -89.99), (200.0, 90.0), (63.36, -45.0), (180.0, 0.0)]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def pixel(geometry, ra, dec):
    """Where the conventions of pfb put a place on the sky, from its direction cosines."""
    l = np.cos(dec) * np.sin(ra - geometry.ra)
    m = np.sin(dec) * np.cos(geometry.dec) - np.cos(dec) * np.sin(geometry.dec) * np.cos(ra - geometry.ra)
    return geometry.nx // 2 - l / geometry.cell, geometry.ny // 2 + m / geometry.cell


def verified(path):
    with fits.open(path) as hdus:
        hdus.verify("exception")
        return hdus[0].header, [hdu.name for hdu in hdus[1:]]


# Images


@pytest.mark.parametrize("shape", [(24, 37), (37, 24), (31, 31)])
def test_image_round_trip(tmp_path, rng, shape):
    image = rng.standard_normal(shape)
    image[3, 5] = np.nan
    info = replace(INFO, geometry=replace(GEOMETRY, nx=shape[0], ny=shape[1]))
    write_mfs(tmp_path / "a.fits", image, info, BANDS[0])
    found, header = read_image(tmp_path / "a.fits")
    np.testing.assert_array_equal(found, image.astype("f4"))
    assert found.dtype == np.dtype("f4")
    assert found.flags.c_contiguous
    assert [header[f"NAXIS{axis}"] for axis in (1, 2, 3, 4)] == [*shape, 1, 1]


def test_header_of_an_image(tmp_path, rng):
    write_mfs(tmp_path / "a.fits", rng.standard_normal(GEOMETRY.shape), INFO, BANDS[1], BEAMS[1])
    header, extensions = verified(tmp_path / "a.fits")
    expected = dict(
        CTYPE1="RA---SIN", CTYPE2="DEC--SIN", CTYPE3="FREQ", CTYPE4="STOKES", CUNIT1="deg", CUNIT2="deg", CUNIT3="Hz",
        CRPIX1=13, CRPIX2=19, CRPIX3=1, CRPIX4=1, CRVAL4=1, LONPOLE=180, RADESYS="FK5", EQUINOX=2000, SPECSYS="TOPOCENT",
        BUNIT="Jy/beam", TELESCOP="MeerKAT", OBJECT="J0413-8000", OBSERVER="Someone", ORIGIN=f"pfb {__version__}",
        CRVAL3=1.1e9, CDELT3=9e7, RESTFRQ=1.1e9, TIMESYS="UTC",
    )  # fmt: skip
    assert {name: header[name] for name in expected} == expected
    assert header["CRVAL1"] == pytest.approx(np.degrees(1.1))
    assert header["CRVAL2"] == header["LATPOLE"] == pytest.approx(np.degrees(-0.8))
    assert header["CDELT1"] == pytest.approx(-4 / 3600)
    assert header["CDELT2"] == pytest.approx(4 / 3600)
    assert header["BMAJ"] == pytest.approx(12 / 1.1 / 3600)
    assert header["BMIN"] == pytest.approx(9 / 1.1 / 3600)
    assert header["BPA"] == pytest.approx(np.degrees(0.3))
    assert header["HISTORY"][0] == "pfb clean --nband 4"
    assert "CASAMBM" not in header
    assert not extensions


def test_header_of_a_model(tmp_path, rng):
    write_mfs(tmp_path / "a.fits", rng.standard_normal(GEOMETRY.shape), replace(INFO, unit="Jy/pixel"), BANDS[0])
    header, _ = verified(tmp_path / "a.fits")
    assert header["BUNIT"] == "Jy/pixel"
    assert "BMAJ" not in header


@pytest.mark.parametrize(("frame", "equinox"), [("ICRS", None), ("FK5", 2000.0), ("FK4", 1950.0)])
def test_frame(tmp_path, frame, equinox):
    write_mfs(tmp_path / "a.fits", np.ones(GEOMETRY.shape), replace(INFO, geometry=replace(GEOMETRY, frame=frame)), BANDS[0])
    header, _ = verified(tmp_path / "a.fits")
    assert header["RADESYS"] == frame
    assert header.get("EQUINOX") == equinox


def test_date_is_that_of_the_observation(tmp_path):
    write_mfs(tmp_path / "a.fits", np.ones(GEOMETRY.shape), INFO, BANDS[0])
    header, _ = verified(tmp_path / "a.fits")
    assert datetime.fromisoformat(header["DATE-OBS"]) == datetime(2021, 6, 10, 6, 0, 0, 500_000)
    assert header["MJD-OBS"] == pytest.approx(59375.25 + 0.5 / 86400, abs=1e-10)


def test_unknown_observation_leaves_no_empty_cards(tmp_path):
    write_mfs(tmp_path / "a.fits", np.ones(GEOMETRY.shape), replace(INFO, observation=Observation()), BANDS[0])
    header, _ = verified(tmp_path / "a.fits")
    assert not {"TELESCOP", "OBJECT", "OBSERVER", "DATE-OBS", "MJD-OBS"} & set(header)


def test_text_that_fits_cannot_hold(tmp_path):
    observation = replace(OBSERVATION, object="Größe\n" + "x" * 100)
    write_mfs(
        tmp_path / "a.fits", np.ones(GEOMETRY.shape), replace(INFO, observation=observation, history=("µJy " * 40,)), BANDS[0]
    )
    header, _ = verified(tmp_path / "a.fits")
    assert header["OBJECT"] == "Gr??e?" + "x" * 100


@pytest.mark.parametrize("ra", [-1e-20, 0.0, 2 * np.pi, -0.1, 7.0])
def test_right_ascension_is_between_0_and_360(tmp_path, ra):
    write_mfs(tmp_path / "a.fits", np.ones(GEOMETRY.shape), replace(INFO, geometry=replace(GEOMETRY, ra=ra)), BANDS[0])
    header, _ = verified(tmp_path / "a.fits")
    assert 0 <= header["CRVAL1"] < 360
    assert np.cos(np.radians(header["CRVAL1"]) - ra) == pytest.approx(1)


# Coordinates


@pytest.mark.parametrize("centre", CENTRES, ids=str)
@pytest.mark.parametrize("shape", [(1024, 1001), (777, 900)], ids=str)
@pytest.mark.parametrize("quadrant", [(1, 1), (1, -1), (-1, 1), (-1, -1)], ids=str)
def test_wcs_of_an_off_centre_source(centre, shape, quadrant):
    ra0, dec0 = np.radians(centre)
    geometry = replace(GEOMETRY, nx=shape[0], ny=shape[1], ra=ra0, dec=dec0)
    there = np.array([[geometry.nx // 2 + 201.3 * quadrant[0], geometry.ny // 2 + 144.6 * quadrant[1]]])
    wcs = sky_wcs(geometry)
    sky = wcs.wcs_pix2world(there, 0)
    # pixel -> sky (astropy) -> pixel (our conventions), and back again through astropy.
    np.testing.assert_allclose(np.ravel(pixel(geometry, *np.radians(sky[0]))), there[0], atol=1e-6)
    np.testing.assert_allclose(wcs.wcs_world2pix(sky, 0), there, atol=1e-6)
    if abs(centre[1]) < 89:
        assert np.sign(np.sin(np.radians(sky[0, 0]) - ra0)) == -quadrant[0]
        assert np.sign(np.radians(sky[0, 1]) - dec0) == quadrant[1]


@pytest.mark.parametrize("centre", CENTRES, ids=str)
def test_header_on_disk_has_those_coordinates(tmp_path, centre):
    geometry = replace(GEOMETRY, ra=np.radians(centre[0]), dec=np.radians(centre[1]))
    write_mfs(tmp_path / "a.fits", np.ones(geometry.shape), replace(INFO, geometry=geometry), BANDS[2])
    wcs = WCS(fits.getheader(tmp_path / "a.fits"))  # without a warning
    found = wcs.wcs_pix2world([[3, 30, 0, 0], [12, 18, 0, 0]], 0)
    expected = sky_wcs(geometry).wcs_pix2world([[3, 30], [12, 18]], 0)
    np.testing.assert_allclose(found[:, :2], expected, rtol=1e-12)
    assert found[0, 2] == FREQ[2]
    assert np.cos(np.radians(found[1, 1]) - geometry.dec) == pytest.approx(1)


# Cubes


def test_cube_round_trip_with_tables(tmp_path, rng):
    cube = rng.standard_normal((4, *GEOMETRY.shape))
    cube[2] = np.nan
    beams = [*BEAMS[:2], None, BEAMS[3]]
    write_cube(tmp_path / "a.fits", (plane for plane in cube), INFO, BANDS, beams)
    found, header = read_image(tmp_path / "a.fits")
    np.testing.assert_array_equal(found, cube.astype("f4"))
    _, extensions = verified(tmp_path / "a.fits")
    assert extensions == ["BEAMS", "BANDS"]
    assert header["CASAMBM"] is True
    with fits.open(tmp_path / "a.fits") as hdus:
        beam, band = hdus["BEAMS"], hdus["BANDS"]
        assert (beam.header["NCHAN"], beam.header["NPOL"]) == (4, 1)
        assert [beam.columns[name].unit for name in ("BMAJ", "BMIN", "BPA")] == ["arcsec", "arcsec", "deg"]
        # The blank plane has its neighbour's beam, for CASA refuses NaN and zero.
        np.testing.assert_allclose(beam.data["BMAJ"], 12 / np.array([1.0, 1.1, 1.1, 1.3]), rtol=1e-6)
        np.testing.assert_allclose(beam.data["BMIN"], 9 / np.array([1.0, 1.1, 1.1, 1.3]), rtol=1e-6)
        np.testing.assert_allclose(beam.data["BPA"], np.degrees(0.3), rtol=1e-6)
        assert beam.data["CHAN"].tolist() == [0, 1, 2, 3]
        assert beam.data["POL"].tolist() == [0, 0, 0, 0]
        assert band.data["FREQ"].tolist() == FREQ
        assert band.data["FREQ_MIN"].tolist() == [f - 4e7 for f in FREQ]
        assert band.data["FREQ_MAX"].tolist() == [f + 5e7 for f in FREQ]


def test_frequency_axis_is_the_least_squares_line(tmp_path):
    write_cube(tmp_path / "a.fits", np.ones((4, *GEOMETRY.shape)), INFO, BANDS)
    header, _ = verified(tmp_path / "a.fits")
    line = header["CRVAL3"] + (np.arange(4) + 1 - header["CRPIX3"]) * header["CDELT3"]
    deviation = np.array(FREQ) - line
    assert np.abs(deviation).max() > 1e7
    assert abs(deviation.sum()) < 1
    assert abs(deviation @ np.arange(4)) < 1
    assert header["CRPIX3"] == 3
    assert header["RESTFRQ"] == header["CRVAL3"]
    assert "BANDS" in str(header["COMMENT"])


def test_common_beam_needs_no_table(tmp_path):
    write_cube(tmp_path / "a.fits", np.ones((4, *GEOMETRY.shape)), INFO, BANDS, [BEAMS[0], None, BEAMS[0], BEAMS[0]])
    header, extensions = verified(tmp_path / "a.fits")
    assert extensions == ["BANDS"]
    assert "CASAMBM" not in header
    assert header["BMAJ"] == pytest.approx(12 / 3600)


def test_cube_of_one_band(tmp_path, rng):
    cube = rng.standard_normal((1, *GEOMETRY.shape))
    write_cube(tmp_path / "a.fits", cube, INFO, BANDS[:1], BEAMS[:1])
    found, header = read_image(tmp_path / "a.fits")
    np.testing.assert_array_equal(found, cube[0].astype("f4"))
    assert header["CDELT3"] == 9e7
    assert verified(tmp_path / "a.fits")[1] == []


def test_blank_cube_without_any_beam(tmp_path):
    write_cube(tmp_path / "a.fits", np.full((4, *GEOMETRY.shape), np.nan), INFO, BANDS, [None] * 4)
    found, header = read_image(tmp_path / "a.fits")
    assert np.isnan(found).all()
    assert "BMAJ" not in header


def test_band_whose_effective_frequency_is_unknown(tmp_path):
    bands = [*BANDS[:3], replace(BANDS[3], freq=np.nan)]
    write_cube(tmp_path / "a.fits", np.ones((4, *GEOMETRY.shape)), INFO, bands)
    header, _ = verified(tmp_path / "a.fits")
    assert np.isfinite(header["CRVAL3"])


def test_casa_reads_image_and_cube(tmp_path, monkeypatch, rng):
    images = pytest.importorskip("casacore.images")
    monkeypatch.chdir(tmp_path)  # it reads a long path as an expression
    cube = rng.standard_normal((4, *GEOMETRY.shape))
    write_cube("cube.fits", cube, INFO, BANDS, [BEAMS[0], None, *BEAMS[2:]])
    write_mfs("image.fits", cube[0], INFO, BANDS[0], BEAMS[0])
    beams = images.image("cube.fits").imageinfo()["perplanebeams"]
    assert beams["*3"]["major"]["value"] == pytest.approx(12 / 1.3)
    image = images.image("image.fits")
    np.testing.assert_array_equal(image.getdata()[0, 0].T, cube[0].astype("f4"))
    assert image.imageinfo()["restoringbeam"]["positionangle"]["value"] == pytest.approx(np.degrees(0.3))
    _, freq, dec, ra = image.toworld([0, 0, 30, 5])
    assert freq == pytest.approx(FREQ[0])
    np.testing.assert_allclose(pixel(GEOMETRY, ra, dec), (5, 30), atol=1e-6)


# What is refused


def test_wrong_size_leaves_nothing_behind(tmp_path):
    with pytest.raises(ShapeError, match=r"plane 1 of .*a\.fits has shape \(37, 24\) but 1 planes of \(24, 37\) are needed"):
        write_mfs(tmp_path / "a.fits", np.ones((37, 24)), INFO, BANDS[0])
    with pytest.raises(ShapeError, match="got 3 planes but has 4 bands"):
        write_cube(tmp_path / "a.fits", np.ones((3, *GEOMETRY.shape)), INFO, BANDS)
    with pytest.raises(ShapeError, match="plane 5"):
        write_cube(tmp_path / "a.fits", np.ones((5, *GEOMETRY.shape)), INFO, BANDS)
    with pytest.raises(ShapeError, match="4 bands and 3 beams"):
        write_cube(tmp_path / "a.fits", np.ones((4, *GEOMETRY.shape)), INFO, BANDS, BEAMS[:3])
    assert os.listdir(tmp_path) == []


def test_existing_file_is_kept(tmp_path):
    (tmp_path / "a.fits").write_text("old")
    with pytest.raises(InputError, match="exists already"):
        write_mfs(tmp_path / "a.fits", np.ones(GEOMETRY.shape), INFO, BANDS[0])
    assert (tmp_path / "a.fits").read_text() == "old"
    write_mfs(tmp_path / "a.fits", np.ones(GEOMETRY.shape), INFO, BANDS[0], overwrite=True)
    assert read_image(tmp_path / "a.fits")[0].sum() == 24 * 37


def test_unknown_unit_and_frame(tmp_path):
    with pytest.raises(InputError, match="unit 'beam-1 Jy' is unknown; choose Jy/beam or Jy/pixel"):
        write_mfs(tmp_path / "a.fits", np.ones(GEOMETRY.shape), replace(INFO, unit="beam-1 Jy"), BANDS[0])
    with pytest.raises(InputError, match="frame 'GALACTIC' is unknown; it must be one of ICRS, FK5, FK4"):
        sky_wcs(replace(GEOMETRY, frame="GALACTIC"))


def test_files_that_are_no_image(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.fits cannot be read as FITS"):
        read_image(tmp_path / "nowhere.fits")
    (tmp_path / "a.txt").write_text("not FITS")
    with pytest.raises(InputError, match=r"a\.txt cannot be read as FITS"):
        read_image(tmp_path / "a.txt")
    fits.HDUList([fits.PrimaryHDU()]).writeto(tmp_path / "a.fits")
    with pytest.raises(InputError, match=r"a\.fits holds no image"):
        read_image(tmp_path / "a.fits")
    fits.writeto(tmp_path / "b.fits", np.ones((2, 3, 4, 5), "f4"))
    with pytest.raises(InputError, match=r"has axes of lengths \(5, 4, 3, 2\) but an image or a cube has three at most"):
        read_image(tmp_path / "b.fits")
