"""DS9 regions: what lies in them."""

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.io.fits import sky_wcs
from pfb.io.regions import inside, read_regions
from pfb.types import Geometry

GEOMETRY = Geometry(nx=21, ny=15, cell=float(np.deg2rad(10 / 3600)), ra=1.0, dec=-0.5, frame="ICRS")


@pytest.fixture
def chosen(tmp_path):
    """Pixels in the regions that some lines draw, as a set."""

    def read(*lines):
        path = tmp_path / "a.reg"
        path.write_text("# Region file format: DS9\n" + "\n".join(lines) + "\n")
        x, y = (axis.ravel() for axis in np.indices(GEOMETRY.shape))
        found = inside(read_regions(path), sky_wcs(GEOMETRY), x, y)
        return set(zip(x[found].tolist(), y[found].tolist(), strict=True))

    return read


def test_a_circle_on_the_sky(chosen):
    """25 arcsec about the centre, pixel (10, 7): those less than 2.5 pixels away."""
    ra, dec = np.rad2deg([GEOMETRY.ra, GEOMETRY.dec])
    expected = {(x, y) for x in range(21) for y in range(15) if np.hypot(x - 10, y - 7) < 2.5}
    assert chosen("icrs", f'circle({ra},{dec},25")') == expected


def test_pixels_unions_and_exclusions(chosen):
    box = {(x, y) for x in (2, 3, 4) for y in (4, 5, 6)}  # DS9 counts pixels from one
    assert chosen("image", "box(4,6,3,3,0)") == box
    assert chosen("image", "box(4,6,3,3,0)", "-circle(4,6,0.5)") == box - {(3, 5)}
    assert chosen("image", "box(4,6,3,3,0)", "circle(16,9,0.5)") == box | {(15, 8)}
    everything = {(x, y) for x in range(21) for y in range(15)}
    assert chosen("image", "-box(4,6,3,3,0)") == everything - box


def test_files_that_are_none_are_refused(tmp_path, chosen):
    with pytest.raises(InputError, match="cannot be read"):
        read_regions(tmp_path / "none.reg")
    with pytest.raises(InputError, match="hold no region"):
        chosen("icrs")
