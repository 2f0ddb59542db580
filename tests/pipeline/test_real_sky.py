"""Real observations, with the defaults and the right answers."""

import numpy as np
import pytest
from astropy import units as u
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.wcs import WCS

from pfb.config import Clean, Image
from pfb.io.fits import read_image
from pfb.pipeline import clean
from pfb.pipeline import image as image_command
from pfb.pipeline.reporting import Silent


@pytest.fixture
def cleaned(real_set, tmp_path):
    """Clean a real set with some options; returns a function that reads the MFS image of a kind."""

    def run(name, **options):
        prefix = str(tmp_path / "out")
        clean.run((real_set(name),), Clean(output=prefix, **options), Silent())
        return lambda kind: read_image(f"{prefix}-{kind}-mfs.fits")[0]

    return run


@pytest.mark.real
def test_3c273_core_jet_and_dynamic_range(cleaned):
    """VLA at 8 GHz: a core of 29.9 Jy, a knot of 2.29 Jy/beam at 14.0" West and 15.5" South, 33.6 Jy in all."""
    cell, centre = 0.5, 256
    read = cleaned("3c273_vla_8ghz", npix="512", cell=cell, robust=-0.5)
    image = read("image")
    assert np.unravel_index(image.argmax(), image.shape) == (centre, centre)
    assert image.max() == pytest.approx(29.9, rel=0.02)
    box = image[centre + 20 : centre + 37, centre - 39 : centre - 22]
    x, y = np.unravel_index(box.argmax(), box.shape)
    assert box.max() == pytest.approx(2.29, rel=0.05)
    assert (x + 20) * cell == pytest.approx(14.0, abs=1.0)
    assert (y - 39) * cell == pytest.approx(-15.5, abs=1.0)
    assert read("model").sum() == pytest.approx(33.6, rel=0.03)
    assert read("residual").std() < 2e-3


@pytest.mark.real
@pytest.mark.parametrize(("field", "flux"), [("0", 14.76), ("1", 2.484)], ids=["3C 286", "1445+099"])
def test_ngc5921_calibrators(cleaned, field, flux):
    """VLA at 1.4 GHz, fields selected by number: point sources at the centre, in Jy/beam."""
    image = cleaned("ngc5921_vla_hi", field=field, npix="256", cell=15.0, nband=1)("image")
    assert np.unravel_index(image.argmax(), image.shape) == (128, 128)
    assert image.max() == pytest.approx(flux, rel=0.02)


POSA = {
    "the brightest": ("15h48m14s +48d35.6m", 6.3),
    "3C 322": ("15h34m58s +55d37.1m", 4.7),
    "3C 319": ("15h24m03s +54d28.6m", 4.5),
    "3C 337": ("16h28m49s +44d20.0m", 2.9),
}
"""Where catalogued sources are at 74 MHz, and how bright in Jy/beam."""


@pytest.mark.real
def test_posa_wide_field(real_set, tmp_path):
    """VLA at 74 MHz, 12 degrees of sky: sources far from the centre stand where they are only with the w-term."""
    options = Image(output=str(tmp_path / "out"), npix="1800", cell=25.0, nband=3, robust=-0.5, clip=0.005)
    image_command.run((real_set("vla74_posa_74mhz"),), options, Silent())
    image, _ = read_image(str(tmp_path / "out-dirty-mfs.fits"))
    wcs = WCS(fits.getheader(tmp_path / "out-dirty-mfs.fits")).celestial
    for name, (place, flux) in POSA.items():
        expected = SkyCoord(place)
        x, y = (round(float(p)) for p in wcs.world_to_pixel(expected))
        box = image[x - 5 : x + 6, y - 5 : y + 6]
        i, j = np.unravel_index(box.argmax(), box.shape)
        found = wcs.pixel_to_world(x - 5 + i, y - 5 + j)
        assert found.separation(expected) < 25 * u.arcsec, name
        assert box.max() == pytest.approx(flux, rel=0.1), name
    # Without the w-term it is 0.6.
    x, y = (round(float(p)) for p in wcs.world_to_pixel(SkyCoord(POSA["3C 319"][0])))
    assert image[x - 2 : x + 3, y - 2 : y + 3].max() > 4
