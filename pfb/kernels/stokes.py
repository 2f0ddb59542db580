"""Correlations and their weights to Stokes products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfb.errors import InputError
from pfb.types import CORRELATION_NAMES, Complex, Real

PRODUCTS = "IQUV"
"""Their places, from one, are casacore's and FITS' numbers."""

ALIGNED = 1e-12
"""Sines and cosines below this are zero: feeds that are turned by a right angle mix nothing."""


class Pair(NamedTuple):
    """A product as `factor` times the sum, or the difference, of two correlations."""

    first: int
    """casacore's number."""
    second: int
    factor: complex
    subtract: bool = False


PAIRS: dict[str, tuple[Pair, Pair]] = {
    "I": (Pair(5, 8, 0.5), Pair(9, 12, 0.5)),
    "Q": (Pair(6, 7, 0.5), Pair(9, 12, 0.5, True)),
    "U": (Pair(6, 7, -0.5j, True), Pair(10, 11, 0.5)),
    "V": (Pair(5, 8, 0.5, True), Pair(10, 11, -0.5j, True)),
}
"""From circular feeds, RR, LL = I +- V and RL, LR = Q +- iU, and from linear ones, XX, YY = I +- Q and XY, YX = U +- iV."""


def available(product: str, correlations: Sequence[int], turned: bool = False) -> bool:
    """Tell whether a product can be made of correlations, given by casacore's numbers.

    If the feeds are `turned` against the sky, Q and U need each other, unless they are what is stored.
    """
    if turned and product in "QU" and not _stored(correlations):
        return available("Q", correlations) and available("U", correlations)
    return PRODUCTS.index(product) + 1 in correlations or _pair(product, correlations) is not None


def require(product: str, found: Sequence[Sequence[int]], turned: bool = False) -> None:
    """Raise `InputError`, naming the correlations that are there, if none of some sets of correlations gives a product."""
    if any(available(product, correlations, turned) for correlations in found):
        return
    there = "; ".join(dict.fromkeys(", ".join(CORRELATION_NAMES.get(c, str(c)) for c in own) for own in found))
    circular, linear = (f"{CORRELATION_NAMES[pair.first]} and {CORRELATION_NAMES[pair.second]}" for pair in PAIRS[product])
    needs = f"{linear} or {circular}"
    if turned and product in "QU":
        needs = "XX, XY, YX and YY or RL and LR, as the feeds are turned"
    raise InputError(
        f"the data have the correlations {there} but Stokes {product} needs {needs}: "
        "ask for other products with --stokes, or select data that have them"
    )


def combine(
    vis: Complex, weight: Real, correlations: Sequence[int], rule: str = "l2", product: str = "I"
) -> tuple[Complex, Real]:
    r"""Make a Stokes product, as the feeds have it, of two correlations, e.g. :math:`I = (V_{pp} + V_{qq}) / 2`.

    Both have the same part in it, so that no other product leaks in; hence a sample needs both.

    Parameters
    ----------
    vis : (row, chan, corr) complex
        Visibilities in Jy, zero where flagged.
    weight : (row, chan, corr) float
        Inverse variances, zero where flagged.
    correlations : sequence of int
        casacore's number of each correlation: 5 ... 8 are RR RL LR LL, 9 ... 12 XX XY YX YY, 1 ... 4 the products themselves.
    rule : str
        ``l2`` propagates the inverse variance, :math:`4 / (1 / w_p + 1 / w_q)`;
        ``minvar`` takes :math:`2 \min(w_p, w_q)`.
    product : str
        I, Q, U or V.

    Returns
    -------
    vis : (row, chan) complex128
        Visibilities in Jy.
    weight : (row, chan) float64
        Weights in Jy**-2; zero where either correlation is flagged.

    Raises
    ------
    InputError
        If the data lack one of the correlations.
    """
    stored = PRODUCTS.index(product) + 1
    if stored in correlations:
        i = correlations.index(stored)
        return vis[..., i].astype(np.complex128), weight[..., i].astype(np.float64)
    pair = _pair(product, correlations)
    if pair is None:
        require(product, [correlations])
    assert pair is not None
    p, q = correlations.index(pair.first), correlations.index(pair.second)
    wp, wq = weight[..., p].astype(np.float64), weight[..., q].astype(np.float64)
    least = np.minimum(wp, wq)
    if rule == "minvar":
        total = 2 * least
    else:
        total = 4 * wp * wq / np.maximum(wp + wq, np.finfo(np.float64).tiny)
    both = np.subtract if pair.subtract else np.add
    return np.where(least > 0, pair.factor * both(vis[..., p].astype(np.complex128), vis[..., q]), 0), total


