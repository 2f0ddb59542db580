"""`--algorithm sara`: a prior in several wavelet bases, minimised by a primal-dual iteration in every major cycle."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfb.config import Clean
from pfb.graph import deconvolution as builders
from pfb.graph import imaging
from pfb.graph.blocks import Blocks, flat, relaid, rows_of
from pfb.graph.coarsening import Bundles, unpacked
from pfb.graph.grain import Grain, lay_out
from pfb.graph.names import Names, stage_of
from pfb.graph.primal_dual import ITERATIONS, UNTOUCHED, Data, PrimalDual
from pfb.graph.tasks import Graph, Key, add, ref, unchanged
from pfb.operators.regularisers import JointPrior
from pfb.pipeline.algorithm import Algorithm, Resident, row
from pfb.pipeline.checkpoint import Saved
from pfb.pipeline.imaging import run_stage
from pfb.pipeline.planning import Plan, dictionary_of
from pfb.solvers.major_cycle import Cycle, Minimised, Options, Rule
from pfb.solvers.primal_dual import Gate, relative, step_sizes

SHIFT = 4.0
"""What the preconditioner leaves to the duals, over the PSF's peak in a band; see docs/decisions.md for others."""

EMISSION = 15.0
"""A coefficient of so many thresholds has half its weight in the prior when that is reweighted; see docs/decisions.md."""


