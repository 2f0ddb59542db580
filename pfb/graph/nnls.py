"""Graph of least squares with a constraint: gradients band by band, which meet only in what all of them must obey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs
from pfb.operators.constraints import Constraint, Mask
from pfb.solvers.lanczos import largest_eigenvalue, start_vector
from pfb.solvers.projected_gradient import Point, advance, descend
from pfb.types import LinearOperator, Real

MARGIN = 1.03
"""On the largest eigenvalue of a Hessian, since the Lanczos method approaches it from below."""


@dataclass(frozen=True)
class Problem:
    """What is minimised in a major cycle.

    Parameters
    ----------
    names : Names
    constraint : Constraint
    hessians, norms, slopes, before : list of Key
        Of every band: H, its largest eigenvalue, residual in Jy/beam, model it belongs to.
    mask : Key or None
    """

    names: Names
    constraint: Constraint
    hessians: list[Key]
    norms: list[Key]
    slopes: list[Key]
    before: list[Key]
    mask: Key | None
    letters: str
    """Stokes product of every plane; only I must not be negative."""

    def begin(self, graph: Graph) -> list[Key]:
        """Return the keys of the first points."""
        return [add(graph, self.names.key("primal", 0, v), Point, ref(key), ref(key)) for v, key in enumerate(self.before)]

    def iterations(self, graph: Graph, points: list[Key], first: int, last: int) -> list[Key]:
        """Add iterations first ... last - 1; returns the keys of the points they end at."""
        for i in range(first, last):
            steps = [
                add(
                    graph, self.names.key("grad", v, iteration=i), descend,
                    ref(points[v]), ref(self.hessians[v]), ref(self.before[v]), ref(self.slopes[v]), ref(self.norms[v]),
                )
                for v in range(len(points))
            ]  # fmt: skip
            negatives = [
                add(graph, self.names.key("negative", v, iteration=i), _negative, ref(step))
                for v, step in enumerate(steps)
                if self.constraint.of(self.letters[v]).joint
            ]
            mask = None if self.mask is None else ref(self.mask)
            points = [
                add(
                    graph, self.names.key("primal", 0, v, iteration=i), _advance,
                    ref(points[v]), ref(step), self.constraint.of(self.letters[v]), mask, refs(negatives),
                )
                for v, step in enumerate(steps)
            ]  # fmt: skip
        return points

    def end(self, graph: Graph, points: Sequence[Key]) -> list[Key]:
        """Return the keys of the models."""
        return [add(graph, self.names.key("model", v), getattr, ref(key), "x") for v, key in enumerate(points)]


def norms(graph: Graph, names: Names, hessians: Sequence[Key]) -> list[Key]:
    """Return the keys of a bound of the largest eigenvalue of every Hessian."""
    return [add(graph, names.key("precondition", v), _norm, ref(key)) for v, key in enumerate(hessians)]


def _norm(hessian: LinearOperator) -> float:
    start = start_vector(hessian.domain).astype(np.float32)
    return MARGIN * largest_eigenvalue(lambda x: x, hessian.dot, start)


def _negative(x: Real) -> Mask:
    return x < 0


def _advance(point: Point, step: Real, constraint: Constraint, mask: Mask | None, negatives: list[Mask]) -> Point:
    return advance(point, step - constraint.polar(step, mask, negatives))
