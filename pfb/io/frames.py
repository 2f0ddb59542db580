"""Places on the sky in ICRS, FK5 (J2000) and FK4 (B1950)."""

from __future__ import annotations

import numpy as np
from astropy.coordinates import FK4, FK5, ICRS, SkyCoord

from pfb.types import Real

_FRAMES = {"ICRS": ICRS, "FK5": FK5, "FK4": FK4}


def convert(ra: Real, dec: Real, old: str, new: str) -> tuple[Real, Real]:
    """Convert (n,) right ascensions and declinations in radians from one frame to another; an unnamed one is the other."""
    if not old or not new or old == new:
        return ra, dec
    there = SkyCoord(ra, dec, unit="rad", frame=_FRAMES[old]()).transform_to(_FRAMES[new]())
    return np.asarray(there.ra.rad), np.asarray(there.dec.rad)


def convert_axes(axes: Real, old: str, new: str) -> Real:
    """Convert the axes East, North and outward at a place, rows of (3, 3), from one frame to another; they stay orthonormal."""
    if not old or not new or old == new:
        return axes
    _, north, outward = axes
    # A place some way north says where north is in the other frame; the aberration in FK4 moves both alike.
    points = np.stack([outward, outward * np.cos(1e-3) + north * np.sin(1e-3)])
    ra, dec = convert(np.arctan2(points[:, 1], points[:, 0]), np.arcsin(np.clip(points[:, 2], -1, 1)), old, new)
    moved = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=1)
    up = moved[1] - (moved[1] @ moved[0]) * moved[0]
    up /= np.linalg.norm(up)
    return np.stack([np.cross(up, moved[0]), up, moved[0]])
