import numpy as np
import pytest
from astropy.coordinates import SkyCoord

from pfb.errors import InputError
from pfb.io.sky import Component, direction_cosines, offset, random_sky, read_sky, write_sky

CENTRES = [(0.0, 0.5), (2 * np.pi - 1e-6, -0.5), (1.1, -np.pi / 2), (3.0, -np.deg2rad(89.9)), (5.0, 0.5), (0.3, np.pi / 2)]
ECSV = """# %ECSV 1.0
# ---
# datatype:
# - {name: ra, unit: deg, datatype: float64}
# - {name: dec, unit: deg, datatype: float64}
# - {name: I, unit: mJy, datatype: float64}
# - {name: fwhm, unit: arcmin, datatype: float64}
ra dec I fwhm
10.0 -30.0 250.0 0.5
"""


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(("ra0", "dec0"), CENTRES)
def test_direction_cosines_agree_with_astropy_and_offset_inverts_them(ra0, dec0, rng):
    for l, m in 0.05 * rng.standard_normal((5, 2)):
        ra, dec = offset(ra0, dec0, l, m)
        assert 0 <= ra < 2 * np.pi
        np.testing.assert_allclose(direction_cosines(ra, dec, ra0, dec0), (l, m, np.sqrt(1 - l**2 - m**2)), atol=1e-14)
        centre, source = SkyCoord(ra0, dec0, unit="rad"), SkyCoord(ra, dec, unit="rad")
        angle, pa = centre.separation(source).rad, centre.position_angle(source).rad
        np.testing.assert_allclose((l, m), (np.sin(angle) * np.sin(pa), np.sin(angle) * np.cos(pa)), atol=1e-12)


def test_random_sky_is_repeatable_and_where_and_as_bright_as_it_says():
    sky = random_sky(1.0, -0.5, nsource=400, ref_freq=1.4e9, seed=3)
    assert sky == random_sky(1.0, -0.5, nsource=400, ref_freq=1.4e9, seed=3)
    assert sky != random_sky(1.0, -0.5, nsource=400, ref_freq=1.4e9, seed=4)
    points, extended = [c for c in sky if not c.fwhm], [c for c in sky if c.fwhm]
    assert (len(points), len(extended)) == (400, 5)
    assert {c.ref_freq for c in sky} == {1.4e9}
    cosines = np.array([direction_cosines(c.ra, c.dec, 1.0, -0.5) for c in points])
    radius = np.hypot(cosines[:, 0], cosines[:, 1])
    assert np.deg2rad(0.4) < radius.max() < np.deg2rad(0.45)
    assert abs(cosines[:, :2].mean(axis=0)).max() < np.deg2rad(0.05)
    flux = np.array([c.I for c in points])
    assert flux.min() >= 5e-4
    assert flux.max() <= 0.3
    # N(>S) falls as 1/S: half of the sources exceed twice the minimum, a tenth ten times.
    np.testing.assert_allclose([(flux > 1e-3).mean(), (flux > 5e-3).mean()], [0.5, 0.1], atol=0.06)
    alpha = np.array([c.alpha for c in points])
    np.testing.assert_allclose([alpha.mean(), alpha.std()], [-0.7, 0.2], atol=0.05)


def test_a_written_sky_reads_back(tmp_path):
    sky = [*random_sky(0.01, -1.5, nsource=10, ref_freq=1e9, seed=0), Component(ra=1.0, dec=0.2, I=1.0, Q=-0.1, U=0.2, V=0.3)]
    write_sky(tmp_path / "sky.ecsv", sky)
    back = read_sky(tmp_path / "sky.ecsv")
    assert len(back) == len(sky)
    for a, b in zip(sky, back, strict=True):
        for name in ("ra", "dec", "I", "Q", "U", "V", "ref_freq", "alpha", "fwhm"):
            assert getattr(b, name) == pytest.approx(getattr(a, name), rel=1e-14, abs=1e-18), name


def test_units_of_an_ecsv_table_are_converted(tmp_path):
    (c,) = read_sky(write(tmp_path / "sky.ecsv", ECSV))
    assert c == Component(ra=pytest.approx(np.deg2rad(10)), dec=pytest.approx(np.deg2rad(-30)), I=pytest.approx(0.25),
                          fwhm=pytest.approx(np.deg2rad(0.5 / 60)))  # fmt: skip


