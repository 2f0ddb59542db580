"""`pfb clean`: image and deconvolve a measurement set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pfb.config import Clean
from pfb.errors import InputError, Stopped
from pfb.graph import deconvolution as builders
from pfb.graph.tasks import Graph, add
from pfb.io import dataset
from pfb.io.model_image import open_model
from pfb.pipeline.algorithm import Algorithm
from pfb.pipeline.algorithms import ALGORITHMS
from pfb.pipeline.beams import require_restorable, restoring_beam
from pfb.pipeline.checkpoint import Safety
from pfb.pipeline.imaging import Imaged, Opened, opened, run_stage, write
from pfb.pipeline.masking import require_mask
from pfb.pipeline.planning import Plan
from pfb.pipeline.primary_beam import facts
from pfb.pipeline.products import Images
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.robust import cycles
from pfb.pipeline.verdict import judge
from pfb.solvers.major_cycle import Cycle, Outcome, Statistics
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
    kind = ALGORITHMS[config.algorithm]
    try:
        with opened(sets, config, report, maker="clean", prepare=partial(prepare, config, report)) as state:
            require_restorable(state.run.store, config)
            algorithm = kind(state.run, state.imaged, config, state.engine, report, safety)

            products = [state.run.plan.products[s] for s in state.imaged.wsum]

            def told(cycle: Cycle) -> None:
                for row in rows(cycle, products, kind.line):
                    report.row(row)
                state.engine.monitor.tell("cycle", cycle=cycle.cycle, **joint(cycle))

            with safety.heeding():
                outcome = run_major_cycles(algorithm, algorithm.start(), algorithm.rule(), told)
            state.engine.monitor.begin(None)
            conclude(outcome, config, report)
            algorithm.finish()
            power = algorithm.power()
            store(state, algorithm, report)
            history = [record(cycle, list(state.imaged.wsum), len(state.run.plan.products)) for cycle in outcome.history]
            dataset.finish(state.run.store, history, {"outcome": outcome.reason})
            state.inspections.append(partial(self_check, algorithm.imaged, power, state, report))
    except BaseException as error:
        if safety.checkpoints.exists() and not isinstance(error, InputError | Stopped):
            report.message(f"{safety.checkpoints.path} holds what was done: go on with --resume")
        raise
    safety.checkpoints.remove()


def prepare(config: Clean, report: Reporter, plan: Plan) -> Mapping[str, Any]:
    """Check the options that need the planned images, and return what the dataset has of them."""
    require_mask(config, plan.geometry, report)
    # These refuse here what they would when the images have been made.
    cycles(config)
    restoring_beam(config)
    if config.model:
        open_model(config.model)  # refuses here what it would after the imaging
    if config.algorithm != "sara" and config.has_beam and config.beam_use == "model":
        raise InputError(
            f"--algorithm {config.algorithm} finds the sky as the dishes see it: correct its images with --beam-use images, "
            "or let --algorithm sara find the sky before the beam"
        )
    return {**ALGORITHMS[config.algorithm].layout(config, plan), "primary_beam": facts(config)}


def self_check(imaged: Imaged, power: Sequence[Real], state: Opened, report: Reporter, images: Images) -> dict[str, str]:
    """Judge the images of a product, warn of what is off, and note it in the dataset; returns lines for the summary."""
    places = [v for v, plane in enumerate(imaged.planes) if plane.stokes == images.stokes]
    verdict = judge(images, [imaged.expected[v] for v in places], [power[v] for v in places])
    if verdict is None:
        return {}
    for warning in verdict.warnings:
        report.warning(warning)
    dataset.finish(state.run.store, attributes={"verdict": verdict.attributes()})
    return verdict.summary()


def rows(cycle: Cycle, products: Sequence[str], line: Callable[[Cycle], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the table of major cycles shows: a `line`, or one for each of several products in its own Jy/beam."""
    if not cycle.parts:
        return [line(cycle)]
    lines = []
    for product, part in zip(products, cycle.parts, strict=True):
        row = line(cycle._replace(rms=part.rms, peak=part.peak, noise=part.noise))
        lines.append({"cycle": row.pop("cycle"), "stokes": product, **row})
    return lines


def joint(cycle: Cycle) -> dict[str, float]:
    """Return a line of the history, of all products together."""
    return {
        "peak": cycle.peak, "rms": cycle.rms, "noise": cycle.noise, "lambda": cycle.threshold, "objective": cycle.objective,
        "inner": cycle.inner, "change": cycle.change, "seconds": cycle.seconds,
    }  # fmt: skip


def record(cycle: Cycle, found: Sequence[int], nproduct: int) -> dict[str, float | list[float]]:
    """Return a line of the dataset's history; `found` are the numbers of the products that have data."""
    parts = dict(zip(found, cycle.parts or [Statistics(cycle.rms, cycle.peak, cycle.noise)], strict=True))
    of_each = {
        name: [getattr(parts[s], name) if s in parts else math.nan for s in range(nproduct)] for name in dataset.OF_A_PRODUCT
    }
    return {**joint(cycle), **of_each}


def conclude(outcome: Outcome, config: Clean, report: Reporter) -> None:
    """Say how the iteration ended."""
    kind = ALGORITHMS[config.algorithm]
    if outcome.reason == "diverged":
        report.warning(f"rms and peak of the residual rose twice in a row: the best model is kept; {kind.remedy}")
    else:
        report.message(kind.outcome(config, outcome.reason, outcome.history[-1]))


def store(state: Opened, algorithm: Algorithm, report: Reporter) -> None:
    """Write model, residual and what else the algorithm has of every plane, each from where it lives."""
    run_, imaged, engine = state.run, algorithm.imaged, state.engine
    names = run_.names
    graph: Graph = {}
    models = algorithm.beams.intrinsic(graph, names, algorithm.state.models)
    kept = {"model": models, "residual": algorithm.state.residuals, **algorithm.products(graph)}
    if algorithm.beams.own:
        kept["primary_beam"] = algorithm.beams.own
    keys = [
        write(graph, names, run_.store, variable, plane, v, of_planes[v])
        for v, plane in enumerate(imaged.planes)
        for variable, of_planes in kept.items()
    ]
    for v, plane in enumerate(run_.plan.planes):
        if plane not in imaged.planes and plane.stokes in imaged.wsum:
            own = imaged.of(plane.stokes, models)
            freq = [imaged.freq[imaged.planes[place].band] for place in own]
            model = builders.interpolate(graph, names, list(own.values()), freq, imaged.freq[plane.band], v)
            keys.append(write(graph, names.within("empty"), run_.store, "model", plane, v, model))
            if run_.plan.beam:
                beam = add(graph, names.within("empty").key("beam", v), run_.plan.beam.image, imaged.freq[plane.band])
                keys.append(write(graph, names.within("empty"), run_.store, "primary_beam", plane, v, beam))
    run_stage(engine, report, "write", graph, keys)
    engine.drop(keys)
