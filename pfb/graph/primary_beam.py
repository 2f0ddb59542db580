r"""Graphs of primary beams: of every band, of all bands together, and of the ratio of the two.

Minimisations work on :math:`z = \bar P x`, the sky times the beam of all bands together. What a band sees of it is
:math:`D_b z` with :math:`D_b = P_b / \bar P`, about one everywhere; see docs/algorithm.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pfb.graph.blocks import reduce_bands
from pfb.graph.imaging import call
from pfb.graph.names import Names, stage_of
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels.primary_beam import corrected, relative
from pfb.operators.primary_beam import Screened
from pfb.types import Real

FAINT = 0.3
"""What a band sees of the sky, over what all do, below which its own first model counts less and less: it is mostly noise."""


def beams(graph: Graph, names: Names, makers: Sequence[Callable[[], Real]]) -> list[Key]:
    """Make the beam of every band where the band is, (nx, ny) float64; the makers are small when pickled."""
    return [add(graph, names.key("beam", v), call, maker) for v, maker in enumerate(makers)]


def effective(graph: Graph, names: Names, own: Sequence[Key], shares: Sequence[float]) -> Key:
    """Put the beams of all bands together, see `pfb.kernels.primary_beam.effective`; `shares` add to one."""
    within = names.within("squares")
    squares = [
        add(graph, within.key("beam", v), _square, ref(key), share)
        for v, (key, share) in enumerate(zip(own, shares, strict=True))
    ]  # fmt: skip
    total = reduce_bands(graph, lambda i: within.key("beam", 0, i), squares, np.add)
    return add(graph, names.key("beam", 0, 0), np.sqrt, ref(total))


def ratios(graph: Graph, names: Names, own: Sequence[Key], mean: Key, cutoff: float, dtype: Any) -> list[Key]:
    """Divide the beam of every band by that of all: D_b, zero where the latter is below the cut-off."""
    return [add(graph, names.key("beam", 1, v), _ratio, ref(key), ref(mean), cutoff, dtype) for v, key in enumerate(own)]


def screened(graph: Graph, names: Names, operators: Sequence[Key], screens: Sequence[Key], eta: float) -> list[Key]:
    """Put every band's Hessian, which has `eta` on its diagonal, between its screens; see `Screened`."""
    within = names.within("screened")
    return [
        add(graph, within.key(stage_of(key), v), Screened, ref(key), ref(screen), eta)
        for v, (key, screen) in enumerate(zip(operators, screens, strict=True))
    ]


def seen(graph: Graph, names: Names, stage: str, images: Mapping[int, Key], screens: Sequence[Key]) -> dict[int, Key]:
    """Multiply images of planes, by their places, by the screens: models z become apparent, residuals slopes of data terms."""
    within = names.within("seen")
    return {v: add(graph, within.key(stage, v), np.multiply, ref(key), ref(screens[v])) for v, key in images.items()}


def unseen(graph: Graph, names: Names, models: Sequence[Key], screens: Sequence[Key]) -> list[Key]:
    """Return first models z of apparent ones: over the screen, unless the band sees little."""
    within = names.within("unseen")
    return [
        add(graph, within.key("model", v), _unseen, ref(model), ref(screen))
        for v, (model, screen) in enumerate(zip(models, screens, strict=True))
    ]


def intrinsic(graph: Graph, names: Names, models: Sequence[Key], mean: Key, cutoff: float) -> list[Key]:
    """Return x of every z: the models over the beam of all bands, zero below the cut-off."""
    within, divide = names.within("intrinsic"), partial(corrected, cutoff=cutoff, fill=0.0)
    return [add(graph, within.key("model", v), call, divide, ref(key), ref(mean)) for v, key in enumerate(models)]


def _square(beam: Real, share: float) -> Real:
    return share * np.square(beam)


def _ratio(beam: Real, mean: Real, cutoff: float, dtype: Any) -> Real:
    return relative(beam, mean, cutoff).astype(dtype, copy=False)


def _unseen(model: Real, screen: Real) -> Real:
    return model * screen / np.maximum(np.square(screen), FAINT**2)
