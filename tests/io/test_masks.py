"""Masks: FITS images on the grid of the image or another one, and regions."""

from dataclasses import replace

import numpy as np
import pytest
from astropy.io import fits

from pfb.errors import InputError, ShapeError
from pfb.io.fits import HeaderInfo, sky_wcs, write_cube, write_mfs
from pfb.io.masks import read_mask
from pfb.types import Band, Geometry, Observation

ARCSEC = np.radians(1 / 3600)
GEOMETRY = Geometry(nx=24, ny=37, cell=4 * ARCSEC, ra=1.1, dec=-0.8)
INFO = HeaderInfo(geometry=GEOMETRY, observation=Observation(), unit="Jy/beam")
BANDS = [Band(index=i, freq_min=f - 4e7, freq_max=f + 5e7, freq=f) for i, f in enumerate([1.0e9, 1.1e9, 1.25e9, 1.3e9])]


def write_mask(path, mask, geometry, leading=()):
    header = sky_wcs(geometry).to_header()
    fits.writeto(path, np.asarray(mask).T.reshape(*leading, *mask.shape[::-1]), header)


@pytest.mark.parametrize("leading", [(), (1,), (1, 1), (1, 1, 1)])
@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
def test_mask_of_any_type_and_number_of_axes(tmp_path, rng, leading, dtype):
    mask = rng.random(GEOMETRY.shape) < 0.3
    write_mask(tmp_path / "mask.fits", mask.astype(dtype), GEOMETRY, leading)
    found = read_mask(tmp_path / "mask.fits", GEOMETRY)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, mask)


def test_mask_is_false_where_zero_or_blank(tmp_path):
    mask = np.ones(GEOMETRY.shape)
    mask[2, 3], mask[4, 5], mask[6, 7] = 0, np.nan, -1
    write_mask(tmp_path / "mask.fits", mask, GEOMETRY)
    found = read_mask(tmp_path / "mask.fits", GEOMETRY)
    assert not found[2, 3]
    assert not found[4, 5]
    assert found.sum() == found.size - 2


def test_our_own_images_are_masks(tmp_path, rng):
    image = rng.standard_normal(GEOMETRY.shape) * (rng.random(GEOMETRY.shape) < 0.5)
    write_mfs(tmp_path / "a.fits", image, INFO, BANDS[0])
    np.testing.assert_array_equal(read_mask(tmp_path / "a.fits", GEOMETRY), image != 0)


def test_mask_without_coordinates_is_taken_as_it_is(tmp_path):
    fits.writeto(tmp_path / "mask.fits", np.ones(GEOMETRY.shape[::-1], "f4"))
    assert read_mask(tmp_path / "mask.fits", GEOMETRY).all()


@pytest.mark.parametrize("shape", [(37, 24), (24, 36)])
def test_mask_of_wrong_size_names_both_shapes(tmp_path, shape):
    write_mask(tmp_path / "mask.fits", np.ones(shape), GEOMETRY)
    with pytest.raises(ShapeError, match=rf"has shape \({shape[0]}, {shape[1]}\) but the image \(24, 37\)"):
        read_mask(tmp_path / "mask.fits", GEOMETRY)


def test_a_mask_of_several_planes_is_their_union(tmp_path, rng):
    planes = rng.random((4, *GEOMETRY.shape)) * (rng.random((4, *GEOMETRY.shape)) < 0.2)
    planes[:, 3, 4] = np.nan
    write_cube(tmp_path / "a.fits", planes, INFO, BANDS)
    expected = np.nan_to_num(planes).any(axis=0)
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(read_mask(tmp_path / "a.fits", GEOMETRY), expected)


@pytest.mark.parametrize("pixels", [0.0, 0.4, 0.6, 5.0, 1e4])
def test_mask_elsewhere_on_the_sky(tmp_path, pixels):
    shifted = replace(GEOMETRY, dec=GEOMETRY.dec + pixels * GEOMETRY.cell)
    write_mask(tmp_path / "mask.fits", np.ones(GEOMETRY.shape), shifted)
    if pixels < 0.5:
        assert read_mask(tmp_path / "mask.fits", GEOMETRY).all()
    else:
        with pytest.raises(InputError, match="pixels off the image: reproject it"):
            read_mask(tmp_path / "mask.fits", GEOMETRY)


@pytest.mark.parametrize(
    "change",
    [dict(cell=4.3 * ARCSEC), dict(ra=GEOMETRY.ra + np.pi), dict(ra=GEOMETRY.ra - 8 * ARCSEC)],
    ids=["cell", "antipode", "ra"],
)
def test_mask_with_other_coordinates(tmp_path, change):
    write_mask(tmp_path / "mask.fits", np.ones(GEOMETRY.shape), replace(GEOMETRY, **change))
    with pytest.raises(InputError, match="pixels off the image"):
        read_mask(tmp_path / "mask.fits", GEOMETRY)


def test_mask_of_a_wide_field_whose_corners_are_below_the_horizon(tmp_path):
    geometry = replace(GEOMETRY, cell=np.radians(4.0))
    write_mask(tmp_path / "mask.fits", np.ones(geometry.shape), geometry)
    assert np.isnan(sky_wcs(geometry).wcs_pix2world([[0, 0]], 0)).any()
    assert read_mask(tmp_path / "mask.fits", geometry).all()


