"""Regions of DS9: which pixels lie in them, and catalogues drawn as regions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from astropy.wcs import WCS
from numpy.typing import NDArray
from regions import PixCoord, Regions

from pfb.errors import InputError


def read_regions(path: str | Path) -> list[Any]:
    """Read a DS9 file.

    Raises
    ------
    InputError
        If there is no such file, it cannot be read, or it holds no region.
    """
    try:
        found = list(Regions.read(str(path), format="ds9"))
    except Exception as error:  # the parser raises whatever comes
        raise InputError(f"the regions {path} cannot be read ({error}); give a DS9 region file") from error
    if not found:
        raise InputError(f"the regions {path} hold no region that has an inside; draw circles, boxes, ellipses or polygons")
    return found


def inside(regions: Sequence[Any], wcs: WCS, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Say which places lie in any of the regions and in none of those that are excluded, whose line begins with a minus.

    Parameters
    ----------
    regions : sequence
        From `read_regions`, in coordinates of the sky or of the image.
    wcs : WCS
        Celestial axes of the image.
    x, y : (n,) number
        Places in pixels, counted from zero.
    """
    places = PixCoord(np.asarray(x, np.float64), np.asarray(y, np.float64))
    found, allowed = np.zeros(len(places.x), bool), np.ones(len(places.x), bool)
    for region in regions:
        own = region.to_pixel(wcs) if hasattr(region, "to_pixel") else region.copy()
        # Else some versions of the library turn the answer of an excluded region round, and some do not.
        own.meta["include"] = True
        within = own.contains(places)
        if region.meta.get("include", True):
            found |= within
        else:
            allowed &= ~within
    excluded_only = not any(region.meta.get("include", True) for region in regions)
    return (found | excluded_only) & allowed
