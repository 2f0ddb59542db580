"""Real observations, with the defaults and the right answers."""

import numpy as np
import pytest

from pfb.config import Clean
from pfb.io.fits import read_image
from pfb.pipeline import clean
from pfb.pipeline.reporting import Silent

NPIX, CELL = 512, 0.5


@pytest.mark.real
def test_3c273_core_jet_and_dynamic_range(real_set, tmp_path):
    """VLA at 8 GHz: a core of 29.9 Jy, a knot of 2.29 Jy/beam at 14.0" West and 15.5" South, 33.6 Jy in all."""
    prefix = str(tmp_path / "out")
    options = Clean(output=prefix, npix=str(NPIX), cell=CELL, robust=-0.5)
    clean.run((str(real_set("3c273_vla_8ghz")),), options, Silent())
    image, _ = read_image(f"{prefix}-image-mfs.fits")
    model, _ = read_image(f"{prefix}-model-mfs.fits")
    residual, _ = read_image(f"{prefix}-residual-mfs.fits")

    centre = NPIX // 2
    assert np.unravel_index(image.argmax(), image.shape) == (centre, centre)
    assert image.max() == pytest.approx(29.9, rel=0.02)
    box = image[centre + 20 : centre + 37, centre - 39 : centre - 22]
    x, y = np.unravel_index(box.argmax(), box.shape)
    assert box.max() == pytest.approx(2.29, rel=0.05)
    assert (x + 20) * CELL == pytest.approx(14.0, abs=1.0)
    assert (y - 39) * CELL == pytest.approx(-15.5, abs=1.0)
    assert model.sum() == pytest.approx(33.6, rel=0.03)
    assert residual.std() < 2e-3
