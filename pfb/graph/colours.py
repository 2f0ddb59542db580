"""A colour for every stage, that it keeps from run to run and shares with no other."""

from __future__ import annotations

import colorsys

from pfb.graph.names import STAGES

_TURN = 0.618034
"""The golden ratio of a turn of the colour wheel: the hues of any number of neighbours are far apart."""


def colour_of(stage: str) -> str:
    """Return the colour of a stage as ``#rrggbb``; grey for a word that is no stage.

    dask's own pages have 18 colours for all names there are, so that stages share them; what `pfb` draws uses these.
    """
    if stage not in STAGES:
        return "#808080"
    index = STAGES.index(stage)
    rgb = colorsys.hls_to_rgb(index * _TURN % 1, (0.38, 0.55, 0.7)[index % 3], 0.65)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
