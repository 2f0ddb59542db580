"""Where MeerKAT's dishes are and point."""

import numpy as np
import pytest
from astropy.coordinates import AltAz, EarthLocation, SkyCoord
from astropy.time import Time
from astropy.utils import iers

from pfb.io.simulated_array import antenna_uvw, dishes, elevation, mjd_seconds
from tests.observations import unpack_real


def test_dishes_are_meerkats():
    names, itrf = dishes(64)
    assert names == [f"m{i:03d}" for i in range(64)]
    np.testing.assert_allclose(itrf[0], [5109271.498, 2006808.893, -3239130.736], atol=1e-3)
    few, positions = dishes(8)
    assert len(set(few)) == 8
    assert {few[0], few[-1]} == {"m000", "m063"}
    assert np.linalg.norm(positions[:, None] - positions, axis=2).max() > 4000


@pytest.mark.real
def test_dishes_are_where_a_real_set_has_them(tmp_path):
    tables = pytest.importorskip("casacore.tables")
    with tables.table(unpack_real("meerkat_cdfs25_lband_tDish", tmp_path) + "::ANTENNA", ack=False) as t:
        real = dict(zip(t.getcol("NAME"), t.getcol("POSITION"), strict=True))
    ours = dict(zip(*dishes(64), strict=True))
    assert len(real) == 62
    assert max(np.linalg.norm(real[name] - ours[name]) for name in real) < 1e-3


def test_elevation_agrees_with_astropy():
    times = mjd_seconds("2024-06-10T06:00:00") + 3600.0 * np.arange(24)
    site = EarthLocation.from_geodetic("21d26m38s", "-30d42m39.8s", 1086.6)
    # The table that is installed: nothing is fetched.
    with iers.earth_orientation_table.set(iers.IERS_B.open()):
        frame = AltAz(obstime=Time(times / 86400, format="mjd", scale="utc"), location=site)
        theirs = SkyCoord(1.1, -0.8, unit="rad").transform_to(frame).alt.rad
    assert theirs.min() < 0 < theirs.max()
    # Aberration moves a source by 20 arcseconds at most.
    np.testing.assert_allclose(elevation(times, 1.1, -0.8), theirs, atol=1.1e-4)


def test_uvw_of_a_phase_centre_at_the_zenith_lie_in_the_ground_plane():
    _, itrf = dishes(64)
    time = np.array([mjd_seconds("2024-06-10T06:00:00")])
    grid = np.array([(ra, dec) for ra in np.linspace(0, 2 * np.pi, 361) for dec in np.deg2rad([-30.7])])
    zenith = max(grid, key=lambda p: elevation(time, *p)[0])
    uvw = antenna_uvw(itrf, time, *zenith)[0]
    uvw = uvw - uvw[0]
    # The array is flat to some 60 m, and the best point of the grid within a degree of the zenith.
    assert np.linalg.norm(uvw, axis=1).max() > 4000
    assert abs(uvw[:, 2]).max() < 0.03 * np.linalg.norm(uvw, axis=1).max()


def test_start_is_utc():
    assert mjd_seconds("2024-06-10T06:00:00") == pytest.approx(60471.25 * 86400, abs=1e-4)
    assert mjd_seconds("1858-11-18 00:00:30.5") == pytest.approx(86430.5, abs=1e-4)
    assert mjd_seconds("2024-06-10T08:00:00+02:00") == mjd_seconds("2024-06-10T06:00:00Z") == mjd_seconds("2024-06-10T06:00:00")


def test_years_to_come_raise_no_warning():
    assert abs(elevation(np.array([mjd_seconds("2090-01-01T00:00:00")]), 1.0, -0.5)[0]) < np.pi / 2
