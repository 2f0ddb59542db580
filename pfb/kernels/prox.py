r"""Proximal maps that couple the bands, each as a statistic of the bands and a map per band.

For coefficients :math:`a_b` of the bands at one basis and pixel, and a radius r > 0,

* ``l21``: :math:`g(a) = r \lVert a \rVert_2`;
* ``mean21``: with the band axis rotated so that its first component is
  :math:`m = \sum_b a_b / \sqrt{n}` and d is the rest, :math:`g(a) = r |m| + r \lVert d \rVert_2`.

What a solver needs is the projection onto the dual ball, :math:`P(v) = v - \mathrm{prox}_g(v)`
(Moreau). It is :math:`P(v)_b = s v_b + o` with numbers s and o that depend on the bands only
through sums over them: the *statistic*, which can be added over bands wherever they are.
Cubes have the axes (basis, band, coefficient).
"""

from __future__ import annotations

import numpy as np

from pfb.types import Real


def split(n: int) -> int:
    """Return where the fixed binary tree over `n` terms divides: the largest power of two below n."""
    return 1 << ((n - 1).bit_length() - 1)


def l21_statistic(v: Real) -> Real:
    """Sum the squares over the bands.

    Parameters
    ----------
    v : (nbasis, nband, ncoefficient) float

    Returns
    -------
    (1, nbasis, ncoefficient) float
        Added along the fixed binary tree, so that it does not depend on how bands are grouped.
    """
    if v.shape[1] == 1:
        return np.square(v[None, :, 0])
    middle = split(v.shape[1])
    out = l21_statistic(v[:, :middle])
    out += l21_statistic(v[:, middle:])
    return out


def mean21_statistic(v: Real) -> Real:
    """Sum the values and their squares over the bands.

    Parameters
    ----------
    v : (nbasis, nband, ncoefficient) float

    Returns
    -------
    (2, nbasis, ncoefficient) float
        The sums of values and of squares.
    """
    if v.shape[1] == 1:
        return np.stack([v[:, 0], np.square(v[:, 0])])
    middle = split(v.shape[1])
    out = mean21_statistic(v[:, :middle])
    out += mean21_statistic(v[:, middle:])
    return out


def l21_factor(statistic: Real, radius: Real | float) -> Real:
    """Return the scale s of the projection onto the l21 ball, (1, nbasis, ncoefficient)."""
    return _clip_factor(np.sqrt(statistic), radius)


def mean21_factor(statistic: Real, radius: Real | float, nband: int) -> Real:
    """Return the scale s and offset o of the projection onto the mean21 ball, (2, nbasis, ncoefficient).

    Parameters
    ----------
    statistic : (2, nbasis, ncoefficient) float
        From `mean21_statistic`, of all bands.
    radius : float or (nbasis, ncoefficient) float
        Radius of both balls.
    nband : int
        Bands that the statistic was taken over.
    """
    total, squares = statistic
    mean = total / nband
    # Rounding may leave the deviations of equal bands slightly negative.
    deviation = np.sqrt(np.maximum(squares - mean * total, 0))
    out = np.empty_like(statistic)
    out[0] = _clip_factor(deviation, radius)
    out[1] = mean * (_clip_factor(np.abs(total) / np.sqrt(nband, dtype=total.dtype), radius) - out[0])
    return out


def project(v: Real, factor: Real) -> Real:
    """Map the bands onto the dual ball: scale, and offset if there is one.

    Parameters
    ----------
    v : (nbasis, nband, ncoefficient) float
    factor : (1 or 2, nbasis, ncoefficient) float

    Returns
    -------
    (nbasis, nband, ncoefficient) float
    """
    out = v * factor[0][:, None]
    if len(factor) == 2:
        out += factor[1][:, None]
    return out


def _clip_factor(norm: Real, radius: Real | float) -> Real:
    """min(1, radius / norm), 1 where the norm is zero."""
    factor = np.maximum(norm, np.finfo(norm.dtype).tiny)
    with np.errstate(over="ignore"):  # a radius over nothing is clipped like any other
        np.divide(radius, factor, out=factor)
    return np.minimum(factor, 1, out=factor)
