"""The primal-dual iteration as one graph, cut into blocks of iterations.

Per iteration, for every block b of bases, block w of bands, and band v:

=============  ==========  ====================================================
stage          index       makes
=============  ==========  ====================================================
`extrapolate`  v           2 x - x_prev
`psi-dot`      b, w        v + sigma Psi^H of it
`branch-norm`  b, t, w     sums over the bands of one worker (if there are several)
`l21-norm`     b, t, o     the sum over frequency, and from it the projection
`dual`         b, w        the projected dual
`psi-hdot`     b, w        Psi v' of the bases of a block
`press`        v           u + theta (2 x - x_prev)               (if constrained)
`negative`     v           where it is negative       (if positivity is joint)
`positivity`   v           the dual of the constraint         (if constrained)
`grad`         v           H (x - x_0) / gamma - slope
`primal`       v           the new image
`change`       v           squared norms of the change
`converged`    -           the gate
=============  ==========  ====================================================

If a block has all bands, the sum over frequency is local to a task: `dual` then is what `psi-dot`, `l21-norm` and `dual`
make else, in one pass over the coefficients.

t is a tile of coefficients, o the worker that the sum is made on. Every task looks at the gate of
the iteration before: once it is shut, states pass through and transients are `SKIPPED`, so that a
graph of many iterations stops where the loop would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pfb.graph.blocks import Blocks, branches, flat
from pfb.graph.coarsening import Bundles, unpacked
from pfb.graph.constraints import constrained
from pfb.graph.grain import Grain, Lanes, at_once
from pfb.graph.iteration import advance, gated, gradient, join, project, renew, statistic, step, threshold
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs, unchanged, value
from pfb.operators.constraints import Constraint
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.solvers.primal_dual import Gate, Steps

ITERATIONS = 10
"""Iterations of one graph: enough to hide a round trip to the scheduler, few enough that a shut gate costs little."""

UNTOUCHED = Gate()
"""Before the first iteration."""

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
    owners : tuple of int
        Number of the worker of every band; by default neighbours have the same.
    grain : Grain
        What is one task. With blocks of iterations everything is on the worker of the first band.
    lanes : int
        Threads of a worker, if what it does is to be cut by them.
    products : str
        The Stokes product of every band, which here is any plane: a product in a band. I by default.
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
    owners: tuple[int, ...] = ()
    grain: Grain = Grain.STEP
    lanes: int = 1
    products: str = ""

    def constraint_of(self, band: int) -> Constraint:
        """Return what the images of a band must obey."""
        return self.constraint.of(self.products[band]) if self.products else self.constraint

    def owner(self, block: int) -> int:
        """Return the worker that a block of bands lives on."""
        if self.owners:
            return self.owners[block % len(self.owners)]
        return block * self.nworker // len(self.blocks.bands)

    def place(self, band: int) -> tuple[int, ...]:
        """Return the index of what belongs to a band: the last number says where it lives."""
        return (band, 0) if self.grain is Grain.BLOCK else (band,)

    def primal(self, iteration: int) -> list[Key]:
        """Keys of the images (nx, ny) after so many iterations, one per band."""
        return [self.names.key("primal", *self.place(v), iteration=iteration) for v in range(self.blocks.nband)]

    def bounds(self, iteration: int) -> list[Key]:
        """Keys of the dual of the constraint after so many iterations, one per band; none if there is none."""
        nv = self.blocks.nband if self.constraint.active else 0
        return [self.names.key("positivity", *self.place(v), iteration=iteration) for v in range(nv)]

    def dual(self, iteration: int) -> list[list[Key]]:
        """Keys of the dual after so many iterations, ``[basis block][band block]``."""
        nv = range(len(self.blocks.bands))
        return [[self.names.key("dual", b, v, iteration=iteration) for v in nv] for b in range(len(self.blocks.bases))]

    def gate(self, iteration: int) -> Key:
        """Key of the gate after so many iterations."""
        return self.names.key("converged", iteration=iteration)

    def state(self, iteration: int) -> list[Key]:
        """Keys that a block of iterations hands to the next one."""
        keys = self.primal(iteration) + flat(self.dual(iteration)) + self.bounds(iteration) + [self.gate(iteration)]
        return keys if iteration == 0 else keys + self.primal(iteration - 1)

    def start(
        self, graph: Graph, x: list[Key], dual: list[list[Key]] | None, bounds: list[Key] | None = None,
        *, previous: list[Key] | None = None, gate: Gate = UNTOUCHED,
    ) -> None:  # fmt: skip
        """Add the state before the first iteration, or before another one at which the iteration was interrupted.

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
        previous : list of Key, optional
            Images of the iteration before, if there was one.
        gate : Gate
            After the iterations that were done.
        """
        k = gate.iterations
        for key, image in zip(self.primal(k), x, strict=True):
            add(graph, key, unchanged, ref(image))
        if previous is not None:
            for key, image in zip(self.primal(k - 1), previous, strict=True):
                add(graph, key, unchanged, ref(image))
        for b, row in enumerate(self.dual(k)):
            for v, key in enumerate(row):
                if dual is None:
                    add(graph, key, np.zeros, self._shape(b, v), self.dictionary.dtype)
                else:
                    add(graph, key, unchanged, ref(dual[b][v]))
        for v, key in enumerate(self.bounds(k)):
            if bounds is None:
                add(graph, key, np.zeros_like, ref(self.primal(k)[v]))
            else:
                add(graph, key, unchanged, ref(bounds[v]))
        value(graph, self.gate(k), gate)

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
        once._ascend(graph, (gate, gate), 0, once.primal(0), weights, once._parts)
        return once.dual(1)

    def iterations(self, graph: Graph, data: Data, first: int, last: int, held: Bundles | None = None) -> Bundles:
        """Add the iterations `first` to `last` - 1, which read `state(first)`.

        Parameters
        ----------
        graph : Graph
            Receives the tasks.
        data : Data
            What is resident.
        first, last : int
            Numbers of iterations.
        held : Bundles, optional
            What of `state(first)` is in bundles. Without it all of `state(last)` has its own keys.

        Returns
        -------
        Bundles
            What of `state(last)` is in bundles, where tasks are joined; `pfb.graph.coarsening.unpacked` takes it out.
            The gate has its own key.
        """
        parts = self._parts
        fine: Graph = {}
        for k in range(first, last):
            gate = ref(self.gate(k))
            # Before the first iteration nothing is extrapolated.
            previous = self.primal(max(k - 1, 0))
            # Where tasks are joined, workers go on with their own new images until they need those of others, and do not
            # wait for the gate: if it shuts, that much was in vain.
            own = ref(self.gate(k - 1)) if self.grain is Grain.WORKER and k > first else gate
            extrapolated = [
                add(fine, self._key("extrapolate", k, v), gated, own, SKIPPED, primal_dual.extrapolate, ref(x), ref(before))
                for v, (x, before) in enumerate(zip(self.primal(k), previous, strict=True))
            ]
            self._ascend(fine, (gate, own), k, extrapolated, data.weights, parts)
            self._constrain(fine, (gate, own), k, extrapolated, data.mask)
            self._descend(fine, gate, k, data, parts)
            self._measure(fine, gate, k, k == last - 1)
        if self.grain is Grain.STEP:
            graph.update(fine)
            return {}
        keep = {key for key in self.state(last) if held is not None or key in fine}
        if self.grain is Grain.WORKER:
            owners = tuple(map(self.owner, range(len(self.blocks.bands))))
            coarse, bundles = Lanes(self.names, first, owners, self.lanes).coarsen(fine, keep, held or {})
        else:
            coarse, bundles = at_once(fine, self.names, last, keep, held or {})
        graph.update(coarse)
        gate_key = self.gate(last)
        unpacked(graph, bundles, keep if held is None else [gate_key])
        return {} if held is None else {bundle: keys for bundle, keys in bundles.items() if keys != [gate_key]}

    def resident(self, iteration: int, held: Bundles) -> list[Key]:
        """Return the keys under which `state(iteration)` is resident: bundles, what is in none, and the gate."""
        packed = {key for keys in held.values() for key in keys} - {self.gate(iteration)}
        return [*held, *(key for key in self.state(iteration) if key not in packed)]

    def finish(self, graph: Graph, iteration: int, mask: Key | None = None) -> list[Key]:
        """Add the images after the last iteration, as the constraint wants them; returns their keys."""
        images = self.primal(iteration)
        return constrained(graph, self.names, images, [self.constraint_of(v) for v in range(len(images))], mask)

    @property
    def _parts(self) -> list[Dictionary]:
        """The dictionaries of the blocks of bases."""
        return [self.dictionary.subset(*bases) for bases in self.blocks.bases]

    def _shape(self, b: int, v: int) -> tuple[int, int, int]:
        (b0, b1), (v0, v1) = self.blocks.bases[b], self.blocks.bands[v]
        return b1 - b0, v1 - v0, self.blocks.ncoefficient

    def _key(self, stage: str, iteration: int, *index: int) -> Key:
        return self.names.key(stage, *index, iteration=iteration + 1)

    def _ascend(
        self, graph: Graph, gates: tuple[Any, Any], k: int, images: list[Key], weights: Sequence[Key] | None,
        parts: list[Dictionary],
    ) -> None:  # fmt: skip
        gate, own = gates
        for b, part in enumerate(parts):
            weight = None if weights is None else ref(weights[b])
            if len(self.blocks.bands) == 1:
                old, new = ref(self.dual(k)[b][0]), self.dual(k + 1)[b][0]
                sigma, radius = self.steps.sigma, self.radius
                add(graph, new, gated, gate, old, renew, old, refs(images), part, self.prior, sigma, radius, weight)
                continue
            for v, (old_key, (first, last)) in enumerate(zip(self.dual(k)[b], self.blocks.bands, strict=True)):
                add(
                    graph, self._key("psi-dot", k, b, v), gated, own, SKIPPED, primal_dual.ascend,
                    ref(old_key), refs(images[first:last]), part, self.prior, self.steps.sigma,
                )  # fmt: skip
            self._threshold(graph, (gate, own if self.lanes == 1 else gate), k, b, weight)

    def _threshold(self, graph: Graph, gates: tuple[Any, Any], k: int, b: int, weight: Any) -> None:
        gate, own = gates
        parts, nest = branches(len(self.blocks.bands), self.owner)
        ascended = [self._key("psi-dot", k, b, v) for v in range(len(self.blocks.bands))]
        factors = []
        for t, tile in enumerate(self.blocks.tiles):
            slot = (b * len(self.blocks.tiles) + t) % self.nworker
            key = self._key("l21-norm", k, b, t, slot)
            if len(parts) == 1:
                add(graph, key, gated, gate, SKIPPED, threshold, self.prior, refs(ascended), tile, self.radius, weight)
            else:
                sums = [self._branch(graph, own, k, (b, t), part, tile) for part in parts]
                add(graph, key, gated, gate, SKIPPED, join, self.prior, refs(sums), nest, tile, self.radius, weight)
            factors.append(key)
        for old, new, v, (first, _) in zip(self.dual(k)[b], self.dual(k + 1)[b], ascended, self.blocks.bands, strict=True):
            add(graph, new, gated, gate, ref(old), project, self.prior, ref(v), refs(factors), first)

    def _branch(self, graph: Graph, gate: Any, k: int, index: tuple[int, int], part: tuple[int, int], tile: Any) -> Key:
        members = [self._key("psi-dot", k, index[0], v) for v in range(*part)]
        key = self._key("branch-norm", k, *index, part[0])
        first = self.blocks.bands[part[0]][0]
        return add(graph, key, gated, gate, SKIPPED, statistic, self.prior, refs(members), tile, first)

    def _constrain(self, graph: Graph, gates: tuple[Any, Any], k: int, images: list[Key], mask: Key | None) -> None:
        gate, own = gates
        if not self.constraint.active:
            return
        pressed = [
            add(
                graph, self._key("press", k, v), gated, own, SKIPPED,
                primal_dual.press, ref(bound), ref(image), self.steps.theta,
            )
            for v, (bound, image) in enumerate(zip(self.bounds(k), images, strict=True))
        ]  # fmt: skip
        joint = [v for v in range(len(pressed)) if self.constraint_of(v).joint]
        signs = [add(graph, self._key("negative", k, v), gated, own, SKIPPED, np.less, ref(pressed[v]), 0) for v in joint]
        for v, (old, new, key) in enumerate(zip(self.bounds(k), self.bounds(k + 1), pressed, strict=True)):
            add(graph, new, gated, gate, ref(old), self.constraint_of(v).polar, ref(key), _optional(mask), refs(signs))

    def _descend(self, graph: Graph, gate: Any, k: int, data: Data, parts: list[Dictionary]) -> None:
        for b, (row, part) in enumerate(zip(self.dual(k + 1), parts, strict=True)):
            for w, dual in enumerate(row):
                add(graph, self._key("psi-hdot", k, b, w), gated, gate, SKIPPED, primal_dual.synthesise, ref(dual), part)
        bounds: list[Any] = [ref(key) for key in self.bounds(k + 1)] or [None] * self.blocks.nband
        of_band = [(w, v - first) for w, (first, last) in enumerate(self.blocks.bands) for v in range(first, last)]
        for v, (x, new, (w, index)) in enumerate(zip(self.primal(k), self.primal(k + 1), of_band, strict=True)):
            grad = add(
                graph, self._key("grad", k, v), gated, gate, SKIPPED, gradient,
                ref(data.hessians[v]), ref(x), ref(data.before[v]), ref(data.slopes[v]), self.gamma,
            )  # fmt: skip
            images = refs([self._key("psi-hdot", k, b, w) for b in range(len(parts))])
            add(graph, new, gated, gate, ref(x), step, ref(x), ref(grad), images, index, bounds[v], ref(data.preconditioners[v]))

    def _measure(self, graph: Graph, gate: Any, k: int, last: bool) -> None:
        changes = []
        for v, (new, old) in enumerate(zip(self.primal(k + 1), self.primal(k), strict=True)):
            key = self._key("change", k, v)
            changes.append(add(graph, key, gated, gate, SKIPPED, primal_dual.change, ref(new), ref(old)))
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
