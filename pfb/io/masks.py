"""Masks from files: FITS images of any number of axes, on the image's grid or reprojected to it, and regions of DS9 and CASA.

The packages for the last two are imported when they are needed: it takes longer than all else that a short run imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from pfb.errors import InputError, ShapeError
from pfb.io.fits import celestial, first_image, offset, sky_wcs
from pfb.io.staging import staged
from pfb.types import Geometry

Mask = NDArray[np.bool_]

REGIONS = {".reg": "ds9", ".ds9": "ds9", ".crtf": "crtf", ".rgn": "crtf"}
"""Files of regions by the ends of their names."""


def read_mask(path: str | Path, geometry: Geometry, *, reproject: bool = False) -> Mask:
    """Read a mask that belongs to an image.

    Parameters
    ----------
    path : str or Path
        FITS image, true where it is neither zero nor blank; of several planes the union is taken. One without sky
        coordinates is taken to be aligned. Or regions of DS9 (``.reg``) or CASA (``.crtf``), true inside.
    geometry : Geometry
        The pixel grid of the image that is masked.
    reproject : bool
        Bring a FITS image of another grid to that of the image: a pixel is inside if the mask, interpolated
        linearly at its centre, exceeds one half.

    Returns
    -------
    (nx, ny) bool
        Where a model may be.

    Raises
    ------
    ShapeError
        If it is not of the image's size and is not to be reprojected.
    InputError
        If it cannot be read, lies more than half a pixel off the image anywhere, or has nothing to be reprojected by.
    """
    if Path(path).suffix.lower() in REGIONS:
        return _regions(path, geometry)
    data, header = first_image(path)
    planes = data.reshape(-1, *data.shape[-2:])
    mask = ((planes != 0) & ~np.isnan(planes)).any(axis=0).T
    wcs = celestial(header)
    if reproject:
        if not wcs.has_celestial:
            raise InputError(f"the mask {path} has no sky coordinates to be reprojected by: give one that has, or regrid it")
        if mask.shape == geometry.shape and offset(wcs, geometry) == 0:
            return mask
        return _reprojected(mask, wcs, geometry)
    if mask.shape != geometry.shape:
        raise ShapeError(
            f"the mask {path} has shape {mask.shape} but the image {geometry.shape}: "
            "reproject it (--mask-reproject) or change --npix"
        )
    off = offset(wcs, geometry)
    if not off <= 0.5:
        raise InputError(f"the mask {path} lies up to {off:.3g} pixels off the image: reproject it (--mask-reproject)")
    return mask


def _reprojected(mask: Mask, wcs: object, geometry: Geometry) -> Mask:
    interpolate, source = import_module("reproject").reproject_interp, (mask.T.astype("f4"), wcs)
    image, _ = interpolate(source, sky_wcs(geometry), shape_out=geometry.shape[::-1], order="bilinear")
    inside: Mask = np.nan_to_num(image.T) > 0.5
    return inside


def _regions(path: str | Path, geometry: Geometry) -> Mask:
    regions = import_module("regions")
    try:
        found = regions.Regions.read(str(path), format=REGIONS[Path(path).suffix.lower()])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read as regions ({error}); write them with DS9 or CASA") from error
    if not len(found):
        raise InputError(f"{path} holds no regions; draw some, or give a FITS image")
    wcs, inside, outside = sky_wcs(geometry), np.zeros(geometry.shape, bool), np.zeros(geometry.shape, bool)
    included = 0
    for region in found:
        pixel = region.to_pixel(wcs) if isinstance(region, regions.SkyRegion) else region
        try:
            drawn = pixel.to_mask(mode="center").to_image(geometry.shape[::-1])
        except NotImplementedError as error:
            raise InputError(f"{path} has a {type(region).__name__}, which has no area; draw others") from error
        target, include = (inside, True) if region.meta.get("include", True) not in (False, "-") else (outside, False)
        included += include
        if drawn is not None:  # None: it does not touch the image
            target |= np.asarray(drawn).T > 0
    return ~outside if not included else inside & ~outside


def write_mask(path: str | Path, mask: Mask, like: fits.Header, history: Sequence[str] = (), *, overwrite: bool = False) -> None:
    """Write a mask as a FITS image of ones and zeros, with four axes, that pfb, WSClean and CASA take.

    Parameters
    ----------
    path : str or Path
        File to write; it appears when it is complete.
    mask : (nx, ny) bool
        True where a model may be.
    like : astropy.io.fits.Header
        Header of the image that it belongs to, whose coordinates it gets.
    history : sequence of str
        Lines for HISTORY.
    overwrite : bool
        Whether a file that exists is replaced.
    """
    header = celestial(like).to_header()
    for axis in (3, 4):
        for name in ("CTYPE", "CRPIX", "CRVAL", "CDELT", "CUNIT"):
            if f"{name}{axis}" in like:
                header[f"{name}{axis}"] = like[f"{name}{axis}"]
    for name in ("OBJECT", "TELESCOP", "SPECSYS", "RESTFRQ", "DATE-OBS"):
        if name in like:
            header[name] = like[name]
    header["BTYPE"] = "Mask"
    for line in history:
        header.add_history(line)
    with staged(path, overwrite) as temporary:
        fits.PrimaryHDU(mask.T.astype("f4")[None, None], header).writeto(temporary)
