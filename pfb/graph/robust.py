"""Tasks that weigh visibilities down that a model leaves unexplained; see `pfb.kernels.robust`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels import robust
from pfb.kernels.robust import StudentT
from pfb.operators.measurement import Gridder
from pfb.types import Real, Visibilities

Band = tuple[Visibilities, ...]


class Judged(NamedTuple):
    """What became of the weights of a band: numbers only."""

    fit: StudentT
    halved: float
    """Fraction of the samples whose weights are half of what they were, or less."""


def factors(
    graph: Graph, names: Names, natural: Sequence[Key], models: Sequence[Key], gridder: Gridder, nu: float | None
) -> tuple[list[Key], list[Key]]:
    """Find the factors that the weights of every band are multiplied by.

    Parameters
    ----------
    natural : sequence of Key
        Visibilities with natural weights.
    models : sequence of Key
        Of the sky, in Jy/pixel.
    gridder : Gridder
        Their grid.
    nu : float, optional
        Degrees of freedom; each band finds its own by default.

    Returns
    -------
    factors, judged : list of Key
        Of tuples of (row, chan) arrays, one for every part of a band, and of `Judged`.
    """
    found, judged = [], []
    for v, (band, model) in enumerate(zip(natural, models, strict=True)):
        key = add(graph, names.key("factor", v), _factors, ref(band), ref(model), gridder, nu)
        found.append(add(graph, names.key("factor", 0, v), _first, ref(key)))
        judged.append(add(graph, names.key("factor", 1, v), _second, ref(key)))
    return found, judged


def scaled(graph: Graph, names: Names, bands: Sequence[Key], factors: Sequence[Key]) -> list[Key]:
    """Multiply the weights of every band by its factors."""
    return [
        add(graph, names.key("weigh", v), _scaled, ref(band), ref(own))
        for v, (band, own) in enumerate(zip(bands, factors, strict=True))
    ]


def _factors(band: Band, model: Real, gridder: Gridder, nu: float | None) -> tuple[tuple[Real, ...], Judged]:
    parts = [robust.squares(gridder.subtract(part, model), part.weight) for part in band]
    fit = robust.fit([q[part.weight > 0] for q, part in zip(parts, band, strict=True)], nu)
    found = tuple(robust.factor(q, fit) for q in parts)
    number = sum(int(np.count_nonzero(part.weight)) for part in band)
    low = sum(int(np.count_nonzero((f <= 0.5) & (part.weight > 0))) for f, part in zip(found, band, strict=True))
    return found, Judged(fit, low / max(number, 1))


def _first(both: tuple[tuple[Real, ...], Judged]) -> tuple[Real, ...]:
    return both[0]


def _second(both: tuple[tuple[Real, ...], Judged]) -> Judged:
    return both[1]


def _scaled(band: Band, factors: tuple[Real, ...]) -> Band:
    return tuple(part._replace(weight=part.weight * own) for part, own in zip(band, factors, strict=True))
