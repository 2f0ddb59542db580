r"""The primal-dual iteration for a smooth term, a prior on coefficients and a constraint on pixels.

It minimises over images x of all bands

.. math:: f(x) + \lambda\, g(\Psi^H x) + \iota_{C}(x)

with a smooth f, and extrapolates the image, so that two images and one dual of each kind are kept:

.. math::
    v' &= P_{\lambda}\left(v + \sigma \Psi^H (2 x - x_{prev})\right) \\
    u' &= (I - P_C)\left(u + \theta (2 x - x_{prev})\right) \\
    x' &= x - T (\nabla f(x) + \Psi v' + u')

where :math:`P_\lambda = I - \mathrm{prox}_{\lambda g}` projects onto the dual ball, and C is a cone,
so that :math:`I - P_C` projects onto its polar. T is a symmetric positive operator; a number is the
simplest. The iteration converges if :math:`T^{-1} - \sigma \lVert\Psi\rVert^2 - \theta \geq L/2`, L being the
Lipschitz constant of the gradient or an operator that bounds it. The constraint is a dual, not a
projection of x', because a projection in the metric of T is no clip. The pieces of one
iteration are separate functions: `solve` calls them in a loop, a graph makes tasks of them.

References
----------
.. [1] Condat L. 2013, J. Optim. Theory Appl. 158, 460 (algorithm 3.1; theorem 3.1 has the bound).
.. [2] Vu B. 2013, Adv. Comput. Math. 38, 667.
.. [3] Pock T. & Chambolle A. 2011, ICCV, 1762 (an operator for the step).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

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

    def factors(self, blocks: Sequence[Real], tau: float, part: tuple[int, int]) -> Real:
        """What `project` needs onto the dual ball of tau g, from the (basis, band, coefficient) of all bands."""
        ...

    def project(self, v: Real, factor: Real) -> Real:
        """Map onto the dual ball."""
        ...

    def ascend(self, dual: Real, coefficients: Real, sigma: float) -> None:
        """Overwrite the coefficients with dual + sigma times them."""
        ...

    def renew(self, dual: Real, coefficients: Real, sigma: float, tau: float) -> None:
        """The same, and its projection onto the dual ball of tau g."""
        ...


class Steps(NamedTuple):
    """Step sizes of the duals: of the coefficients, and of the constraint."""

    sigma: float
    theta: float


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


CONSTRAINED = 0.3
"""Share of the constraint, if there is one, in the shift."""


def step_sizes(shift: float, norm_squared: float, constrained: bool) -> Steps:
    r"""Return steps of the duals with :math:`\sigma \lVert\Psi\rVert^2 + \theta` = `shift`.

    Parameters
    ----------
    shift : float
        What the duals may take of the bound, see above.
    norm_squared : float
        :math:`\lVert\Psi\rVert^2`: the *square* of the norm, which is the number of bases.
    constrained : bool
        There is a constraint.
    """
    theta = CONSTRAINED * shift if constrained else 0.0
    return Steps((shift - theta) / norm_squared, theta)


ROWS = 16
"""Rows of an image that are worked on at once, so that they stay in the cache between the operations of a pass."""


def runs(image: Real) -> Iterator[slice]:
    """Yield slices of `ROWS` rows."""
    for first in range(0, len(image), ROWS):
        yield slice(first, first + ROWS)


def extrapolate(x: Real, previous: Real) -> Real:
    """Return 2 x - previous."""
    out = np.empty_like(x)
    for rows in runs(x):
        part = np.multiply(x[rows], 2, out=out[rows])
        part -= previous[rows]
    return out


def decompose(extrapolated: Sequence[Real], dictionary: Dictionary, dtype: Any) -> Real:
    """Return Psi^H of the extrapolated image of every band, (nbasis, nband, ncoefficient)."""
    nbasis, ncoefficient = dictionary.codomain
    out = np.empty((nbasis, len(extrapolated), ncoefficient), dtype)
    for band, image in enumerate(extrapolated):
        dictionary.dot(image, out=out[:, band])
    return out


def ascend(dual: Real, extrapolated: Sequence[Real], dictionary: Dictionary, prior: Prior, sigma: float) -> Real:
    """Return the dual before its projection, v + sigma Psi^H (2 x - previous).

    Parameters
    ----------
    dual : (nbasis, nband, ncoefficient) float
    extrapolated : nband arrays of shape (nx, ny)
        From `extrapolate`.
    """
    out = decompose(extrapolated, dictionary, dual.dtype)
    prior.ascend(dual, out, sigma)
    return out


def renew(dual: Real, extrapolated: Sequence[Real], dictionary: Dictionary, prior: Prior, sigma: float, radius: float) -> Real:
    """Return the next dual of all bands, P(v + sigma Psi^H (2 x - previous)): that of `ascend`, projected."""
    out = decompose(extrapolated, dictionary, dual.dtype)
    prior.renew(dual, out, sigma, radius)
    return out


def synthesise(dual: Real, dictionary: Dictionary) -> list[Real]:
    """Return Psi v of every band, nband arrays of shape (nx, ny)."""
    return [dictionary.hdot(dual[:, band]) for band in range(dual.shape[1])]


def press(bound: Real, extrapolated: Real, theta: float) -> Real:
    """Return the dual of the constraint before its projection, u + theta (2 x - previous)."""
    out = np.empty_like(extrapolated)
    for rows in runs(out):
        part = np.multiply(extrapolated[rows], theta, out=out[rows])
        part += bound[rows]
    return out


CHUNK = 1 << 15
"""The same in elements, of arrays that are no images."""


def change(new: Real, old: Real) -> Change:
    """Return the squared norms of new - old and of new, of contiguous arrays of any shape."""
    new, old = new.reshape(-1), old.reshape(-1)
    difference = norm = 0.0
    for first in range(0, new.size, CHUNK):
        some = new[first : first + CHUNK]
        part = some - old[first : first + CHUNK]
        difference += float(np.vdot(part, part))
        norm += float(np.vdot(some, some))
    return Change(difference, norm)


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


class Minimisation(NamedTuple):
    """What `solve` minimises, and how it steps."""

    gradient: Callable[[int, Real], Real]
    """Gradient of f for a band (its index, its image)."""
    precondition: Callable[[int, Real], Real]
    """Applies T of a band (its index, an image)."""
    dictionary: Dictionary
    """Psi^H."""
    prior: Prior
    """g."""
    polar: Callable[[list[Real]], list[Real]] | None = None
    """I - P_C of the images of all bands; None if there is no constraint."""


def solve(
    problem: Minimisation, x: list[Real], dual: Real, *, radius: float, shift: float, tol: float, maxit: int
) -> Solution:
    """Iterate in one process until the images change by less than `tol`.

    Parameters
    ----------
    problem : Minimisation
        Its terms.
    x : nband arrays of shape (nx, ny)
        Start.
    dual : (nbasis, nband, ncoefficient) float
        Start.
    radius : float
        lambda.
    shift : float
        What T leaves to the duals.
    tol : float
        Relative change of all images at which to stop.
    maxit : int
        Iterations at most.

    Returns
    -------
    Solution
        Its images lie in C.
    """
    gradient, precondition, dictionary, prior, polar = problem
    steps = step_sizes(shift, dictionary.norm_squared, polar is not None)
    bounds: list[Real] = [np.zeros_like(image) for image in x]
    previous, gate = x, Gate()
    for _ in range(maxit):
        extrapolated = [extrapolate(a, b) for a, b in zip(x, previous, strict=True)]
        new_dual = renew(dual, extrapolated, dictionary, prior, steps.sigma, radius)
        images = synthesise(new_dual, dictionary)
        if polar is not None:
            bounds = polar([press(u, image, steps.theta) for u, image in zip(bounds, extrapolated, strict=True)])
            for image, bound in zip(images, bounds, strict=True):
                image += bound
        new: list[Real] = [b - precondition(i, gradient(i, b) + images[i]) for i, b in enumerate(x)]
        primal = [change(a, b) for a, b in zip(new, x, strict=True)]
        gate = advance(gate, primal, [change(new_dual, dual)], tol)
        previous, x, dual = x, new, new_dual
        if gate.done:
            break
    if polar is not None:
        x = [a - b for a, b in zip(x, polar(x), strict=True)]
    return Solution(x, dual, gate)
