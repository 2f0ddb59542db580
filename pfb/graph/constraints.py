"""The projection of images of all planes onto what a model may be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.graph.iteration import obey
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs, unchanged
from pfb.operators.constraints import Constraint


def constrained(
    graph: Graph, names: Names, images: Sequence[Key], constraints: Sequence[Constraint], mask: Key | None
) -> list[Key]:
    """Project the images of all planes onto what the constraint of each allows; returns the keys of the models."""
    models = [names.key("model", v) for v in range(len(images))]
    joint = [v for v, constraint in enumerate(constraints) if constraint.joint]
    signs = [add(graph, names.key("negative", v), np.less, ref(images[v]), 0) for v in joint]
    for model, image, constraint in zip(models, images, constraints, strict=True):
        if constraint.active:
            add(graph, model, obey, constraint, ref(image), None if mask is None else ref(mask), refs(signs))
        else:
            add(graph, model, unchanged, ref(image))
    return models
