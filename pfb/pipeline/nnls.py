"""`--algorithm nnls`: least squares without negative pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pfb.config import Clean
from pfb.graph import deconvolution as builders
from pfb.graph import imaging, nnls
from pfb.graph.blocks import Blocks
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key
from pfb.operators.constraints import Constraint
from pfb.pipeline.algorithm import Algorithm, row
from pfb.pipeline.imaging import run_stage
from pfb.pipeline.masking import masked
from pfb.pipeline.mopping import mop
from pfb.pipeline.planning import Plan, precision_of
from pfb.pipeline.sara import stillness
from pfb.solvers.major_cycle import Cycle, Minimised, Rule, Stillness
from pfb.solvers.primal_dual import relative

BLOCK = 10
"""Iterations of a graph: between two looks at whether the run shall end."""


class NonNegative(Algorithm):
    """Accelerated projected gradients in every major cycle."""

    remedy = "give fewer --nnls-iterations"

    def _blocks(self) -> Blocks:
        # Without it this would be no algorithm of its own: the mildest of the choices that forbid negative pixels.
        positivity = "clip" if self.config.positivity == "none" else self.config.positivity
        self.constraint = Constraint(positivity if "I" in self.letters else "none", masked(self.config))
        return Blocks(len(self.imaged.planes), 1, self.run.plan.geometry.nx * self.run.plan.geometry.ny)

    def _prepare(self) -> None:
        self.hessians: list[Key] = []
        self.norms: list[Key] = []
        self._curve(self.run.names)
        leading = self.imaged.leading
        product = self.run.plan.products[leading]
        self.masks.prepare(self.imaged.of(leading, self.imaged.psf), self.imaged.wsum[leading], product)
        self.engine.drop(self.imaged.psf)
        self._begin()

    def _reweighed(self, names: Names) -> None:
        self.engine.drop(self.hessians + self.norms + self.imaged.dirty + self.imaged.psf)
        self._curve(names)

    def _curve(self, names: Names) -> None:
        """Make the Hessians of the weights that there are, and bounds of their eigenvalues."""
        imaged = self.imaged
        graph: Graph = {}
        self.hessians = imaging.hessians(graph, names, imaged.visibilities, self.run.gridder, imaged.totals, self.config.eta)
        self.norms = nnls.norms(graph, names, self.hessians)
        run_stage(self.engine, self.report, "hessian", graph, self.hessians + self.norms)

    @staticmethod
    def layout(config: Clean, plan: Plan) -> Mapping[str, Any]:
        """Return nothing: the dataset has nothing of its own."""
        return {}

    def rule(self) -> Rule:
        """Return when the cycles end."""
        return Stillness(maxit=self.config.niter, tol=self.config.tol)

    @staticmethod
    def line(cycle: Cycle) -> dict[str, float | int | str]:
        """Return what the table of major cycles shows."""
        return row(cycle, {"objective": f"{cycle.objective:.6e}", "inner": cycle.inner})

    @staticmethod
    def outcome(config: Clean, reason: str, last: Cycle) -> str:
        """Say why the cycles have ended."""
        return stillness(config, reason, last)

    def minimise(self, cycle: int, threshold: float) -> Minimised:
        """Minimise the data term, as the Hessian has it, from the present model."""
        engine, most = self.engine, self.config.nnls_iterations
        engine.refresh()
        engine.monitor.begin(cycle)
        names = self.run.names.within("cycle", cycle)
        before = self.state.models
        self._renew_mask(cycle)
        graph: Graph = {}
        slopes = builders.slopes(graph, names, self.state.residuals, self.imaged.totals, precision_of(self.config))
        problem = nnls.Problem(names, self.constraint, self.hessians, self.norms, slopes, before, self.masks.key, self.letters)
        points = problem.begin(graph)
        engine.run(graph, slopes + points)
        with engine.monitor.stage("projected gradient"), self.report.stage("projected gradient", most) as advance:
            for first in range(0, most, BLOCK):
                self._interrupt()
                last = min(first + BLOCK, most)
                graph = {}
                ends = problem.iterations(graph, points, first, last)
                engine.run(graph, ends)
                engine.drop(points)
                points = ends
                advance(last - first)
        graph = {}
        models = problem.end(graph, points)
        terms = builders.data_terms(graph, names, self.hessians, models, before, slopes)
        changed = builders.changes(graph, names.within("change"), models, before)
        engine.run(graph, models + terms + changed)
        objective, change = sum(engine.fetch(terms)), relative(engine.fetch(changed))
        engine.drop(points + slopes + terms + changed)
        self.replace(engine.detach(models))
        return Minimised(objective, most, change)

    def finish(self) -> None:
        """Fit the fluxes of all pixels at once, if that is wanted."""
        if self.config.mop:
            mop(self)
