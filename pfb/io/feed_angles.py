"""By which angle the feeds of the antennas are turned against the sky."""

from __future__ import annotations

import os

import numpy as np

from pfb.errors import InputError
from pfb.io.casa_tables import cells, subtable
from pfb.io.earth import parallactic_angle
from pfb.io.measurement_set import Piece, Window
from pfb.io.time_axis import row_columns
from pfb.types import Real

MODES = ("none", "receptor", "parallactic")
EQUATORIAL = "EQUATORIAL"
ALTAZ = ("ALT-AZ", "ALTAZ")


def require_feed_angles(window: Window, mode: str) -> None:
    """Raise `InputError` if a set does not say how its feeds are turned."""
    if mode != "none":
        receptor_angles(window.path)
    if mode == "parallactic":
        _mounts(window.path)


def feed_angles(piece: Piece, centre: tuple[float, float], mode: str) -> Real | None:
    """Return the position angle of the feeds for every row of a piece.

    Parameters
    ----------
    piece : Piece
        Rows of a window.
    centre : (float, float)
        Right ascension and declination of the phase centre in radians (ICRS, or near enough).
    mode : str
        ``none``; ``receptor``: RECEPTOR_ANGLE of the FEED table; ``parallactic``: that and the parallactic angle
        of antennas with altazimuth mounts.

    Returns
    -------
    (row,) float64 or None
        Radians, North through East, the mean of a row's two antennas; None if nothing is to be turned.

    Raises
    ------
    InputError
        If the set does not say what is needed.
    """
    if mode == "none":
        return None
    columns = row_columns(piece)
    angles = receptor_angles(piece.path)
    found: Real = (angles[columns.antenna1] + angles[columns.antenna2]) / 2
    if mode == "parallactic":
        positions, turning = _mounts(piece.path)
        stamps, place = np.unique(columns.time, return_inverse=True)
        parallactic = parallactic_angle(stamps, positions, *centre) * turning
        found = found + (parallactic[place, columns.antenna1] + parallactic[place, columns.antenna2]) / 2
    return found


def receptor_angles(path: str) -> Real:
    """Return the angle of the first receptor of every antenna in radians; raises `InputError` if the set does not say."""
    table = subtable(path, "FEED")
    if table is None:
        raise InputError(f"{path} has no sub-table FEED, so the angles of its feeds are unknown: leave out --feed-angle")
    with table:
        antennas, angles = table.getcol("ANTENNA_ID"), cells(table, "RECEPTOR_ANGLE")
    found = np.full(int(antennas.max(initial=-1)) + 1, np.nan)
    for antenna, angle in zip(antennas.tolist(), angles, strict=True):
        if angle is not None and len(angle):
            if np.ptp(angle) > 1e-6:
                raise InputError(f"{path}: the receptors of antenna {antenna} have two angles: correct the visibilities first")
            found[antenna] = angle[0]
    if not len(found) or np.isnan(found).any():
        raise InputError(f"{path} does not say in FEED how the receptors of all antennas are turned: leave out --feed-angle")
    return found


def _mounts(path: str) -> tuple[Real, Real]:
    """Return the (antenna, 3) positions, and for each antenna whether its feeds turn on the sky."""
    table = subtable(path, "ANTENNA")
    if table is None:
        raise InputError(f"{path} has no sub-table ANTENNA, so its parallactic angles are unknown: leave out --feed-angle")
    with table:
        positions, mounts = table.getcol("POSITION"), [str(m).strip().upper() for m in table.getcol("MOUNT").tolist()]
    if unknown := sorted(set(mounts) - {EQUATORIAL, *ALTAZ}):
        raise InputError(
            f"{os.path.basename(path)} has antennas with the mount {', '.join(unknown) or 'unknown'}, whose parallactic angle is "
            "not known here: correct the visibilities first, and leave out --feed-angle"
        )
    return positions, np.array([float(mount in ALTAZ) for mount in mounts])
