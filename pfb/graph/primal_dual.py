"""The primal-dual iteration as one graph, cut into blocks of iterations.

Per iteration, for every block b of bases and v of bands:

=============  ==========  ====================================================
stage          index       makes
=============  ==========  ====================================================
`psi-dot`      b, v        v + sigma Psi^H (2 x - x_prev)
`branch-norm`  b, t, v     sums over the bands of one worker (if there are several)
`l21-norm`     b, t, w     the sum over frequency, and from it the projection
`dual`         b, v        the projected dual
`psi-hdot`     b, v        Psi v' of the bases of a block
`press`        v           u + theta (2 x - x_prev)               (if constrained)
`negative`     v           where it is negative       (if positivity is joint)
`positivity`   v           the dual of the constraint         (if constrained)
`grad`         v           H (x - x_0) / gamma - slope
`primal`       v           the new image
`change`       v           squared norms of the change
`converged`    -           the gate
=============  ==========  ====================================================

t is a tile of coefficients, w the worker that the sum is made on. Every task looks at the gate of
the iteration before: once it is shut, states pass through and transients are `SKIPPED`, so that a
graph of many iterations stops where the loop would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pfb.graph.blocks import Blocks, Nest, add_nested, add_pairs, branches
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs, unchanged, value
from pfb.operators.constraints import Constraint, Mask, negative
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.solvers.primal_dual import Change, Gate, Steps
from pfb.types import LinearOperator, Real

SKIPPED = None
"""What a transient task returns once the gate is shut: nothing heavy travels any more."""


@dataclass(frozen=True)
class PrimalDual:
    """Builds the graph of one minimisation.

    Parameters
    ----------
    names : Names
        Names of this minimisation; they hold its parameters.
    blocks : Blocks
        How the arrays are cut.
    dictionary : Dictionary
        The bases.
    prior : JointPrior
        The regulariser, without weights: they are resident, one key per block of bases.
    steps : Steps
        Step sizes.
    radius : float
        lambda.
    gamma : float
        Step of the forward-backward iteration that this is a part of.
    constraint : Constraint
        What the images must obey.
    tol : float
        Relative change at which the gate shuts.
    nworker : int
        Workers that the blocks of bands are spread over.
    """

    names: Names
    blocks: Blocks
    dictionary: Dictionary
    prior: JointPrior
    steps: Steps
    radius: float
    gamma: float = 1.0
    constraint: Constraint = field(default_factory=Constraint)
    tol: float = 3e-4
    nworker: int = 1

    def owner(self, block: int) -> int:
        """Return the worker that a block of bands lives on."""
        return block * self.nworker // len(self.blocks.bands)

    def primal(self, iteration: int) -> list[Key]:
        """Keys of the images after so many iterations, one per block of bands."""
        return [self.names.key("primal", v, iteration=iteration) for v in range(len(self.blocks.bands))]

    def bounds(self, iteration: int) -> list[Key]:
        """Keys of the dual of the constraint after so many iterations, one per block of bands; none if there is none."""
        nv = len(self.blocks.bands) if self.constraint.active else 0
        return [self.names.key("positivity", v, iteration=iteration) for v in range(nv)]

    def dual(self, iteration: int) -> list[list[Key]]:
        """Keys of the dual after so many iterations, ``[basis block][band block]``."""
        nv = range(len(self.blocks.bands))
        return [[self.names.key("dual", b, v, iteration=iteration) for v in nv] for b in range(len(self.blocks.bases))]

    def gate(self, iteration: int) -> Key:
        """Key of the gate after so many iterations."""
        return self.names.key("converged", iteration=iteration)

    def state(self, iteration: int) -> list[Key]:
        """Keys that a block of iterations hands to the next one."""
        dual = [key for row in self.dual(iteration) for key in row]
        keys = self.primal(iteration) + dual + self.bounds(iteration) + [self.gate(iteration)]
        return keys if iteration == 0 else keys + self.primal(iteration - 1)

    def start(self, graph: Graph, x: list[Key], dual: list[list[Key]] | None, bounds: list[Key] | None = None) -> None:
        """Add the state before the first iteration.

        Parameters
        ----------
        graph : Graph
            Receives the tasks.
        x : list of Key
            Images (nx, ny) of every band.
        dual : list of list of Key, optional
            Dual ``[basis block][band block]`` to start from; zero by default.
        bounds : list of Key, optional
            Dual of the constraint to start from; zero by default.
        """
        for (first, last), key in zip(self.blocks.bands, self.primal(0), strict=True):
            add(graph, key, stack, refs(x[first:last]))
        for b, row in enumerate(self.dual(0)):
            for v, key in enumerate(row):
                if dual is None:
                    add(graph, key, np.zeros, self._shape(b, v), self.dictionary.dtype)
                else:
                    add(graph, key, unchanged, ref(dual[b][v]))
        for v, key in enumerate(self.bounds(0)):
            if bounds is None:
                add(graph, key, np.zeros_like, ref(self.primal(0)[v]))
            else:
                add(graph, key, unchanged, ref(bounds[v]))
        value(graph, self.gate(0), Gate())

    def guess(self, graph: Graph, slopes: list[Key], weights: Sequence[Key] | None) -> list[list[Key]]:
        """Add the dual that explains the slopes at x = 0 as far as its ball allows, P(Psi^H slope / nbasis); returns its keys.

        From a dual of zero the iteration would first fit the data without a prior, and then unlearn it.

        Parameters
        ----------
        graph : Graph
            Receives the tasks.
        slopes : list of Key
            The negative gradient of the data term of every band, (nx, ny).
        weights : sequence of Key, optional
            As of `Data`.
        """
        once = replace(
            self, names=self.names.within("guess"), constraint=Constraint(),
            steps=self.steps._replace(sigma=1 / self.dictionary.norm_squared),
        )  # fmt: skip
        once.start(graph, slopes, None)
        gate = ref(once.gate(0))
        once._ascend(graph, gate, 0, once.primal(0), [self.dictionary.subset(*bases) for bases in self.blocks.bases])
        once._threshold(graph, gate, 0, weights)
        return once.dual(1)

    def iterations(self, graph: Graph, data: Data, first: int, last: int) -> None:
        """Add the iterations `first` to `last` - 1, which read `state(first)`."""
        parts = [self.dictionary.subset(*bases) for bases in self.blocks.bases]
        for k in range(first, last):
            gate = ref(self.gate(k))
            # Before the first iteration nothing is extrapolated.
            previous = self.primal(max(k - 1, 0))
            self._ascend(graph, gate, k, previous, parts)
            self._threshold(graph, gate, k, data.weights)
            self._constrain(graph, gate, k, previous, data.mask)
            self._descend(graph, gate, k, data, parts)
            self._measure(graph, gate, k, k == last - 1)

    def finish(self, graph: Graph, iteration: int, mask: Key | None = None) -> list[Key]:
        """Add the images of single bands after the last iteration, as the constraint wants them; returns their keys."""
        blocks, out = self.primal(iteration), []
        signs: list[Any] = []
        if self.constraint.joint:
            signs = [add(graph, self.names.key("negative", v), negative, ref(key)) for v, key in enumerate(blocks)]
        for v, ((first, last), key) in enumerate(zip(self.blocks.bands, blocks, strict=True)):
            block = ref(key)
            if self.constraint.active:
                limited = self.names.key("positivity", v)
                block = ref(add(graph, limited, obey, self.constraint, block, _optional(mask), refs(signs)))
            for band in range(first, last):
                out.append(add(graph, self.names.key("model", band), band_of, block, band - first))
        return out

    def _shape(self, b: int, v: int) -> tuple[int, int, int]:
        (b0, b1), (v0, v1) = self.blocks.bases[b], self.blocks.bands[v]
        return b1 - b0, v1 - v0, self.blocks.ncoefficient

    def _key(self, stage: str, iteration: int, *index: int) -> Key:
        return self.names.key(stage, *index, iteration=iteration + 1)

    def _ascend(self, graph: Graph, gate: Any, k: int, previous: list[Key], parts: list[Dictionary]) -> None:
        images = [(ref(x), ref(before)) for x, before in zip(self.primal(k), previous, strict=True)]
        for b, (part, row) in enumerate(zip(parts, self.dual(k), strict=True)):
            for v, ((x, before), dual) in enumerate(zip(images, row, strict=True)):
                add(
                    graph, self._key("psi-dot", k, b, v), gated, gate, SKIPPED,
                    primal_dual.ascend, ref(dual), x, before, part, self.steps.sigma,
                )  # fmt: skip

    def _threshold(self, graph: Graph, gate: Any, k: int, weights: Sequence[Key] | None) -> None:
        nv = len(self.blocks.bands)
        parts, nest = branches(nv, self.owner)
        for b, (old_row, new_row) in enumerate(zip(self.dual(k), self.dual(k + 1), strict=True)):
            ascended = [self._key("psi-dot", k, b, v) for v in range(nv)]
            weight = None if weights is None else ref(weights[b])
            factors = []
            for t, tile in enumerate(self.blocks.tiles):
                slot = (b * len(self.blocks.tiles) + t) % self.nworker
                key = self._key("l21-norm", k, b, t, slot)
                if len(parts) == 1:
                    add(graph, key, gated, gate, SKIPPED, threshold, self.prior, refs(ascended), tile, self.radius, weight)
                else:
                    sums = [self._branch(graph, gate, k, (b, t), part, tile) for part in parts]
                    add(
                        graph, key, gated, gate, SKIPPED,
                        join, self.prior, refs(sums), nest, tile, self.radius, weight,
                    )  # fmt: skip
                factors.append(key)
            for old, new, v in zip(old_row, new_row, ascended, strict=True):
                add(graph, new, gated, gate, ref(old), project, self.prior, ref(v), refs(factors))

    def _branch(self, graph: Graph, gate: Any, k: int, index: tuple[int, int], part: tuple[int, int], tile: Any) -> Key:
        members = [self._key("psi-dot", k, index[0], v) for v in range(*part)]
        key = self._key("branch-norm", k, *index, part[0])
        return add(graph, key, gated, gate, SKIPPED, statistic, self.prior, refs(members), tile)

    def _constrain(self, graph: Graph, gate: Any, k: int, previous: list[Key], mask: Key | None) -> None:
        if not self.constraint.active:
            return
        pressed = [
            add(
                graph, self._key("press", k, v), gated, gate, SKIPPED,
                primal_dual.press, ref(bound), ref(x), ref(before), self.steps.theta,
            )
            for v, (bound, x, before) in enumerate(zip(self.bounds(k), self.primal(k), previous, strict=True))
        ]  # fmt: skip
        signs = []
        if self.constraint.joint:
            signs = [
                add(graph, self._key("negative", k, v), gated, gate, SKIPPED, negative, ref(key)) for v, key in enumerate(pressed)
            ]
        for old, new, key in zip(self.bounds(k), self.bounds(k + 1), pressed, strict=True):
            add(graph, new, gated, gate, ref(old), self.constraint.polar, ref(key), _optional(mask), refs(signs))

    def _descend(self, graph: Graph, gate: Any, k: int, data: Data, parts: list[Dictionary]) -> None:
        dual, bounds = self.dual(k + 1), self.bounds(k + 1)
        for v, ((first, last), x, new) in enumerate(zip(self.blocks.bands, self.primal(k), self.primal(k + 1), strict=True)):
            images = [
                add(graph, self._key("psi-hdot", k, b, v), gated, gate, SKIPPED, synthesise, ref(row[v]), part)
                for b, (row, part) in enumerate(zip(dual, parts, strict=True))
            ]
            grad = add(
                graph, self._key("grad", k, v), gated, gate, SKIPPED, gradient,
                refs(list(data.hessians[first:last])), ref(x), refs(list(data.before[first:last])),
                refs(list(data.slopes[first:last])), self.gamma,
            )  # fmt: skip
            preconditioners = refs(list(data.preconditioners[first:last]))
            bound = ref(bounds[v]) if bounds else None
            add(graph, new, gated, gate, ref(x), step, ref(x), ref(grad), refs(images), bound, preconditioners)

    def _measure(self, graph: Graph, gate: Any, k: int, last: bool) -> None:
        changes = []
        for v, (new, old) in enumerate(zip(self.primal(k + 1), self.primal(k), strict=True)):
            key = self._key("change", k, v)
            changes.append(add(graph, key, gated, gate, SKIPPED, change, ref(new), ref(old)))
        duals = []
        if last:  # one more pass over the coefficients, so once per block of iterations only
            for b, (new_row, old_row) in enumerate(zip(self.dual(k + 1), self.dual(k), strict=True)):
                for v, (new, old) in enumerate(zip(new_row, old_row, strict=True)):
                    key = self._key("dual-change", k, b, v)
                    duals.append(add(graph, key, gated, gate, SKIPPED, primal_dual.change, ref(new), ref(old)))
        add(graph, self.gate(k + 1), advance, gate, refs(changes), refs(duals), self.tol)


@dataclass(frozen=True)
class Data:
    """Keys of what is resident while the iteration runs."""

    hessians: Sequence[Key]
    """A symmetric positive operator per band."""
    before: Sequence[Key]
    """x_0, the model of a band that the major cycle starts from, (nx, ny)."""
    slopes: Sequence[Key]
    """The negative gradient of the data term of a band there, (nx, ny)."""
    preconditioners: Sequence[Key]
    """T of a band."""
    weights: Sequence[Key] | None = None
    """Weights (bases of a block, ncoefficient) of the prior per block of bases."""
    mask: Key | None = None
    """Boolean (nx, ny): where the model may be."""


def _optional(key: Key | None) -> Any:
    return None if key is None else ref(key)


def gated(gate: Gate, shut: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call the function while the gate is open; return `shut` afterwards."""
    return shut if gate.done else function(*args)


