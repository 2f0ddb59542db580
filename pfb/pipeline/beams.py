"""Beams as options give them."""

from __future__ import annotations

import numpy as np

from pfb.errors import InputError
from pfb.types import Beam


def read_beam(option: str, text: str) -> Beam:
    """Read a beam from the value of an option.

    Parameters
    ----------
    option : str
        How the option is spelled, for the error.
    text : str
        ``BMAJ`` or ``BMAJ,BMIN,BPA`` in arcsec and degrees.

    Returns
    -------
    Beam
        In radians.

    Raises
    ------
    InputError
        If it is no beam.
    """
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) == 1:
        values = [values[0], values[0], 0.0]
    if len(values) != 3 or not np.isfinite(values).all() or not values[0] >= values[1] > 0:
        raise InputError(
            f"{option} {text} is not a beam with BMAJ >= BMIN > 0; "
            "write BMAJ or BMAJ,BMIN,BPA in arcsec and degrees, e.g. 8,6.5,30"
        )
    major, minor = np.radians(values[0] / 3600), np.radians(values[1] / 3600)
    return Beam(float(major), float(minor), float(np.radians(values[2])))
