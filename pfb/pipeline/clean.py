"""`pfb clean`: image and deconvolve a measurement set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pfb.config import Clean
from pfb.errors import InputError, Stopped
from pfb.graph import deconvolution as builders
from pfb.graph.tasks import Graph, Key
from pfb.io import dataset
from pfb.pipeline.checkpoint import Safety
from pfb.pipeline.deconvolution import Deconvolution
from pfb.pipeline.imaging import Opened, opened, run_stage, write
from pfb.pipeline.masking import require_mask
from pfb.pipeline.planning import dictionary_of
from pfb.pipeline.products import Images
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.verdict import judge
from pfb.solvers.major_cycle import Cycle, Options, Outcome
from pfb.solvers.major_cycle import run as run_major_cycles
from pfb.types import Geometry, Real


def run(sets: tuple[str, ...], config: Clean, report: Reporter) -> None:
    """Write ``PREFIX.zarr``, dirty, PSF, model, residual and restored images as FITS, and a picture.

    Parameters
    ----------
    sets : tuple of str
        Measurement sets that are imaged together.
    config : Clean
        Options of the command.
    report : Reporter
        Is told the progress, a line per major cycle, and the files.

    Raises
    ------
    InputError
        For anything that cannot be imaged as asked, before work starts wherever it can be known.
    PfbError
        If the residual becomes infinite.
    Stopped
        If it was asked to end; a checkpoint holds what was done.
    """
    safety = Safety(sets, config, report)
    try:
        with opened(sets, config, report, maker="clean", prepare=partial(prepare, config, report)) as state:
            deconvolution = Deconvolution(state.run, state.imaged, config, state.engine, report, safety)
            options = Options(maxit=config.niter, tol=config.tol, rmsfactor=config.rmsfactor)

            def told(cycle: Cycle) -> None:
                report.row(line(cycle))
                state.engine.monitor.tell("cycle", cycle=cycle.cycle, **record(cycle))

            with safety.heeding():
                outcome = run_major_cycles(deconvolution, deconvolution.start(), options, told)
            state.engine.monitor.begin(None)
            conclude(outcome, config, report)
            power = deconvolution.power()
            store(state, deconvolution, report)
            dataset.finish(state.run.store, [record(cycle) for cycle in outcome.history], {"outcome": outcome.reason})
            state.inspections.append(partial(self_check, power, state, report))
    except BaseException as error:
        if safety.checkpoints.exists() and not isinstance(error, InputError | Stopped):
            report.message(f"{safety.checkpoints.path} holds what was done: go on with --resume")
        raise
    safety.checkpoints.remove()


def prepare(config: Clean, report: Reporter, geometry: Geometry) -> dict[str, Any]:
    """Check the options that need the geometry, and return what the dataset has of them."""
    dictionary = dictionary_of(config, geometry.shape)
    require_mask(config, geometry, report)
    return dict(bases=dictionary.bases, nlevels=config.nlevels, ncoefficient=dictionary.codomain[1])


def self_check(power: Sequence[Real], state: Opened, report: Reporter, images: Images) -> dict[str, str]:
    """Judge the result, warn of what is off, and note it in the dataset; returns lines for the summary."""
    verdict = judge(images, state.imaged.expected, power)
    if verdict is None:
        return {}
    for warning in verdict.warnings:
        report.warning(warning)
    dataset.finish(state.run.store, attributes={"verdict": verdict.attributes()})
    return verdict.summary()


def line(cycle: Cycle) -> dict[str, float | int | str]:
    """Return what the table of major cycles shows."""
    return {
        "cycle": cycle.cycle,
        "peak [Jy/beam]": f"{cycle.peak:.4e}",
        "rms [Jy/beam]": f"{cycle.rms:.4e}",
        "noise [Jy/beam]": f"{cycle.noise:.4e}",
        "lambda": f"{cycle.threshold:.4e}",
        "objective": f"{cycle.objective:.6e}",
        "inner": cycle.inner,
        "change": f"{cycle.change:.2e}",
        "seconds": f"{cycle.seconds:.1f}",
    }


def record(cycle: Cycle) -> dict[str, float]:
    """Return a line of the dataset's history."""
    return {
        "peak": cycle.peak, "rms": cycle.rms, "noise": cycle.noise, "lambda": cycle.threshold, "objective": cycle.objective,
        "inner": cycle.inner, "change": cycle.change, "seconds": cycle.seconds,
    }  # fmt: skip


def conclude(outcome: Outcome, config: Clean, report: Reporter) -> None:
    """Say how the iteration ended."""
    last = outcome.history[-1]
    if outcome.reason == "converged":
        report.message(f"converged: the last cycle changed the model by {last.change:.2e}, less than --tol {config.tol:g}")
    elif outcome.reason == "noise":
        report.message(
            f"the residual has come down to its noise: {last.rms:.4g} Jy/beam where incoherent visibilities make {last.noise:.4g}"
        )
    elif outcome.reason == "diverged":
        report.warning("rms and peak of the residual rose twice in a row: the best model is kept; lower --gamma")
    else:
        report.message(
            f"--niter {config.niter} cycles done; the last one changed the model by {last.change:.2e}, "
            f"which is above --tol {config.tol:g}"
        )


def store(state: Opened, deconvolution: Deconvolution, report: Reporter) -> None:
    """Write model, residual, update and dual of every band, each from where it lives."""
    run_, imaged, engine = state.run, state.imaged, state.engine
    names = run_.names
    graph: Graph = {}
    models, residuals, update = deconvolution.state.models, deconvolution.state.residuals, deconvolution.update()
    freq = [imaged.freq[index] for index in imaged.bands]
    keys: list[Key] = []
    for v, index in enumerate(imaged.bands):
        keys.append(write(graph, names, run_.store, "model", index, v, models[v]))
        keys.append(write(graph, names, run_.store, "residual", index, v, residuals[v]))
        keys.append(write(graph, names, run_.store, "update", index, v, update[v]))
        keys.append(write(graph, names, run_.store, "dual", index, v, deconvolution.dual_of(graph, v)))
    for band in run_.plan.bands:
        if band.index not in imaged.bands:
            model = builders.interpolate(graph, names, models, freq, imaged.freq[band.index], band.index)
            keys.append(write(graph, names.within("empty"), run_.store, "model", band.index, band.index, model))
    run_stage(engine, report, "write", graph, keys)
    engine.drop(keys)
