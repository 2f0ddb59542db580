import erfa
import numpy as np
import pytest

from pfb.io.earth import parallactic_angle
from pfb.io.selection import Selection, select
from pfb.io.simulated_array import elevation, mjd_seconds
from tests.observations import small_set

LONGITUDE, LATITUDE = np.deg2rad(21.444), np.deg2rad(-30.711)
POSITION = np.array(erfa.gd2gc(1, LONGITUDE, LATITUDE, 1086.0))


def parallactic_angles(times, ra, dec, position):
    return parallactic_angle(times, position[None], ra, dec)[:, 0]


def textbook(times, ra, dec):
    """tan q = sin h / (tan(latitude) cos(dec) - sin(dec) cos h), with the hour angle h from the mean sidereal time."""
    days = times / 86400
    sidereal = erfa.gmst06(2400000.5, days, 2400000.5, days)
    h = sidereal + LONGITUDE - ra
    return np.arctan2(np.cos(LATITUDE) * np.sin(h), np.sin(LATITUDE) * np.cos(dec) - np.cos(LATITUDE) * np.sin(dec) * np.cos(h))


@pytest.mark.parametrize(("ra", "dec"), [(63.36, -45.0), (200.0, 10.0), (350.0, -80.0)])
def test_it_is_the_textbooks_angle(ra, dec):
    times = mjd_seconds("2024-06-10T06:00:00") + np.arange(0, 86400, 3600.0)
    ra, dec = np.deg2rad([ra, dec])
    difference = np.angle(np.exp(1j * (parallactic_angles(times, ra, dec, POSITION) - textbook(times, ra, dec))))
    # The equators of date and of J2000 are 0.14 degrees apart, the vernal points 0.31; near a pole, and near the zenith,
    # that is several times as much of an angle.
    assert np.abs(difference).max() < np.deg2rad(5 if abs(dec) > 1.3 else 2)
    assert np.ptp(parallactic_angles(times, ra, dec, POSITION)) > 1


def test_a_source_in_the_west_has_the_zenith_in_its_east():
    """After culmination a southern source, North of which the zenith is, sets in the west: its angle is positive."""
    times = mjd_seconds("2024-06-10T00:00:00") + np.arange(0, 86400, 600.0)
    ra, dec = np.deg2rad([63.36, -45.0])
    height = elevation(times, ra, dec)
    setting = (np.diff(height, append=height[0]) < 0) & (height > np.deg2rad(20))
    rising = (np.diff(height, append=height[0]) > 0) & (height > np.deg2rad(20))
    angles = parallactic_angles(times, ra, dec, POSITION)
    assert setting.sum() > 10
    assert rising.sum() > 10
    assert np.median(angles[setting]) > 0 > np.median(angles[rising])


def test_sets_know_their_angles(tmp_path):
    made = small_set(tmp_path / "a.ms", nant=6, scans=2, scan_length=6.0, dump=30.0)
    found = select([made.path], Selection(field="T0413-4500")).observation.parallactic
    times = np.concatenate([b.times for b in made.layout.blocks if made.layout.fields[b.field].intent == "TARGET"])
    ra, dec = np.deg2rad([63.36, -45.0])
    expected = parallactic_angles(times, ra, dec, POSITION)
    angles, weights = np.array(found).T
    assert len(found) == 4  # steps of three minutes
    assert np.average(angles, weights=weights) == pytest.approx(expected.mean(), abs=np.deg2rad(0.1))
    assert angles.max() < expected.max()
    assert angles.min() > expected.min()
    assert weights.sum() == sum(w.rows for w in select([made.path], Selection(field="T0413-4500")).windows)
