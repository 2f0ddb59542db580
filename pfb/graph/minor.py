"""What the tasks of a minor cycle of CLEAN do; `pfb.graph.cleaning` makes graphs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pfb.errors import PfbError
from pfb.kernels.cleaning import Patch, Pixels, Rule, clark, hogbom, mixing
from pfb.kernels.masking import Mask
from pfb.kernels.noise import local_rms, robust_rms
from pfb.kernels.scales import depth_inside, radius, reached, smooth
from pfb.operators.hessian import PsfHessian
from pfb.types import Real

ACTIVE = 50_000
"""Pixels that are cleaned among themselves at most: more are slower than another look at the image."""

DEEPER, DEEPER_OF_SCALES = 0.1, 0.8
"""Fraction of the peak down to which pixels are cleaned among themselves: a point stays one, a scale may become another."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a cycle cleans.

    Parameters
    ----------
    gain : float
        Fraction of a peak that is taken off at once.
    major_gain : float
        Fraction of the first peak that a cycle takes off at most.
    sigma : float or None
        Stop at so many times the noise of the residual...
    threshold : float
        ...or at this in Jy/beam, whichever is higher.
    box : float or None
        Width in pixels of the boxes in which the noise is measured; by default it is that of the whole image.
    positivity : str
        As of `pfb.kernels.cleaning.Rule`.
    freq : tuple of float
        Of the bands, in Hz.
    terms : int or None
        Of the polynomial in frequency, see `pfb.kernels.cleaning.mixing`.
    widths : tuple of float
        Of the scales in pixels, 0 for a point.
    bias : float
        What a scale counts less than one of half its width.
    nthreads : int
        Threads of a task.
    """

    gain: float
    major_gain: float
    sigma: float | None
    threshold: float
    box: float | None
    positivity: str
    freq: tuple[float, ...]
    terms: int | None
    widths: tuple[float, ...] = (0.0,)
    bias: float = 1.0
    nthreads: int = 1

    def rule(self, peaks: Real) -> Rule:
        """Return how components are taken off PSFs of these peaks, (band,)."""
        return Rule(mixing(peaks, self.gain, np.array(self.freq), self.terms), self.positivity)


class Survey(NamedTuple):
    """Where a cycle looks for components."""

    prefer: Real
    """(nx, ny) float32: the least noise over that of the place; 0 outside of the mask."""
    inside: Real
    """(nx, ny) float32: pixels to the nearest one outside of the mask, or beyond the edge."""
    stop: float
    """What is below it is noise, in Jy/beam, where the noise is least."""


class Told(NamedTuple):
    """What the client knows of a look at the residual."""

    peak: float
    """The highest one, of all scales, as if it were a point's: in Jy/beam."""
    level: float
    """What the cycle shall come to."""
    deepest: bool
    """That is where the noise begins."""
    scale: int
    """The one that has most of its own."""
    pixels: int
    """That are to be cleaned."""


class Sought(NamedTuple):
    """Pixels that stand out."""

    told: Told
    pixels: Pixels
    prefer: Real
    """(n,), over the peak that a point as bright would have."""
    floor: float
    """Down to which they are cleaned among themselves."""


