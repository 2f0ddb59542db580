"""Primary beams from katbeam, FITS and zarr."""

import sys

import numpy as np
import pytest
import xarray as xr
from astropy.io import fits
from katbeam import JimBeam

from pfb.errors import InputError
from pfb.io.primary_beam import katbeam_receiver, katbeam_response, read_beam
from pfb.types import Geometry

GEOMETRY = Geometry(nx=64, ny=64, cell=1e-4, ra=1.1, dec=-0.8)
DEGREE = np.deg2rad(1.0)
FREQ = np.array([1.0e9, 1.2e9])


def lopsided(x, y, freq):
    """Of angles in degrees; it is as wide as the wavelength is long."""
    scale = freq / 1.0e9
    return np.exp(-((scale * x - 0.1) ** 2) / 0.5 - (scale * y) ** 2 / 0.9)


def write_beam(path, ctype=("X", "Y"), unit="deg", freq=FREQ, falling=False, **cards):
    """A beam of 61 by 81 pixels of 0.05 degrees, evaluated on its own axes."""
    first, second = (np.arange(61) - 30) * 0.05, (np.arange(81) - 40) * 0.05
    if falling:
        first = first[::-1]
    step = first[1] - first[0]
    values = np.stack([lopsided(first[:, None], second, f) for f in freq])
    scale = {"deg": 1.0, "arcmin": 60.0, "rad": DEGREE}[unit]
    header = fits.Header(dict(CTYPE1=ctype[0], CRPIX1=31.0, CRVAL1=0.0, CDELT1=step * scale, CUNIT1=unit))
    header.update(dict(CTYPE2=ctype[1], CRPIX2=41.0, CRVAL2=0.0, CDELT2=0.05 * scale, CUNIT2=unit))
    data = values.swapaxes(1, 2)
    if len(freq) > 1 or "FREQ" in cards:
        header.update(dict(CTYPE3="FREQ", CRPIX3=1.0, CRVAL3=freq[0], CDELT3=(freq[-1] - freq[0]) or 1e6, CUNIT3="Hz"))
    else:
        data = data[0]
    cards.pop("FREQ", None)
    header.update(cards)
    fits.writeto(path, data, header)
    return path


X, Y = np.meshgrid(np.linspace(-1.2, 1.1, 9), np.linspace(-1.4, 1.5, 8), indexing="ij")


def test_katbeam_is_in_radians_and_hertz():
    expected = JimBeam("MKAT-AA-L-JIM-2020").I(X, Y, 1284.0)
    np.testing.assert_allclose(katbeam_response("L", X * DEGREE, Y * DEGREE, 1.284e9), expected, rtol=1e-10)
    assert (katbeam_response("UHF", np.array(0.0), np.array(0.0), 8e8)) == pytest.approx(1, abs=1e-3)


def test_katbeam_beyond_its_table_is_scaled():
    edge = JimBeam("MKAT-AA-L-JIM-2020").freqMHzlist.max()
    near = katbeam_response("L", X * DEGREE, Y * DEGREE, 1e6 * edge)
    far = katbeam_response("L", X * DEGREE / 1.02, Y * DEGREE / 1.02, 1.02e6 * edge)
    np.testing.assert_allclose(near, far, rtol=1e-9)


def test_receivers_by_frequency():
    assert katbeam_receiver("katbeam", 0.9e9, 1.6e9) == "L"
    assert katbeam_receiver("katbeam", 0.6e9, 1.0e9) == "UHF"
    assert katbeam_receiver("katbeam", 0.9e9, 1.0e9) == "L"
    assert katbeam_receiver("katbeam:UHF", 0.9e9, 1.0e9) == "UHF"
    for name in ("katbeam", "katbeam:UHF", "katbeam:L"):
        with pytest.raises(InputError, match=rf"{name}: bands of 2600-3500 MHz are not in UHF .*; give a FITS beam"):
            katbeam_receiver(name, 2.6e9, 3.5e9)
    with pytest.raises(InputError, match=r"katbeam knows no receiver S4, only UHF \(544-1088 MHz\), L"):
        katbeam_receiver("katbeam:S4", 2.6e9, 3.5e9)


