"""Graph that fits the fluxes of all pixels of a model at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.solvers.conjugate_gradient import conjugate_gradient
from pfb.types import LinearOperator, Real


def mopped(
    graph: Graph, names: Names, hessians: Sequence[Key], models: Sequence[Key], slopes: Sequence[Key],
    positive: Sequence[bool], tol: float, maxit: int,
) -> list[Key]:  # fmt: skip
    """Add to the models what minimises the data term where they are not zero, plane by plane.

    Parameters
    ----------
    hessians : sequence of Key
    models : sequence of Key
        In Jy/pixel.
    slopes : sequence of Key
        Residuals in Jy/beam of all bands.
    positive : sequence of bool
        Of every plane whether what comes out negative is set to zero.
    tol, maxit
        Limits of the conjugate gradients.
    """
    return [
        add(graph, names.key("cg", v), mop, ref(hessian), ref(model), ref(slope), positive[v], tol, maxit)
        for v, (hessian, model, slope) in enumerate(zip(hessians, models, slopes, strict=True))
    ]


def mop(hessian: LinearOperator, model: Real, slope: Real, positive: bool, tol: float, maxit: int) -> Real:
    """Return a band's model whose fluxes are those of least squares, as the Hessian has them."""
    support = model != 0

    def within(x: Real) -> Real:
        return np.where(support, hessian.dot(x), 0).astype(x.dtype, copy=False)

    right = np.where(support, slope, 0).astype(model.dtype, copy=False)
    found = model + conjugate_gradient(within, right, tol=tol, maxit=maxit).x
    return np.maximum(found, 0) if positive else found
