"""Whether UVW are what the positions of the antennas, the times and the phase centre make of them."""

from __future__ import annotations

from itertools import product

import numpy as np

from pfb.io.casa_tables import main_table, subtable
from pfb.io.description import SetDescription
from pfb.io.remarks import Remark, remark
from pfb.io.simulated_array import antenna_uvw
from pfb.io.window import Window, sample_rows
from pfb.types import Real

CHECK = "baselines"
ROWS = 512
"""Rows looked at in each window."""
LENGTH, DIRECTION = 0.01, 0.005
"""Relative errors that are let pass: of lengths; and of vectors, where aberration, polar motion and UT1 make 2e-4."""

# Those that store the position of antenna 1 minus that of antenna 2.
_FIRST_MINUS_SECOND = ("MeerKAT", "VLA", "EVLA", "ALMA")
_AXES = "uvw"


def check_baselines(d: SetDescription, windows: list[Window]) -> Remark:
    """Compare the UVW of some rows with those that geometry gives; nothing is downloaded, UT1 is taken to be UTC.

    UVW are read and never replaced, so whatever is found is a warning.

    Parameters
    ----------
    d
        The set.
    windows
        Its selected windows.
    """
    positions = _positions(d.path)
    found = [_compare(d, w, positions) for w in windows]
    uvw, expected, separation = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if not separation.any():
        return remark(CHECK, "", "no row has UVW and antennas with positions")
    frame = d.fields[windows[0].fields[0]].frame
    return _judge(uvw, expected, separation, frame, d.telescope)


def _compare(d: SetDescription, window: Window, positions: Real) -> tuple[Real, Real, Real]:
    """Return (row, 3) UVW as stored and as computed, antenna 1 minus antenna 2, and the (row,) distances of the antennas."""
    index = (sample_rows(window, ROWS),)
    table = main_table(window.path, window.stamp)
    uvw, time, first, second, field = (table.getcol(c, index=index) for c in ("UVW", "TIME", "ANTENNA1", "ANTENNA2", "FIELD_ID"))
    good = np.isfinite(uvw).all(axis=1) & np.isfinite(time) & (np.maximum(first, second) < len(positions))
    uvw, time, first, second, field = uvw[good], time[good], first[good], second[good], field[good]
    expected = np.zeros(uvw.shape)
    for number in np.unique(field):
        own = field == number
        times, when = np.unique(time[own], return_inverse=True)
        antennas = antenna_uvw(positions, times, d.fields[number].ra, d.fields[number].dec)
        expected[own] = antennas[when, first[own]] - antennas[when, second[own]]
    return uvw, expected, np.linalg.norm(positions[first] - positions[second], axis=1)


def _positions(path: str) -> Real:
    table = subtable(path, "ANTENNA")
    if table is None:
        return np.zeros((0, 3))
    with table:
        return np.asarray(table.getcol("POSITION"), np.float64) if table.nrow() else np.zeros((0, 3))


def _judge(uvw: Real, expected: Real, separation: Real, frame: str, telescope: str) -> Remark:
    looked = f"{len(uvw)} rows were looked at"
    apart = separation > 0
    if not np.linalg.norm(uvw[apart], axis=1).any():
        return remark(CHECK, "", "UVW is zero in all rows that were looked at")
    ratio = np.linalg.norm(uvw[apart], axis=1) / separation[apart]
    typical = float(np.median(ratio))
    if abs(typical - 1) > LENGTH:
        return remark(CHECK, "", f"UVW are {typical:.3g} times as long as the antennas are apart: are they in metres? ({looked})")
    odd = float((np.abs(ratio - 1) > LENGTH).mean())
    if odd > 0.01:
        return remark(CHECK, "", f"{100 * odd:.3g}% of UVW are not as long as the antennas are apart ({looked})")
    if frame == "FK4":
        return remark(CHECK, f"as long as the antennas are apart, in an old frame whose axes are not looked at ({looked})")
    errors = {signs: _error(uvw[apart] * signs, expected[apart]) for signs in product((1.0, -1.0), repeat=3)}
    signs, least = min(errors.items(), key=lambda item: item[1])
    if least > DIRECTION:
        plain = min(errors[1.0, 1.0, 1.0], errors[-1.0, -1.0, -1.0])
        angle = np.rad2deg(2 * np.arcsin(min(plain / 2, 1.0)))
        return remark(
            CHECK, "",
            f"UVW point elsewhere than positions, TIME and phase centre say, by about {angle:.3g} deg: is one of these wrong? "
            f"({looked})",
        )  # fmt: skip
    if len({*signs}) > 1:
        turned = [axis for axis, sign in zip(_AXES, signs, strict=True) if sign != _common(signs)]
        wrong = f"{' and '.join(turned)} of UVW have the opposite sign to the rest: the image is mirrored ({looked})"
        return remark(CHECK, "", wrong)
    order = "first minus second" if signs[0] > 0 else "second minus first"
    if signs[0] < 0 and telescope in _FIRST_MINUS_SECOND:
        return remark(CHECK, "", f"UVW are {order} antenna, which {telescope} does not write: the image may be turned by 180 deg")
    return remark(CHECK, f"UVW agree with positions, times and phase centre to {least:.1g}, {order} antenna ({looked})")


def _error(uvw: Real, expected: Real) -> float:
    """Return the median distance of vectors over their length."""
    length = np.linalg.norm(expected, axis=1)
    return float(np.median(np.linalg.norm(uvw - expected, axis=1) / length))


def _common(signs: tuple[float, ...]) -> float:
    return 1.0 if sum(signs) > 0 else -1.0