def test_katbeam_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "katbeam", None)
    with pytest.raises(InputError, match=r"--beam-model katbeam needs katbeam .*: pip install 'pfb-dask\[meerkat\]'"):
        katbeam_receiver("katbeam", 1e9, 1.1e9)


@pytest.mark.parametrize("unit", ["deg", "arcmin", "rad"])
@pytest.mark.parametrize("falling", [False, True])
def test_a_cube_fixed_to_the_dish(tmp_path, unit, falling):
    beam = read_beam(write_beam(tmp_path / "b.fits", unit=unit, falling=falling), GEOMETRY)
    assert beam.turning
    for freq in (1.0e9, 1.07e9, 1.2e9):  # scaling makes up for the distance of the planes
        np.testing.assert_allclose(beam.response(X * DEGREE, Y * DEGREE, freq), lopsided(X, Y, freq), atol=2e-5)
    assert beam.response(np.array([3 * DEGREE]), np.array([0.0]), 1e9) == 0


def test_planes_between_which_the_beam_changes(tmp_path):
    path = write_beam(tmp_path / "b.fits")
    with fits.open(path, mode="update") as hdus:
        hdus[0].data[1] *= 0.8
    beam = read_beam(path, GEOMETRY)
    np.testing.assert_allclose(beam.response(X * DEGREE, Y * DEGREE, 1.05e9), 0.95 * lopsided(X, Y, 1.05e9), atol=2e-5)


def test_descending_frequencies(tmp_path):
    beam = read_beam(write_beam(tmp_path / "b.fits", freq=FREQ[::-1]), GEOMETRY)
    np.testing.assert_allclose(beam.freq, FREQ)
    np.testing.assert_allclose(beam.response(X * DEGREE, Y * DEGREE, 1.0e9), lopsided(X, Y, 1.0e9), atol=2e-5)


def test_one_plane_serves_for_all_frequencies(tmp_path):
    alone = read_beam(write_beam(tmp_path / "a.fits", freq=FREQ[:1]), GEOMETRY)
    known = read_beam(write_beam(tmp_path / "b.fits", freq=FREQ[:1], FREQ=True), GEOMETRY)
    np.testing.assert_allclose(alone.response(X * DEGREE, Y * DEGREE, 1.5e9), lopsided(X, Y, 1e9), atol=2e-5)
    x, y = X[2:-2, 1:-1], Y[2:-2, 1:-1]  # the grid ends there when it is scaled
    np.testing.assert_allclose(known.response(x * DEGREE, y * DEGREE, 1.5e9), lopsided(x, y, 1.5e9), atol=2e-5)
    assert alone.covers(1e6)
    assert known.covers(1e6)


def test_which_frequencies_a_cube_has(tmp_path):
    beam = read_beam(write_beam(tmp_path / "b.fits"), GEOMETRY)
    assert [beam.covers(f) for f in (0.89e9, 0.91e9, 1.1e9, 1.29e9, 1.31e9)] == [False, True, True, True, False]


def test_a_beam_on_the_sky(tmp_path):
    """RA falls along x. It points half a degree North of the image."""
    cards = dict(CRVAL1=np.rad2deg(GEOMETRY.ra), CRVAL2=np.rad2deg(GEOMETRY.dec) + 0.5)
    path = write_beam(tmp_path / "b.fits", ("RA---SIN", "DEC--SIN"), falling=True, **cards)
    beam = read_beam(path, GEOMETRY)
    assert not beam.turning
    np.testing.assert_allclose(beam.response(X * DEGREE, Y * DEGREE, 1e9), lopsided(X, Y - 0.5, 1e9), atol=1e-4)
    x, y = X[:, 1:], Y[:, 1:]  # the grid ends there when it is scaled
    np.testing.assert_allclose(beam.response(x * DEGREE, y * DEGREE, 1.1e9), lopsided(x, y - 0.5, 1.1e9), atol=1e-4)
    assert not read_beam(write_beam(tmp_path / "c.fits", ("L", "M")), GEOMETRY).turning