def places(geometry):
    """Direction cosines of all pixels from the centre of a geometry: East and North."""
    x, y = np.mgrid[: geometry.nx, : geometry.ny]
    return (geometry.nx // 2 - x) * geometry.cell, (y - geometry.ny // 2) * geometry.cell


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.7])
def test_reprojected_from_another_grid(tmp_path, factor):
    """A disc on pixels of another size, number and centre; far from their edges nothing can be wrong."""
    other = replace(GEOMETRY, nx=90, ny=81, cell=factor * GEOMETRY.cell, dec=GEOMETRY.dec + 7 * GEOMETRY.cell)
    l, m = places(other)
    disc = np.hypot(l - 12 * ARCSEC, m + 7 * GEOMETRY.cell + 20 * ARCSEC)
    write_mask(tmp_path / "mask.fits", (disc < 30 * ARCSEC).astype("u1"), other)
    found = read_mask(tmp_path / "mask.fits", GEOMETRY, reproject=True)
    l, m = places(GEOMETRY)
    distance = np.hypot(l - 12 * ARCSEC, m + 20 * ARCSEC) - 30 * ARCSEC
    clear = np.abs(distance) > 0.75 * max(factor, 1) * GEOMETRY.cell
    assert found.dtype == bool
    assert 0.5 < clear.mean() < 1
    np.testing.assert_array_equal(found[clear], distance[clear] < 0)


def test_reprojected_from_another_frame(tmp_path):
    """B1950 and J2000 differ by more than half a degree."""
    import astropy.units as u
    from astropy.coordinates import FK4, FK5, SkyCoord

    source = SkyCoord(GEOMETRY.ra, GEOMETRY.dec, unit="rad", frame=FK5())
    centre = source.transform_to(FK4(equinox="B1950"))
    other = replace(GEOMETRY, nx=61, ny=61, ra=centre.ra.rad, dec=centre.dec.rad, frame="FK4")
    l, m = places(other)
    write_mask(tmp_path / "mask.fits", (np.hypot(l, m) < 5 * other.cell).astype("f4"), other)
    found = read_mask(tmp_path / "mask.fits", GEOMETRY, reproject=True)
    l, m = places(GEOMETRY)
    assert abs(centre.dec.rad - GEOMETRY.dec) * u.rad > 0.1 * u.deg
    assert found[np.hypot(l, m) < 4 * GEOMETRY.cell].all()
    assert not found[np.hypot(l, m) > 6 * GEOMETRY.cell].any()


def test_what_a_mask_does_not_cover_is_outside(tmp_path):
    smaller = replace(GEOMETRY, nx=10, ny=10)
    write_mask(tmp_path / "mask.fits", np.ones((10, 10)), smaller)
    found = read_mask(tmp_path / "mask.fits", GEOMETRY, reproject=True)
    expected = np.zeros(GEOMETRY.shape, bool)
    expected[7:17, 13:23] = True
    np.testing.assert_array_equal(found, expected)


def test_a_mask_on_the_grid_of_the_image_is_not_touched_by_reprojection(tmp_path, rng):
    mask = rng.random(GEOMETRY.shape) < 0.5
    write_mask(tmp_path / "mask.fits", mask.astype("f4"), GEOMETRY)
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.fits", GEOMETRY, reproject=True), mask)


def test_a_mask_without_coordinates_is_not_reprojected(tmp_path):
    fits.writeto(tmp_path / "mask.fits", np.ones((5, 5)))
    with pytest.raises(InputError, match="has no sky coordinates to be reprojected by"):
        read_mask(tmp_path / "mask.fits", GEOMETRY, reproject=True)


def circle(l, m, radius, sign=""):
    """A line of DS9 about a circle at an offset in arcsec, small enough for a flat sky."""
    dec = GEOMETRY.dec + m * ARCSEC
    ra = GEOMETRY.ra + l * ARCSEC / np.cos(dec)
    return f'{sign}circle({np.degrees(ra)},{np.degrees(dec)},{radius}")\n'


def test_regions_of_ds9(tmp_path):
    lines = "fk5\n" + circle(15, -20, 30) + circle(-20, 30, 20) + circle(15, -20, 12, "-") + circle(900, 0, 30)
    (tmp_path / "mask.reg").write_text("# Region file format: DS9\n" + lines)
    found = read_mask(tmp_path / "mask.reg", GEOMETRY)
    l, m = (a / ARCSEC for a in places(GEOMETRY))
    first, second = np.hypot(l - 15, m + 20), np.hypot(l + 20, m - 30)
    expected = ((first < 30) | (second < 20)) & (first > 12)
    clear = np.min([np.abs(first - 30), np.abs(second - 20), np.abs(first - 12)], axis=0) > 0.5
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(found[clear], expected[clear])


def test_regions_that_are_only_left_out(tmp_path):
    (tmp_path / "mask.reg").write_text("fk5\n" + circle(0, 0, 20, "-"))
    found = read_mask(tmp_path / "mask.reg", GEOMETRY)
    assert found[0, 0]
    assert not found[12, 18]


def test_regions_of_casa(tmp_path):
    ra, dec = np.degrees(GEOMETRY.ra), np.degrees(GEOMETRY.dec)
    (tmp_path / "mask.crtf").write_text(f"#CRTFv0\ncircle[[{ra}deg, {dec}deg], 20arcsec], coord=J2000\n")
    l, m = (a / ARCSEC for a in places(GEOMETRY))
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.crtf", GEOMETRY), np.hypot(l, m) < 20)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read as regions"),
        ("# nothing\n", "holds no regions"),
        ("fk5\npoint(63.0,-45.8)\n", "has a PointSkyRegion, which has no area"),
    ],
)
def test_regions_that_are_no_mask(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "mask.reg").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_mask(tmp_path / "mask.reg", GEOMETRY)
