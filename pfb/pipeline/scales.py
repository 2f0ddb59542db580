"""Which sizes the components of `pfb clean` may have."""

from __future__ import annotations

import math

from pfb.config import Clean
from pfb.errors import InputError
from pfb.kernels.scales import automatic_widths, radius
from pfb.types import Beam, Geometry


def widths_of(config: Clean, geometry: Geometry, beam: Beam | None) -> tuple[float, ...]:
    """Return the full widths at half maximum in pixels, ascending, a point first.

    Parameters
    ----------
    config : Clean
        Options.
    geometry : Geometry
        Of the images.
    beam : Beam, optional
        From which automatic scales start; None if there is none, or if it is not known yet.

    Raises
    ------
    InputError
        If the scales cannot be read, or do not fit the image.
    """
    if config.algorithm != "multiscale":
        return (0.0,)
    if config.scales is None:
        return (0.0,) if beam is None else automatic_widths(beam.major / geometry.cell, geometry.shape)
    widths = {_pixels(word.strip(), config.scales, geometry.cell) for word in config.scales.split(",")}
    largest = max(widths)
    if 2 * radius(largest) > min(geometry.shape):
        raise InputError(
            f"--scales {config.scales} has one of {largest:.4g} pixels, which does not fit {geometry.nx} x {geometry.ny} pixels: "
            f"give {min(geometry.shape) / (2 * radius(1.0)):.3g} pixels at most"
        )
    return tuple(sorted(widths | {0.0}))


def _pixels(word: str, text: str, cell: float) -> float:
    number, unit = (word.removesuffix("px"), 1.0) if word.endswith("px") else (word, math.radians(1 / 3600) / cell)
    try:
        width = float(number) * unit
    except ValueError:
        width = -1.0
    if not 0 <= width < math.inf:
        raise InputError(f"--scales: cannot read {word!r} of {text!r} as a width; write them as 0,8,16 in arcsec or 0,4px,8px")
    return width