def test_degenerate_axes_and_stokes(tmp_path):
    path = write_beam(tmp_path / "b.fits")
    data, header = fits.getdata(path, header=True)
    header.update(dict(CTYPE4="STOKES", CRPIX4=1.0, CRVAL4=0.0, CDELT4=1.0))  # 0, then I, then Q
    fits.writeto(tmp_path / "c.fits", np.stack([data * 0, data, data * 0]), header)
    found = read_beam(tmp_path / "c.fits", GEOMETRY)
    np.testing.assert_array_equal(found.values, read_beam(path, GEOMETRY).values)


def test_blank_pixels_see_nothing(tmp_path):
    path = write_beam(tmp_path / "b.fits")
    with fits.open(path, mode="update") as hdus:
        hdus[0].data[:, :10] = np.nan
    found = read_beam(path, GEOMETRY).response(np.zeros(2), np.array([-1.8, 0.0]) * DEGREE, 1e9)
    assert found[0] == 0
    assert found[1] == pytest.approx(lopsided(0.0, 0.0, 1e9), abs=1e-3)


@pytest.mark.parametrize("names", [("x", "y"), ("l", "m")])
@pytest.mark.parametrize("single", [False, True])
def test_zarr(tmp_path, names, single):
    x, y = (np.arange(61) - 30) * 0.05, (np.arange(81) - 40) * 0.05
    values = np.stack([lopsided(x[:, None], y, f) for f in FREQ])
    array = xr.DataArray(values, dims=("freq", *names), coords=dict(freq=FREQ) | dict(zip(names, (x, y), strict=True)))
    array = array[0].drop_vars("freq") if single else array.transpose(names[1], "freq", names[0])
    array.to_dataset(name="beam").to_zarr(tmp_path / "b.zarr", zarr_format=3, consolidated=False)
    beam = read_beam(tmp_path / "b.zarr", GEOMETRY)
    assert beam.turning == (names == ("x", "y"))
    np.testing.assert_allclose(beam.response(X * DEGREE, Y * DEGREE, 1e9), lopsided(X, Y, 1e9), atol=2e-5)


WRONG = {
    "missing": (None, "cannot be read as FITS"),
    "axes": (dict(CTYPE1="GLON-CAR"), "has the axes GLON, Y, FREQ; it needs RA, DEC or L, M or X, Y"),
    "turned": (dict(PC1_2=0.1), "are turned against its pixels"),
    "other axis": (dict(CTYPE3="TIME"), "has 2 pixels along axis 3, which is not FREQ"),
    "antipode": (dict(CTYPE1="RA---SIN", CTYPE2="DEC--SIN", CRVAL1=243.0, CRVAL2=45.0), "points at the other half of the sky"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_beam(tmp_path, case):
    cards, sentence = WRONG[case]
    if cards is not None:
        write_beam(tmp_path / "b.fits", **cards)
    with pytest.raises(InputError, match=sentence):
        read_beam(tmp_path / "b.fits", GEOMETRY)


@pytest.mark.parametrize(("factor", "shift"), [(100.0, 0.0), (0.3, 0.0), (1.0, -0.2)])
def test_what_is_no_power_beam(tmp_path, factor, shift):
    path = write_beam(tmp_path / "b.fits")
    with fits.open(path, mode="update") as hdus:
        hdus[0].data[:] = hdus[0].data * factor + shift
    with pytest.raises(InputError, match="but the power beam of Stokes I is one on its axis"):
        read_beam(path, GEOMETRY)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda a: a.rename(x="u").to_dataset(name="beam"), "it needs l and m, or x and y"),
        (lambda a: xr.Dataset(dict(one=a, two=a)), "has the variables one, two; call the one to use beam"),
        (lambda a: a.assign_coords(x=np.arange(5.0) ** 2).to_dataset(name="beam"), "along x that are not evenly spaced"),
        (None, "cannot be read as a zarr store"),
    ],
)
def test_what_is_no_zarr_beam(tmp_path, made, sentence):
    array = xr.DataArray(np.ones((5, 4)), dims=("x", "y"), coords=dict(x=np.arange(5.0), y=np.arange(4.0)))
    if made is None:
        (tmp_path / "b.zarr").mkdir()
    else:
        made(array).to_zarr(tmp_path / "b.zarr", zarr_format=3, consolidated=False)
    with pytest.raises(InputError, match=sentence):
        read_beam(tmp_path / "b.zarr", GEOMETRY)
