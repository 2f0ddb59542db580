"""How fine the graph of an iteration is: a task per step and array, per worker, or for whole blocks of iterations.

A task costs the scheduler, the client and its worker about the same whatever it does. Where arrays are small that is more
than the work; the tasks of an iteration are then joined, and call the same functions with the same arguments in the same
order, so that the bits stay.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from pfb.graph.blocks import Blocks, laid_out
from pfb.graph.coarsening import Bundles, Cut, Part, coarsen
from pfb.graph.names import Names, iteration_of, stage_of
from pfb.graph.tasks import Graph, Key
from pfb.operators.wavelets import Dictionary


class Grain(Enum):
    """What is one task."""

    STEP = "a step of one array"
    WORKER = "what a thread of a worker does between two exchanges with the others"
    BLOCK = "several iterations, on one worker"


WORK = 3.5e-9
"""Seconds of an iteration per byte of an image, band and basis, on one thread (docs/decisions.md)."""
NOTICEABLE = 0.02
"""Share of the work from which on it is worth while to have fewer tasks."""


def grain_of(nbytes: int, nband: int, nbasis: int, nworker: int, nthread: int, overhead: float) -> Grain:
    """Choose the grain that takes the least time.

    Parameters
    ----------
    nbytes : int
        Of an image.
    nband, nbasis, nworker : int
        Their numbers.
    nthread : int
        Threads of all workers together.
    overhead : float
        Seconds that a task costs beside its work, on the engine that runs it.
    """
    work = WORK * nbytes * nband * nbasis
    apart = nworker > 1
    # Images, gradients, changes; transforms of every basis, of every band if these are apart; sums and their factors.
    tasks = 4 * nband + (3 * nbasis * nband + nbasis * (nworker + 1) if apart else 2 * nbasis) + 1
    cost = tasks * overhead
    if cost < NOTICEABLE * work:
        return Grain.STEP
    busy = min(nthread, nband)
    times = {Grain.BLOCK: work, Grain.STEP: work / busy + cost}
    if apart and nthread // nworker * nworker <= nband:
        lanes = nthread
        times[Grain.WORKER] = work / busy + overhead * (2 * lanes + nworker * (nworker + 1) + 1)
    return min(times, key=times.__getitem__)


def lay_out(nband: int, dictionary: Dictionary, nworker: int, nthread: int, overhead: float) -> tuple[Grain, Blocks]:
    """Decide how fine the graph of an iteration is, and how its dual is cut; parameters as of `grain_of`."""
    nx, ny = dictionary.domain
    nbytes = dictionary.dtype.itemsize * nx * ny
    grain = grain_of(nbytes, nband, dictionary.codomain[0], nworker, nthread, overhead)
    return grain, laid_out(nband, dictionary.codomain, nworker, nthread, together=grain is Grain.BLOCK)


@dataclass(frozen=True)
class Lanes:
    """Cuts iterations into what a thread of a worker does between two exchanges with the others.

    Parameters
    ----------
    names : Names
        Names of the minimisation.
    first : int
        Number of the first iteration in the graph.
    owners : tuple of int
        Worker of every block of bands.
    lanes : int
        Threads of a worker.
    """

    names: Names
    first: int
    owners: tuple[int, ...]
    lanes: int

    @cached_property
    def _lanes(self) -> list[int]:
        """Lane of every block of bands: those of a worker take turns."""
        ranks = [self.owners[:block].count(owner) for block, owner in enumerate(self.owners)]
        return [owner * self.lanes + rank % self.lanes for owner, rank in zip(self.owners, ranks, strict=True)]

    def part_of(self, key: Key) -> tuple[int, str, int, int]:
        """Return iteration, kind, number and home of the part that a task belongs to."""
        stage, iteration = stage_of(key), iteration_of(key)
        if stage == "converged":
            return iteration, "gate", 0, -1
        last = int(key[-1])
        if stage == "l21-norm":
            return iteration, stage, last, last
        home = self.owners[last]
        if stage == "branch-norm" and self.lanes > 1:
            return iteration, stage, home, home
        if stage in ("psi-dot", "branch-norm", "press", "negative") or (stage == "extrapolate" and iteration == self.first + 1):
            return iteration, "ascend", self._lanes[last], home
        # The next images are extrapolated where they are made: else the whole part before the last would be held for them.
        return iteration - (stage == "extrapolate"), "descend", self._lanes[last], home

    def make(self, part: Hashable) -> Part:
        """Return name and home of a part."""
        assert isinstance(part, tuple)
        iteration, kind, number, home = part
        if kind == "gate":
            return Part(self.names.key("gate", iteration=iteration), None)
        if kind == "l21-norm":
            return Part(self.names.key("l21-norm", number, iteration=iteration), home)
        return Part(self.names.key(kind, number, self.owners.index(home), iteration=iteration), home)

    def pick(self, key: Key, number: int) -> Key:
        """Name what is taken from a part."""
        return self.names.key("pick", number, key[-1] if isinstance(key[-1], int) else 0, iteration=iteration_of(key))

    def coarsen(self, graph: Graph, keep: set[Key], held: Bundles) -> tuple[Graph, Bundles]:
        """Return the coarse graph, and where it has what is kept; see `coarsen`."""
        return coarsen(graph, Cut(self.part_of, self.make, self.pick), keep, held)


def at_once(graph: Graph, names: Names, last: int, keep: set[Key], held: Bundles) -> tuple[Graph, Bundles]:
    """Return the graph as one task, and where that has what is kept; see `coarsen`."""
    key = names.key("iterate", 0, iteration=last)
    return coarsen(graph, Cut(lambda _: 0, lambda _: Part(key, 0), lambda key, _: key), keep, held)
