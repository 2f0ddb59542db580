"""A quick look at images as PNG: residual, model and restored image side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import AsinhNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter

from pfb.io.fits import sky_wcs
from pfb.io.staging import staged
from pfb.types import Beam, Geometry, Real

# Pixels of the longer side of a panel; larger images are decimated to it.
PANEL = 1000
DPI = 200
INCHES = PANEL / DPI
PREFIXES = {1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n", 1e-12: "p"}
ENLARGEMENTS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200)

Box = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One image of the picture."""

    title: str
    image: Real
    """(nx, ny), indexed ``[x, y]``; NaN where blank. Its centre is the phase centre."""
    unit: str
    beam: Beam | None = None
    kind: str = "image"
    """``residual``: positive and negative alike, out to five times the noise; ``image``: from the noise to
    the brightest source, ``psf`` alike; ``model``: from the faintest to the brightest pixel, single ones made larger."""


def quicklook(path: str | Path, panels: Sequence[Panel], geometry: Geometry, *, title: str = "", overwrite: bool = False) -> None:
    """Draw images side by side with their beams, colour bars and sky coordinates.

    Blank margins are cut off. Images of more than `PANEL` pixels are decimated to blocks, of
    which residuals show the mean and others the maximum, so that a source of one
    pixel is still seen; the numbers above a panel are those of all pixels.

    Parameters
    ----------
    path : str or Path
        PNG file to write; it appears when it is complete.
    panels : sequence of Panel
        From left to right.
    geometry : Geometry
        Pixel size and phase centre. A panel may have another number of pixels.
    title : str
        Line above the panels.
    overwrite : bool
        Whether a file that exists is replaced.

    Raises
    ------
    InputError
        If the file exists.
    """
    # Panels of one size are cut alike, as the first of them.
    crops = {panel.image.shape: _crop(panel.image) for panel in reversed(panels)}
    sizes = [tuple(part.stop - part.start for part in crops[panel.image.shape]) for panel in panels]
    width, height = INCHES, INCHES * min(max(max(ny / nx for nx, ny in sizes), 0.3), 2.0)
    labelled = [i == 0 or panel.image.shape != panels[i - 1].image.shape for i, panel in enumerate(panels)]
    # Room for the labels of declination, or for the ends of those below.
    right = np.cumsum([width + (1.0 if label else 0.45) for label in labelled])
    top, bottom = 0.95 if title else 0.6, 1.15
    figure = Figure(figsize=(right[-1] + 0.45, top + height + bottom), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        _text(figure, right[0] - width, top + height + bottom - 0.35, title, fontsize=14, fontweight="bold")
    for i, panel in enumerate(panels):
        x = right[i] - width
        axes = _draw(figure, panel, geometry, crops[panel.image.shape], (x, bottom, width, height))
        _text(figure, x, bottom + height + 0.32, panel.title, fontsize=12, fontweight="bold")
        _label(axes, labelled[i])
    with staged(path, overwrite) as temporary:
        figure.savefig(temporary, format="png")


def _text(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Write at a place given in inches from the lower left corner."""
    width, height = figure.get_size_inches()
    figure.text(x / width, y / height, text, **style)


def _axes(figure: Figure, box: Box, **options: Any) -> Any:
    """Add axes whose place and size are given in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height), **options)


def _draw(figure: Figure, panel: Panel, geometry: Geometry, crop: tuple[slice, slice], box: Box) -> Any:
    block = -(-max(part.stop - part.start for part in crop) // PANEL)
    small = _decimate(panel.image[crop], block, panel.kind)
    wcs = sky_wcs(replace(geometry, nx=panel.image.shape[0], ny=panel.image.shape[1]))
    x, y = (slice(part.start, part.start + n * block, block) for part, n in zip(crop, small.shape, strict=True))
    axes = _axes(figure, box, projection=wcs.slice((y, x)), anchor="S")
    peak, statistics = _statistics(panel)
    scale, prefix = _prefix(peak)
    norm, cmap = _stretch(small / scale, panel.kind)
    drawn = axes.imshow(small.T / scale, origin="lower", norm=norm, cmap=cmap, interpolation="nearest")
    _text(figure, box[0], box[1] + box[3] + 0.11, statistics, fontsize=9.5)
    bar = _axes(figure, (box[0], 0.42, box[2], 0.13))
    figure.colorbar(drawn, cax=bar, orientation="horizontal", ticks=_ticks(norm))
    bar.minorticks_off()
    bar.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}".replace("-", "\N{MINUS SIGN}"))
    bar.tick_params(labelsize=8.5)
    note = ", to 5 times the noise" if panel.kind == "residual" else ""
    bar.set_xlabel(f"{prefix}{panel.unit}{note}", fontsize=9.5, labelpad=1)
    if panel.beam is not None:
        _draw_beam(axes, panel.beam, geometry.cell * block, small.shape)
    return axes


def _label(axes: Any, labelled: bool) -> None:
    ra, dec = axes.coords
    for coordinate, name in ((ra, "Right ascension"), (dec, "Declination")):
        coordinate.set_ticks(number=4)
        coordinate.set_ticklabel(size=8.5, exclude_overlapping=True)
        coordinate.set_axislabel(name, fontsize=9.5, minpad=0.6)
        coordinate.grid(color="white", alpha=0.18, linewidth=0.6)
    dec.set_ticklabel(rotation=90, va="center", size=8.5, exclude_overlapping=True)
    if not labelled:
        dec.set_ticklabel_visible(False)
        dec.set_axislabel("")
        dec.set_auto_axislabel(False)


