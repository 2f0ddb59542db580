"""Models that are images: what files of several programs say of frequencies, places and units."""

import numpy as np
import pytest
from astropy.io import fits

from pfb.errors import InputError, ShapeError
from pfb.io.fits import HeaderInfo, write_cube
from pfb.io.model_image import open_model, place, read_plane
from pfb.types import Band, Geometry, Observation

ARCSEC = np.deg2rad(1 / 3600)
GEOMETRY = Geometry(nx=9, ny=6, cell=float(8 * ARCSEC), ra=0.3, dec=-0.6, frame="ICRS")
BANDS = [Band(index=i, freq_min=f - 4e7, freq_max=f + 6e7, freq=f) for i, f in enumerate([1.0e9, 1.1e9, 1.25e9])]


@pytest.fixture
def cube(tmp_path, rng):
    """Our own cube, whose second band is blank; returns its path and its planes."""
    planes = rng.standard_normal((3, 9, 6)).astype("f4").astype("f8")
    planes[1], planes[2, 0, 0] = np.nan, np.nan
    info = HeaderInfo(geometry=GEOMETRY, observation=Observation(), unit="Jy/pixel")
    write_cube(tmp_path / "cube.fits", planes, info, BANDS)
    return str(tmp_path / "cube.fits"), np.nan_to_num(planes)


@pytest.fixture
def other(tmp_path):
    """An image of another program, with changes to its header."""
    count = 0

    def write(shape=(1, 1, 6, 9), **cards):
        nonlocal count
        count += 1
        header = fits.Header(dict(
            BUNIT="JY/PIXEL", CTYPE1="RA---SIN", CRPIX1=5.0, CRVAL1=17.0, CDELT1=-0.002, CTYPE2="DEC--SIN", CRPIX2=4.0,
            CRVAL2=-30.0, CDELT2=0.002, CTYPE3="FREQ", CRPIX3=1.0, CRVAL3=1.07e9, CDELT3=4e8, CTYPE4="STOKES", CRPIX4=1.0,
            CRVAL4=1.0, CDELT4=1.0,
        ))  # fmt: skip
        header.update(cards)
        data = np.arange(np.prod(shape), dtype=">f4").reshape(shape)
        path = tmp_path / f"other{count}.fits"
        fits.PrimaryHDU(data, header).writeto(path)
        return str(path)

    return write


def test_our_own_cube(cube):
    path, planes = cube
    model = open_model([path])
    assert model.freq == (1.0e9, 1.1e9, 1.25e9)
    assert (model.low[0], model.high[0]) == (9.6e8, 1.06e9)
    assert model.weight == (1.0, 0.0, 1.0)
    assert (model.shape, model.frame) == ((9, 6), "ICRS")
    for band in range(3):
        np.testing.assert_array_equal(read_plane(model, band), planes[band])
    found = place(model)
    assert (found.ra, found.dec, found.cell) == pytest.approx((0.3, -0.6, 8 * ARCSEC))
    assert found.centre == pytest.approx((0.0, 0.0), abs=1e-18)


def test_images_of_channels_make_up_one_model(other):
    low = other(WSCIMGWG=3.0)
    high = other(CRVAL3=1.5e9, WSCIMGWG=1.0)
    model = open_model([low, high])
    assert model.freq == (1.07e9, 1.5e9)
    assert (model.low, model.high) == ((0.87e9, 1.3e9), (1.27e9, 1.7e9))
    assert (model.weight, model.frame) == ((3.0, 1.0), "")
    np.testing.assert_array_equal(read_plane(model, 1)[:, 2], np.arange(9) + 18)


def test_axes_in_another_order_and_stokes_that_are_not_i(other):
    """Stokes before frequency, Q before I."""
    swapped = dict(CTYPE3="STOKES", CRVAL3=2.0, CDELT3=-1.0, CTYPE4="FREQ", CRVAL4=1e9, CDELT4=1e8)
    model = open_model([other((3, 2, 6, 9), **swapped)])
    assert model.freq == pytest.approx((1.0e9, 1.1e9, 1.2e9))
    np.testing.assert_array_equal(read_plane(model, 2)[:, 0], np.arange(9) + (2 * 2 + 1) * 54)
    np.testing.assert_array_equal(read_plane(model, 2, product="Q")[:, 0], np.arange(9) + 2 * 2 * 54)
    assert [letter for letter, _ in model.others] == ["Q"]


def test_a_reference_pixel_that_is_not_the_middle(other):
    """Pixel (4, 3), counted from zero, is the middle; the header puts the tangent point half a pixel and two pixels off."""
    found = place(open_model([other(CRPIX1=5.5, CRPIX2=2.0)]))
    cell = np.deg2rad(0.002)
    assert found.centre == pytest.approx((0.5 * cell, 2 * cell))


@pytest.mark.parametrize(
    "cards", [dict(CTYPE1="RA---TAN", CTYPE2="DEC--TAN"), dict(CDELT1=-0.003), dict(CROTA2=10.0), dict(LONPOLE=90.0)], ids=str
)
def test_other_projections_must_be_regridded(other, cards):
    with pytest.raises(InputError, match="is no SIN projection with square pixels and its north up"):
        place(open_model([other(**cards)]))


BAD = {
    "unit": (dict(BUNIT="Jy/beam"), "is in Jy/beam but a model is in Jy/pixel"),
    "no unit": (dict(BUNIT=""), "is in no unit but"),
    "stokes": (dict(CRVAL4=2.0), "has no Stokes I"),
    "axis": (dict(shape=(1, 3, 6, 9), CTYPE3="VELO"), "an axis of length 3 that is no FREQ and no STOKES"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=list(BAD))
def test_what_is_no_model_is_refused(other, change, message):
    with pytest.raises(InputError, match=message):
        open_model([other(**change)])


def test_models_that_do_not_belong_together(other, tmp_path, cube):
    with pytest.raises(ShapeError, match=r"has shape \(9, 5\) but .* \(9, 6\)"):
        open_model([other(), other((1, 1, 5, 9))])
    with pytest.raises(InputError, match="lie at different places"):
        open_model([other(), other(CRVAL1=17.001)])
    with pytest.raises(InputError, match="do not say their frequencies"):
        open_model([other(), other((6, 9))])
    with pytest.raises(InputError, match="cannot be read as FITS"):
        open_model([str(tmp_path / "nothing.fits")])
    assert open_model([other((6, 9), RESTFRQ=1.4e9)]).freq == (1.4e9,)
