"""Weights of the prior that lower the threshold where there is emission already (Candes, Wakin & Boyd 2008)."""

from __future__ import annotations

import numpy as np

from pfb.solvers.primal_dual import Dictionary
from pfb.types import Real


def l1_weight(dictionary: Dictionary, model: Real, scale: float, alpha: float) -> Real:
    r"""Return :math:`1 / (1 + (|c| / \mathrm{scale})^\alpha)`, 1 where the sky is empty.

    Parameters
    ----------
    dictionary : Dictionary
        Bases.
    model : (nx, ny) float
        Mean of the bands' models; c are its coefficients.
    scale : float
        What a coefficient is measured in, in Jy/pixel: one of this size has a weight of 1/2. Every basis is an isometry,
        so one number serves for all of them.
    alpha : float
        Exponent.

    Returns
    -------
    (nbasis, ncoefficient) float
    """
    ratio = np.abs(dictionary.dot(model))
    with np.errstate(over="ignore"):  # infinitely far above nothing is a weight of zero
        ratio /= max(scale, np.finfo(ratio.dtype).tiny)
        return 1 / (1 + ratio**alpha)
