r"""The primal-dual iteration for a smooth term, a prior on coefficients and a constraint on pixels.

It minimises over images x of all bands

.. math:: \frac{1}{2\gamma} \lVert x - \tilde x \rVert_H^2 + \lambda\, g(\Psi^H x) + \iota_{C}(x)

and extrapolates the image, so that one dual and two images are kept:

.. math::
    v' &= P_{\lambda}\left(v + \sigma \Psi^H (2 x - x_{prev})\right) \\
    x' &= P_C\left(x - \tau (\Psi v' + H (x - \tilde x) / \gamma)\right)

where :math:`P_\lambda = I - \mathrm{prox}_{\lambda g}` projects onto the dual ball. The pieces of one
iteration are separate functions: `solve` calls them in a loop, a graph makes tasks of them.

References
----------
.. [1] Condat L. 2013, J. Optim. Theory Appl. 158, 460 (algorithm 3.1; theorem 3.1 has the bound).
.. [2] Vu B. 2013, Adv. Comput. Math. 38, 667.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from pfb.types import Real


class Dictionary(Protocol):
    """Bases that an image is decomposed in; their squared norm is known."""

    codomain: tuple[int, ...]
    norm_squared: float

    def dot(self, x: Real, out: Real | None = None) -> Real:
        """Image to coefficients."""
        ...

    def hdot(self, a: Real) -> Real:
        """Coefficients to image."""
        ...


class Prior(Protocol):
    """A regulariser whose dual projection needs the bands only through sums over them."""

    def statistic(self, v: Real) -> Real:
        """Sums over the bands of (basis, band, coefficient)."""
        ...

    def radius(self, tau: float) -> Real | float:
        """Radius of the dual ball of tau g, for every coefficient."""
        ...

    def factor(self, statistic: Real, radius: Real | float) -> Real:
        """What `project` needs, from the sums over all bands and the radius."""
        ...

    def project(self, v: Real, factor: Real) -> Real:
        """Map onto the dual ball."""
        ...


class Steps(NamedTuple):
    """Step sizes of the primal and of the dual."""

    tau: float
    sigma: float


class Change(NamedTuple):
    """Squared norms of a difference and of the new value."""

    difference: float
    norm: float


class Gate(NamedTuple):
    """Whether the iteration has converged, and where it stands."""

    done: bool = False
    iterations: int = 0
    primal: float = float("inf")
    """Relative change of the images."""
    dual: float = float("inf")
    """Relative change of the coefficients."""


def step_sizes(lipschitz: float, norm_squared: float) -> Steps:
    r"""Return steps that satisfy :math:`1/\tau - \sigma \lVert\Psi\rVert^2 > L/2` strictly.

    Parameters
    ----------
    lipschitz : float
        L, the Lipschitz constant of the gradient of the smooth term.
    norm_squared : float
        :math:`\lVert\Psi\rVert^2`: the *square* of the norm, which is the number of bases.
    """
    half = lipschitz / 2
    sigma = half / norm_squared
    # 2 % in hand, since the Lipschitz constant comes from a power method.
    return Steps(tau=0.98 / (half + sigma * norm_squared), sigma=sigma)


def ascend(dual: Real, x: Sequence[Real], previous: Sequence[Real], dictionary: Dictionary, sigma: float) -> Real:
    """Return the dual before its projection, v + sigma Psi^H (2 x - previous).

    Parameters
    ----------
    dual : (nbasis, nband, ncoefficient) float
    x, previous : nband arrays of shape (nx, ny)
    """
    out = np.empty_like(dual)
    for band, (new, old) in enumerate(zip(x, previous, strict=True)):
        extrapolated = 2 * new
        extrapolated -= old
        dictionary.dot(extrapolated, out=out[:, band])
    out *= sigma
    out += dual
    return out


def synthesise(dual: Real, dictionary: Dictionary) -> list[Real]:
    """Return Psi v of every band, nband arrays of shape (nx, ny)."""
    return [dictionary.hdot(dual[:, band]) for band in range(dual.shape[1])]


def descend(x: Real, gradient: Real, image: Real, tau: float) -> Real:
    """Return the images before the constraint, x - tau (gradient + Psi v)."""
    out = gradient + image
    out *= -tau
    out += x
    return out


def change(new: Real, old: Real) -> Change:
    """Return the squared norms of new - old and of new."""
    difference = new - old
    return Change(float(np.vdot(difference, difference)), float(np.vdot(new, new)))


def advance(gate: Gate, primal: Sequence[Change], dual: Sequence[Change], tol: float) -> Gate:
    """Return the gate after an iteration with these changes, summed in their order."""
    if gate.done:
        return gate
    eps = relative(primal)
    return Gate(eps < tol, gate.iterations + 1, eps, relative(dual))


def relative(changes: Sequence[Change]) -> float:
    """Return the norm of the change over that of the new value; infinite if that is zero."""
    difference, norm = (sum(c[i] for c in changes) for i in (0, 1))
    if norm == 0:
        return 0.0 if difference == 0 else float("inf")
    return float(np.sqrt(difference / norm))


class Solution(NamedTuple):
    """What `solve` found."""

    x: list[Real]
    dual: Real
    gate: Gate


def solve(
    gradient: Callable[[int, Real], Real],
    dictionary: Dictionary,
    prior: Prior,
    constrain: Callable[[list[Real]], list[Real]],
    x: list[Real],
    dual: Real,
    *,
    radius: float,
    lipschitz: float,
    tol: float,
    maxit: int,
) -> Solution:
    """Iterate in one process until the images change by less than `tol`.

    Parameters
    ----------
    gradient
        Gradient of the smooth term of a band (its index, its image).
    dictionary, prior
        Psi^H and g.
    constrain
        Projection of the images of all bands onto C; may work in place.
    x : nband arrays of shape (nx, ny)
        Start.
    dual : (nbasis, nband, ncoefficient) float
        Start.
    radius : float
        lambda.
    lipschitz : float
        Lipschitz constant of `gradient`.
    tol : float
        Relative change of all images at which to stop.
    maxit : int
        Iterations at most.
    """
    steps = step_sizes(lipschitz, dictionary.norm_squared)
    previous, gate = x, Gate()
    for _ in range(maxit):
        v = ascend(dual, x, previous, dictionary, steps.sigma)
        new_dual = prior.project(v, prior.factor(prior.statistic(v), prior.radius(radius)))
        images = synthesise(new_dual, dictionary)
        new = constrain([descend(b, gradient(i, b), images[i], steps.tau) for i, b in enumerate(x)])
        primal = [change(a, b) for a, b in zip(new, x, strict=True)]
        gate = advance(gate, primal, [change(new_dual, dual)], tol)
        previous, x, dual = x, new, new_dual
        if gate.done:
            break
    return Solution(x, dual, gate)
