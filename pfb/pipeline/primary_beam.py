"""The primary beam of a run: which one, whether it can be had, and what is resident of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pfb.config import Clean, PrimaryBeam
from pfb.errors import InputError
from pfb.graph import primary_beam as builders
from pfb.graph.engine import Engine
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key
from pfb.io.primary_beam import BeamGrid, katbeam_receiver, katbeam_response, read_beam
from pfb.kernels.primary_beam import Pattern, on_pixels, over_azimuth, over_rotation
from pfb.types import Band, Geometry, Observation, Real


@dataclass(frozen=True)
class BeamModel:
    """A primary beam, small, so it travels with every task that makes the beam of a band.

    Parameters
    ----------
    source : str
        A receiver of `pfb.io.primary_beam.KATBEAM` after ``katbeam:``, or the path of a beam.
    geometry : Geometry
        Of the images; its phase centre is where the dishes pointed.
    angles : tuple of (float, float)
        Parallactic angles in radians and their weights; empty to average over all directions.
    """

    source: str
    geometry: Geometry
    angles: tuple[tuple[float, float], ...]

    def image(self, freq: float) -> Real:
        """Return the power beam at a frequency in Hz, (nx, ny) float64."""
        kind, _, receiver = self.source.partition(":")
        if kind == "katbeam":
            return self._turned(lambda x, y: katbeam_response(receiver, x, y, freq))
        grid = read_beam(self.source, self.geometry)
        return self.of(grid, freq)

    def of(self, grid: BeamGrid, freq: float) -> Real:
        """Return the same of a beam that was read."""

        def response(x: Real, y: Real) -> Real:
            return grid.response(x, y, freq)

        return self._turned(response) if grid.turning else on_pixels(response, self.geometry.shape, self.geometry.cell)

    def _turned(self, pattern: Pattern) -> Real:
        average = partial(over_rotation, pattern, angles=self.angles) if self.angles else partial(over_azimuth, pattern)
        return on_pixels(average, self.geometry.shape, self.geometry.cell)


def choose(config: PrimaryBeam, geometry: Geometry, observation: Observation, bands: Sequence[Band]) -> BeamModel | None:
    """Return the beam that the options ask for, tried; None without one.

    Raises
    ------
    InputError
        If it cannot be had for these frequencies, or nobody knows how the sky turned in it.
    """
    name = config.beam_model
    if not config.has_beam:
        return None
    low, high = min(band.freq_min for band in bands), max(band.freq_max for band in bands)
    turning = True
    if name.partition(":")[0] == "katbeam":
        name = f"katbeam:{katbeam_receiver(name, low, high)}"
    else:
        grid = read_beam(name, geometry)
        turning = grid.turning
        for band in bands:
            if not grid.covers(band.freq):
                raise InputError(
                    f"the beam {name} has {grid.freq[0] / 1e6:.6g}-{grid.freq[-1] / 1e6:.6g} MHz but band {band.index} is at "
                    f"{band.freq / 1e6:.6g} MHz: give a beam that has it, or one of a single frequency, which is scaled"
                )
    if not turning or config.beam_average == "azimuth":
        return BeamModel(name, geometry, ())
    if not observation.parallactic:
        raise InputError("the set has no positions of antennas, so how its beam turned is unknown: give --beam-average azimuth")
    return BeamModel(name, geometry, merged(observation.parallactic))


def facts(config: object) -> dict[str, Any] | None:
    """Return what a dataset says of the primary beam of its run, see `pfb.io.dataset.Layout`."""
    if not isinstance(config, Clean) or not config.has_beam:
        return None
    return dict(model=config.beam_model, cutoff=config.beam_cutoff, applied=config.beam_use)


def merged(angles: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Join parallactic angles that differ by less than a few degrees, over which no beam differs; weights are added."""
    step = np.radians(4.0)
    found: dict[int, float] = {}
    for angle, weight in angles:
        place = round(angle / step)
        found[place] = found.get(place, 0.0) + weight
    return tuple((place * step, weight) for place, weight in sorted(found.items()))


class Beams:
    """The primary beams of a run's bands as resident arrays; without a beam what goes in comes out.

    Parameters
    ----------
    config : Clean
        Options.
    model : BeamModel or None
        What makes the beams.
    names : Names
        Of the run.
    engine : Engine
        Where they live.

    Attributes
    ----------
    own : list of Key
        The beam P_b of every band with data.
    mean : Key or None
        That of all bands together, which the solver's images z are the sky times; None if no model is behind a beam.
    screens : list of Key or None
        D_b, the ratio of the two, in the precision of images.
    """

    def __init__(self, config: Clean, model: BeamModel | None, names: Names, engine: Engine) -> None:
        self.config, self.model, self.engine = config, model, engine
        self.names = names.within("primary beam")
        self.own: list[Key] = []
        self.mean: Key | None = None
        self.screens: list[Key] | None = None

    def prepare(self, freq: Sequence[float], weights: Sequence[float]) -> None:
        """Make the beams.

        Parameters
        ----------
        freq : sequence of float
            Effective frequencies of the planes with data in Hz.
        weights : sequence of float
            Sums of the weights of every such plane.
        """
        if self.model is None:
            return
        graph: Graph = {}
        self.own = builders.beams(graph, self.names, [partial(self.model.image, f) for f in freq])
        keep = list(self.own)
        if self.config.beam_use == "model":
            self.mean = builders.effective(graph, self.names, self.own, [weight / sum(weights) for weight in weights])
            dtype = np.float32 if self.config.precision == "single" else np.float64
            self.screens = builders.ratios(graph, self.names, self.own, self.mean, self.config.beam_cutoff, dtype)
            keep += [self.mean, *self.screens]
        self.engine.run(graph, keep)

    def screened(self, graph: Graph, operators: list[Key], eta: float) -> list[Key]:
        """Return the Hessians of z for those of the apparent sky."""
        return operators if self.screens is None else builders.screened(graph, self.names, operators, self.screens, eta)

    def seen(self, graph: Graph, names: Names, stage: str, images: list[Key]) -> list[Key]:
        """Return D_b times the images of all bands, made in a stage of `pfb.graph.names`."""
        return list(self.seen_of(graph, names, stage, dict(enumerate(images))).values())

    def seen_of(self, graph: Graph, names: Names, stage: str, images: Mapping[int, Key]) -> Mapping[int, Key]:
        """Return the same of some of the planes, by their places."""
        return images if self.screens is None else builders.seen(graph, names, stage, images, self.screens)

    def resident(self, models: list[Key], count: int) -> list[Key]:
        """Make D_b times the models resident, for the time of that number; the models themselves without a beam."""
        graph: Graph = {}
        apparent = self.seen(graph, self.names.within("resident", count), "model", models)
        if graph:
            self.engine.run(graph, apparent)
        return apparent

    def unseen(self, graph: Graph, models: list[Key]) -> list[Key]:
        """Return the first z for apparent models."""
        return models if self.screens is None else builders.unseen(graph, self.names, models, self.screens)

    def intrinsic(self, graph: Graph, names: Names, models: list[Key]) -> list[Key]:
        """Return the sky for z."""
        if self.mean is None:
            return models
        return builders.intrinsic(graph, names, models, self.mean, self.config.beam_cutoff)