class Spots(NamedTuple):
    """What scales look like."""

    psfs: tuple[Real, ...]
    """(band, w, w) of every scale: middle of the PSF, convolved twice with the kernel."""
    beyond: float
    """The highest sidelobe of a point that is not in there, over its peak."""

    def peaks(self, scale: int) -> Real:
        """Return the peaks of a scale in all bands, (band,) float64."""
        psf = self.psfs[scale]
        return psf[:, psf.shape[1] // 2, psf.shape[2] // 2].astype(np.float64)


class Components(NamedTuple):
    """What a round has found."""

    pixels: Pixels
    fluxes: Real
    """(n, band) in Jy."""
    scale: int
    number: int
    """Minor iterations."""


class Whole(NamedTuple):
    """State of a cycle that has all bands in one place."""

    left: Real
    """(band, nx, ny) float64 in Jy/beam."""
    model: Real
    """The same of what was found, in Jy/pixel."""
    number: int
    """Components of the last round."""


def survey(residual: Real, mask: Mask | None, settings: Settings) -> Survey:
    """Measure the noise of the MFS residual, and say where components may be.

    Raises
    ------
    PfbError
        If there is no residual to be seen anywhere in the mask.
    """
    inside = depth_inside(mask, residual.shape)
    prefer = (inside > 0).astype(np.float32)
    least = 0.0
    if settings.box is not None:
        noise = local_rms(residual, settings.box)
        least = float(noise.min())
        prefer *= least / np.maximum(noise, np.finfo(noise.dtype).tiny)
    elif settings.sigma is not None:
        least = robust_rms(residual)
    if not np.isfinite(least):
        raise PfbError("the residual has no finite pixel, so its noise is unknown: look for bad data (pfb info)")
    return Survey(prefer, inside, max(settings.threshold, (settings.sigma or 0.0) * least))


def seek(residual: Real, found: Survey, spots: Spots | None, settings: Settings, first: Sought | None) -> Sought:
    """Find the scale of the highest peak of the MFS residual, and the pixels that come near it.

    A kernel K of a scale sees the peak r of K * residual, and its noise is that of a point times the root of the
    peak p of K * K * PSF; so r over that root is compared with other scales, with thresholds and with the noise.

    Parameters
    ----------
    residual : (nx, ny) float
        In Jy/beam.
    found : Survey
        Of the cycle.
    spots : Spots, optional
        Of the scales; there is one of points only without them.
    settings : Settings
    first : Sought, optional
        The first look of the cycle, which has made its level.
    """
    best, peak, seen = -1.0, 0.0, None
    for s, (width, image) in enumerate(zip(settings.widths, smooth(residual, settings.widths, settings.nthreads), strict=True)):
        unit = 1.0 if spots is None else float(np.sqrt(spots.peaks(s).sum()))
        height = image if settings.positivity != "none" else np.abs(image)
        height = np.where(found.inside > radius(width), height * found.prefer, 0) / unit
        highest = float(height.max())
        peak = max(peak, highest)
        liked = highest * (settings.bias ** (1 + np.log2(width / _smallest(settings.widths))) if width else 1.0)
        if liked > best:
            best, seen = liked, (s, height, highest, unit)
    assert seen is not None
    scale, height, highest, unit = seen
    level = max(found.stop, (1 - settings.major_gain) * peak) if first is None else first.told.level
    deepest = level <= found.stop
    beyond = 0.0 if spots is None else spots.beyond
    floor = max(level, max(beyond, DEEPER if len(settings.widths) == 1 else DEEPER_OF_SCALES) * highest)
    pixels = np.argwhere(height > floor)
    heights = height[pixels[:, 0], pixels[:, 1]]
    if len(pixels) > ACTIVE:
        order = np.sort(np.argsort(-heights, kind="stable")[:ACTIVE])
        floor = max(floor, float(np.partition(heights, -ACTIVE - 1)[-ACTIVE - 1]))
        pixels = pixels[order]
    prefer = found.prefer[pixels[:, 0], pixels[:, 1]].astype(np.float64) / unit
    return Sought(Told(peak, level, deepest, scale, len(pixels)), pixels, prefer, floor)


def _smallest(widths: Sequence[float]) -> float:
    return min(width for width in widths if width)


def look(psf: Real, total: float, halves: Sequence[int], settings: Settings) -> list[Real]:
    """Return what every scale looks like in a band, the middle of it: (2 h + 1, 2 h + 1) for a half width h each."""
    psf = psf / total
    out = []
    centre = [n // 2 for n in psf.shape]
    for width, half in zip(settings.widths, halves, strict=True):
        seen = smooth(smooth(psf, [width], settings.nthreads)[0], [width], settings.nthreads)[0]
        h = [min(half, c, n - 1 - c) for c, n in zip(centre, psf.shape, strict=True)]
        part = tuple(slice(c - own, c + own + 1) for c, own in zip(centre, h, strict=True))
        out.append(np.ascontiguousarray(seen[part]))
    return out


def join(looks: list[list[Real]], psf: Real) -> Spots:
    """Join what the scales look like in all bands; `psf` is that of all bands together, of peak 1."""
    psfs = tuple(np.stack(of_scale) for of_scale in zip(*looks, strict=True))
    outside = np.abs(psf)
    half = [n // 2 for n in psfs[0].shape[1:]]
    centre = [n // 2 for n in psf.shape]
    outside[tuple(slice(c - h, c + h + 1) for c, h in zip(centre, half, strict=True))] = 0
    return Spots(psfs, float(outside.max()))


def gather(image: Real, sought: Sought, settings: Settings) -> Real:
    """Return the values of a band's residual, seen with the scale, at the pixels: (n,) float64."""
    seen = smooth(image, [settings.widths[sought.told.scale]], settings.nthreads)[0]
    return seen[sought.pixels[:, 0], sought.pixels[:, 1]].astype(np.float64)


def clean(values: list[Real], sought: Sought, spots: Spots, settings: Settings, most: int) -> Components:
    """Clean the pixels among themselves, `most` times at most."""
    scale = sought.told.scale
    patch = Patch(np.stack(values), sought.pixels, sought.prefer, spots.psfs[scale])
    fluxes, count = clark(patch, settings.rule(spots.peaks(scale)), floor=sought.floor, maxit=most)
    used = fluxes.any(axis=1)
    return Components(sought.pixels[used], fluxes[used], scale, count)


def spread(found: Components, band: int, like: Real, settings: Settings) -> Real:
    """Return an image of what was found in a band, in Jy/pixel and in the precision of another one."""
    image = np.zeros_like(like)
    np.add.at(image, (found.pixels[:, 0], found.pixels[:, 1]), found.fluxes[:, band])
    width = settings.widths[found.scale]
    if not width:
        return image
    # Rounding of the transform leaves nothing where the kernels do not reach.
    return np.where(reached(found.pixels, image.shape, width), smooth(image, [width], settings.nthreads)[0], 0)


def subtract(residual: Real, hessian: PsfHessian, model: Real) -> Real:
    """Take a model in Jy/pixel off a residual in Jy/beam."""
    return residual - hessian.dot(model)


def outside(model: Real, mask: Mask) -> Real:
    """Return what of a model lies outside of a mask, negative, so that adding it leaves the inside."""
    return np.where(mask, model.dtype.type(0), -model)


def gathered(slopes: list[Real]) -> Whole:
    """Begin a cycle that has all bands in one place."""
    left = np.stack(slopes).astype(np.float64)
    return Whole(left, np.zeros_like(left), 0)


def total_of(state: Whole) -> Real:
    """Return the MFS residual of a state."""
    return state.left.sum(axis=0)


def stack(psfs: list[Real], total: float) -> Real:
    """Return the PSFs of all bands in Jy/beam per Jy, (band, px, py)."""
    return np.stack(psfs) / total


def pursue(state: Whole, psfs: Real, found: Survey, sought: Sought, settings: Settings, most: int) -> Whole:
    """Take `most` components at most off all bands with the whole of their PSFs."""
    left, model = state.left.copy(), state.model.copy()
    peaks = psfs[:, psfs.shape[1] // 2, psfs.shape[2] // 2]
    pixels, fluxes = hogbom(left, psfs, found.prefer, settings.rule(peaks), floor=sought.told.level, maxit=most)
    for band, image in enumerate(model):
        np.add.at(image, (pixels[:, 0], pixels[:, 1]), fluxes[:, band])
    return Whole(left, model, len(pixels))


def improved(model: Real, state: Whole, band: int, mask: Mask | None) -> Real:
    """Return a band's model with what was found, within the mask."""
    made = (model + state.model[band]).astype(model.dtype)
    return made if mask is None else np.where(mask, made, model.dtype.type(0))
