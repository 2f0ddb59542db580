"""Tasks that weigh visibilities down that a model leaves unexplained; see `pfb.kernels.robust`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels import robust
from pfb.kernels.robust import StudentT
from pfb.kernels.samples import Band, Streamed
from pfb.operators.measurement import Gridder
from pfb.types import Real, Visibilities


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


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of a streamed band, found anew whenever they are needed."""

    natural: Streamed
    model: Real
    gridder: Gridder
    fit: StudentT

    def scaled(self, band: Streamed, index: int) -> Visibilities:
        """Return a part of a band with its weights multiplied by their factors."""
        part, own = band[index], self.natural[index]
        q = robust.squares(self.gridder.subtract(own, self.model), own.weight)
        return part._replace(weight=part.weight * robust.factor(q, self.fit))


def _streamed_factors(band: Streamed, model: Real, gridder: Gridder, nu: float | None) -> tuple[Factors, Judged]:
    """Judge a streamed band by every so many of its samples."""
    step = max(sum(int(np.count_nonzero(part.weight)) for part in band) // robust.ENOUGH, 1)
    looked = [robust.squares(gridder.subtract(part, model), part.weight)[part.weight > 0][::step] for part in band]
    fit = robust.fit(looked, nu)
    low = sum(int(np.count_nonzero(robust.factor(q, fit) <= 0.5)) for q in looked)
    return Factors(band, model, gridder, fit), Judged(fit, low / max(sum(q.size for q in looked), 1))


def _factors(band: Band, model: Real, gridder: Gridder, nu: float | None) -> tuple[Factors | tuple[Real, ...], Judged]:
    if isinstance(band, Streamed):
        return _streamed_factors(band, model, gridder, nu)
    parts = [robust.squares(gridder.subtract(part, model), part.weight) for part in band]
    fit = robust.fit([q[part.weight > 0] for q, part in zip(parts, band, strict=True)], nu)
    found = tuple(robust.factor(q, fit) for q in parts)
    number = sum(int(np.count_nonzero(part.weight)) for part in band)
    low = sum(int(np.count_nonzero((f <= 0.5) & (part.weight > 0))) for f, part in zip(found, band, strict=True))
    return found, Judged(fit, low / max(number, 1))


def _first(both: tuple[Factors | tuple[Real, ...], Judged]) -> Factors | tuple[Real, ...]:
    return both[0]


def _second(both: tuple[Factors | tuple[Real, ...], Judged]) -> Judged:
    return both[1]


def _scaled(band: Any, factors: Factors | tuple[Real, ...]) -> Band:
    if isinstance(factors, Factors):
        return Streamed([partial(factors.scaled, band, index) for index in range(len(band))])
    return tuple(part._replace(weight=part.weight * own) for part, own in zip(band, factors, strict=True))
