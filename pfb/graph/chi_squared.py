"""Tasks that say what noise would make of the imaging weights of every band; only numbers come back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels.chi_squared import NBIN, Expected, expected
from pfb.types import Visibilities

Band = Sequence[Visibilities]


def expectations(graph: Graph, names: Names, natural: Sequence[Key], weighed: Sequence[Key]) -> list[Key]:
    """Return keys of the `Expected` of every band.

    Parameters
    ----------
    graph : Graph
        Receives the tasks.
    names : Names
        Of the run.
    natural, weighed : sequence of Key
        The same visibilities with natural weights, and with imaging weights.
    """
    names = names.within("expected")
    pairs = enumerate(zip(natural, weighed, strict=True))
    return [add(graph, names.key("statistics", v), expect, ref(one), ref(other)) for v, (one, other) in pairs]


def expect(natural: Band, weighed: Band) -> Expected:
    """Add up what noise comes to in the parts of a band."""
    total = Expected(0.0, np.zeros(NBIN), np.zeros(NBIN))
    for before, after in zip(natural, weighed, strict=True):
        part = expected(before.uvw, before.weight, after.weight)
        total = Expected(total.variance + part.variance, total.taper + part.taper, total.square + part.square)
    return total
