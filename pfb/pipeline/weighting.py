"""The weights of a run: from the options to the scheme, and what they cost in noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pfb.config import Image
from pfb.errors import InputError
from pfb.graph.imaging import Sums, Weighting
from pfb.kernels.chi_squared import Expected
from pfb.kernels.weighting import counts_shape
from pfb.pipeline.beams import read_beam
from pfb.types import Beam, Geometry


def scheme_of(config: Image, geometry: Geometry) -> Weighting:
    """Return how imaging weights follow from natural ones.

    Raises
    ------
    InputError
        If an option of the density goes with natural weights, or a taper cannot be read.
    """
    changed = {
        "--super-uniform": config.super_uniform > 0, "--weight-floor": config.weight_floor > 0,
        "--weight-grouping band": config.weight_grouping == "band",
    }  # fmt: skip
    if config.weighting == "natural":
        for option, given in changed.items():
            if given:
                raise InputError(
                    f"{option} changes the density that uniform and Briggs weights are divided by, but natural weights "
                    "are not: leave it out, or choose another --weighting"
                )
    inner = None if config.inner_taper is None else math.radians(config.inner_taper / 3600)
    return Weighting(
        scheme=config.weighting, robust=config.robust, counts=counts_shape(geometry.shape), cell=geometry.cell,
        box=config.super_uniform, floor=config.weight_floor, per_band=config.weight_grouping == "band",
        taper=None if config.taper is None else read_beam("--taper", config.taper),
        inner=None if inner is None else Beam(inner, inner, 0.0),
    )  # fmt: skip


def thermal(sums: Sums, expected: Expected) -> float:
    """Return the noise of a band's dirty image in Jy/beam that natural weights foretell; NaN without data."""
    return math.sqrt(expected.variance) / sums.wsum if sums.wsum > 0 else math.nan


def cost(config: Image, sums: Sequence[Sums], expected: Sequence[Expected]) -> str:
    """Say in a sentence what the weights of all bands cost in noise, over what natural weights do."""
    words = [f"Briggs weights of --robust {config.robust:g}" if config.weighting == "briggs" else f"{config.weighting} weights"]
    if config.taper is not None:
        words.append(f"a taper of {config.taper} arcsec")
    if config.inner_taper is not None:
        words.append(f"an inner taper of {config.inner_taper:g} arcsec")
    noise = math.sqrt(sum(band.variance for band in expected)) / sum(band.wsum for band in sums)
    least = 1 / math.sqrt(sum(band.natural for band in sums))
    return (
        f"{' and '.join(words)}: the thermal noise is {noise / least:.3g} times that of natural weights, "
        f"{noise:.3g} Jy/beam over all bands if these are inverse variances"
    )
