r"""Proximal maps that couple the bands, each as a statistic of the bands and a map per band.

For coefficients :math:`a_b` of the bands at one basis and pixel, and a radius r > 0,

* ``l21``: :math:`g(a) = r \lVert a \rVert_2`;
* ``mean21``: with the band axis rotated so that its first component is
  :math:`m = \sum_b a_b / \sqrt{n}` and d is the rest, :math:`g(a) = r |m| + r \lVert d \rVert_2`.

What a solver needs is the projection onto the dual ball, :math:`P(v) = v - \mathrm{prox}_g(v)`
(Moreau). It is :math:`P(v)_b = s v_b + o` with numbers s and o that depend on the bands only
through sums over them: the *statistic*, which can be added over bands wherever they are.
Cubes have the axes (basis, band, coefficient).

With several Stokes products *band* stands for any plane, a product in a band. Then ``l21`` is the norm over
all of them, and ``mean21`` takes the mean of each product s over its own :math:`n_s` planes: with
:math:`m_s = \sum_{b \in s} a_b / \sqrt{n_s}` and d what is left of every plane,
:math:`g(a) = r \lVert m \rVert_2 + r \lVert d \rVert_2`. The projection is
:math:`P(v)_b = s v_b + o_s`, with an offset for each product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
import numpy as np

from pfb.types import Real


def split(n: int) -> int:
    """Return where the fixed binary tree over `n` terms divides: the largest power of two below n."""
    return 1 << ((n - 1).bit_length() - 1)


def l21_statistic(bands: Sequence[Real]) -> Real:
    """Sum the squares over the bands.

    Parameters
    ----------
    bands : sequence of (nbasis, ncoefficient) float
        An array per band; rows are contiguous.

    Returns
    -------
    (1, nbasis, ncoefficient) float
        Added along the fixed binary tree, so that it does not depend on how bands are grouped.
    """
    return _statistic(bands, 1, _square, _square_two)


def mean21_statistic(bands: Sequence[Real]) -> Real:
    """Sum the values and their squares over the bands.

    Parameters
    ----------
    bands : sequence of (nbasis, ncoefficient) float
        An array per band; rows are contiguous.

    Returns
    -------
    (2, nbasis, ncoefficient) float
        The sums of values and of squares.
    """
    return _statistic(bands, 2, _moments, _moments_two)


def l21_factor(statistic: Real, radius: Real | float) -> Real:
    """Return the scale s of the projection onto the l21 ball, (1, nbasis, ncoefficient)."""
    out = np.empty_like(statistic)
    for squares, limit, scale in zip(statistic[0], _rows(radius, statistic), out[0], strict=True):
        _l21_factor(squares, limit, scale)
    return out


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
    out = np.empty_like(statistic)
    for total, squares, limit, scale, offset in zip(*statistic, _rows(radius, statistic), *out, strict=True):
        _mean21_factor(total, squares, limit, total.dtype.type(nband), scale, offset)
    return out


def product_statistic(bands: Sequence[Real], products: Sequence[int], nproduct: int) -> Real:
    """Sum the values over the planes of each product, and the squares over all.

    Parameters
    ----------
    bands : sequence of (nbasis, ncoefficient) float
        An array per plane.
    products : sequence of int
        The number of the product of each.
    nproduct : int
        Products.

    Returns
    -------
    (nproduct + 1, nbasis, ncoefficient) float
        The sums of the values of each product, then that of the squares; along the fixed binary tree, as by `l21_statistic`.
    """
    if len(bands) > 1:
        middle = split(len(bands))
        out = product_statistic(bands[:middle], products[:middle], nproduct)
        out += product_statistic(bands[middle:], products[middle:], nproduct)
        return out
    out = np.zeros((nproduct + 1, *bands[0].shape), bands[0].dtype)
    out[products[0]] = bands[0]
    np.multiply(bands[0], bands[0], out=out[-1])
    return out


def product_factor(statistic: Real, radius: Real | float, counts: Sequence[int]) -> Real:
    """Return the scale s and the offset of each product of the projection onto the ball of mean21.

    Parameters
    ----------
    statistic : (nproduct + 1, nbasis, ncoefficient) float
        From `product_statistic`, of all planes.
    radius : float or (nbasis, ncoefficient) float
        Radius of both balls.
    counts : nproduct ints
        Planes of each product.

    Returns
    -------
    (nproduct + 1, nbasis, ncoefficient) float
    """
    numbers = np.array(counts, statistic.dtype)[:, None, None]
    limits, tiny = _rows(radius, statistic), np.finfo(statistic.dtype).tiny
    means = statistic[:-1] / numbers
    common = (means * statistic[:-1]).sum(axis=0)
    # Rounding may leave the deviations of equal planes slightly negative.
    deviation = np.sqrt(np.maximum(statistic[-1] - common, 0))
    with np.errstate(over="ignore"):  # nothing is infinitely far inside of a ball
        scale = np.minimum(limits / np.maximum(deviation, tiny), 1)
        kept = np.minimum(limits / np.maximum(np.sqrt(common), tiny), 1)
    return np.concatenate([scale[None], means * (kept - scale)])


def ascend(dual: Real, coefficients: Real, sigma: float) -> None:
    r"""Overwrite coefficients a with :math:`v + \sigma a`; both are (nbasis, nband, ncoefficient), rows are contiguous."""
    step = dual.dtype.type(sigma)
    for index in np.ndindex(dual.shape[:2]):
        _ascend(dual[index], coefficients[index], step)


def inside(statistic: Real, radius: Real | float) -> bool:
    """Return whether all coefficients are inside of the ball by so much that rounding does not matter: `project` is the identity.

    Parameters
    ----------
    statistic : (1 or more, nbasis, ncoefficient) float
        Of all bands; the sums of the squares come last, and bound what any of the two regularisers limits.
    radius : float or (nbasis, ncoefficient) float
        Radius of the ball.
    """
    margin = 1 + 16 * np.finfo(statistic.dtype).eps
    return all(_inside(squares, limit, margin) for squares, limit in zip(statistic[-1], _rows(radius, statistic), strict=True))


def project(v: Real, factor: Real, out: Real | None = None, products: Sequence[int] = ()) -> Real:
    """Map the bands onto the dual ball: scale, and offset if there is one.

    Parameters
    ----------
    v : (nbasis, nband, ncoefficient) float
    factor : (1 or more, nbasis, ncoefficient) float
        The scale, and the offsets if there are any.
    products : sequence of int
        Which of the offsets is that of each band; the first by default.
    out : (nbasis, nband, ncoefficient) float, optional
        Where the result goes; may be v itself.

    Returns
    -------
    (nbasis, nband, ncoefficient) float
    """
    out = np.empty_like(v) if out is None else out
    for basis, index in np.ndindex(v.shape[:2]):
        if len(factor) == 1:
            np.multiply(v[basis, index], factor[0, basis], out=out[basis, index])
        else:
            offset = factor[1 + products[index] if products else 1, basis]
            _scale_and_shift(v[basis, index], factor[0, basis], offset, out[basis, index])
    return out


def _statistic(bands: Sequence[Real], n: int, one: Callable[..., None], two: Callable[..., None]) -> Real:
    """Add along the fixed binary tree, whose pairs of leaves are taken in one pass."""
    if len(bands) > 2:
        middle = split(len(bands))
        out = _statistic(bands[:middle], n, one, two)
        out += _statistic(bands[middle:], n, one, two)
        return out
    out = np.empty((n, *bands[0].shape), bands[0].dtype)
    for basis in range(out.shape[1]):
        (one if len(bands) == 1 else two)(*(band[basis] for band in bands), *out[:, basis])
    return out


def _rows(radius: Real | float, statistic: Real) -> Real:
    """One radius per coefficient."""
    return np.ascontiguousarray(np.broadcast_to(np.asarray(radius, statistic.dtype), statistic.shape[1:]))


# No contraction to fused multiply-adds: a sum must not depend on how its bands are grouped.
_jit = numba.njit(nogil=True, cache=True, error_model="numpy")


@_jit
def _square(a, squares):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        squares[i] = a[i] * a[i]


@_jit
def _square_two(a, b, squares):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        squares[i] = a[i] * a[i] + b[i] * b[i]


@_jit
def _moments(a, total, squares):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        total[i] = a[i]
        squares[i] = a[i] * a[i]


@_jit
def _moments_two(a, b, total, squares):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        total[i] = a[i] + b[i]
        squares[i] = a[i] * a[i] + b[i] * b[i]


@_jit
def _clipped(radius, norm, tiny, one):  # type: ignore[no-untyped-def]
    """min(1, radius / norm), 1 where the norm is zero."""
    return min(one, radius / max(norm, tiny))


@_jit
def _ascend(dual, coefficients, sigma):  # type: ignore[no-untyped-def]
    for i in range(dual.size):
        coefficients[i] = dual[i] + sigma * coefficients[i]


@_jit
def _inside(squares, radius, margin):  # type: ignore[no-untyped-def]
    beyond = 0
    for i in range(squares.size):
        beyond += squares[i] * margin > radius[i] * radius[i]
    return beyond == 0


@_jit
def _l21_factor(squares, radius, scale):  # type: ignore[no-untyped-def]
    tiny, one = np.finfo(squares.dtype).tiny, squares.dtype.type(1)
    for i in range(scale.size):
        scale[i] = _clipped(radius[i], np.sqrt(squares[i]), tiny, one)


@_jit
def _mean21_factor(total, squares, radius, nband, scale, offset):  # type: ignore[no-untyped-def]
    tiny, one, zero = np.finfo(squares.dtype).tiny, squares.dtype.type(1), squares.dtype.type(0)
    inverse, root = one / nband, one / np.sqrt(nband)
    for i in range(scale.size):
        mean = total[i] * inverse
        # Rounding may leave the deviations of equal bands slightly negative.
        deviation = np.sqrt(max(squares[i] - mean * total[i], zero))
        s = _clipped(radius[i], deviation, tiny, one)
        scale[i] = s
        offset[i] = mean * (_clipped(radius[i], abs(total[i]) * root, tiny, one) - s)


@_jit
def _scale_and_shift(v, scale, offset, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = v[i] * scale[i] + offset[i]
