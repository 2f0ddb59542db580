"""Weights of the prior that lower the threshold where there is emission already (Candes, Wakin & Boyd 2008)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.solvers.primal_dual import Dictionary
from pfb.types import Real


def l1_weight(dictionary: Dictionary, model: Real, scale: float, alpha: float, importance: Sequence[float] = (1.0,)) -> Real:
    r"""Return :math:`i / (1 + (|c| / \mathrm{scale})^\alpha)`, i where the sky is empty.

    Parameters
    ----------
    dictionary : Dictionary
        Bases.
    model : (nx, ny) float
        Mean of the bands' models; c are its coefficients.
    scale : float
        What a coefficient is measured in, in Jy/pixel: one of this size has half of the weight. Every basis is an
        isometry, so one number serves for all of them. If it is infinite all weights are i.
    alpha : float
        Exponent.
    importance : nbasis floats
        i, the weight of every basis; 1 by default.

    Returns
    -------
    (nbasis, ncoefficient) float
    """
    weight = np.array(importance, model.dtype)[:, None]
    if np.isinf(scale):
        return weight * np.ones(dictionary.codomain, model.dtype)
    ratio = np.abs(dictionary.dot(model))
    with np.errstate(over="ignore"):  # infinitely far above nothing is a weight of zero
        ratio /= max(scale, np.finfo(ratio.dtype).tiny)
        return weight / (1 + ratio**alpha)
