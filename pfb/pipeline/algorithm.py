"""What all algorithms of `pfb clean` do on an engine: which keys are resident between major cycles, and when they go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pfb.config import Clean
from pfb.errors import InputError, Stopped
from pfb.graph import deconvolution as builders
from pfb.graph import imaging
from pfb.graph.blocks import Blocks
from pfb.graph.constraints import constrained
from pfb.graph.engine import Engine
from pfb.graph.names import Names
from pfb.graph.primal_dual import UNTOUCHED
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.io.model_image import open_model
from pfb.operators.constraints import Constraint
from pfb.operators.measurement import Spread
from pfb.pipeline.checkpoint import REWEIGHTING, Safety, Saved
from pfb.pipeline.imaging import Imaged, Run, run_stage
from pfb.pipeline.masking import Masks, masked
from pfb.pipeline.planning import Plan, precision_of
from pfb.pipeline.primary_beam import Beams
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.robust import Robust
from pfb.pipeline.statistics import measure
from pfb.pipeline.transfer import spectral_mix, transferred
from pfb.solvers.major_cycle import Cycle, Minimised, Progress, Rule, Statistics
from pfb.solvers.primal_dual import Gate
from pfb.types import Real


@dataclass(frozen=True)
class Resident:
    """Keys of the state between major cycles, plane by plane."""

    models: list[Key]
    residuals: list[Key]
    power: list[Real] | None = None
    """Of the residual visibilities, see `pfb.operators.measurement.Spread`; None if they have not been made here."""


def row(cycle: Cycle, own: Mapping[str, float | int | str]) -> dict[str, float | int | str]:
    """Return a line of the table of major cycles: what all algorithms show, and what one has of its own."""
    levels = {name: f"{getattr(cycle, name):.4e}" for name in ("peak", "rms", "noise")}
    return {
        "cycle": cycle.cycle,
        **{f"{name} [Jy/beam]": text for name, text in levels.items()},
        **own,
        "change": f"{cycle.change:.2e}",
        "seconds": f"{cycle.seconds:.1f}",
    }


class Algorithm(ABC):
    """Implements the steps of a major cycle, see `pfb.solvers.major_cycle`; how a model is improved is for those that inherit.

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
        self.beams = Beams(config, run.plan.beam, run.names, engine)
        # With the weights that the run began with: what is in a checkpoint was made so.
        self.beams.prepare([imaged.freq[plane.band] for plane in imaged.planes], imaged.weights)
        self.masks = Masks(config, run.plan.geometry, run.names, engine, report, self.beams)
        self.letters = "".join(run.plan.products[plane.stokes] for plane in imaged.planes)
        self.constraint = Constraint(config.positivity if "I" in self.letters else "none", masked(config))
        self.blocks = self._blocks()
        self.state: Resident
        self._best: Resident | None = None
        self._progress: Progress
        self.robust = Robust(run, config, engine, report)
        self.imaged = self.robust.take_up(imaged, safety.saved)
        self._prepare()

    # What an algorithm is

    remedy = "lower --gamma"
    """What to do if it diverges."""

    @abstractmethod
    def _blocks(self) -> Blocks:
        """Return the sizes of the problem, and how it is cut."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make what all cycles need, and the first state; takes up a checkpoint if there is one to go on from."""

    @abstractmethod
    def _reweighed(self, names: Names) -> None:
        """Make anew what depends on the weights, from `imaged`, whose dirty images and PSFs it drops.

        Parameters
        ----------
        names : Names
            Of what is made.
        """

    @abstractmethod
    def rule(self) -> Rule:
        """Return how deep the cycles go, and when they end."""

    @abstractmethod
    def minimise(self, cycle: int, threshold: float) -> Minimised:
        """Improve the model by the residual."""

    @staticmethod
    @abstractmethod
    def layout(config: Clean, plan: Plan) -> Mapping[str, Any]:
        """Return fields of the dataset's `Layout`; raises `InputError` for options that the planned images cannot have."""

    @staticmethod
    @abstractmethod
    def line(cycle: Cycle) -> dict[str, float | int | str]:
        """Return what the table of major cycles shows."""

    @staticmethod
    @abstractmethod
    def outcome(config: Clean, reason: str, last: Cycle) -> str:
        """Say in a sentence why the cycles have ended, for the reasons of `rule` and for ``maxit``."""

    def finish(self) -> None:  # noqa: B027  (most have nothing left to do)
        """Do what is to be done to the model after the last cycle."""

    def products(self, graph: Graph) -> Mapping[str, Sequence[Key]]:
        """Add what the dataset holds beside model and residual; returns keys by variable and plane. It is the last thing done."""
        return {}

    def _arrays(self) -> Mapping[str, Sequence[Key]]:
        """Return what a checkpoint between two cycles must hold beside models, residuals and mask."""
        return {}

    # What they share

    def _given(self, dtype: Any) -> list[Key]:
        """Make the models that the user gives to start from, within the constraints; none if there are none."""
        run, names = self.run, self.run.names
        if not self.config.model:
            return []
        model, products, shape = open_model(self.config.model), run.plan.products, run.plan.geometry.shape
        mix = spectral_mix(model, [replace(band, freq=self.imaged.freq[band.index]) for band in run.plan.bands])
        graph: Graph = {}
        images, constraints, lit = [], [], []
        for v, plane in enumerate(self.imaged.planes):
            product = products[plane.stokes]
            load = partial(transferred, model, tuple(mix[plane.band].tolist()), run.plan.geometry, dtype)
            # The model is of Stokes I; the others start from nothing.
            load = load if product == "I" else partial(np.zeros, shape, dtype)
            images.append(add(graph, names.key("pursue", v), imaging.call, load))
            constraints.append(self.constraint.of(product))
            lit += [v] * (product == "I")
        # What is given is the apparent sky: so datasets give it, and files do not say.
        models = constrained(graph, names, self.beams.unseen(graph, images), constraints, self.masks.key)
        sums = [add(graph, names.key("statistics", v), np.sum, ref(models[v])) for v in lit]
        run_stage(self.engine, self.report, "model", graph, models + sums)
        flux = float(np.mean(self.engine.fetch(sums))) if sums else 0.0
        self.engine.drop(sums)
        self.report.message(f"{self.config.model[0]} is the first model: {flux:.6g} Jy, in the mean over the bands")
        return models

    def start(self) -> Progress:
        """Return where to go on from: the residual of the first model, or a checkpoint."""
        saved = self.safety.saved
        return Progress.begin(self.measure()) if saved is None else saved.progress

    def measure(self) -> Statistics:
        """Grid the exact residual of the model."""
        names = self.run.names.within("residual", *map(str, self.state.models))
        graph: Graph = {}
        models = self.beams.seen(graph, names, "model", self.state.models)
        residuals, spreads = imaging.residual(graph, names, self.imaged.visibilities, models, self.run.gridder)
        run_stage(self.engine, self.report, "residual", graph, residuals + spreads)
        found: list[Spread] = self.engine.fetch(spreads)
        self.engine.drop(spreads)
        residuals = self.engine.detach(residuals)
        self._release(self.state.residuals)
        self.state = Resident(self.state.models, residuals, [spread.power for spread in found])
        return measure(names.within("statistics"), self.imaged, residuals, found, self.engine)

    def may_reweigh(self, progress: Progress) -> bool:
        """Whether outliers are to be weighed down now."""
        return self.robust.due(len(progress.history), progress.reweightings, bool(progress.reason))

    def reweigh(self, progress: Progress) -> Statistics:
        """Weigh outliers down by the residual of the present model, and make anew what depends on the weights."""
        count = progress.reweightings + 1
        before = self.robust.models
        self.imaged = self.robust.renew(self.imaged, self.beams.resident(self.state.models, count), count)
        self._release(before)
        self._reweighed(self.run.names.within("reweighed", count))
        return self.measure()

    @property
    def present(self) -> Statistics:
        """Of the residual of the present model, when the cycles are over."""
        return self._progress.best if self._progress.rises else self._progress.last

    def keep(self) -> None:
        """Remember the present model and residual."""
        before, self._best = self._best, self.state
        if before is not None:
            self._release(before.models + before.residuals)

    def revert(self) -> None:
        """Take up the best model."""
        assert self._best is not None
        dropped, self.state = self.state, self._best
        self._release(dropped.models + dropped.residuals)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint between two cycles, if it is due.

        Raises
        ------
        Stopped
            If the run shall end.
        """
        self._progress = progress
        self._save(UNTOUCHED, self._arrays())

    def power(self) -> list[Real]:
        """Return the power of the residual visibilities of every plane; a run that resumes at its end makes them once more."""
        if self.state.power is None:
            self.measure()
        assert self.state.power is not None
        return self.state.power

    def _save(self, gate: Gate, arrays: Mapping[str, Sequence[Key]]) -> None:
        safety, progress, best = self.safety, self._progress, self._best
        iterations = sum(cycle.inner for cycle in progress.history) + gate.iterations
        assert best is not None
        if safety.due(iterations):
            arrays = {
                "model": self.state.models, "residual": self.state.residuals,
                "best-model": best.models, "best-residual": best.residuals, "mask": self.masks.saved,
                REWEIGHTING: self.robust.models, **arrays,
            }  # fmt: skip
            safety.save(self.engine, self.run.names, iterations, progress, gate, self.blocks, arrays)
        if safety.stopping() and not progress.reason:
            raise Stopped(f"ended after {len(progress.history)} major cycles, as asked: go on with --resume")

    def _begin(self) -> None:
        """Start from a model that is given, from an empty one, or from a checkpoint; the dirty images are used up."""
        imaged, engine, names = self.imaged, self.engine, self.run.names
        graph: Graph = {}
        if self.safety.saved is None:
            models = self._given(precision_of(self.config))
            if not models:
                models = builders.empty(graph, names, len(imaged.planes), self.run.gridder.shape, precision_of(self.config))
                engine.run(graph, models)
            self.state = Resident(models, list(imaged.dirty))
            return
        found = self._load(self.safety.saved, graph, names.within("checkpoint"))
        run_stage(engine, self.report, "resume", graph, list({key for keys in found.values() for key in keys}))
        engine.drop(imaged.dirty)

    def _renew_mask(self, cycle: int) -> bool:
        """Make the automatic mask anew, if it is due; returns whether it was."""
        leading = self.imaged.leading
        shown, models = (self.imaged.of(leading, keys) for keys in (self.state.residuals, self.state.models))
        return self.masks.renew(cycle, shown, models, self.imaged.shares(leading), self.imaged.wsum[leading]) is not None

    def _interrupt(self) -> None:
        """If the run shall end, do so as it was before the present cycle, which begins anew when it is gone on with."""
        if self.safety.stopping():
            self.save(self._progress)
            raise Stopped(f"ended after {len(self._progress.history)} major cycles, as asked: go on with --resume")

    def _load(self, saved: Saved, graph: Graph, names: Names) -> dict[str, list[Key]]:
        """Add the tasks that read a checkpoint, and take up the state that all algorithms have; returns the keys by kind."""
        if saved.blocks.sizes != self.blocks.sizes:
            raise InputError(
                f"the checkpoint {self.safety.checkpoints.path} has {saved.blocks.nband} images with data and "
                f"{saved.blocks.ncoefficient} coefficients but the selection now gives {self.blocks.nband} and "
                f"{self.blocks.ncoefficient}: the data have changed, so start anew with --overwrite"
            )
        found = saved.load(graph, names)
        self.state = Resident(found["model"], found["residual"])
        self._best = Resident(found["best-model"], found["best-residual"])
        self.masks.take_up(found["mask"])
        return found

    def replace(self, models: list[Key]) -> None:
        """Take up other models; their residuals are yet to be made."""
        dropped, self.state = self.state.models, Resident(models, self.state.residuals)
        self._release(dropped)

    def _release(self, keys: list[Key]) -> None:
        """Drop keys unless they belong to the present or the best state."""
        held = set(self.state.models + self.state.residuals + self.robust.models)
        if self._best is not None:
            held |= set(self._best.models + self._best.residuals)
        self.engine.drop(key for key in keys if key not in held)
