"""Weights of the prior that lower the threshold where there is emission already (Candes, Wakin & Boyd 2008)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.solvers.primal_dual import Dictionary
from pfb.types import Real


def l1_weight(
    dictionary: Dictionary, models: Sequence[Real], scales: Sequence[float], alpha: float, importance: Sequence[float] = (1.0,)
) -> Real:
    r"""Return :math:`i / (1 + r^\alpha)`, i where the sky is empty; r is the norm of :math:`|c| / \mathrm{scale}`.

    Parameters
    ----------
    dictionary : Dictionary
        Bases.
    models : sequence of (nx, ny) float
        For each Stokes product the mean of the bands' models; c are its coefficients.
    scales : sequence of float
        For each product what a coefficient is measured in, in Jy/pixel: one of this size has half of the weight. Every basis
        is an isometry, so one number serves for all of them. If they are infinite all weights are i.
    alpha : float
        Exponent.
    importance : nbasis floats
        i, the weight of every basis; 1 by default.

    Returns
    -------
    (nbasis, ncoefficient) float
    """
    weight = np.array(importance, models[0].dtype)[:, None]
    if np.isinf(scales).all():
        return weight * np.ones(dictionary.codomain, models[0].dtype)
    with np.errstate(over="ignore"):  # infinitely far above nothing is a weight of zero
        ratios = [_ratio(dictionary, model, scale) for model, scale in zip(models, scales, strict=True)]
        ratio = ratios[0] if len(ratios) == 1 else np.sqrt(sum(np.square(own) for own in ratios))
        return weight / (1 + ratio**alpha)


def _ratio(dictionary: Dictionary, model: Real, scale: float) -> Real:
    ratio = np.abs(dictionary.dot(model))
    ratio /= max(scale, np.finfo(ratio.dtype).tiny)
    return ratio
