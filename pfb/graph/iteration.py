"""What the tasks of a primal-dual iteration do; `pfb.graph.primal_dual` makes graphs of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pfb.graph.blocks import Nest, add_nested, add_pairs
from pfb.operators.constraints import Constraint, Mask
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.solvers.primal_dual import Change, Gate
from pfb.types import LinearOperator, Real


def gated(gate: Gate, shut: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call the function while the gate is open; return `shut` afterwards."""
    return shut if gate.done else function(*args)


def advance(gate: Gate, changes: list[Change], duals: list[Change], tol: float) -> Gate:
    """Return the next gate; the change of the dual stays the last one known if none is given."""
    if gate.done:
        return gate
    new = primal_dual.advance(gate, changes, duals, tol)
    return new if duals else new._replace(dual=gate.dual)


def statistic(prior: JointPrior, blocks: list[Real], tile: tuple[int, int], first: int) -> Real:
    """Sum over the bands of several blocks, the first of which is `first`, along the fixed tree."""
    return prior.statistic(blocks, slice(*tile), first)


def renew(
    dual: Real, images: list[Real], dictionary: Dictionary, prior: JointPrior, sigma: float, radius: float, weight: Real | None
) -> Real:
    """Return the next dual of all bands."""
    return primal_dual.renew(dual, images, dictionary, _weighted(prior, weight), sigma, radius)


def threshold(prior: JointPrior, blocks: list[Real], tile: tuple[int, int], radius: float, weight: Real | None) -> Real:
    """Return the factor of the projection from the coefficients of all bands."""
    return _weighted(prior, weight).factors(blocks, radius, tile)


def join(prior: JointPrior, sums: list[Real], nest: Nest, tile: tuple[int, int], radius: float, weight: Real | None) -> Real:
    """Return the factor of the projection from the sums of branches."""
    prior = _weighted(prior, weight)
    return prior.factor(add_nested(sums, nest), prior.radius(radius, slice(*tile)))


def _weighted(prior: JointPrior, weight: Real | None) -> JointPrior:
    return prior if weight is None else prior.reweighted(weight)


def project(prior: JointPrior, v: Real, factors: list[Real], first: int) -> Real:
    """Project a block of coefficients of bands from `first` on, whose factors come in tiles."""
    return prior.project(v, factors[0] if len(factors) == 1 else np.concatenate(factors, axis=-1), first)


def gradient(hessian: LinearOperator, x: Real, before: Real, slope: Real, gamma: float) -> Real:
    """Return the gradient of the data term of a band, H (x - before) / gamma - slope."""
    out = hessian.dot(x - before)
    if gamma != 1:
        out /= gamma
    out -= slope
    return out


def step(x: Real, grad: Real, blocks: list[list[Real]], index: int, bound: Real | None, preconditioner: LinearOperator) -> Real:
    """Return the next image of a band, x - T (grad + Psi v + u).

    Parameters
    ----------
    x, grad : (nx, ny) float
    blocks
        Psi v of every block of bases, of the bands of one block.
    index : int
        Which of these bands it is.
    bound : (nx, ny) float, optional
        u.
    preconditioner
        T.
    """
    total = np.empty_like(x)
    for rows in primal_dual.runs(x):
        np.add(grad[rows], add_pairs([images[index][rows] for images in blocks]), out=total[rows])
        if bound is not None:
            total[rows] += bound[rows]
    return np.subtract(x, preconditioner.dot(total), out=total)


def obey(constraint: Constraint, x: Real, mask: Mask | None, negatives: list[Mask]) -> Real:
    """Return the projection of an image onto the constraint."""
    return x - constraint.polar(x, mask, negatives)
