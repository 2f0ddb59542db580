r"""Weights of visibilities whose noise has heavy tails: the likelihood of Student's t distribution instead of a Gaussian's.

With natural weights w the residual r of a sample has :math:`q = w |r|^2`. If r is drawn from the t distribution of two dimensions
(real and imaginary part) with :math:`\nu` degrees of freedom and the scale :math:`s^2 / w`, then

.. math:: p(r) = \frac{w}{2 \pi s^2} \left(1 + \frac{q}{\nu s^2}\right)^{-(\nu + 2) / 2}

and a step of the EM algorithm that fits a model to it is a fit of least squares with the weights

.. math:: w\, \frac{\nu + 2}{\nu + q / s^2}

(Lange, Little & Taylor 1989, J. Am. Stat. Assoc. 84, 881). An outlier's weight falls as the square of its residual, so that
its pull falls as well; the mean of the factors is one if the distribution is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfb.types import Complex, Real

LEAST_NU, MOST_NU = 0.5, 1000.0
"""Limits of the degrees of freedom that are found: noise that is Gaussian would have infinitely many."""

ENOUGH = 1 << 18
"""Samples that nu and s are found from: they are then known to a per cent."""


class StudentT(NamedTuple):
    """A t distribution of residual visibilities."""

    nu: float
    """Degrees of freedom."""
    scale: float
    """s^2: by how much the variances are larger than the weights say, outliers aside; 0 if all residuals are zero."""


def squares(residual: Complex, weight: Real) -> Real:
    """Return q = w |r|^2.

    Parameters
    ----------
    residual : (row, chan) complex
        Jy.
    weight : (row, chan) float
        Natural weights in Jy**-2.

    Returns
    -------
    (row, chan) float64
    """
    return weight * (np.square(residual.real) + np.square(residual.imag))


def factor(q: Real, fit: StudentT) -> Real:
    """Return what natural weights, or imaging weights, are multiplied by; ones if all residuals are zero.

    Parameters
    ----------
    q : (row, chan) float64
        As of `squares`.
    fit : StudentT
        Their distribution.
    """
    if fit.scale == 0:
        return np.ones_like(q)
    return (fit.nu + 2) / (fit.nu + q / fit.scale)


def fit(samples: Sequence[Real], nu: float | None = None) -> StudentT:
    r"""Find the t distribution of largest likelihood.

    q has the density of Lomax with the shape :math:`\nu / 2` and the scale :math:`\lambda = \nu s^2`. For a given
    :math:`\lambda` the best :math:`\nu` is known, so that one number is searched for.

    Parameters
    ----------
    samples : sequence of (n,) float64
        q of the samples that have weight; of many a fixed choice is looked at.
    nu : float, optional
        Degrees of freedom, if they are not to be found.

    Returns
    -------
    StudentT
        With `nu` between `LEAST_NU` and `MOST_NU`, unless it was given.
    """
    q = np.concatenate([np.zeros(0), *samples])
    if q.size > ENOUGH:
        q = q[np.random.default_rng(0).integers(q.size, size=ENOUGH)]
    if not q.any():
        return StudentT(MOST_NU if nu is None else nu, 0.0)
    if nu is None:
        nu = float(np.clip(_freedom(q), LEAST_NU, MOST_NU))
    return StudentT(nu, _scale(q, nu))


def _freedom(q: Real) -> float:
    """Return nu of largest likelihood."""
    from scipy.optimize import minimize_scalar  # takes a while, and few runs need it

    middle = float(np.median(q[q > 0]))

    def shape(logarithm: float) -> float:
        return 1 / float(np.log1p(q / (middle * np.exp(logarithm))).mean())

    def cost(logarithm: float) -> float:
        alpha = shape(logarithm)
        return logarithm - np.log(alpha) + 1 / alpha

    # The median of q is lambda (2^(2 / nu) - 1): lambda is a fifteenth of it for LEAST_NU and 720 of it for MOST_NU.
    found = minimize_scalar(cost, bounds=(np.log(1e-3), np.log(1e4)), method="bounded", options={"xatol": 1e-4})
    return 2 * shape(float(found.x))


def _scale(q: Real, nu: float) -> float:
    """Return s^2 of largest likelihood for a given nu: the mean of q / (nu s^2 + q) is 2 / (nu + 2)."""
    from scipy.optimize import brentq

    def excess(logarithm: float) -> float:
        return float((q / (nu * np.exp(logarithm) + q)).mean()) - 2 / (nu + 2)

    positive = q[q > 0]
    low, high = np.log(positive.min() * 1e-3 / nu), np.log(positive.max() * 1e3)
    if excess(low) <= 0:  # most of the residuals are zero
        return float(np.exp(low))
    return float(np.exp(brentq(excess, low, high, xtol=1e-10)))
