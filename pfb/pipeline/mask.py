"""`pfb mask`: the mask of what stands out of the local noise of an image."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from astropy.io.fits import Header
from astropy.wcs.utils import proj_plane_pixel_scales

from pfb.config import Mask
from pfb.errors import InputError
from pfb.graph.masking import Masked, Search
from pfb.io.fits import celestial, read_image
from pfb.io.masks import write_mask
from pfb.io.staging import require_writable
from pfb.pipeline.masking import island_levels
from pfb.pipeline.reporting import Reporter
from pfb.types import Beam


def run(path: str, config: Mask, report: Reporter) -> None:
    """Write a FITS image that is one inside the islands and zero elsewhere.

    Parameters
    ----------
    path : str
        FITS image, restored or residual, or a cube, of whose planes the union is taken.
    config : Mask
        Options of the command.
    report : Reporter
        Is told what was found.

    Raises
    ------
    InputError
        If the image cannot be read, has no beam and none is given, or is blank, or the file cannot be written.
    """
    image, header = read_image(path)
    planes = [plane for plane in image.reshape(-1, *image.shape[-2:]) if np.isfinite(plane).any()]
    if not planes:
        raise InputError(f"{path} is blank everywhere: give an image with finite pixels")
    search = _search(path, header, config)
    output = config.output or f"{Path(path).with_suffix('')}-mask.fits"
    require_writable([Path(output)], config.overwrite)
    found = [search.islands(plane, plane, negative=config.negative) for plane in planes]
    mask = np.logical_or.reduce([one.mask for one in found])
    if not mask.any():
        report.warning(f"nothing in {path} exceeds --sigma {config.sigma:g} times the local noise, so the mask is zero")
    write_mask(output, mask, header, [f"pfb mask --sigma {config.sigma:g} {Path(path).name}"], overwrite=config.overwrite)
    report.summary(output, _summary(found, float(mask.mean()), str(header.get("BUNIT", ""))))


def _search(path: str, header: Header, config: Mask) -> Search:
    wcs = celestial(header)
    if not wcs.has_celestial:
        raise InputError(f"{path} has no sky coordinates, so the size of its beam is unknown: give an image that has")
    cell = math.radians(float(np.sqrt(np.prod(proj_plane_pixel_scales(wcs)))))
    high, low = island_levels(config.sigma, config.grow, "--sigma", "--grow")
    return Search(high, low, config.box, cell, _beam(path, header, config))


def _beam(path: str, header: Header, config: Mask) -> Beam:
    if config.beam is not None:
        width = math.radians(config.beam / 3600)
        return Beam(width, width, 0.0)
    widths = header.get("BMAJ", 0.0), header.get("BMIN", header.get("BMAJ", 0.0))
    if not min(widths) > 0:
        raise InputError(f"{path} has no BMAJ, and islands are compared with the beam: give its width with --beam")
    return Beam(math.radians(widths[0]), math.radians(widths[1]), math.radians(header.get("BPA", 0.0)))


def _summary(found: list[Masked], fraction: float, unit: str) -> dict[str, str]:
    numbers = [one.found for one in found]
    return {
        "islands": f"{sum(one.islands for one in numbers)}" + (f" in {len(numbers)} planes" if len(numbers) > 1 else ""),
        "inside": f"{100 * fraction:.3g}% of the image",
        "local noise": f"{min(one.lowest for one in numbers):.3g} to {max(one.highest for one in numbers):.3g} {unit}".strip(),
    }

