"""Baselines as seen from another phase centre: a rotation, and the phase of the new centre."""

from __future__ import annotations

import numpy as np

from pfb.types import Real


def axes(ra: float, dec: float) -> Real:
    """Return the unit vectors East, North and outward at a place on the sky, the rows of a (3, 3) array; angles in radians."""
    east = [-np.sin(ra), np.cos(ra), 0.0]
    north = [-np.sin(dec) * np.cos(ra), -np.sin(dec) * np.sin(ra), np.cos(dec)]
    outward = [np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)]
    return np.array([east, north, outward])


def move(uvw: Real, before: Real, after: Real) -> tuple[Real, Real]:
    r"""Refer baselines to another phase centre.

    A source in the direction s has the path difference :math:`b \cdot (s - s_0)` at the phase centre :math:`s_0`, which is
    :math:`ul + vm + w(n-1)`; hence it is that at the other centre plus :math:`b \cdot (s_1 - s_0)`, for all sources the same.

    Parameters
    ----------
    uvw : (row, 3) float64
        Baselines in metres, at the old centre.
    before, after : (3, 3) float64
        `axes` at the old and at the new centre, of one frame.

    Returns
    -------
    uvw : (row, 3) float64
        Baselines at the new centre, in metres.
    path : (row,) float64
        Path difference of the new centre in metres, to be multiplied by :math:`2\pi\nu/c`.
    """
    baseline = uvw @ before
    return baseline @ after.T, baseline @ (after[2] - before[2])
