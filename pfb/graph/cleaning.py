"""Graphs of the minor cycles of CLEAN.

Components are found in the sum over the bands, on the worker of the first one, and taken off every band where it is. `Rounds`
lets only the brightest pixels and the middle of the PSFs meet there, `Together` all images and PSFs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pfb.graph import minor
from pfb.graph.blocks import reduce_bands
from pfb.graph.imaging import mfs
from pfb.graph.minor import Settings
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs


@dataclass(frozen=True)
class Cycle:
    """What a minor cycle has beside its state."""

    names: Names
    settings: Settings
    mask: Key | None
    """Where there may be components."""
    places: tuple[int, ...]
    """Numbers of the planes that are cleaned together: those of a product. What joins them is done where the first is."""

    def own(self, names: Names, stage: str, *index: int) -> Key:
        """Return the key of a task where the first plane is."""
        return names.key(stage, *index, self.places[0])

    def each(self, names: Names, stage: str) -> list[Key]:
        """Return the keys of a task of every plane."""
        return [names.key(stage, 0, v) for v in self.places]

    def survey(self, graph: Graph, residual: Key) -> Key:
        """Measure the noise."""
        mask = None if self.mask is None else ref(self.mask)
        return add(graph, self.own(self.names, "survey"), minor.survey, ref(residual), mask, self.settings)


@dataclass(frozen=True)
class Rounds:
    """Minor cycles whose rounds clean the brightest pixels among themselves, and convolve what was found with the PSFs.

    Parameters
    ----------
    cycle : Cycle
    spots : Key
        Of `pfb.graph.minor.Spots`.
    convolutions : list of Key
        A `PsfHessian` of every band.
    """

    cycle: Cycle
    spots: Key
    convolutions: list[Key]

    def begin(self, graph: Graph, slopes: Sequence[Key], models: Sequence[Key]) -> list[Key]:
        """Start a cycle from residuals in Jy/beam and models; returns the state: residuals and models."""
        return [*slopes, *models]

    def trim(self, graph: Graph, state: Sequence[Key]) -> list[Key]:
        """Leave out what of the models lies outside of a new mask."""
        names = self.cycle.names.within("trim")
        assert self.cycle.mask is not None
        _, models = self._parts(state)
        gone = [
            add(graph, key, minor.outside, ref(model), ref(self.cycle.mask))
            for key, model in zip(self.cycle.each(names, "spread"), models, strict=True)
        ]
        return self._apply(graph, names, state, gone)

    def look(
        self, graph: Graph, number: int, state: Sequence[Key], survey: Key | None, first: Key | None
    ) -> tuple[Key, Key, Key]:
        """Look for the brightest pixels; returns keys of what was found, of what the client is told of it, and of the survey."""
        names = self.cycle.names.within("round", number)
        slopes, _ = self._parts(state)
        residual = reduce_bands(graph, lambda i: names.key("mfs", 0, self.cycle.places[i]), slopes, np.add)
        if survey is None:
            survey = self.cycle.survey(graph, residual)
        known = None if first is None else ref(first)
        sought = add(
            graph, self.cycle.own(names, "seek", 0), minor.seek,
            ref(residual), ref(survey), ref(self.spots), self.cycle.settings, known,
        )  # fmt: skip
        return sought, add(graph, self.cycle.own(names, "seek", 1), getattr, ref(sought), "told"), survey

    def clean(
        self, graph: Graph, number: int, state: Sequence[Key], survey: Key, sought: Key, most: int
    ) -> tuple[list[Key], Key]:
        """Take off what was found; returns the next state, and the key of how many components there were."""
        names, settings = self.cycle.names.within("round", number), self.cycle.settings
        slopes, _ = self._parts(state)
        values = [
            add(graph, key, minor.gather, ref(slope), ref(sought), settings)
            for key, slope in zip(self.cycle.each(names, "gather"), slopes, strict=True)
        ]
        key = self.cycle.own(names, "pursue", 0)
        found = add(graph, key, minor.clean, refs(values), ref(sought), ref(self.spots), settings, most)
        count = add(graph, self.cycle.own(names, "pursue", 1), getattr, ref(found), "number")
        added = [
            add(graph, key, minor.spread, ref(found), band, ref(slope), settings)
            for band, (key, slope) in enumerate(zip(self.cycle.each(names, "spread"), slopes, strict=True))
        ]
        return self._apply(graph, names, state, added), count

    def end(self, graph: Graph, state: Sequence[Key], models: Sequence[Key]) -> list[Key]:
        """Return the keys of the models."""
        return self._parts(state)[1]

    def _apply(self, graph: Graph, names: Names, state: Sequence[Key], added: Sequence[Key]) -> list[Key]:
        slopes, models = self._parts(state)
        lower = [
            add(graph, key, minor.subtract, ref(slope), ref(hessian), ref(own))
            for key, slope, hessian, own in zip(
                self.cycle.each(names, "subtract"), slopes, self.convolutions, added, strict=True
            )
        ]
        higher = [
            add(graph, key, np.add, ref(model), ref(own))
            for key, model, own in zip(self.cycle.each(names, "model"), models, added, strict=True)
        ]
        return lower + higher

    def _parts(self, state: Sequence[Key]) -> tuple[list[Key], list[Key]]:
        n = len(self.convolutions)
        return list(state[:n]), list(state[n:])


@dataclass(frozen=True)
class Together:
    """Minor cycles in one place, with the whole of all PSFs.

    Parameters
    ----------
    cycle : Cycle
    psfs : Key
        (band, px, py) in Jy/beam per Jy.
    """

    cycle: Cycle
    psfs: Key

    def begin(self, graph: Graph, slopes: Sequence[Key], models: Sequence[Key]) -> list[Key]:
        """Bring the residuals of all bands, in Jy/beam, to one place."""
        return [add(graph, self.cycle.own(self.cycle.names, "gather"), minor.gathered, refs(list(slopes)))]

    def look(
        self, graph: Graph, number: int, state: Sequence[Key], survey: Key | None, first: Key | None
    ) -> tuple[Key, Key, Key]:
        """See `Rounds.look`."""
        names = self.cycle.names.within("round", number)
        residual = add(graph, self.cycle.own(names, "mfs"), minor.total_of, ref(state[0]))
        if survey is None:
            survey = self.cycle.survey(graph, residual)
        known = None if first is None else ref(first)
        sought = add(
            graph, self.cycle.own(names, "seek", 0), minor.seek, ref(residual), ref(survey), None, self.cycle.settings, known
        )
        return sought, add(graph, self.cycle.own(names, "seek", 1), getattr, ref(sought), "told"), survey

    def clean(
        self, graph: Graph, number: int, state: Sequence[Key], survey: Key, sought: Key, most: int
    ) -> tuple[list[Key], Key]:
        """See `Rounds.clean`."""
        names, settings = self.cycle.names.within("round", number), self.cycle.settings
        done = add(
            graph, self.cycle.own(names, "pursue", 0), minor.pursue,
            ref(state[0]), ref(self.psfs), ref(survey), ref(sought), settings, most,
        )  # fmt: skip
        return [done], add(graph, self.cycle.own(names, "pursue", 1), getattr, ref(done), "number")

    def trim(self, graph: Graph, state: Sequence[Key]) -> list[Key]:
        """Leave the state as it is: `end` leaves out what of the models lies outside of the mask."""
        return list(state)

    def end(self, graph: Graph, state: Sequence[Key], models: Sequence[Key]) -> list[Key]:
        """Add what was found to the models of the bands, where they are."""
        names = self.cycle.names.within("end")
        mask = None if self.cycle.mask is None else ref(self.cycle.mask)
        return [
            add(graph, key, minor.improved, ref(model), ref(state[0]), band, mask)
            for band, (key, model) in enumerate(zip(self.cycle.each(names, "model"), models, strict=True))
        ]


def spots(
    graph: Graph, names: Names, psfs: Mapping[int, Key], total: float, halves: tuple[int, ...], settings: Settings
) -> Key:
    """Return the key of `pfb.graph.minor.Spots`.

    Parameters
    ----------
    psfs : mapping
        Keys of the raw PSFs of a product, by the number of their plane.
    total : float
        Sum of its weights.
    halves : tuple of int
        Half width in pixels of what is kept of every scale.
    settings : Settings
    """
    psf = mfs(graph, names.within("spots", *psfs), psfs, total)
    looks = [add(graph, names.key("psf", 1, v), minor.look, ref(key), total, halves, settings) for v, key in psfs.items()]
    return add(graph, names.key("psf", 2, min(psfs)), minor.join, refs(looks), ref(psf))


def stack(graph: Graph, names: Names, psfs: Mapping[int, Key], total: float) -> Key:
    """Return the key of the PSFs of a product in one place, (band, px, py) in Jy/beam per Jy; parameters as of `spots`."""
    return add(graph, names.key("psf", 1, min(psfs)), minor.stack, refs(list(psfs.values())), total)