def change(new: Real, old: Real) -> list[Change]:
    """Return the change of every band of a block."""
    return [primal_dual.change(a, b) for a, b in zip(new, old, strict=True)]


def advance(gate: Gate, changes: list[list[Change]], duals: list[Change], tol: float) -> Gate:
    """Return the next gate; the change of the dual stays the last one known if none is given."""
    if gate.done:
        return gate
    new = primal_dual.advance(gate, [band for block in changes for band in block], duals, tol)
    return new if duals else new._replace(dual=gate.dual)


def stack(images: list[Real]) -> Real:
    """Make a block of bands of their images; a view if there is one band."""
    return images[0][None] if len(images) == 1 else np.stack(images)


def band_of(block: Real, index: int) -> Real:
    """Return the image of one band of a block."""
    return block[index]


def statistic(prior: JointPrior, blocks: list[Real], tile: tuple[int, int]) -> Real:
    """Sum over the bands of several blocks, along the fixed tree."""
    return prior.statistic(blocks, slice(*tile))


def threshold(prior: JointPrior, blocks: list[Real], tile: tuple[int, int], radius: float, weight: Real | None) -> Real:
    """Return the factor of the projection from the coefficients of all bands."""
    return _weighted(prior, weight).factors(blocks, radius, tile)


def join(prior: JointPrior, sums: list[Real], nest: Nest, tile: tuple[int, int], radius: float, weight: Real | None) -> Real:
    """Return the factor of the projection from the sums of branches."""
    prior = _weighted(prior, weight)
    return prior.factor(add_nested(sums, nest), prior.radius(radius, slice(*tile)))