def stokes(
    vis: Complex, weight: Real, correlations: Sequence[int], products: str, rule: str = "l2", angle: Real | None = None
) -> list[tuple[Complex, Real] | None]:
    r"""Make Stokes products of correlations.

    Parameters
    ----------
    vis, weight, correlations, rule
        As of `combine`.
    products : str
        Some of ``IQUV``.
    angle : (row,) float, optional
        Position angle of the feeds in radians, North through East, by which Q and U are turned to the sky's:
        :math:`Q + iU = (Q_f + iU_f) e^{2i\chi}`. None: the visibilities are in the frame of the sky already.

    Returns
    -------
    list of (vis, weight)
        (row, chan) complex128 and float64 for each product; None for one that the correlations do not give.
    """
    if angle is None or not set(products) & {"Q", "U"} or _stored(correlations):
        return [
            combine(vis, weight, correlations, rule, product) if available(product, correlations) else None
            for product in products
        ]
    turned = dict.fromkeys("QU", None) | _turn(vis, weight, correlations, rule, angle)
    made: list[tuple[Complex, Real] | None] = []
    for product in products:
        if product in turned:
            made.append(turned[product])
        else:
            made += stokes(vis, weight, correlations, product, rule)
    return made


def rotate(q: tuple[Complex, Real], u: tuple[Complex, Real], angle: Real) -> tuple[tuple[Complex, Real], tuple[Complex, Real]]:
    r"""Turn Q and U, (vis, weight) of (row, chan) each, to the frame of the sky: :math:`(Q + iU) e^{2i\chi}`.

    The inverse variances are propagated; a part whose sine or cosine is zero may be flagged.

    Parameters
    ----------
    angle : (row,) float
        chi in radians, North through East.
    """
    cosine, sine = (_without_rounding(function(2 * angle))[:, None] for function in (np.cos, np.sin))
    return _mix(q, u, cosine, -sine), _mix(q, u, sine, cosine)


def _stored(correlations: Sequence[int]) -> bool:
    """Whether Q or U is stored itself, in the frame of the sky."""
    return bool({2, 3} & set(correlations))


def _pair(product: str, correlations: Sequence[int]) -> Pair | None:
    return next((pair for pair in PAIRS[product] if {pair.first, pair.second} <= set(correlations)), None)


def _turn(vis: Complex, weight: Real, correlations: Sequence[int], rule: str, angle: Real) -> dict[str, tuple[Complex, Real]]:
    """Return Q and U in the frame of the sky; nothing if one of them is not there."""
    if not (available("Q", correlations) and available("U", correlations)):
        return {}
    q, u = (combine(vis, weight, correlations, rule, product) for product in "QU")
    return dict(zip("QU", rotate(q, u, angle), strict=True))


def _without_rounding(values: Real) -> Real:
    return np.where(np.abs(values) < ALIGNED, 0.0, values)


def _mix(a: tuple[Complex, Real], b: tuple[Complex, Real], x: Real, y: Real) -> tuple[Complex, Real]:
    """Return x a + y b and its inverse variance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(x == 0, 0, x**2 / a[1]) + np.where(y == 0, 0, y**2 / b[1])
        weight = np.where(np.isfinite(variance), 1 / variance, 0)
    return np.where(weight > 0, x * a[0] + y * b[0], 0), weight
