"""The major cycle of `pfb clean` on an engine: which keys are resident, and when they are let go."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pfb.config import Clean
from pfb.errors import InputError, Stopped
from pfb.graph import deconvolution as builders
from pfb.graph import imaging
from pfb.graph.blocks import Blocks, flat, relaid, rows_of
from pfb.graph.engine import Engine
from pfb.graph.grain import Grain, lay_out
from pfb.graph.names import Names, stage_of
from pfb.graph.primal_dual import ITERATIONS, UNTOUCHED, Data, PrimalDual
from pfb.graph.tasks import Graph, Key, add, ref, unchanged
from pfb.operators.constraints import Constraint
from pfb.operators.measurement import Spread
from pfb.operators.regularisers import JointPrior
from pfb.pipeline.checkpoint import Safety, Saved
from pfb.pipeline.imaging import Imaged, Run, run_stage
from pfb.pipeline.masking import Masks, masked
from pfb.pipeline.planning import dictionary_of
from pfb.pipeline.reporting import Reporter
from pfb.solvers.major_cycle import Minimised, Progress, Statistics
from pfb.solvers.primal_dual import Gate, relative, step_sizes
from pfb.types import Real

SHIFT = 4.0
"""What the preconditioner leaves to the duals, over the PSF's peak in a band; see docs/decisions.md for others."""

EMISSION = 15.0
"""A coefficient of so many thresholds has half its weight in the prior when that is reweighted; see docs/decisions.md."""


@dataclass(frozen=True)
class Resident:
    """Keys of the state between major cycles, band by band."""

    models: list[Key]
    residuals: list[Key]
    power: list[Real] | None = None
    """Of the residual visibilities, see `pfb.operators.measurement.Spread`; None if they have not been made here."""


