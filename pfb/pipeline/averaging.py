"""How far a run averages its visibilities: from the options, per window and band, and what it takes from sources at the edge."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pfb.config import Image
from pfb.errors import InputError
from pfb.io.measurement_set import Window, pieces
from pfb.io.time_axis import cuts, row_columns, time_axis
from pfb.kernels.averaging import Averaging, Rows, groups, intervals
from pfb.pipeline.loading import Loader
from pfb.types import Geometry, Real

LONGEST = 120.0
"""Seconds that --bda averages at most unless --average-time says otherwise: half a degree of the sky's turn."""

PIECE = 1 << 22
"""Samples of a piece before they are averaged, if that is a whole interval of time."""

UNITS = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}

OMEGA = 7.292115e-5
"""Of the Earth, in radians per second."""


def averaging_of(config: Image, geometry: Geometry, window: Window, freq: Real) -> tuple[Averaging, NDArray[np.int64]] | None:
    """Return how far some channels of a window are averaged, and where its rows may be cut; None if they are not.

    Parameters
    ----------
    config : Image
        Options.
    geometry : Geometry
        The image, whose corner decides how far a baseline may be averaged.
    window : Window
        Rows.
    freq : (chan,) float64
        Channels in Hz.

    Raises
    ------
    InputError
        If an option cannot be read.
    """
    if config.average_time is None and config.average_chan is None and not config.bda:
        return None
    axis = time_axis(window)
    chan = freq.size if config.bda else 1
    if config.average_chan is not None:
        chan = channels(config.average_chan, float(np.median(window.width)))
    time = config.average_time or 0.0
    if config.bda and not time:
        time = max(min(LONGEST, PIECE / (freq.size * _rows_per_second(window, axis.dump))), axis.dump)
    made = Averaging(
        time=time, chan=chan, corner=corner(geometry) if config.bda else None,
        decorrelation=config.decorrelation, dump=axis.dump, starts=axis.starts,
    )  # fmt: skip
    number = partial(intervals, made) if time > 0 else _stamps
    return made, cuts(window, number)


def channels(text: str, width: float) -> int:
    """Read a number of channels, or a width such as ``2MHz`` in place of it; at least 1.

    Parameters
    ----------
    text : str
        Of ``--average-chan``.
    width : float
        Of a channel in Hz.
    """
    match = re.fullmatch(r"(\d+)|(\d*\.?\d+(?:[eE][+-]?\d+)?)\s*(Hz|kHz|MHz|GHz)", text.strip())
    value = 0 if match is None else int(match[1]) if match[1] else round(float(match[2]) * UNITS[match[3]] / width)
    if match is None or (match[1] and value < 1):
        raise InputError(f"--average-chan: cannot read {text!r}; write a number of channels or a width, e.g. 4 or 500kHz")
    return max(value, 1)


def corner(geometry: Geometry) -> tuple[float, float, float]:
    """Return (l, m, 1 - n) of the corners of an image, all positive."""
    l, m = (n / 2 * geometry.cell for n in geometry.shape)
    return l, m, 1 - math.sqrt(max(1 - l * l - m * m, 0.0))


def averaged(loader: Loader, window: Window, averaging: Averaging, places: NDArray[np.int64]) -> tuple[Loader, ...]:
    """Return the loaders of all pieces of a window, given one that does not average."""
    rows = max(PIECE // loader.freq.size, 1)
    return tuple(replace(loader, piece=piece, averaging=averaging) for piece in pieces(window, rows, places))


def fraction_left(loaders: Sequence[Loader]) -> float:
    """Return how many samples are left of one, on the average, from the piece in the middle."""
    loader = loaders[len(loaders) // 2]
    if loader.averaging is None:
        return 1.0
    columns = Rows(*row_columns(loader.piece))
    made = groups(loader.averaging, columns, loader.freq)
    left = sum(group.averages * -(-loader.freq.size // group.factor) for group in made)
    return left / (len(columns.uvw) * loader.freq.size)


def smearing(loaders: Sequence[Loader], geometry: Geometry, longest: float) -> float:
    """Return what averages that are the same for every baseline leave of a source in the corner of the image, at worst.

    Parameters
    ----------
    loaders : sequence of Loader
        Of any windows.
    geometry : Geometry
        The image.
    longest : float
        The longest baseline in wavelengths.

    Returns
    -------
    float
        1 if all baselines are averaged as far as they allow, or not at all.
    """
    far = float(np.hypot(*corner(geometry)[:2]))
    left = 1.0
    for loader in loaders:
        own = loader.averaging
        if own is None or own.corner is not None:
            continue
        count = min(own.chan, loader.freq.size)
        width = float(np.median(np.diff(loader.freq))) * count if count > 1 else 0.0
        time = own.time if own.time > own.dump else 0.0
        turned = longest * far * time * OMEGA, longest * far * width / float(loader.freq[-1])
        left = min(left, float(np.prod([np.sinc(min(n, 1.0)) for n in turned])))
    return left


def _rows_per_second(window: Window, dump: float) -> float:
    first = row_columns(pieces(window, min(window.rows, 4096))[0])
    return float(np.unique(first.time, return_counts=True)[1].max()) / max(dump, 1e-3)


def _stamps(scan: NDArray[np.int32], time: Real) -> NDArray[np.int64]:
    """Number time stamps: no two are averaged."""
    return np.round((time - time.min()) * 1e3).astype(np.int64)
