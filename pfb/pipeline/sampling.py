"""Some of the samples of a planned run, read and weighed as the run would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pfb.config import Image
from pfb.graph.imaging import Weighting
from pfb.kernels.weighting import count
from pfb.pipeline.loading import Loader
from pfb.pipeline.planning import Plan
from pfb.pipeline.weighting import scheme_of
from pfb.types import Visibilities

SAMPLES = 1 << 22
"""Samples that are read of all bands together, at most."""
STRETCHES = 16
"""Runs of consecutive rows that they are taken from in each window of a band."""


class Looked(NamedTuple):
    """What was seen of a plane."""

    samples: int
    good: int
    """Samples with a weight."""
    wsum: float
    """Sum of the weights of those that the scheme of the weights can use."""
    whole: bool
    """Whether all samples of its band were looked at."""


def look(plan: Plan, config: Image, advance: Callable[[int], None]) -> list[Looked]:
    """Read samples spread over every band, and say what each plane has; `advance` is told of every band that is done."""
    most = SAMPLES // max(sum(len(windows) for windows in plan.loaders), 1)
    found = []
    for band in range(len(plan.bands)):
        found += _band(plan, config, band, most)
        advance(1)
    return found


def _band(plan: Plan, config: Image, band: int, most: int) -> list[Looked]:
    scheme = scheme_of(config, plan.geometry)
    nproduct = len(plan.products)
    samples, good, wsum, whole = [0] * nproduct, [0] * nproduct, [0.0] * nproduct, True
    for loaders, window, channels in zip(plan.loaders[band], plan.windows[band], plan.channels[band], strict=True):
        cell = (channels.stop - channels.start) * len(window.correlations)
        rows = max(most // cell, STRETCHES)
        whole &= rows >= window.rows
        for loader in loaders if rows >= window.rows else _stretches(loaders, rows):
            for s, parts in enumerate(replace(loader, averaging=None)()):
                for found in parts:
                    samples[s] += found.weight.size
                    good[s] += int(np.count_nonzero(found.weight))
                    wsum[s] += _usable(found, scheme)
    return [Looked(*own, whole) for own in zip(samples, good, wsum, strict=True)]


def _usable(found: Visibilities, scheme: Weighting) -> float:
    """Return the sum of the weights that the scheme can use."""
    if scheme.scheme == "natural":
        return float(found.weight.sum())
    return float(count(found.uvw, found.freq, found.weight, scheme.counts, scheme.cell).sum())


def _stretches(loaders: tuple[Loader, ...], rows: int) -> list[Loader]:
    """Return loaders of fewer rows, evenly spread over those of all."""
    first, last = loaders[0].piece.first, loaders[-1].piece.last
    size = max(rows // STRETCHES, 1)
    starts = np.unique(np.linspace(first, max(last - size, first), STRETCHES).astype(int)).tolist()
    shorter = [replace(loaders[0].piece, first=start, last=min(start + size, last)) for start in starts]
    return [replace(loaders[0], piece=piece) for piece in shorter]