class Deconvolution:
    """Implements the steps of a major cycle, see `pfb.solvers.major_cycle`.

    Parameters
    ----------
    run : Run
        What is imaged.
    imaged : Imaged
        Keys of its visibilities and images; the dirty images and PSFs are dropped when they are used up.
    config : Clean
        Options.
    engine : Engine
        Where it runs.
    report : Reporter
        Is told the progress of every stage.
    safety : Safety
        Writes the checkpoints, and has the one to go on from.
    """

    def __init__(self, run: Run, imaged: Imaged, config: Clean, engine: Engine, report: Reporter, safety: Safety) -> None:
        self.run, self.imaged, self.config, self.engine, self.report = run, imaged, config, engine, report
        self.safety = safety
        shape = run.gridder.shape
        self.dictionary = dictionary_of(config, shape)
        self.prior = JointPrior(config.prior, len(imaged.bands))
        self.grain, self.blocks = self._lay_out()
        self.masks = Masks(config, run.plan.geometry, run.names, engine, report)
        self.constraint = Constraint(config.positivity, masked(config))
        self.dual: list[list[Key]] | None = None
        self._bounds: list[Key] | None = None
        self._weights: list[Key] | None = None
        # A source of one band has its peak in 1 / nband of the weights; a few times that is a step it takes in few iterations.
        self._shift = SHIFT / len(imaged.bands)
        self._best: Resident | None = None
        self._progress: Progress
        # A minimisation that a checkpoint has interrupted: its last images, those before, and its gate.
        self._midway: tuple[list[Key], list[Key], Gate] | None = None
        self._prepare()

    def _prepare(self) -> None:
        """Make the Hessians, the mask and the first model, whose residual is yet to be made."""
        config, names, engine, imaged = self.config, self.run.names, self.engine, self.imaged
        gridder = self.run.gridder
        graph: Graph = {}
        self.hessians = imaging.hessians(graph, names, imaged.visibilities, gridder, imaged.total, config.eta)
        self.convolutions = imaging.convolutions(
            graph, names, imaged.psf, gridder.shape, imaged.total, config.eta, gridder.nthreads, self.dictionary.dtype
        )
        keep = self.hessians + self.convolutions
        run_stage(engine, self.report, "hessian", graph, keep)
        self.masks.prepare(imaged.psf, imaged.total)
        if self.safety.saved is None:
            self.state = Resident(self._pursue(), list(imaged.dirty))
        else:
            self._take_up(self.safety.saved)
            engine.drop(imaged.dirty)
        engine.drop(imaged.psf)
        graph = {}
        self.preconditioners = imaging.preconditioners(graph, names, self.convolutions, self.hessians, config.gamma, self._shift)
        run_stage(engine, self.report, "precondition", graph, self.preconditioners)
        self._gather()

    def _lay_out(self) -> tuple[Grain, Blocks]:
        """Decide how fine the graph of an iteration is, and how the dual is cut."""
        engine = self.engine
        return lay_out(len(self.imaged.bands), self.dictionary, engine.nworker, engine.nthread, engine.overhead)

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
        if saved.blocks.sizes != self.blocks.sizes:
            raise InputError(
                f"the checkpoint {self.safety.checkpoints.path} has {saved.blocks.nband} bands with data and "
                f"{saved.blocks.ncoefficient} coefficients but the selection now gives {self.blocks.nband} and "
                f"{self.blocks.ncoefficient}: the data have changed, so start anew with --overwrite"
            )
        graph: Graph = {}
        names = self.run.names.within("checkpoint")
        found = saved.load(graph, names)
        self.state = Resident(found["model"], found["residual"])
        self._best = Resident(found["best-model"], found["best-residual"])
        self.masks.take_up(found["mask"])
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
        pixels, models = builders.pursue(
            graph, names, imaged.dirty, imaged.psf, self.masks.key,
            total=imaged.total, depth=self.config.start_level, positive=self.constraint.positive, dtype=self.dictionary.dtype,
        )  # fmt: skip
        run_stage(engine, self.report, "pursue", graph, [pixels, *models])
        found = engine.fetch([pixels])[0]
        engine.drop([pixels])
        self.report.message(f"{len(np.unique(found, axis=0))} pixels, found in {len(found)} subtractions, make the first model")
        return models

    def start(self) -> Progress:
        """Return where to go on from: the residual of the first model, or a checkpoint."""
        saved = self.safety.saved
        return Progress.begin(self.measure()) if saved is None else saved.progress

    def minimise(self, cycle: int, threshold: float) -> Minimised:
        """Minimise the data term, as the Hessian has it, and the prior from the present model."""
        self._settle()
        config, engine = self.config, self.engine
        engine.monitor.begin(cycle)
        names = self.run.names.within("cycle", cycle)
        before = self.state.models
        if self._midway is None:
            shares = [self.imaged.wsum[band] / self.imaged.total for band in self.imaged.bands]
            self.masks.renew(cycle, self.state.residuals, before, shares, self.imaged.total)
        graph: Graph = {}
        slopes = builders.slopes(graph, names, self.state.residuals, self.imaged.total, self.dictionary.dtype)
        keep = list(slopes)
        reweighted = 0 <= config.l1_reweight_from <= cycle
        if reweighted or self._weights is None:
            engine.drop(self._weights or [])
            scale = EMISSION * threshold if reweighted else math.inf
            self._weights = builders.weights(graph, names, self.blocks, self.dictionary, before, scale, config.alpha)
            keep += self._weights
        engine.run(graph, keep)

        steps = step_sizes(self._shift, self.dictionary.norm_squared, self.constraint.active)
        solver = PrimalDual(
            names, self.blocks, self.dictionary, self.prior, steps,
            threshold, config.gamma, self.constraint, config.pd_tol, engine.nworker, engine.owners,
            self.grain, max(engine.nthread // engine.nworker, 1),
        )  # fmt: skip
        data = Data(self.hessians, before, slopes, self.preconditioners, self._weights, self.masks.key)
        models, gate = self._iterate(solver, data)

        graph = {}
        terms, values = builders.objective(graph, solver, data, models)
        changed = builders.changes(graph, names.within("change"), models, before)
        engine.run(graph, terms + values + changed)
        objective = sum(engine.fetch(terms)) + threshold * sum(engine.fetch(values))
        change = relative(engine.fetch(changed))
        self._replace(models)
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

    def measure(self) -> Statistics:
        """Grid the exact residual of the model."""
        names = self.run.names.within("residual", *map(str, self.state.models))
        graph: Graph = {}
        residuals, spreads = imaging.residual(graph, names, self.imaged.visibilities, self.state.models, self.run.gridder)
        run_stage(self.engine, self.report, "residual", graph, residuals + spreads)
        found: list[Spread] = self.engine.fetch(spreads)
        noise = math.sqrt(sum(spread.variance for spread in found)) / self.imaged.total
        self.engine.drop(spreads)
        residuals = self.engine.detach(residuals)
        self._release(self.state.residuals)
        self.state = Resident(self.state.models, residuals, [spread.power for spread in found])
        return self._statistics(names)._replace(noise=noise)

    def keep(self) -> None:
        """Remember the present model and residual."""
        before, self._best = self._best, self.state
        if before is not None:
            self._release(before.models + before.residuals)

    def revert(self) -> None:
        """Take up the best model; the duals belonged to another one and start anew."""
        assert self._best is not None
        dropped, self.state = self.state, self._best
        self._release(dropped.models + dropped.residuals)
        self.engine.drop(flat(self.dual or []) + (self._bounds or []))
        self.dual = self._bounds = None

    def save(self, progress: Progress) -> None:
        """Write a checkpoint between two cycles, if it is due.

        Raises
        ------
        Stopped
            If the run shall end.
        """
        self._progress = progress
        self._save(flat(self.dual or []), self._bounds or [])

    def _save(
        self, dual: list[Key], bounds: list[Key], primal: Sequence[Key] = (), previous: Sequence[Key] = (), gate: Gate = UNTOUCHED
    ) -> None:
        safety, progress, best = self.safety, self._progress, self._best
        iterations = sum(cycle.inner for cycle in progress.history) + gate.iterations
        assert best is not None
        if safety.due(iterations):
            arrays = {
                "model": self.state.models, "residual": self.state.residuals,
                "best-model": best.models, "best-residual": best.residuals,
                "dual": dual, "bound": bounds, "primal": primal, "previous": previous, "mask": self.masks.saved,
            }  # fmt: skip
            safety.save(self.engine, self.run.names, iterations, progress, gate, self.blocks, arrays)
        if safety.stopping() and not progress.reason:
            raise Stopped(f"ended after {len(progress.history)} major cycles, as asked: go on with --resume")

    def power(self) -> list[Real]:
        """Return the power of the residual visibilities of every band; a run that resumes at its end makes them once more."""
        if self.state.power is None:
            self.measure()
        assert self.state.power is not None
        return self.state.power

    def update(self) -> list[Key]:
        """Solve for the update that the last residual asks for without a prior, by conjugate gradients; returns its keys.

        What only minimising needs is let go before; it is the last thing that is done.
        """
        self.engine.drop(self.hessians + self.preconditioners + (self._weights or []))
        graph: Graph = {}
        update = builders.updates(
            graph, self.run.names, self.convolutions, self.state.residuals, None,
            self.imaged.total, self.config.cg_tol, self.config.cg_maxit, self.dictionary.dtype,
        )  # fmt: skip
        run_stage(self.engine, self.report, "update", graph, update)
        self.engine.drop(self.convolutions)
        return update

    def dual_of(self, graph: Graph, v: int) -> Key:
        """Add a task that joins the dual of one band, (nbasis, ncoefficient), zero after a reversion; returns its key."""
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
        submitted = gate.iterations
        done = sum(cycle.inner for cycle in self._progress.history)
        waiting: deque[int] = deque()
        with engine.monitor.stage("primal-dual"), self.report.stage("primal-dual", maxit) as advance:
            advance(submitted)
            while not gate.done and (waiting or submitted < maxit):
                if not waiting and gate.iterations and self.safety.due(done + gate.iterations):
                    last_two = solver.primal(submitted), solver.primal(submitted - 1)
                    self._save(flat(solver.dual(submitted)), solver.bounds(submitted), *last_two, gate)
                # What is to be saved must not be let go, so nothing is submitted on top of it.
                while submitted < maxit and len(waiting) < 2 and not (waiting and self.safety.due(done + submitted)):
                    last = min(submitted + ITERATIONS, maxit)
                    solver.iterations(graph, data, submitted, last)
                    kept = solver.state(last)
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
        return self._finish(solver, submitted), gate

    def _finish(self, solver: PrimalDual, iteration: int) -> list[Key]:
        """Keep the last images and dual, cut off from the iterations behind them."""
        engine = self.engine
        graph: Graph = {}
        models = solver.finish(graph, iteration, self.masks.key)
        engine.run(graph, models)
        rows, bounds = solver.dual(iteration), solver.bounds(iteration)
        kept = {*flat(rows), *bounds}
        engine.drop(key for key in solver.state(iteration) if key not in kept)
        moved = engine.detach(models + bounds + flat(rows))
        models, moved = moved[: len(models)], moved[len(models) :]
        self._bounds, self.dual = moved[: len(bounds)], rows_of(moved[len(bounds) :], len(rows[0]))
        return models

    def _replace(self, models: list[Key]) -> None:
        dropped, self.state = self.state.models, Resident(models, self.state.residuals)
        self._release(dropped)

    def _release(self, keys: list[Key]) -> None:
        """Drop keys unless they belong to the present or the best state."""
        held = set(self.state.models + self.state.residuals)
        if self._best is not None:
            held |= set(self._best.models + self._best.residuals)
        self.engine.drop(key for key in keys if key not in held)

    def _statistics(self, names: Names) -> Statistics:
        engine = self.engine
        graph: Graph = {}
        key, image = builders.statistics(graph, names.within("statistics"), self.state.residuals, self.imaged.total)
        pictures = engine.monitor.picture(graph, names, image)
        engine.run(graph, [key, *pictures])
        found: Statistics = engine.fetch([key])[0]
        engine.monitor.show(engine.fetch(pictures))
        engine.drop([key, *pictures])
        return found
