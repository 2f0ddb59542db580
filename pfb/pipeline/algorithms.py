"""The algorithms of `pfb clean` by their names in `pfb.config`."""

from __future__ import annotations

from pfb.pipeline.algorithm import Algorithm
from pfb.pipeline.components import Clark, Hogbom
from pfb.pipeline.nnls import NonNegative
from pfb.pipeline.sara import Sara

ALGORITHMS: dict[str, type[Algorithm]] = {
    "sara": Sara,
    "hogbom": Hogbom,
    "clark": Clark,
    "multiscale": Clark,
    "nnls": NonNegative,
}
