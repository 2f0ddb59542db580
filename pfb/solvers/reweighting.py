"""Weights of the prior that lower the threshold where there is emission already (Candes, Wakin & Boyd 2008)."""

from __future__ import annotations

import numpy as np

from pfb.solvers.primal_dual import Dictionary
from pfb.types import Real


def l1_weight(dictionary: Dictionary, model: Real, update: Real, alpha: float) -> Real:
    r"""Return :math:`1 / (1 + (|c| / \mathrm{rms})^\alpha)`, 1 where the sky is empty.

    Parameters
    ----------
    dictionary : Dictionary
        Bases.
    model : (nx, ny) float
        Mean of the bands' models; c are its coefficients.
    update : (nx, ny) float
        Mean of the last updates. Its rms is the noise that c is measured in: every basis is an isometry, so white
        noise has the same rms in all of them.
    alpha : float
        Exponent.

    Returns
    -------
    (nbasis, ncoefficient) float
    """
    noise = np.sqrt(np.mean(np.square(update)))
    ratio = np.abs(dictionary.dot(model))
    with np.errstate(over="ignore"):  # infinitely far above no noise is a weight of zero
        ratio /= max(noise, np.finfo(ratio.dtype).tiny)
        return 1 / (1 + ratio**alpha)
