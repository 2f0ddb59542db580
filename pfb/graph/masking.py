"""Graph of the mask of what stands out of the noise of the residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pfb.graph.blocks import reduce_bands
from pfb.graph.imaging import mfs
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels.beam import restore
from pfb.kernels.masking import Mask, beam_pixels, islands
from pfb.kernels.noise import local_rms
from pfb.types import Beam, Real

SMALLEST = 0.5
"""Of the pixels that a beam has above half maximum, an island has so many at least. A point source that is just found with the
usual 5 and 3 times the noise has 0.74."""


class Found(NamedTuple):
    """What is known of a mask, in numbers."""

    fraction: float
    """Of the image that is inside."""
    islands: int
    lowest: float
    """The least local noise in Jy/beam."""
    highest: float


class Masked(NamedTuple):
    """A mask and what is known of it."""

    mask: Mask
    found: Found


@dataclass(frozen=True)
class Search:
    """How emission is told from noise.

    Parameters
    ----------
    high, low : float
        Times the local noise that an island exceeds somewhere, and everywhere.
    box : float
        Width of the boxes in which the noise is measured, in major axes of the beam.
    cell : float
        Pixel size in radians.
    beam : Beam
        Resolution of the residual.
    negative : bool
        Whether what is negative counts, as in Q, U and V.
    """

    high: float
    low: float
    box: float
    cell: float
    beam: Beam
    negative: bool = False

    def islands(self, image: Real, residual: Real, within: Mask | None = None, negative: bool = False) -> Masked:
        """Find the islands of an image, (nx, ny) in Jy/beam, where the noise is that of a residual.

        Parameters
        ----------
        image, residual : (nx, ny) float
            In Jy/beam; the same array if there is no model.
        within : (nx, ny) bool, optional
            Where there may be islands.
        negative : bool
            Whether what is negative counts.
        """
        noise = local_rms(residual, self.box * self.beam.major / self.cell)
        smallest = SMALLEST * beam_pixels(self.beam.major, self.beam.minor, self.cell)
        mask, number = islands(image, noise, high=self.high, low=self.low, smallest=smallest, negative=negative, within=within)
        return Masked(mask, Found(float(mask.mean()), number, float(noise.min()), float(noise.max())))


def significant(
    graph: Graph, names: Names, residuals: Mapping[int, Key], models: Mapping[int, Key], shares: Sequence[float],
    total: float, search: Search, within: Key | None,
) -> tuple[Key, Key]:  # fmt: skip
    """Find what stands out of the noise in the MFS image: the residual and the model seen with the beam.

    Parameters
    ----------
    residuals, models : mapping
        Keys of the raw residuals and of the models in Jy/pixel of the bands, by the number of their plane.
    shares : sequence of float
        Of every band in the sum of all weights.
    total : float
        That sum.
    search : Search
        What stands out.
    within : Key, optional
        Mask that the new one is part of.

    Returns
    -------
    mask, found : Key
        (nx, ny) bool, and `Found`.
    """
    residual = mfs(graph, names.within("residual"), residuals, total)
    weighted = [
        add(graph, names.key("model", v), np.multiply, ref(key), share)
        for (v, key), share in zip(models.items(), shares, strict=True)
    ]
    places = list(models)
    model = reduce_bands(graph, lambda i: names.key("mfs", 0, places[i]), weighted, np.add)
    where = None if within is None else ref(within)
    both = add(graph, names.key("mask", 0, 0), _search, search, ref(residual), ref(model), where)
    mask, found = (add(graph, names.key("mask", i, 0), getattr, ref(both), name) for i, name in ((1, "mask"), (2, "found")))
    return mask, found


def _search(search: Search, residual: Real, model: Real, within: Mask | None) -> Masked:
    image = restore(model.astype(residual.dtype, copy=False), residual, search.cell, search.beam, search.beam)
    return search.islands(image, residual, within, search.negative)