class Sara(Algorithm):
    """See `pfb.solvers.primal_dual`; the duals stay warm between the cycles."""

    def _blocks(self) -> Blocks:
        self.dictionary = dictionary_of(self.config, self.run.gridder.shape)
        numbers = list(self.imaged.wsum)
        products = tuple(numbers.index(plane.stokes) for plane in self.imaged.planes)
        self.prior = JointPrior(self.config.prior, len(products), products=products)
        self.grain, blocks = self._lay_out()
        return blocks

    def _prepare(self) -> None:
        """Make the Hessians, the mask and the first model, whose residual is yet to be made."""
        self.dual: list[list[Key]] | None = None
        self._bounds: list[Key] | None = None
        self._weights: list[Key] | None = None
        # A source of one band has its peak in 1 / nband of the weights; a few times that is a step it takes in few iterations.
        self._shift = SHIFT / max(map(self.letters.count, self.letters))
        # A minimisation that a checkpoint has interrupted: its last images, those before, and its gate.
        self._midway: tuple[list[Key], list[Key], Gate] | None = None
        self.hessians: list[Key] = []
        self.convolutions: list[Key] = []
        self.preconditioners: list[Key] = []
        self._curve(self.run.names)
        leading = self.imaged.leading
        product = self.run.plan.products[leading]
        self.masks.prepare(self.imaged.of(leading, self.imaged.psf), self.imaged.wsum[leading], product)
        if self.safety.saved is None:
            self.state = Resident(self._given(self.dictionary.dtype) or self._pursue(), list(self.imaged.dirty))
        else:
            self._take_up(self.safety.saved)
            self.engine.drop(self.imaged.dirty)
        self.engine.drop(self.imaged.psf)
        self._precondition(self.run.names)

    def _reweighed(self, names: Names) -> None:
        self.engine.drop(self.hessians + self.convolutions + self.preconditioners)
        self._curve(names)
        self.engine.drop(self.imaged.dirty + self.imaged.psf)
        self._precondition(names)

    def _curve(self, names: Names) -> None:
        """Make the Hessians and convolutions of the weights that there are."""
        config, imaged, gridder = self.config, self.imaged, self.run.gridder
        graph: Graph = {}
        hessians = imaging.hessians(graph, names, imaged.visibilities, gridder, imaged.totals, config.eta)
        self.hessians = self.beams.screened(graph, hessians, config.eta)
        self.convolutions = imaging.convolutions(
            graph, names, imaged.psf, gridder.shape, imaged.totals, config.eta, gridder.nthreads, self.dictionary.dtype
        )
        run_stage(self.engine, self.report, "hessian", graph, self.hessians + self.convolutions)

    def _precondition(self, names: Names) -> None:
        """Make the preconditioners of the Hessians that there are."""
        graph: Graph = {}
        self.preconditioners = imaging.preconditioners(
            graph, names, self.convolutions, self.hessians, self.config.gamma, self._shift, self.beams.screens
        )
        run_stage(self.engine, self.report, "precondition", graph, self.preconditioners)
        self._gather()

    def _lay_out(self) -> tuple[Grain, Blocks]:
        """Decide how fine the graph of an iteration is, and how the dual is cut."""
        engine = self.engine
        return lay_out(len(self.imaged.planes), self.dictionary, engine.nworker, engine.nthread, engine.overhead)

    def _gather(self) -> None:
        """Bring what iterations need of every band to the worker that does them, if it is one for all."""
        if self.grain is not Grain.BLOCK or self.engine.nworker == 1:
            return
        graph: Graph = {}
        keys = self.hessians + self.preconditioners
        names = self.run.names.within("gather", keys[0][0])
        moved = [add(graph, names.key(stage_of(key), i, 0), unchanged, ref(key)) for i, key in enumerate(keys)]
        self.engine.run(graph, moved)
        self.engine.drop(keys)
        self.hessians, self.preconditioners = moved[: len(self.hessians)], moved[len(self.hessians) :]

    def _take_up(self, saved: Saved) -> None:
        """Make the arrays of a checkpoint resident."""
        graph: Graph = {}
        names = self.run.names.within("checkpoint")
        found = self._load(saved, graph, names)
        keep = {key for kind, keys in found.items() if kind != "dual" for key in keys}
        if found["dual"]:
            rows = rows_of(found["dual"], len(saved.blocks.bands))
            self.dual = relaid(graph, lambda b, w: names.key("dual", b, w), saved.blocks, rows, self.blocks)
            self._bounds = found["bound"]
            keep |= set(flat(self.dual))
        if found["primal"]:
            self._midway = found["primal"], found["previous"], saved.gate
        run_stage(self.engine, self.report, "resume", graph, list(keep))

    def _pursue(self) -> list[Key]:
        """Make the first model out of point sources: what the minimiser ends at depends on where it starts."""
        imaged, names, engine = self.imaged, self.run.names, self.engine
        graph: Graph = {}
        pixels: list[Key] = []
        models: dict[int, Key] = {}
        for s, total in imaged.wsum.items():
            positive = self.constraint.of(self.run.plan.products[s]).positive
            how = builders.Pursuit(total, self.config.start_level, positive, self.dictionary.dtype, s)
            found, own = builders.pursue(graph, names, imaged.of(s, imaged.dirty), imaged.of(s, imaged.psf), self.masks.key, how)
            pixels.append(found)
            models |= own
        first = self.beams.unseen(graph, [models[v] for v in range(len(models))])
        run_stage(engine, self.report, "pursue", graph, pixels + first)
        places = engine.fetch(pixels)
        engine.drop(pixels)
        different = sum(len(np.unique(own, axis=0)) for own in places)
        self.report.message(f"{different} pixels, found in {sum(map(len, places))} subtractions, make the first model")
        return first

    def rule(self) -> Rule:
        """Return how the threshold falls."""
        return Options(maxit=self.config.niter, tol=self.config.tol, rmsfactor=self.config.rmsfactor)

    @staticmethod
    def layout(config: Clean, plan: Plan) -> Mapping[str, Any]:
        """Return the sizes of the dual."""
        dictionary = dictionary_of(config, plan.geometry.shape)
        return dict(bases=dictionary.bases, nlevels=config.nlevels, ncoefficient=dictionary.codomain[1])

    @staticmethod
    def line(cycle: Cycle) -> dict[str, float | int | str]:
        """Return what the table of major cycles shows."""
        return row(cycle, {"lambda": f"{cycle.threshold:.4e}", "objective": f"{cycle.objective:.6e}", "inner": cycle.inner})

    @staticmethod
    def outcome(config: Clean, reason: str, last: Cycle) -> str:
        """Say why the cycles have ended."""
        return stillness(config, reason, last)

    def minimise(self, cycle: int, threshold: float) -> Minimised:
        """Minimise the data term, as the Hessian has it, and the prior from the present model."""
        self._settle()
        config, engine = self.config, self.engine
        engine.monitor.begin(cycle)
        names = self.run.names.within("cycle", cycle)
        before = self.state.models
        if self._midway is None:
            self._renew_mask(cycle)
        graph: Graph = {}
        residuals = self.beams.seen(graph, names, "slope", self.state.residuals)
        slopes = builders.slopes(graph, names, residuals, self.imaged.totals, self.dictionary.dtype)
        keep = list(slopes)
        reweighted = 0 <= config.l1_reweight_from <= cycle
        if reweighted or self._weights is None:
            engine.drop(self._weights or [])
            level = EMISSION * threshold if reweighted else math.inf
            scales = [level / scale for scale in self.imaged.scales.values()]
            each = [self.imaged.of(s, before) for s in self.imaged.scales]
            self._weights = builders.weights(graph, names, self.blocks, self.dictionary, each, scales, config.alpha)
            keep += self._weights
        engine.run(graph, keep)

        steps = step_sizes(self._shift, self.dictionary.norm_squared, self.constraint.active)
        solver = PrimalDual(
            names, self.blocks, self.dictionary, self.prior, steps,
            threshold, config.gamma, self.constraint, config.pd_tol, engine.nworker, engine.owners,
            self.grain, max(engine.nthread // engine.nworker, 1), self.letters,
        )  # fmt: skip
        data = Data(self.hessians, before, slopes, self.preconditioners, self._weights, self.masks.key)
        models, gate = self._iterate(solver, data)

        graph = {}
        terms, values = builders.objective(graph, solver, data, models)
        changed = builders.changes(graph, names.within("change"), models, before)
        engine.run(graph, terms + values + changed)
        objective = sum(engine.fetch(terms)) + threshold * sum(engine.fetch(values))
        change = relative(engine.fetch(changed))
        self.replace(models)
        engine.drop(slopes + terms + values + changed)
        return Minimised(objective, gate.iterations, change)

    def _settle(self) -> None:
        """Spread the bands over the workers that there are now, and cut the dual as they need it."""
        engine, before = self.engine, self.engine.nworker
        if not engine.refresh():
            return
        self.report.message(f"going on with {engine.nworker} worker{'s' * (engine.nworker > 1)}; there were {before}")
        old = self.blocks
        self.grain, self.blocks = self._lay_out()
        self._gather()
        if self.dual is not None:
            graph: Graph = {}
            names = self.run.names.within("settle", self.dual[0][0][0])
            dual = relaid(graph, lambda b, w: names.key("dual", b, w), old, self.dual, self.blocks)
            if dual is not self.dual:
                engine.run(graph, flat(dual))
                engine.drop(flat(self.dual))
                self.dual = dual

    def revert(self) -> None:
        """Take up the best model; the duals belonged to another one and start anew."""
        super().revert()
        self.engine.drop(flat(self.dual or []) + (self._bounds or []))
        self.dual = self._bounds = None

    def _arrays(self) -> Mapping[str, Sequence[Key]]:
        return {"dual": flat(self.dual or []), "bound": self._bounds or [], "primal": [], "previous": []}

    def products(self, graph: Graph) -> Mapping[str, Sequence[Key]]:
        """Add the update that the last residual asks for, and the dual."""
        update = self.beams.intrinsic(graph, self.run.names.within("update"), self.update())
        return {"update": update, "dual": [self.dual_of(graph, v) for v in range(len(self.imaged.planes))]}

    def update(self) -> list[Key]:
        """Solve for the update that the last residual asks for without a prior, by conjugate gradients; returns its keys.

        What only minimising needs is let go before; it is the last thing that is done.
        """
        self.engine.drop(self.hessians + self.preconditioners + (self._weights or []))
        graph: Graph = {}
        convolutions = self.beams.screened(graph, self.convolutions, self.config.eta)
        residuals = self.beams.seen(graph, self.run.names, "slope", self.state.residuals)
        update = builders.updates(
            graph, self.run.names, convolutions, residuals, None,
            self.imaged.totals, self.config.cg_tol, self.config.cg_maxit, self.dictionary.dtype,
        )  # fmt: skip
        run_stage(self.engine, self.report, "update", graph, update)
        self.engine.drop(self.convolutions)
        return update

    def dual_of(self, graph: Graph, v: int) -> Key:
        """Add a task that joins the dual of one plane, (nbasis, ncoefficient), zero after a reversion; returns its key."""
        if self.dual is None:
            return add(graph, self.run.names.key("dual", v), np.zeros, self.dictionary.codomain, self.dictionary.dtype)
        first = v // self.blocks.band_chunk
        rows = [row[first] for row in self.dual]
        return builders.dual_of_band(graph, self.run.names, rows, v, v - self.blocks.bands[first][0])

    def _iterate(self, solver: PrimalDual, data: Data) -> tuple[list[Key], Gate]:
        """Run blocks of iterations until the gate shuts; the next one is submitted before the last has ended."""
        engine, maxit = self.engine, self.config.pd_maxit
        graph: Graph = {}
        dual = solver.guess(graph, list(data.slopes), data.weights) if self.dual is None else self.dual
        # What a block of iterations starts from is let go when it is submitted; only the gate is looked at later.
        start = flat(self.dual or []) + (self._bounds or [])
        if self._midway is None:
            gate = UNTOUCHED
            solver.start(graph, self.state.models, dual, self._bounds)
        else:
            primal, previous, gate = self._midway
            solver.start(graph, primal, dual, self._bounds, previous=previous, gate=gate)
            start += primal + previous
        self.dual = self._bounds = self._midway = None
        held: Bundles = {}
        submitted = gate.iterations
        done = sum(cycle.inner for cycle in self._progress.history)
        waiting: deque[int] = deque()
        with engine.monitor.stage("primal-dual"), self.report.stage("primal-dual", maxit) as advance:
            advance(submitted)
            while not gate.done and (waiting or submitted < maxit):
                if not waiting and gate.iterations and self.safety.due(done + gate.iterations):
                    self._save_midway(solver, held, submitted, gate)
                # What is to be saved must not be let go, so nothing is submitted on top of it.
                while submitted < maxit and len(waiting) < 2 and not (waiting and self.safety.due(done + submitted)):
                    last = min(submitted + ITERATIONS, maxit)
                    held = solver.iterations(graph, data, submitted, last, held)
                    kept = solver.resident(last, held)
                    engine.submit(graph, kept, [key for key in start if key not in kept])
                    waiting.append(last)
                    start = [key for key in kept if key != solver.gate(last)]
                    graph, submitted = {}, last
                reached = waiting.popleft()
                before, gate = gate, engine.fetch([solver.gate(reached)])[0]
                advance(gate.iterations - before.iterations)
                engine.monitor.tell("iterations", cycle=engine.monitor.cycle, **gate._asdict())
                if reached < submitted:
                    engine.drop([solver.gate(reached)])
            advance(maxit - gate.iterations)
        return self._finish(solver, held, submitted), gate

    def _save_midway(self, solver: PrimalDual, held: Bundles, iteration: int, gate: Gate) -> None:
        """Write a checkpoint between two blocks of iterations."""
        graph: Graph = {}
        arrays = {
            "dual": flat(solver.dual(iteration)), "bound": solver.bounds(iteration),
            "primal": solver.primal(iteration), "previous": solver.primal(iteration - 1),
        }  # fmt: skip
        unpacked(graph, held, flat(arrays.values()))
        self.engine.run(graph, list(graph))
        self._save(gate, arrays)
        self.engine.drop(graph)

    def _finish(self, solver: PrimalDual, held: Bundles, iteration: int) -> list[Key]:
        """Keep the last images and dual, cut off from the iterations behind them."""
        engine = self.engine
        graph: Graph = {}
        rows, bounds = solver.dual(iteration), solver.bounds(iteration)
        unpacked(graph, held, flat(rows) + bounds + solver.primal(iteration))
        kept = [key for key in flat(rows) + bounds if key in graph]
        models = solver.finish(graph, iteration, self.masks.key)
        engine.run(graph, models + kept)
        engine.drop(key for key in solver.resident(iteration, held) if key not in {*flat(rows), *bounds})
        moved = engine.detach(models + bounds + flat(rows))
        models, moved = moved[: len(models)], moved[len(models) :]
        self._bounds, self.dual = moved[: len(bounds)], rows_of(moved[len(bounds) :], len(rows[0]))
        return models


def stillness(config: Clean, reason: str, last: Cycle) -> str:
    """Say how a minimisation has ended, see `pfb.solvers.major_cycle.Stillness`."""
    if reason == "converged":
        return f"converged: the last cycle changed the model by {last.change:.2e}, less than --tol {config.tol:g}"
    if reason == "noise":
        made = f"{last.rms:.4g} Jy/beam where incoherent visibilities make {last.noise:.4g}"
        return f"the residual has come down to its noise: {made}"
    return (
        f"--niter {config.niter} cycles done; the last one changed the model by {last.change:.2e}, "
        f"which is above --tol {config.tol:g}"
    )
