r"""How far residual visibilities are from noise, by the length of their baselines.

For a sample with residual V, imaging weight W and natural weight :math:`w = 1/\sigma^2`, where :math:`\sigma` is the rms
of the real part, :math:`\langle |V|^2 \rangle = 2/w` if V is noise. So over any set of samples

.. math:: \tfrac12 \sum W |V|^2 \Big/ \sum \frac{W}{w}

is one for noise: it is the mean of :math:`w|V|^2/2`, reduced chi-squared, in which every sample counts as much as the imaging
weights taper it. With natural weights :math:`W = w` and it counts every sample alike. The denominator is known before there is a
model, so no natural weights are kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.types import Complex, Real

NBIN = 24
"""Octaves of the length of a baseline: bin k has those of 2**k to 2**(k+1) metres, the first all shorter, the last all longer."""


class Expected(NamedTuple):
    """What the imaging weights of a band make of noise."""

    variance: float
    """Of a pixel of the raw image: the sum of W^2 / w."""
    taper: Real
    """(NBIN,) sums of W / w: what half the sum of W |V|^2 is expected to be."""
    square: Real
    """(NBIN,) sums of (W / w)^2, which is the variance of that."""


def octave(uvw: Real) -> NDArray[np.int64]:
    """Return the (row,) bin of every baseline, by its length in the uv-plane.

    Parameters
    ----------
    uvw
        (row, 3) metres.
    """
    length = np.hypot(uvw[:, 0], uvw[:, 1])
    return np.clip(np.log2(np.maximum(length, 1.0)).astype(np.int64), 0, NBIN - 1)


def power(uvw: Real, vis: Complex, weight: Real) -> Real:
    """Return half the sum of W |V|^2 of every bin.

    Parameters
    ----------
    uvw
        (row, 3) metres.
    vis
        (row, chan) residual visibilities in Jy.
    weight
        (row, chan) imaging weights.

    Returns
    -------
    (NBIN,) float64
        Not divided by what it is expected to be.
    """
    rows = np.einsum("rc,rc,rc->r", weight, vis.real, vis.real) + np.einsum("rc,rc,rc->r", weight, vis.imag, vis.imag)
    return _binned(octave(uvw), rows / 2)


def expected(uvw: Real, natural: Real, weight: Real) -> Expected:
    """Return what noise comes to.

    Parameters
    ----------
    uvw
        (row, 3) metres.
    natural
        (row, chan) natural weights, the inverse variance of the real part in Jy**-2; zero where nothing was observed.
    weight
        (row, chan) imaging weights, zero there too.
    """
    taper = np.divide(weight, natural, out=np.zeros(weight.shape), where=natural > 0)
    bins = octave(uvw)
    return Expected(
        float(np.vdot(taper, weight)),
        _binned(bins, taper.sum(axis=1)),
        _binned(bins, np.einsum("rc,rc->r", taper, taper)),
    )


def _binned(bins: NDArray[np.int64], values: Real) -> Real:
    sums: Real = np.bincount(bins, values, NBIN).astype(np.float64)
    return sums