def _draw_beam(axes: Any, beam: Beam, pixel: float, shape: tuple[int, ...]) -> None:
    """Draw the beam into the lower left corner, enlarged if it were too small to be seen."""
    least = 0.02 * max(shape)
    enlarged = next((n for n in ENLARGEMENTS if n * beam.major / pixel >= least), ENLARGEMENTS[-1])
    major, minor = enlarged * beam.major / pixel, enlarged * beam.minor / pixel
    margin = 0.03 * max(shape) + major / 2
    ellipse = Ellipse(
        # East is to the left, so North through East is counter-clockwise.
        (margin, margin), minor, major, angle=float(np.degrees(beam.pa)),
        facecolor="white", edgecolor="black", linewidth=0.8,
    )  # fmt: skip
    axes.add_patch(ellipse)
    widths = " \N{MULTIPLICATION SIGN} ".join(f'{np.degrees(width) * 3600:.3g}"' for width in beam[:2])
    text = f"beam {widths}" + (f" (drawn {enlarged}\N{MULTIPLICATION SIGN})" if enlarged > 1 else "")
    axes.text(
        margin + major / 2 + 0.015 * max(shape), margin, text, fontsize=8.5, va="center", color="black",
        bbox=dict(facecolor="white", alpha=0.75, edgecolor="none", boxstyle="round,pad=0.25"),
    )  # fmt: skip


def _crop(image: Real) -> tuple[slice, slice]:
    """Smallest part of an image outside of which all is blank; all of it if nothing is left."""
    finite = np.isfinite(image)
    ranges = [np.flatnonzero(finite.any(axis=axis)) for axis in (1, 0)]
    if not ranges[0].size:
        return slice(0, image.shape[0]), slice(0, image.shape[1])
    return slice(int(ranges[0][0]), int(ranges[0][-1]) + 1), slice(int(ranges[1][0]), int(ranges[1][-1]) + 1)


def _decimate(image: Real, block: int, kind: str) -> Real:
    """Mean or maximum of blocks of pixels; the rest at the far edges is dropped."""
    nx, ny = (n // block for n in image.shape)
    blocks = image[: nx * block, : ny * block].reshape(nx, block, ny, block)
    if kind == "residual":
        finite = np.isfinite(blocks)
        with np.errstate(invalid="ignore"):
            small: Real = np.sum(blocks, axis=(1, 3), where=finite) / finite.sum(axis=(1, 3))
        return small
    small = np.fmax.reduce(np.fmax.reduce(blocks, axis=3), axis=1)
    # A single pixel of a thousand is hard to see.
    return maximum_filter(small, 1 + 2 * (max(small.shape) // 400)) if kind == "model" else small


def _statistics(panel: Panel) -> tuple[float, str]:
    """Return the value of largest magnitude, and a line for the reader."""
    finite = panel.image[np.isfinite(panel.image)]
    if not finite.size:
        return 0.0, "blank"
    peak = float(max(finite.max(), finite.min(), key=abs))
    if panel.kind == "model":
        first = f"total {_quantity(float(finite.sum()), panel.unit.partition('/')[0])}"
    elif panel.kind == "residual":
        first = f"rms {_quantity(float(finite.std()), panel.unit)}"
    elif panel.kind == "psf":
        first = f"lowest {_quantity(float(finite.min()), panel.unit)}"
    else:
        first = f"noise {_quantity(_noise(finite), panel.unit)}"
    return peak, f"{first},  peak {_quantity(peak, panel.unit)}"


def _noise(values: Real) -> float:
    """Standard deviation of the bulk of the values, from the median of their deviations."""
    # A few million values are plenty for a median, which is slow.
    some = values[:: 1 + values.size // 2**22]
    return 1.4826 * float(np.median(np.abs(some - np.median(some))))


def _stretch(image: Real, kind: str) -> tuple[Normalize, Any]:
    """Colours that show noise, what is barely above it, and the brightest source."""
    finite: NDArray[Any] = image[np.isfinite(image)]
    if not finite.any():
        return Normalize(-1, 1), _colours("gray")
    top, noise = float(finite.max()), _noise(finite)
    if kind == "residual":
        limit = 5 * noise or float(np.abs(finite).max())
        return Normalize(-limit, limit), _colours("RdBu_r")
    if kind == "model" or noise == 0:
        faint = float(np.quantile(np.abs(finite[finite != 0]), 0.25))
        return AsinhNorm(faint, min(0.0, float(finite.min())), max(top, faint)), _colours("inferno")
    middle = float(np.median(finite))
    return AsinhNorm(2 * noise, middle - 2 * noise, max(top, middle + 10 * noise)), _colours("inferno")


def _colours(name: str) -> Any:
    return matplotlib.colormaps[name].with_extremes(bad="0.85")


def _ticks(norm: Normalize) -> list[float]:
    """Zero, the maximum, and of the powers of ten those that leave room for their labels."""
    low, high = float(norm.vmin or 0), float(norm.vmax or 1)
    if not isinstance(norm, AsinhNorm) or high <= 0:
        return [low, low / 2, 0.0, high / 2, high]
    ticks = [0.0, high]
    for exponent in range(int(np.floor(np.log10(high))), int(np.floor(np.log10(norm.linear_width))), -1):
        if all(abs(norm(10.0**exponent) - norm(tick)) > 0.1 for tick in ticks):
            ticks.append(10.0**exponent)
    return sorted(ticks)


def _prefix(value: float) -> tuple[float, str]:
    """SI prefix that leaves one to three digits before the point."""
    fitting = [(scale, prefix) for scale, prefix in PREFIXES.items() if abs(value) >= scale]
    return fitting[0] if fitting else (1.0, "")


def _quantity(value: float, unit: str) -> str:
    scale, prefix = _prefix(value)
    return f"{value / scale:.3g} {prefix}{unit}".replace("-", "\N{MINUS SIGN}")
