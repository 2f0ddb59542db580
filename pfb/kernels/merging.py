"""Samples that see an image alike, as one: where products need to be good to per cents only."""

from __future__ import annotations

import numpy as np

from pfb.kernels.wterm import deepest
from pfb.types import Real


def merge(uvw: Real, weight: Real, shape: tuple[int, int], cell: float, step: float) -> tuple[Real, Real]:
    r"""Replace the samples of every cell of a grid in (u, v, w) by one: the sum of their weights, at their centre of mass.

    What they contribute to :math:`R^H W R` between pixels that are d apart is :math:`\sum w_i \exp(2 \pi i\, u_i d)`. Around
    the centre of mass its terms of first order cancel, so that the relative error is
    :math:`(2 \pi)^2 d^2 \langle (u - \bar u)^2 \rangle / 2`: at most 1.6 % per axis from edge to edge of the image, and less than
    half a per cent over half of it, for cells that are filled evenly and a `step` of 0.1.

    Parameters
    ----------
    uvw : (3, sample) float64
        Coordinates in wavelengths, turned so that w >= 0.
    weight : (sample,) float64
        Weights above 0.
    shape : (int, int)
        Size of the image.
    cell : float
        Pixel size in radians.
    step : float
        Size of the cells: how much the phase may change within one between opposite edges of the image, and for w
        between its centre and its corners, in turns.

    Returns
    -------
    uvw : (3, cell) float64
    weight : (cell,) float64
    """
    depth = abs(deepest(shape, (cell, cell)))
    sizes = [step / (size * cell) for size in shape] + [step / depth if depth else np.inf]
    places = [np.floor(c / size).astype(np.int64) for c, size in zip(uvw, sizes, strict=True)]
    number = np.zeros(uvw.shape[1], np.int64)
    for place in places:
        place -= place.min(initial=0)
        number *= int(place.max(initial=0)) + 1
        number += place
    _, member = np.unique(number, return_inverse=True)
    total = np.asarray(np.bincount(member, weight), np.float64)
    return np.stack([np.bincount(member, c * weight) / total for c in uvw]), total
