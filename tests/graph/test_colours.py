"""The colours of the stages: dask's and ours."""

from __future__ import annotations

import colorsys
import itertools
from collections import Counter

import pytest
from dask.utils import key_split
from distributed.utils import color_of, palette

from pfb.graph.colours import colour_of
from pfb.graph.names import STAGES, Names, token

LOOP = ("extrapolate", "psi-dot", "l21-norm", "dual", "psi-hdot", "grad", "primal", "change")


def test_every_stage_has_a_colour_of_its_own():
    assert len({colour_of(stage) for stage in STAGES}) == len(STAGES)
    assert colour_of("nothing") not in {colour_of(stage) for stage in STAGES}


def test_colours_that_follow_each_other_differ_much():
    """What runs at the same time are neighbours in the list: their hues are a sixth of the wheel apart at least."""
    for one, other in itertools.pairwise(STAGES):
        hues = [colorsys.rgb_to_hls(*(int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0] for c in map(colour_of, (one, other))]
        distance = abs(hues[0] - hues[1])
        assert min(distance, 1 - distance) > 1 / 6


@pytest.mark.parametrize(("stage", "colour"), [("read", "#a02222"), ("psi-dot", "#8642d7")])
def test_colours_stay(stage, colour):
    """From release to release: new stages go to the end of the list."""
    assert colour_of(stage) == colour


def test_a_stage_has_one_colour_on_dasks_pages_whatever_the_run():
    keys = [Names(token(run)).key(stage, 1, iteration=run) for stage in STAGES for run in range(3)]
    colours = [color_of(key_split(key)) for key in keys]
    assert colours == [color_of(stage) for stage in STAGES for _ in range(3)]


def test_on_dasks_pages_the_stages_of_an_iteration_differ():
    """They have 18 colours for all stages, so that others share them; see docs/profiling.md."""
    assert len(palette) < len(STAGES)
    assert max(Counter(map(color_of, LOOP)).values()) == 1