def test_yaml_takes_numbers_in_the_default_units_and_text_with_its_own(tmp_path):
    text = """
- {ra: 15, dec: -45.5, I: 0.1, fwhm: 2}
- {ra: 1h0m0s, dec: -45d30m, I: 100 mJy, Q: -1e-2, alpha: -0.7, ref_freq: 1.3 GHz}
"""
    a, b = read_sky(write(tmp_path / "sky.yaml", text))
    for c in (a, b):
        assert (c.ra, c.dec, c.I) == pytest.approx((np.deg2rad(15), np.deg2rad(-45.5), 0.1))
    assert a.fwhm == pytest.approx(np.deg2rad(2 / 3600))
    assert (b.Q, b.alpha, b.ref_freq) == (-0.01, -0.7, 1.3e9)
    assert (a.Q, a.alpha, b.fwhm) == (0.0, 0.0, 0.0)


BAD = {
    "unknown ending": ("sky.txt", "", r"ends in \.txt; give an \.ecsv or a \.yaml"),
    "no ending": ("sky", "", "ends in nothing"),
    "not ECSV": ("sky.ecsv", "a b\n1 2\n", "cannot be read as ECSV"),
    "no unit": ("sky.ecsv", ECSV.replace(", unit: mJy", ""), "column I of the sky .* has no unit; state one, e.g. Jy"),
    "wrong unit": ("sky.ecsv", ECSV.replace("unit: mJy", "unit: m"), "cannot read I .* as a number in Jy"),
    "missing column": ("sky.ecsv", ECSV.replace("dec", "decl"), "component 1 has no dec; each needs"),
    "unknown column": ("sky.ecsv", ECSV.replace("fwhm", "size"), "unknown size; known are ra, dec, I"),
    "no rows": ("sky.ecsv", ECSV.replace("10.0 -30.0 250.0 0.5\n", ""), "holds no component"),
    "not a number": ("sky.ecsv", ECSV.replace("250.0", "nan"), "I is nan; a finite number is needed"),
    "masked": ("sky.ecsv", ECSV.replace("250.0", '""'), "I is nan; a finite number is needed"),
    "beyond the pole": ("sky.ecsv", ECSV.replace("-30.0", "-91.0"), r"needs \|dec\| <= 90 deg"),
    "negative size": ("sky.ecsv", ECSV.replace(" 0.5\n", " -0.5\n"), "fwhm >= 0"),
    "not YAML": ("sky.yaml", "- {ra: 1", "cannot be read as YAML"),
    "no list": ("sky.yaml", "ra: 1\ndec: 2\n", "is no list of components"),
    "list of numbers": ("sky.yml", "- 1\n- 2\n", "is no list of components"),
    "empty": ("sky.yaml", "[]", "holds no component"),
    "missing key": ("sky.yaml", "- {ra: 1, dec: 2}", "component 1 has no I;"),
    "alpha alone": ("sky.yaml", "- {ra: 1, dec: 2, I: 1, alpha: -1}", "component 1 has no ref_freq"),
    "unknown key": ("sky.yaml", "- {ra: 1, dec: 2, I: 1, flux: 3}", "unknown flux; known are"),
    "text": ("sky.yaml", "- {ra: 1, dec: 2, I: bright}", "cannot read I 'bright' as a number in Jy"),
    "list for a number": ("sky.yaml", "- {ra: [1], dec: 2, I: 1}", r"cannot read ra \[1\]"),
    "wrong unit in text": ("sky.yaml", "- {ra: 1, dec: 2, I: 1 m}", "cannot read I '1 m'"),
    "second": ("sky.yaml", "- {ra: 1, dec: 2, I: 1}\n- {ra: 1, dec: 2, I: .inf}", "component 2: I is inf"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=list(BAD))
def test_a_bad_sky_is_refused_by_name(tmp_path, case):
    name, text, message = case
    with pytest.raises(InputError, match=message):
        read_sky(write(tmp_path / name, text))


def test_a_missing_sky_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist; give an ECSV or a YAML file"):
        read_sky(tmp_path / "none.ecsv")