def _weighted(prior: JointPrior, weight: Real | None) -> JointPrior:
    return prior if weight is None else prior.reweighted(weight)


def project(prior: JointPrior, v: Real, factors: list[Real]) -> Real:
    """Project a block of coefficients, whose factors come in tiles."""
    return prior.project(v, factors[0] if len(factors) == 1 else np.concatenate(factors, axis=-1))


def synthesise(dual: Real, dictionary: Dictionary) -> Real:
    """Return the images of a block's bands, (bands, nx, ny)."""
    return stack(primal_dual.synthesise(dual, dictionary))


def gradient(hessians: list[LinearOperator], x: Real, before: list[Real], slopes: list[Real], gamma: float) -> Real:
    """Return the gradient of the data term of a block's bands, H (x - before) / gamma - slope."""
    out = np.empty_like(x)
    for band, (hessian, old, slope) in enumerate(zip(hessians, before, slopes, strict=True)):
        np.divide(hessian.dot(x[band] - old), gamma, out=out[band])
        out[band] -= slope
    return out


def step(x: Real, grad: Real, images: list[Real], bound: Real | None, preconditioners: list[LinearOperator]) -> Real:
    """Return the next images of a block, x - T (grad + Psi v + u)."""
    total = add_pairs(images)
    out = grad + (total if bound is None else total + bound)
    for band, preconditioner in enumerate(preconditioners):
        np.subtract(x[band], preconditioner.dot(out[band]), out=out[band])
    return out


def obey(constraint: Constraint, x: Real, mask: Mask | None, negatives: list[Mask]) -> Real:
    """Return the projection of a block's images onto the constraint."""
    return x - constraint.polar(x, mask, negatives)
