"""Weights of the prior that lower the threshold where there is emission already (Candes, Wakin & Boyd 2008)."""

from __future__ import annotations

import numpy as np

from pfb.solvers.primal_dual import Dictionary
from pfb.types import Real


def l1_weight(dictionary: Dictionary, model: Real, update: Real, alpha: float) -> Real:
    r"""Return :math:`1 / (1 + (|c| / \mathrm{rms}_c)^\alpha)`, 1 where the sky is empty.

    Parameters
    ----------
    dictionary : Dictionary
        Bases.
    model : (nx, ny) float
        Mean of the bands' models; c are its coefficients.
    update : (nx, ny) float
        Mean of the last updates: the rms of its coefficients, basis by basis, is the noise that c is measured in.
    alpha : float
        Exponent.

    Returns
    -------
    (nbasis, ncoefficient) float
    """
    noise = np.sqrt(np.mean(np.square(dictionary.dot(update)), axis=1, keepdims=True))
    ratio = np.abs(dictionary.dot(model))
    ratio /= np.maximum(noise, np.finfo(noise.dtype).tiny)
    return 1 / (1 + ratio**alpha)
