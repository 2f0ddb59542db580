"""Component lists of WSClean, read and written."""

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.io.component_list import is_component_list, read_components, write_components
from pfb.io.sky import Component

ARCSEC = np.deg2rad(1 / 3600)
FORMAT = "Name, Type, Ra, Dec, I, SpectralIndex, LogarithmicSI, ReferenceFrequency='{}', MajorAxis, MinorAxis, Orientation"
LIST = f"""\
Format = {FORMAT.format("125584411.621094")}
s0c0,POINT,08:28:05.152,39.35.08.511,0.7,[-0.1,0.05],false,125584411.621094,,,
s0c1,POINT,-00:36:28.2,-00.30.00.0,0.5,[-0.7,-0.2],true,,,,
# of a multi-scale run
s1c0,GAUSSIAN,08:31:10.37,41.47.17.131,2.0,[],false,150e6,83.6,20.5,30
"""
NU0 = 125584411.621094


@pytest.fixture
def listed(tmp_path):
    def write(text=LIST):
        path = tmp_path / "sources.txt"
        path.write_text(text)
        return path

    return write


def test_what_wsclean_writes_is_read(listed):
    point, curved, gaussian = read_components(listed())
    assert point.ra == pytest.approx(np.deg2rad(15 * (8 + 28 / 60 + 5.152 / 3600)))
    assert point.dec == pytest.approx(np.deg2rad(39 + 35 / 60 + 8.511 / 3600))
    assert curved.ra == pytest.approx(2 * np.pi - np.deg2rad(15 * (36 / 60 + 28.2 / 3600)))
    assert curved.dec == pytest.approx(np.deg2rad(-0.5))
    assert (point.fwhm, gaussian.I) == (0, 2.0)
    assert (gaussian.fwhm, gaussian.minor, gaussian.pa) == pytest.approx((83.6 * ARCSEC, 20.5 * ARCSEC, np.deg2rad(30)))


def test_spectra_mean_what_wsclean_means(listed):
    """Ordinary ones have their coefficients in Jy; in logarithmic ones the logarithm is the common one."""
    point, curved, flat = read_components(listed())
    nu = np.array([100e6, NU0, 160e6])
    x = nu / NU0
    np.testing.assert_allclose(point.stokes(nu)[0], 0.7 - 0.1 * (x - 1) + 0.05 * (x - 1) ** 2, rtol=1e-12)
    np.testing.assert_allclose(curved.stokes(nu)[0], 0.5 * x ** (-0.7 - 0.2 * np.log10(x)), rtol=1e-12)
    np.testing.assert_allclose(flat.stokes(nu), [[2.0] * 3, [0] * 3, [0] * 3, [0] * 3])


def test_a_written_list_reads_back(tmp_path, rng):
    spectra = [dict(alpha=-0.8, curvature=0.1), dict(polynomial=(0.1, -0.3, 0.2)), dict(), dict(alpha=0.5)]
    made = [
        Component(ra=float(ra), dec=float(dec), I=float(flux), ref_freq=1.3e9, fwhm=fwhm, minor=fwhm / 2 if fwhm else None,
                  pa=0.4 if fwhm else 0.0, **spectrum)
        for ra, dec, flux, fwhm, spectrum in zip(
            [0.0, 1e-7, 6.2831853, 3.0], [1e-3, -1e-7, 1.2, -1.5], rng.standard_normal(4), [0, 0, 9 * ARCSEC, 2e-7], spectra,
            strict=True)
    ]  # fmt: skip
    path = tmp_path / "out.txt"
    write_components(path, made)
    back = read_components(path)
    for a, b in zip(made, back, strict=True):
        assert abs((a.ra - b.ra + np.pi) % (2 * np.pi) - np.pi) < 1e-5 * ARCSEC
        assert b.dec == pytest.approx(a.dec, abs=1e-6 * ARCSEC)
        assert (b.fwhm, b.pa, b.ref_freq) == pytest.approx((a.fwhm, a.pa, a.ref_freq), rel=1e-6)
        np.testing.assert_allclose(b.stokes([1e9, 1.5e9]), a.stokes([1e9, 1.5e9]), rtol=1e-14)
    assert path.read_text().splitlines()[0] == f"Format = {FORMAT.format('1300000000.0')}"


def test_patches_other_orders_and_defaults(listed):
    text = "# (Name, Patch, Type, Ra, Dec, Q, I, ReferenceFrequency='60e6', SpectralIndex='[-0.8]') = format\n"
    text += ", p1, , 0:0:0, 1.0.0\n"
    (one,) = read_components(listed(text + "a, p1, POINT, 1:0:0, +1.0.0.0, 0.1, 4, , [-0.5]\n"))
    assert (one.I, one.Q, one.ref_freq, one.alpha) == (4, 0.1, 60e6, -0.5)
    (one,) = read_components(listed(text + "a, p1, POINT, 15deg, 1deg, , 4\n"))
    assert (one.ra, one.alpha, one.Q) == (pytest.approx(np.deg2rad(15)), -0.8, 0)


def test_axes_given_the_wrong_way_round_are_turned(listed):
    (one,) = read_components(listed(LIST.splitlines()[0] + "\na,GAUSSIAN,1:0:0,1.0.0,1,[],true,1e9,2,6,10\n"))
    assert (one.fwhm, one.minor, one.pa) == pytest.approx((6 * ARCSEC, 2 * ARCSEC, np.deg2rad(100)))


BAD = {
    "no format": (LIST.split("\n", 1)[1], "has no line 'Format = ...' before line 1"),
    "empty": (LIST.splitlines()[0], "holds no component"),
    "no flux": (LIST + "a,POINT,1:0:0,1.0.0,,,,,,,", "line 6 of .* has no I"),
    "shapelet": (LIST + "a,SHAPELET,1:0:0,1.0.0,1,,,,,,", "is a SHAPELET but only POINT and GAUSSIAN"),
    "no number": (LIST + "a,POINT,1:0:0,1.0.0,bright,,,,,,", "line 6 .* cannot be read"),
    "no angle": (LIST + "a,POINT,one,1.0.0,1,,,,,,", "line 6 .* cannot be read"),
    "no frequency": (LIST.replace("'125584411.621094'", "''") + "a,POINT,1:0:0,1.0.0,1,[-0.7],true,,,,", "no ReferenceFrequency"),
    "too many": (LIST + "a,POINT,1:0:0,1.0.0,1,[-0.7,0.1,0.2],true,1e9,,,", "3 terms of a logarithmic spectrum"),
    "negative": (LIST + "a,GAUSSIAN,1:0:0,1.0.0,1,[],true,1e9,-1,1,0", "has a negative axis"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=list(BAD))
def test_a_bad_list_is_refused_by_line(text, message, listed):
    with pytest.raises(InputError, match=message):
        read_components(listed(text))


def test_other_files_are_no_lists(listed, tmp_path):
    assert is_component_list(listed())
    assert not is_component_list(listed("a,b\n"))
    assert not is_component_list(tmp_path / "nothing.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert not is_component_list(tmp_path / "binary")
    with pytest.raises(InputError, match="cannot be read"):
        read_components(tmp_path / "nothing.txt")
