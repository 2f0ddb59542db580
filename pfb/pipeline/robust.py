"""Robust weights of a run: when outliers are weighed down, and what of the images is made anew with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pfb.config import Clean
from pfb.errors import InputError
from pfb.graph import chi_squared, imaging
from pfb.graph import robust as builders
from pfb.graph.engine import Engine
from pfb.graph.parking import read_array
from pfb.graph.robust import Judged
from pfb.graph.tasks import Graph, Key, add
from pfb.pipeline.checkpoint import REWEIGHTING, Saved
from pfb.pipeline.imaging import Imaged, Run, grid_images, record_weights, run_stage
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.weighting import cost


def cycles(config: Clean) -> tuple[int, ...]:
    """Return the numbers of major cycles after which weights are renewed; raises `InputError` if they cannot be read."""
    if config.robust_reweight_at is None:
        if config.robust_nu is not None:
            raise InputError(f"--robust-nu {config.robust_nu:g} is of the weights of --robust-reweight-at: give that too")
        return ()
    try:
        found = tuple(int(word) for word in config.robust_reweight_at.split(","))
    except ValueError:
        found = ()
    if not found or found[0] < 1 or list(found) != sorted(set(found)):
        raise InputError(
            f"--robust-reweight-at {config.robust_reweight_at!r} is no list of numbers of major cycles: "
            "write them in rising order, 1 or more, e.g. 3 or 2,5"
        )
    return found


class Robust:
    """Weighs down what the model leaves unexplained, at the cycles that the options say.

    The factors are those of the residual of a model, and go with the weights that the run began with: weights are
    a function of the data and of that model, which is therefore kept, for checkpoints and in case a worker is lost.

    Parameters
    ----------
    run : Run
        What is imaged.
    config : Clean
        Options.
    engine : Engine
        Where it runs.
    report : Reporter
        Is told what was done.

    Attributes
    ----------
    models : list of Key
        What the present weights were made with; none before they are renewed.
    """

    def __init__(self, run: Run, config: Clean, engine: Engine, report: Reporter) -> None:
        self.run, self.config, self.engine, self.report = run, config, engine, report
        self.models: list[Key] = []
        self._cycles = cycles(config)
        self._began: Imaged | None = None

    def due(self, done: int, count: int, ending: bool) -> bool:
        """Whether to renew the weights after so many cycles and so many times; a run that would end does it early."""
        return count < len(self._cycles) and (ending or done >= self._cycles[count])

    def take_up(self, imaged: Imaged, saved: Saved | None) -> Imaged:
        """Make weights what they were in a run that is gone on with."""
        files = saved.files[REWEIGHTING] if saved else []
        if not saved or not files:
            return imaged
        graph: Graph = {}
        names = self.run.names.within("checkpoint", REWEIGHTING)
        models = [add(graph, names.key("resume", v), read_array, path) for v, path in enumerate(files)]
        self.engine.run(graph, models)
        return self.renew(imaged, models, saved.progress.reweightings)

    def renew(self, imaged: Imaged, models: Sequence[Key], count: int) -> Imaged:
        """Renew weights, dirty images and PSFs, here and in the store.

        Parameters
        ----------
        imaged : Imaged
            What there is; its visibilities are let go unless they are those that the run began with and more is to come.
        models : sequence of Key
            The model of every plane with data.
        count : int
            How often it has been done, this time counted.
        """
        self._began = self._began or imaged
        began, run, engine = self._began, self.run, self.engine
        names = run.names.within("robust", count)
        graph: Graph = {}
        factors, judged = builders.factors(graph, names, began.natural, models, run.gridder, self.config.robust_nu)
        natural = builders.scaled(graph, names.within("natural"), began.natural, factors)
        weighed = builders.scaled(graph, names, began.visibilities, factors)
        sums = imaging.sums(graph, names, natural, weighed)
        noise = chi_squared.expectations(graph, names, natural, weighed)
        run_stage(engine, self.report, "reweigh", graph, weighed + sums + noise + judged)
        totals, expected = engine.fetch(sums), engine.fetch(noise)
        self._tell(count, engine.fetch(judged))
        shown = [v for v, plane in enumerate(imaged.planes) if plane.stokes == imaged.leading]
        self.report.message(cost(self.config, [totals[v] for v in shown], [expected[v] for v in shown]))
        last = count == len(self._cycles)
        engine.drop(sums + noise + judged + imaged.dirty + imaged.psf)
        if imaged is not began:
            engine.drop(imaged.visibilities)
        if last:
            engine.drop(began.natural + began.visibilities)
        self.models = list(models)
        weights = record_weights(run, imaged.planes, totals, expected)
        dirty, psf = grid_images(run, imaged.planes, weighed, names, engine, self.report)
        return replace(imaged, visibilities=weighed, natural=[], dirty=dirty, psf=psf, expected=expected, **weights._asdict())

    def _tell(self, count: int, judged: Sequence[Judged]) -> None:
        nu, noise, halved = zip(*((f.fit.nu, f.fit.scale**0.5, 100 * f.halved) for f in judged), strict=True)
        self.report.message(
            f"outliers are weighed down ({count} of {len(self._cycles)}): nu is {_range(nu)}, the noise {_range(noise)} times "
            f"that of natural weights, and {_range(halved)}% of the samples have half their weight or less"
        )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"
