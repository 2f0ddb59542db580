"""Images of few frequencies at many others: which band a channel takes, or how it is interpolated between bands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pfb.errors import InputError
from pfb.types import Real


class SpectralBasis(NamedTuple):
    """The image at frequency i is ``sum_k design[i, k] sum_b mix[k, b] image_b``."""

    design: Real
    """(chan, image)."""
    mix: Real
    """(image, band)."""


def nearest_band(freq: Real, low: Real, high: Real) -> SpectralBasis:
    """Let every channel have the image of the band that it lies in, or else of the nearest one.

    Parameters
    ----------
    freq : (chan,) float
        Hz.
    low, high : (band,) float
        Edges of the bands in Hz.
    """
    distance = np.maximum(np.maximum(low - freq[:, None], freq[:, None] - high), 0)
    # Where bands touch or overlap, the one in whose middle the channel is.
    middle = np.abs(freq[:, None] - (low + high) / 2) * 1e-9
    design = np.zeros((len(freq), len(low)))
    design[np.arange(len(freq)), np.argmin(distance + middle, axis=1)] = 1
    return SpectralBasis(design, np.eye(len(low)))


def linear(freq: Real, centre: Real) -> SpectralBasis:
    """Interpolate linearly in frequency between the middles of bands; beyond the outermost the image is constant.

    Parameters
    ----------
    freq : (chan,) float
        Hz.
    centre : (band,) float
        Frequencies of the bands in Hz, in any order, all different.
    """
    order = np.argsort(centre)
    design = np.zeros((len(freq), len(centre)))
    for place, band in enumerate(order):
        peak = np.zeros(len(centre))
        peak[place] = 1
        design[:, band] = np.interp(freq, centre[order], peak)
    return SpectralBasis(design, np.eye(len(centre)))


def polynomial(freq: Real, centre: Real, weight: Real, terms: int) -> SpectralBasis:
    r"""Fit a polynomial in :math:`\nu/\nu_0 - 1` to every pixel by weighted least squares.

    Parameters
    ----------
    freq : (chan,) float
        Hz.
    centre : (band,) float
        Frequencies of the bands in Hz.
    weight : (band,) float
        Weights of the bands; a band of weight zero takes no part.
    terms : int
        Coefficients, the constant among them.

    Raises
    ------
    InputError
        If there are fewer bands with weight than terms.
    """
    used = np.flatnonzero(weight > 0)
    distinct = len(np.unique(centre[used]))
    if terms > distinct:
        raise InputError(
            f"a spectrum of {terms} terms has rank {terms} but the model has {distinct} band{'s' * (distinct != 1)} with data: "
            f"use at most {distinct}"
        )
    reference = float(np.average(centre[used], weights=weight[used]))
    root = np.sqrt(weight[used] / weight[used].max())
    mix = np.zeros((terms, len(centre)))
    mix[:, used] = np.linalg.pinv(np.vander(centre[used] / reference - 1, terms, increasing=True) * root[:, None]) * root
    return SpectralBasis(np.vander(freq / reference - 1, terms, increasing=True), mix)
