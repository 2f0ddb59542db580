"""Baselines at another phase centre: the visibilities of any source stay what they are."""

import numpy as np
import pytest

from pfb.kernels.components import local_frame
from pfb.kernels.phase_centre import axes, move
from pfb.types import LIGHTSPEED

NU = 1.3e9


def fringe(uvw, ra, dec, centre):
    direction, _ = local_frame(np.array([ra]), np.array([dec]), *centre)
    return np.exp(2j * np.pi * NU / LIGHTSPEED * (uvw @ direction[0]))


@pytest.mark.parametrize("centres", [((1.0, -0.7), (1.02, -0.69)), ((0.0, 1.55), (3.0, 1.56)), ((2.0, 0.3), (2.0, 0.3))], ids=str)
def test_a_source_has_the_same_visibilities(centres, rng):
    old, new = centres
    uvw = 4000 * rng.standard_normal((30, 3))
    moved, path = move(uvw, axes(*old), axes(*new))
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), np.linalg.norm(uvw, axis=1), rtol=1e-13)
    ra, dec = new[0] + 0.03, new[1] - 0.01
    phase = np.exp(2j * np.pi * NU / LIGHTSPEED * path)
    np.testing.assert_allclose(fringe(moved, ra, dec, new) * phase, fringe(uvw, ra, dec, old), atol=1e-9)


def test_axes_are_east_north_and_outward():
    np.testing.assert_allclose(axes(0.0, 0.0), [[0, 1, 0], [0, 0, 1], [1, 0, 0]], atol=1e-15)
    found = axes(2.3, -1.1)
    np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(np.cross(found[0], found[1]), found[2], atol=1e-15)
