"""The fluxes of a finished model, fitted at once."""

from __future__ import annotations

from pfb.graph import deconvolution as builders
from pfb.graph import imaging
from pfb.graph.mopping import mopped
from pfb.graph.tasks import Graph
from pfb.pipeline.algorithm import Algorithm
from pfb.pipeline.imaging import run_stage
from pfb.pipeline.planning import precision_of


def mop(algorithm: Algorithm) -> None:
    """Fit the fluxes of all pixels of the model at once, and take the result if the residual is lower with it."""
    run, imaged, engine, config = algorithm.run, algorithm.imaged, algorithm.engine, algorithm.config
    names = run.names.within("mop", *map(str, algorithm.state.models))
    algorithm.keep()
    before = algorithm.present
    graph: Graph = {}
    slopes = builders.slopes(graph, names, algorithm.state.residuals, imaged.totals, precision_of(config))
    hessians = imaging.hessians(graph, names, imaged.visibilities, run.gridder, imaged.totals, config.eta)
    positive = [algorithm.constraint.of(letter).positive for letter in algorithm.letters]
    models = mopped(graph, names, hessians, algorithm.state.models, slopes, positive, config.cg_tol, config.cg_maxit)
    run_stage(engine, algorithm.report, "mop", graph, models)
    algorithm.replace(engine.detach(models))
    after = algorithm.measure()
    told = f"fitted at once the fluxes leave an rms of {after.rms:.4g} Jy/beam, {before.rms:.4g} before"
    if after.rms > before.rms:
        algorithm.revert()
        algorithm.report.warning(f"{told}: the model stays what it was")
    else:
        algorithm.report.message(told)
