"""`--algorithm hogbom|clark|multiscale`: CLEAN, whose minor cycles take components off the residuals of all bands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pfb.config import Clean
from pfb.errors import InputError, PfbError
from pfb.graph import cleaning, imaging
from pfb.graph import deconvolution as builders
from pfb.graph.blocks import Blocks
from pfb.graph.minor import Settings, Told
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels.beam import fit_beam
from pfb.kernels.scales import radius
from pfb.operators.hessian import PsfHessian
from pfb.pipeline.algorithm import Algorithm, row
from pfb.pipeline.imaging import run_stage
from pfb.pipeline.masking import masked
from pfb.pipeline.mopping import mop
from pfb.pipeline.planning import Plan, precision_of
from pfb.pipeline.scales import widths_of
from pfb.solvers.major_cycle import Cycle, Depth, Minimised, Rule, iterations_of
from pfb.solvers.primal_dual import relative
from pfb.types import Beam, Real

SIGMA, SIGMA_MASKED = 3.0, 1.0
"""Default of `--auto-threshold`, without a mask and within one."""

HALF = 128
"""Half width of the part of a PSF that a point sees others with, in pixels."""

CHUNK = 2_000
"""Components that are taken off whole images between two looks at whether the run shall end."""

Minor = cleaning.Rounds | cleaning.Together


class Components(Algorithm):
    """CLEAN; where the pieces of a minor cycle meet is for those that inherit."""

    remedy = "lower --gain or --major-gain, or mask what is not emission (--mask, --auto-mask)"
    most = 1 << 62
    """Components of a round."""

    def _blocks(self) -> Blocks:
        return Blocks(len(self.imaged.planes), 1, self.run.plan.geometry.nx * self.run.plan.geometry.ny)

    def _prepare(self) -> None:
        self._kept: list[Key] = []
        leading = self.imaged.leading
        product = self.run.plan.products[leading]
        self.masks.prepare(self.imaged.of(leading, self.imaged.psf), self.imaged.wsum[leading], product)
        self._look(self.run.names)
        self._begin()
        self.engine.drop(self.imaged.psf)

    def _reweighed(self, names: Names) -> None:
        self.engine.drop(self._kept)
        self._look(names)
        self.engine.drop(self.imaged.dirty + self.imaged.psf)

    def _look(self, names: Names) -> None:
        """Make what all cycles need of the PSFs that there are."""
        imaged, engine = self.imaged, self.engine
        graph: Graph = {}
        psf = imaging.mfs(
            graph, names.within("beam"), imaged.of(imaged.leading, imaged.psf), imaged.wsum[imaged.leading], imaged.leading
        )
        own = add(graph, names.within("beam").key("beam", 0), beam_of, ref(psf), self.run.plan.geometry.cell)
        engine.run(graph, [own])
        beam = engine.fetch([own])[0]
        engine.drop([own])
        self.settings = {s: self._settings(s, beam) for s in imaged.wsum}
        graph = {}
        self._kept = [key for s in imaged.wsum for key in self._resident(graph, names, s)]
        run_stage(engine, self.report, "psf", graph, self._kept)

    @abstractmethod
    def _resident(self, graph: Graph, names: Names, product: int) -> list[Key]:
        """Add the tasks that make what all cycles need of the PSFs of a product; returns their keys."""

    @abstractmethod
    def _minor(self, cycle: cleaning.Cycle, product: int) -> Minor:
        """Return the graphs of a cycle."""

    def _settings(self, product: int, beam: Beam | None) -> Settings:
        config, geometry, imaged = self.config, self.run.plan.geometry, self.imaged
        if beam is None and (config.local_noise or (config.algorithm == "multiscale" and config.scales is None)):
            raise PfbError(
                "the PSF of all bands together has no main lobe, which --local-noise and automatic scales need: "
                "leave the first out and give --scales"
            )
        return Settings(
            gain=config.gain, major_gain=config.major_gain, sigma=sigma_of(config), threshold=config.threshold or 0.0,
            box=config.auto_mask_box * beam.major / geometry.cell if config.local_noise and beam else None,
            positivity=self.constraint.of(self.run.plan.products[product]).positivity,
            freq=tuple(imaged.freq[plane.band] for plane in imaged.planes if plane.stokes == product),
            terms=config.spectral_terms, widths=widths_of(config, geometry, beam), bias=config.scale_bias,
            nthreads=self.run.gridder.nthreads,
        )  # fmt: skip

    @staticmethod
    def layout(config: Clean, plan: Plan) -> Mapping[str, Any]:
        """Check scales and spectral terms; the dataset has nothing of its own."""
        widths_of(config, plan.geometry, None)
        if config.spectral_terms is not None and config.spectral_terms > len(plan.bands):
            raise InputError(
                f"--spectral-terms is {config.spectral_terms} but there are {len(plan.bands)} bands: give at most as many, "
                "or more bands (--nband)"
            )
        return {}

    def rule(self) -> Rule:
        """Return when the cycles end."""
        return Depth(maxit=self.config.niter, iterations=self.config.minor_iterations)

    @staticmethod
    def line(cycle: Cycle) -> dict[str, float | int | str]:
        """Return what the table of major cycles shows."""
        return row(cycle, {"cleaned to": f"{cycle.threshold:.4e}", "components": cycle.inner})

    @staticmethod
    def outcome(config: Clean, reason: str, last: Cycle) -> str:
        """Say why the cycles have ended."""
        if reason == "threshold":
            return f"what is left does not stand out of the threshold of {last.threshold:.4g} Jy/beam"
        if reason == "iterations":
            return f"--minor-iterations {config.minor_iterations} components are taken off"
        return f"--niter {config.niter} cycles done; the last one cleaned to {last.threshold:.4g} Jy/beam"

    def minimise(self, cycle: int, threshold: float) -> Minimised:
        """Take components off the residuals of every product."""
        engine = self.engine
        engine.refresh()
        engine.monitor.begin(cycle)
        names = self.run.names.within("cycle", cycle)
        before = self.state.models
        renewed = self._renew_mask(cycle) and cycle > 0
        models = list(before)
        count, told = 0, {}
        limit = self.config.minor_iterations - iterations_of(self._progress)
        with engine.monitor.stage("minor cycle"), self.report.stage("minor cycle", 0) as advance:
            for s in self.imaged.wsum:
                made, told[s], found = self._clean(names.within("product", s), s, renewed, limit - count, advance)
                count += found
                for v, key in made.items():
                    models[v] = key
        leading, deepest = told[self.imaged.leading], all(own.deepest for own in told.values())
        if models == before:
            return Minimised(float("nan"), 0, 0.0, leading.level, deepest)
        graph: Graph = {}
        changed = builders.changes(graph, names.within("change"), models, before)
        engine.run(graph, changed)
        change = relative(engine.fetch(changed))
        engine.drop(changed)
        self.replace(engine.detach(models))
        return Minimised(float("nan"), count, change, leading.level, deepest)

    def _clean(
        self, names: Names, product: int, renewed: bool, limit: int, advance: Callable[[int], None]
    ) -> tuple[dict[int, Key], Told, int]:
        """Clean the planes of a product; returns the models that have changed, what was told last, and how many components."""
        imaged, engine = self.imaged, self.engine
        planes = imaged.of(product, self.state.models)
        before = list(planes.values())
        graph: Graph = {}
        residuals = imaged.of(product, self.state.residuals)
        slopes = builders.slopes_of(graph, names, residuals, imaged.wsum[product], precision_of(self.config))
        minor = self._minor(cleaning.Cycle(names, self.settings[product], self.masks.key, tuple(planes)), product)
        state = minor.begin(graph, slopes, before)
        if renewed:
            state = minor.trim(graph, state)
        state, told, count = self._rounds(minor, graph, state, limit, advance)
        if not count and not renewed:
            engine.drop(key for key in state if key not in before)
            return {}, told, 0
        graph = {}
        models = minor.end(graph, state, before)
        engine.run(graph, [key for key in models if key not in state])
        engine.drop(key for key in state if key not in models)
        return dict(zip(planes, models, strict=True)), told, count

    def _rounds(
        self, minor: Minor, graph: Graph, state: list[Key], limit: int, advance: Callable[[int], None]
    ) -> tuple[list[Key], Told, int]:
        """Clean round after round; returns the last state, what was told of it, and how many components there were."""
        engine = self.engine
        before = set(self.state.models)
        count = number = 0
        sought, news, survey = minor.look(graph, 0, state, None, None)
        first = sought
        engine.run(graph, [*(key for key in state if key in graph), sought, news, survey])
        told: Told = engine.fetch([news])[0]
        while told.pixels and count < limit and told.peak > told.level:
            self._interrupt()
            graph = {}
            following, done = minor.clean(graph, number, state, survey, sought, min(self.most, limit - count))
            number += 1
            seen, more, _ = minor.look(graph, number, following, survey, first)
            engine.run(graph, [*following, done, seen, more])
            new, told = engine.fetch([done, more])
            engine.drop([done, news, *(key for key in state if key not in before)])
            if sought != first:
                engine.drop([sought])
            state, sought, news = following, seen, more
            count += new
            advance(new)
            if not new:
                break
        engine.drop([first, sought, news, survey])
        return state, told, count

    def finish(self) -> None:
        """Fit the fluxes of all pixels at once, if that is wanted."""
        if self.config.mop:
            mop(self)


class Hogbom(Components):
    """All images and PSFs of a product in one place."""

    most = CHUNK

    def _resident(self, graph: Graph, names: Names, product: int) -> list[Key]:
        imaged = self.imaged
        return [cleaning.stack(graph, names, imaged.of(product, imaged.psf), imaged.wsum[product])]

    def _minor(self, cycle: cleaning.Cycle, product: int) -> Minor:
        return cleaning.Together(cycle, self._kept[list(self.imaged.wsum).index(product)])


class Clark(Components):
    """Only the brightest pixels in one place; with several scales they are those of one at a time."""

    def _prepare(self) -> None:
        self._parts: dict[int, tuple[Key, list[Key]]] = {}
        super()._prepare()

    def _resident(self, graph: Graph, names: Names, product: int) -> list[Key]:
        imaged, settings = self.imaged, self.settings[product]
        halves = tuple(max(HALF, 2 * int(radius(width))) for width in settings.widths)
        psfs = imaged.of(product, imaged.psf)
        spots = cleaning.spots(graph, names, psfs, imaged.wsum[product], halves, settings)
        make = partial(PsfHessian, nthreads=settings.nthreads, dtype=precision_of(self.config), signed=True)
        shape, total = self.run.gridder.shape, imaged.wsum[product]
        convolutions = [
            add(graph, names.key("convolution", v), imaging.call, make, ref(key), shape, total) for v, key in psfs.items()
        ]
        self._parts[product] = spots, convolutions
        return [spots, *convolutions]

    def _minor(self, cycle: cleaning.Cycle, product: int) -> Minor:
        spots, convolutions = self._parts[product]
        return cleaning.Rounds(cycle, spots, convolutions)


def sigma_of(config: Clean) -> float | None:
    """Return how many times the noise is the end; None if only a threshold is."""
    if config.auto_threshold is not None or config.threshold is not None:
        return config.auto_threshold
    return SIGMA_MASKED if masked(config) else SIGMA


def beam_of(psf: Real, cell: float) -> Beam | None:
    """Fit the beam of a PSF."""
    return fit_beam(psf, cell)
