"""`pfb clean`: image and deconvolve a measurement set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pfb.config import Clean
from pfb.errors import InputError, Stopped
from pfb.graph import deconvolution as builders
from pfb.graph.tasks import Graph
from pfb.io import dataset
from pfb.kernels.chi_squared import Expected
from pfb.pipeline.algorithm import Algorithm
from pfb.pipeline.algorithms import ALGORITHMS
from pfb.pipeline.checkpoint import Safety
from pfb.pipeline.imaging import Opened, opened, run_stage, write
from pfb.pipeline.masking import require_mask
from pfb.pipeline.planning import Plan
from pfb.pipeline.products import Images
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.robust import cycles
from pfb.pipeline.verdict import judge
from pfb.solvers.major_cycle import Cycle, Outcome
from pfb.solvers.major_cycle import run as run_major_cycles
from pfb.types import Real


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
    kind = ALGORITHMS["sara"]
    try:
        with opened(sets, config, report, maker="clean", prepare=partial(prepare, config, report)) as state:
            algorithm = kind(state.run, state.imaged, config, state.engine, report, safety)

            def told(cycle: Cycle) -> None:
                report.row(kind.line(cycle))
                state.engine.monitor.tell("cycle", cycle=cycle.cycle, **record(cycle))

            with safety.heeding():
                outcome = run_major_cycles(algorithm, algorithm.start(), algorithm.rule(), told)
            state.engine.monitor.begin(None)
            conclude(outcome, config, report)
            algorithm.finish()
            power = algorithm.power()
            store(state, algorithm, report)
            dataset.finish(state.run.store, [record(cycle) for cycle in outcome.history], {"outcome": outcome.reason})
            state.inspections.append(partial(self_check, algorithm.imaged.expected, power, state, report))
    except BaseException as error:
        if safety.checkpoints.exists() and not isinstance(error, InputError | Stopped):
            report.message(f"{safety.checkpoints.path} holds what was done: go on with --resume")
        raise
    safety.checkpoints.remove()


def prepare(config: Clean, report: Reporter, plan: Plan) -> Mapping[str, Any]:
    """Check the options that need the planned images, and return what the dataset has of them."""
    require_mask(config, plan.geometry, report)
    cycles(config)  # refuses here what it would when the images have been made
    return ALGORITHMS["sara"].layout(config, plan)


def self_check(
    expected: Sequence[Expected], power: Sequence[Real], state: Opened, report: Reporter, images: Images
) -> dict[str, str]:
    """Judge the result, warn of what is off, and note it in the dataset; returns lines for the summary."""
    verdict = judge(images, expected, power)
    if verdict is None:
        return {}
    for warning in verdict.warnings:
        report.warning(warning)
    dataset.finish(state.run.store, attributes={"verdict": verdict.attributes()})
    return verdict.summary()


def record(cycle: Cycle) -> dict[str, float]:
    """Return a line of the dataset's history."""
    return {
        "peak": cycle.peak, "rms": cycle.rms, "noise": cycle.noise, "lambda": cycle.threshold, "objective": cycle.objective,
        "inner": cycle.inner, "change": cycle.change, "seconds": cycle.seconds,
    }  # fmt: skip


def conclude(outcome: Outcome, config: Clean, report: Reporter) -> None:
    """Say how the iteration ended."""
    kind = ALGORITHMS["sara"]
    if outcome.reason == "diverged":
        report.warning(f"rms and peak of the residual rose twice in a row: the best model is kept; {kind.remedy}")
    else:
        report.message(kind.outcome(config, outcome.reason, outcome.history[-1]))


def store(state: Opened, algorithm: Algorithm, report: Reporter) -> None:
    """Write model, residual and what else the algorithm has of every band, each from where it lives."""
    run_, imaged, engine = state.run, algorithm.imaged, state.engine
    names = run_.names
    graph: Graph = {}
    models = algorithm.state.models
    kept = {"model": models, "residual": algorithm.state.residuals, **algorithm.products(graph)}
    freq = [imaged.freq[index] for index in imaged.bands]
    keys = [
        write(graph, names, run_.store, variable, index, v, of_bands[v])
        for v, index in enumerate(imaged.bands)
        for variable, of_bands in kept.items()
    ]
    for band in run_.plan.bands:
        if band.index not in imaged.bands:
            model = builders.interpolate(graph, names, models, freq, imaged.freq[band.index], band.index)
            keys.append(write(graph, names.within("empty"), run_.store, "model", band.index, band.index, model))
    run_stage(engine, report, "write", graph, keys)
    engine.drop(keys)
