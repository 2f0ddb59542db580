"""Bright sources and negative regions, against images whose answers are known."""

import numpy as np
import pytest

from pfb.kernels.beam import restore
from pfb.kernels.quality import brightest, deepest_bowl, source_at
from pfb.types import Beam

BEAM = Beam(5.0, 3.0, 0.6)


def test_the_brightest_pixels_are_apart(rng):
    image = 0.1 * rng.standard_normal((41, 30))
    image[5, 6], image[6, 8], image[30, 29], image[40, 0], image[20, 15] = 9, 8, 5, 7, np.nan
    assert brightest(image, 5, 3, 1.0) == [(5, 6), (40, 0), (30, 29)]
    assert brightest(image, 2, 3, 1.0) == [(5, 6), (40, 0)]
    assert brightest(image, 5, 1, 1.0) == [(5, 6), (6, 8), (40, 0), (30, 29)]
    assert brightest(image, 5, 3, 9.0) == []
    assert brightest(np.full((3, 3), np.nan), 5, 3, 0.0) == []


@pytest.mark.parametrize("place", [(20, 15), (0, 29), (40, 2)])
def test_a_source_is_what_restoring_makes_of_it(rng, place):
    model, residual = rng.uniform(0, 1, (41, 30)), rng.standard_normal((41, 30))
    image = restore(model, residual, 1.0, BEAM, BEAM)
    source = source_at(place, image, model, residual, BEAM, 1.0)
    assert (source.x, source.y) == place
    assert source.restored == pytest.approx(source.model + source.residual, rel=1e-9)
    assert (source.restored, source.residual) == (image[place], residual[place])
    assert source.model > 1
    # A beam of another orientation sees another flux.
    other = source_at(place, image, model, residual, BEAM._replace(pa=-0.6), 1.0)
    assert other.model != pytest.approx(source.model, rel=1e-3)


def test_the_deepest_bowl_is_where_it_was_dug(rng):
    image = 0.01 * rng.standard_normal((120, 97))
    image[64:80, 32:48] -= 0.02
    image[3, 3] = -0.05
    bowl = deepest_bowl(image, 4.0, 0.01)
    assert (bowl.x, bowl.y, bowl.width) == (72, 40, 16)
    assert bowl.mean == pytest.approx(image[64:80, 32:48].mean())
    assert bowl.noise == pytest.approx(0.01 * 2 / 16)
    assert bowl.boxes == 7 * 6


def test_noise_has_no_bowl_beyond_its_number(rng):
    bowl = deepest_bowl(rng.standard_normal((256, 200)), 1.0, 1.0)
    assert -4.5 < bowl.mean / bowl.noise < -2


def test_what_has_no_bowl():
    assert deepest_bowl(np.ones((64, 64)), 4.0, 1.0) is None
    assert deepest_bowl(-np.ones((15, 64)), 4.0, 1.0) is None
    assert deepest_bowl(np.full((64, 64), np.nan), 4.0, 1.0) is None
