"""Places and axes in other frames."""

import numpy as np
import pytest
from astropy.coordinates import FK4, FK5, SkyCoord

from pfb.io.frames import convert, convert_axes
from pfb.kernels.phase_centre import axes


def test_places_are_astropys(rng):
    ra, dec = rng.uniform(0, 6, 3), rng.uniform(-1, 1, 3)
    expected = SkyCoord(ra, dec, unit="rad", frame=FK4()).transform_to(FK5())
    np.testing.assert_allclose(convert(ra, dec, "FK4", "FK5"), [expected.ra.rad, expected.dec.rad])


@pytest.mark.parametrize("dec", [-0.7, 1.5707], ids=["south", "pole"])
def test_axes_turn_with_their_frame(dec):
    moved = convert_axes(axes(1.0, dec), "FK4", "FK5")
    np.testing.assert_allclose(moved @ moved.T, np.eye(3), atol=1e-12)
    place = SkyCoord(1.0, dec, unit="rad", frame=FK4()).transform_to(FK5())
    np.testing.assert_allclose(moved[2], place.cartesian.xyz.value, atol=1e-12)
    # What is 0.01 rad to the East there is so here.
    old = axes(1.0, dec)
    x, y, z = old[2] * np.cos(0.01) + old[0] * np.sin(0.01)
    east = SkyCoord(np.arctan2(y, x), np.arcsin(z), unit="rad", frame=FK4()).transform_to(FK5())
    # The aberration in FK4, 0.3 arcsec, differs over the distance.
    np.testing.assert_allclose(east.cartesian.xyz.value, moved[2] * np.cos(0.01) + moved[0] * np.sin(0.01), atol=2e-8)


def test_an_unnamed_frame_is_the_other():
    assert convert(1.0, 2.0, "", "FK5") == (1.0, 2.0)
    assert convert_axes(axes(1.0, 0.2), "", "FK4")[0] == pytest.approx(axes(1.0, 0.2)[0])
