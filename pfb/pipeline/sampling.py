"""Some of the samples of a planned run, read and weighed as the run would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pfb.config import Image
from pfb.kernels.weighting import count
from pfb.pipeline.loading import Loader
from pfb.pipeline.planning import Plan
from pfb.pipeline.weighting import scheme_of

SAMPLES = 1 << 22
"""Samples that are read of all bands together, at most."""
STRETCHES = 16
"""Runs of consecutive rows that they are taken from in each window of a band."""


class Looked(NamedTuple):
    """What was seen of a band."""

    samples: int
    good: int
    """Samples with a weight."""
    wsum: float
    """Sum of the weights of those that the scheme of the weights can use."""
    whole: bool
    """Whether all samples of the band were looked at."""


def look(plan: Plan, config: Image, advance: Callable[[int], None]) -> list[Looked]:
    """Read samples spread over every band; `advance` is told of each that is done."""
    most = SAMPLES // max(sum(len(windows) for windows in plan.loaders), 1)
    found = []
    for band in range(len(plan.bands)):
        found.append(_band(plan, config, band, most))
        advance(1)
    return found


def _band(plan: Plan, config: Image, band: int, most: int) -> Looked:
    scheme = scheme_of(config, plan.geometry)
    samples = good = 0
    wsum, whole = 0.0, True
    for loaders, window, channels in zip(plan.loaders[band], plan.windows[band], plan.channels[band], strict=True):
        cell = (channels.stop - channels.start) * len(window.correlations)
        rows = max(most // cell, STRETCHES)
        whole &= rows >= window.rows
        for loader in loaders if rows >= window.rows else _stretches(loaders, rows):
            (found,) = replace(loader, averaging=None)()
            samples, good = samples + found.weight.size, good + int(np.count_nonzero(found.weight))
            if scheme.scheme == "natural":
                wsum += float(found.weight.sum())
            else:
                wsum += float(count(found.uvw, found.freq, found.weight, scheme.counts, scheme.cell).sum())
    return Looked(samples, good, wsum, whole)


def _stretches(loaders: tuple[Loader, ...], rows: int) -> list[Loader]:
    """Return loaders of fewer rows, evenly spread over those of all."""
    first, last = loaders[0].piece.first, loaders[-1].piece.last
    size = max(rows // STRETCHES, 1)
    starts = np.unique(np.linspace(first, max(last - size, first), STRETCHES).astype(int)).tolist()
    shorter = [replace(loaders[0].piece, first=start, last=min(start + size, last)) for start in starts]
    return [replace(loaders[0], piece=piece) for piece in shorter]
