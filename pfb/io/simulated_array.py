"""MeerKAT's dishes and receivers, and where the baselines point at a given time."""

from __future__ import annotations

import csv
from importlib import resources

import erfa
import numpy as np

from pfb.errors import InputError
from pfb.io import time_ranges
from pfb.io.earth import itrf_to_gcrs
from pfb.types import Real

RECEIVERS = {"UHF": (544e6, 1088e6), "L": (856e6, 1712e6), "S4": (2625e6, 3500e6)}
"""Lowest and highest frequency in Hz."""

DISH_DIAMETER = 13.5
"""In metres."""

# East longitude and latitude in radians, height in metres (WGS84) of the origin of meerkat_enu.csv.
_REFERENCE = (np.deg2rad(21 + 26 / 60 + 38.0 / 3600), -np.deg2rad(30 + 42 / 60 + 39.8 / 3600), 1086.6)


def dishes(count: int) -> tuple[list[str], Real]:
    """Return the names and the (count, 3) ITRF positions in metres of dishes from the core to the outermost.

    All of any number below 64 are spread over the list, so that the longest baselines are there.
    """
    text = resources.files("pfb.io").joinpath("meerkat_enu.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.reader(text.splitlines()) if row[0].startswith("m0")]
    enu = np.array([[float(value) for value in row[1:]] for row in rows])
    longitude, latitude, height = _REFERENCE
    sl, cl, sb, cb = np.sin(longitude), np.cos(longitude), np.sin(latitude), np.cos(latitude)
    east_north_up = np.array([[-sl, cl, 0], [-sb * cl, -sb * sl, cb], [cb * cl, cb * sl, sb]])
    itrf = np.array(erfa.gd2gc(1, longitude, latitude, height)) + enu @ east_north_up
    chosen = np.linspace(0, len(rows) - 1, count).round().astype(int)
    return [rows[i][0] for i in chosen], itrf[chosen]


def mjd_seconds(utc: str) -> float:
    """Return an ISO 8601 time, UTC unless it says otherwise, in MJD seconds; raises `InputError` if it is none."""
    try:
        return time_ranges.mjd_seconds(utc)
    except ValueError as error:
        raise InputError(f"cannot read the start {utc!r}; write it as 2024-06-10T06:00:00") from error


def antenna_uvw(itrf: Real, times: Real, ra: float, dec: float) -> Real:
    """Return the (time, antenna, 3) coordinates whose difference over a baseline is its UVW, in metres.

    Parameters
    ----------
    itrf
        (antenna, 3) positions in metres.
    times
        (time,) MJD seconds UTC; UT1 is taken to be UTC, so no Earth-orientation data are needed.
    ra, dec
        Phase centre in radians (ICRS).
    """
    celestial = np.einsum("tij,aj->tai", itrf_to_gcrs(times), itrf)
    sr, cr, sd, cd = np.sin(ra), np.cos(ra), np.sin(dec), np.cos(dec)
    axes = np.array([[-sr, cr, 0], [-sd * cr, -sd * sr, cd], [cd * cr, cd * sr, sd]])
    uvw: Real = celestial @ axes.T
    return uvw


def elevation(times: Real, ra: float, dec: float) -> Real:
    """Return the (time,) elevation of a direction above the array in radians, without refraction."""
    longitude, latitude, _ = _REFERENCE
    up = np.array([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)])
    source = np.array([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])
    angle: Real = np.arcsin(np.clip(itrf_to_gcrs(times) @ up @ source, -1, 1))
    return angle
