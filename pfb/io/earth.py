"""The Earth's rotation, without any data of its orientation: right to a second of time."""

from __future__ import annotations

import threading
import warnings

import erfa
import numpy as np

from pfb.types import Real

_MJD_ZERO = 2400000.5
_DAY = 86400.0
# Python's filter of warnings is one for all threads.
_LOCK = threading.Lock()


def itrf_to_gcrs(times: Real) -> Real:
    """Return the (time, 3, 3) rotations that take ITRF vectors to celestial axes (IAU 2006); times are MJD seconds UTC."""
    days = np.asarray(times) / _DAY
    with _LOCK, warnings.catch_warnings():
        # Of years to come nobody knows the leap seconds; a simulation can do without.
        warnings.simplefilter("ignore", erfa.ErfaWarning)
        terrestrial = erfa.taitt(*erfa.utctai(_MJD_ZERO, days))
        universal = erfa.utcut1(_MJD_ZERO, days, 0.0)
    return np.swapaxes(erfa.c2t06a(*terrestrial, *universal, 0.0, 0.0), -1, -2)


def parallactic_angle(times: Real, positions: Real, ra: float, dec: float) -> Real:
    """Return the position angle of the zenith, as seen in a direction of the sky.

    Parameters
    ----------
    times : (time,) float64
        MJD seconds UTC.
    positions : (antenna, 3) float64
        ITRF, metres. The zenith is that of the ellipsoid.
    ra, dec : float
        The direction in radians.

    Returns
    -------
    (time, antenna) float64
        Radians, North through East.
    """
    zenith = np.einsum("tij,aj->tai", itrf_to_gcrs(times), _normals(positions))
    east = np.array([-np.sin(ra), np.cos(ra), 0.0])
    north = np.array([-np.sin(dec) * np.cos(ra), -np.sin(dec) * np.sin(ra), np.cos(dec)])
    angle: Real = np.arctan2(zenith @ east, zenith @ north)
    return angle


def _normals(positions: Real) -> Real:
    """Return the (antenna, 3) directions of the zenith."""
    longitude, latitude, _ = erfa.gc2gd(1, positions)
    return np.stack([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=-1)
