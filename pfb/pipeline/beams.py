"""Beams as options give them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pfb.config import Clean, Image
from pfb.errors import InputError
from pfb.io import dataset
from pfb.kernels.beam import describe, encloses
from pfb.pipeline.products import Choice
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


def choose(option: str, text: str | None, common: bool) -> Choice:
    """Read the restoring beam from the options.

    Parameters
    ----------
    option : str
        How the option of a given beam is spelled.
    text : str, optional
        Its value, see `read_beam`.
    common : bool
        Whether the smallest beam that encloses all is asked for.

    Returns
    -------
    Beam or {"native", "common"}
        Widths and angle in radians.

    Raises
    ------
    InputError
        If both are asked for, or the value is no beam.
    """
    if text is None:
        return "common" if common else "native"
    if common:
        raise InputError(f"{option} {text} and --common-beam exclude each other; give one of them")
    return read_beam(option, text)


def restoring_beam(config: Image) -> Choice:
    """Return the restoring beam of a run: the native ones unless it is a `Clean` that says another."""
    return choose("--restoring-beam", config.restoring_beam, config.common_beam) if isinstance(config, Clean) else "native"


def require_restorable(store: Path, config: Clean) -> None:
    """Raise `InputError` if the beam asked for is narrower than that of a plane, once these are in the store."""
    target = restoring_beam(config)
    if not isinstance(target, Beam):
        return
    for values in dataset.read(store, "beam").reshape(-1, 3):
        if np.isfinite(values).all() and not encloses(target, native := Beam(*values.tolist())):
            raise InputError(
                f"--restoring-beam {config.restoring_beam} is narrower than the beam {describe(native)} of a band: "
                "choose a wider one, or --common-beam"
            )
