"""How the sky turned over the dishes while a set was observed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pfb.io.description import Field, RowGroup, SetDescription
from pfb.io.earth import parallactic_angle

STEP = 240.0
"""Seconds, in which the sky turns by one degree, except near the zenith."""


def observed_angles(
    d: SetDescription, groups: Sequence[RowGroup], centre: Field, times: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the parallactic angles of the selected rows of a set in steps of some minutes, and how many rows each stands for.

    Parameters
    ----------
    d : SetDescription
        The set.
    groups : sequence of RowGroup
        Its selected rows.
    centre : Field
        The direction.
    times : sequence of (float, float)
        Ranges of time that are selected, MJD seconds.

    Returns
    -------
    list of (float, float)
        Angles in radians and weights; zero for equatorial mounts, and empty if the set does not say where its antennas are.
    """
    if not any(d.position):
        return []
    rows: dict[tuple[float, float], float] = {}
    for g in groups:  # the same scan has a group for every spectral window
        for first, last in times:
            start, end = max(g.start, first), min(g.end, last)
            if start <= end:
                share = (end - start) / (g.end - g.start) if g.end > g.start else 1.0
                rows[start, end] = rows.get((start, end), 0.0) + share * g.rows
    if not d.turning:
        return [(0.0, sum(rows.values()))]
    angles = []
    for (start, end), weight in rows.items():
        number = math.ceil((end - start) / STEP) or 1
        middles = start + (np.arange(number) + 0.5) * (end - start) / number
        found = parallactic_angle(middles, np.array([d.position]), centre.ra, centre.dec)[:, 0]
        angles += [(angle, weight / number) for angle in found.tolist()]
    return angles
