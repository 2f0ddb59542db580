"""Rms, peak and noise of the MFS residual of every Stokes product."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pfb.graph import deconvolution as builders
from pfb.graph.engine import Engine
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key
from pfb.operators.measurement import Spread
from pfb.pipeline.imaging import Imaged
from pfb.solvers.major_cycle import Statistics, joined


def measure(names: Names, imaged: Imaged, residuals: Sequence[Key], spreads: Sequence[Spread], engine: Engine) -> Statistics:
    """Return the statistics of all products; whoever watches is shown the MFS residual of the leading one.

    Parameters
    ----------
    names : Names
        Of these residuals.
    imaged : Imaged
        Which planes they are of.
    residuals : sequence of Key
        Raw, of every plane.
    spreads : sequence of Spread
        Of every plane, what is left of its visibilities.
    engine : Engine
        Where they are.
    """
    graph: Graph = {}
    planes = {s: imaged.of(s, residuals) for s in imaged.wsum}
    made = {s: builders.statistics(graph, names, own, imaged.wsum[s], s) for s, own in planes.items()}
    pictures = engine.monitor.picture(graph, names, made[imaged.leading][1])
    keys = [key for key, _ in made.values()]
    engine.run(graph, [*keys, *pictures])
    noises = [math.sqrt(sum(spreads[v].variance for v in own)) / imaged.wsum[s] for s, own in planes.items()]
    found = [part._replace(noise=noise) for part, noise in zip(engine.fetch(keys), noises, strict=True)]
    engine.monitor.show(engine.fetch(pictures))
    engine.drop([*keys, *pictures])
    return joined(found, list(imaged.scales.values()))
