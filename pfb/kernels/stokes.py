"""Correlations and their weights to Stokes I."""

from __future__ import annotations

import numpy as np

from pfb.errors import InputError
from pfb.types import Complex, Real

PARALLEL_HANDS = {"circular": (5, 8), "linear": (9, 12)}
"""casacore's numbers of RR, LL and XX, YY."""
STOKES_I = 1


def stokes_i(vis: Complex, weight: Real, correlations: tuple[int, ...], rule: str = "l2") -> tuple[Complex, Real]:
    r"""Average the two parallel hands, :math:`I = (V_{pp} + V_{qq}) / 2`.

    The average is of equal parts, so that Q or V do not leak into I, hence a sample needs both hands.

    Parameters
    ----------
    vis : (row, chan, corr) complex
        Visibilities in Jy, zero where flagged.
    weight : (row, chan, corr) float
        Inverse variances, zero where flagged.
    correlations : tuple of int
        casacore's number of each correlation: 5 ... 8 are RR RL LR LL, 9 ... 12 XX XY YX YY, 1 is I itself.
    rule : str
        ``l2`` propagates the inverse variance, :math:`4 / (1 / w_p + 1 / w_q)`;
        ``minvar`` takes :math:`2 \min(w_p, w_q)`.

    Returns
    -------
    vis : (row, chan) complex128
        Visibilities in Jy.
    weight : (row, chan) float64
        Weights in Jy**-2; zero where either hand is flagged.

    Raises
    ------
    InputError
        If the data lack the parallel hands.
    """
    if STOKES_I in correlations:
        i = correlations.index(STOKES_I)
        return vis[..., i].astype(np.complex128), weight[..., i].astype(np.float64)
    for hands in PARALLEL_HANDS.values():
        if set(hands) <= set(correlations):
            p, q = (correlations.index(hand) for hand in hands)
            break
    else:
        raise InputError(
            f"the data have the correlations {correlations} but Stokes I needs XX and YY (9, 12) or RR and LL (5, 8): "
            "select a spectral window that has both"
        )
    wp, wq = weight[..., p].astype(np.float64), weight[..., q].astype(np.float64)
    least = np.minimum(wp, wq)
    if rule == "minvar":
        total = 2 * least
    else:
        total = 4 * wp * wq / np.maximum(wp + wq, np.finfo(np.float64).tiny)
    return np.where(least > 0, 0.5 * (vis[..., p].astype(np.complex128) + vis[..., q]), 0), total
