"""Where the model of a run may differ from zero: the user's mask, and what stands out of the noise at some of its cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from pfb.config import Clean, Masking
from pfb.errors import InputError, PfbError
from pfb.graph import masking as builders
from pfb.graph.engine import Engine
from pfb.graph.imaging import call, mfs
from pfb.graph.masking import Found, Search
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.io.masks import Mask, read_mask
from pfb.kernels.beam import fit_beam
from pfb.pipeline.primary_beam import Beams
from pfb.pipeline.reporting import Reporter
from pfb.types import Beam, Geometry, Real

USUAL = 3.0
"""Times the noise that islands are grown down to, unless they are found with less."""


def require_mask(config: Masking, geometry: Geometry, report: Reporter) -> None:
    """Try what the options say of masks before any work is done.

    Raises
    ------
    InputError
        If the mask cannot be read or is zero everywhere, or the options of the automatic mask make no sense.
    """
    levels(config)
    cycles(config)
    if config.mask is None:
        if config.mask_reproject:
            raise InputError("--mask-reproject needs a mask to reproject: give one with --mask")
        return
    fraction = float(read_mask(config.mask, geometry, reproject=config.mask_reproject).mean())
    if fraction == 0:
        raise InputError(f"--mask {config.mask} is zero everywhere, so no model is possible: mark where emission may be")
    report.message(f"--mask {config.mask} leaves {100 * fraction:.3g}% of the image to the model")


def levels(config: Masking) -> tuple[float, float] | None:
    """Return what an island exceeds somewhere and everywhere, in times the noise; None without an automatic mask."""
    if config.auto_mask is None:
        if config.auto_mask_grow is not None:
            raise InputError(f"--auto-mask-grow {config.auto_mask_grow:g} grows the islands of --auto-mask: give that too")
        return None
    return island_levels(config.auto_mask, config.auto_mask_grow, "--auto-mask", "--auto-mask-grow")


def island_levels(high: float, low: float | None, above: str, below: str) -> tuple[float, float]:
    """Fill in the lower level; raises `InputError`, which names the options `above` and `below`, if it is the higher one."""
    low = min(USUAL, high) if low is None else low
    if low > high:
        raise InputError(f"{below} {low:g} must not exceed {above} {high:g}: islands grow to fainter pixels")
    return high, low


def cycles(config: Masking) -> tuple[int, ...]:
    """Return the major cycles at which the automatic mask is made anew; raises `InputError` if they cannot be read."""
    try:
        found = tuple(int(word) for word in config.auto_mask_at.split(","))
    except ValueError:
        found = (-1,)
    if min(found) < 0:
        raise InputError(f"--auto-mask-at {config.auto_mask_at!r} is no list of major cycles: write them as 0,1,2,4,8")
    return found


def masked(config: Clean) -> bool:
    """Whether a run has a mask, from its beginning or later."""
    return config.mask is not None or config.auto_mask is not None or (config.has_beam and config.beam_use == "model")


class Masks:
    """The mask of a run as a resident array; every algorithm asks it for `key`.

    Parameters
    ----------
    config : Clean
        Options.
    geometry : Geometry
        Of the images.
    names : Names
        Of the run.
    engine : Engine
        Where the mask lives.
    report : Reporter
        Is told of every mask that is made.
    beams : Beams
        Primary beams, whose cut-off bounds the model.

    Attributes
    ----------
    key : Key or None
        The (nx, ny) bool array; None if the model may be everywhere.
    """

    def __init__(
        self, config: Clean, geometry: Geometry, names: Names, engine: Engine, report: Reporter, beams: Beams
    ) -> None:
        self.config, self.geometry, self.names, self.engine, self.report = config, geometry, names, engine, report
        self.beams = beams
        self.key: Key | None = None
        self._fixed: Key | None = None
        self._levels, self._cycles = levels(config), cycles(config)
        self._search: Search | None = None

    def prepare(self, psfs: Mapping[int, Key], total: float, product: str = "I") -> None:
        """Read the user's mask, cut it off where the primary beam is low, and find the beam that emission is looked for with.

        Parameters
        ----------
        psfs : mapping
            Keys of the raw PSFs of all bands, by the number of their plane.
        total : float
            Sum of the weights of all bands.

        product : str
            The Stokes product that decides where emission is.

        Raises
        ------
        PfbError
            If there shall be an automatic mask and the PSF has no main lobe.
        """
        if not masked(self.config):
            return
        graph: Graph = {}
        self._fixed = add(graph, self.names.key("mask", 0), call, self._start())
        if self.beams.mean is not None:
            inside = partial(_inside, cutoff=self.config.beam_cutoff)
            self._fixed = add(graph, self.names.key("mask", 1, 0), call, inside, ref(self._fixed), ref(self.beams.mean))
        keys = [self._fixed]
        if self._levels:
            names = self.names.within("mask")
            psf = mfs(graph, names, psfs, total)
            keys.append(add(graph, names.key("beam", 0), _beam, ref(psf), self.geometry.cell))
        self.engine.run(graph, keys)
        self.key = self._fixed
        if self._levels:
            beam = self.engine.fetch(keys[1:])[0]
            self.engine.drop(keys[1:])
            if beam is None:
                raise PfbError("the PSF of all bands together has no main lobe, which --auto-mask needs: leave it out")
            self._search = Search(*self._levels, self.config.auto_mask_box, self.geometry.cell, beam, product != "I")

    def _start(self) -> partial[Mask]:
        if self.config.mask is None:
            return partial(np.ones, self.geometry.shape, bool)
        return partial(read_mask, self.config.mask, self.geometry, reproject=self.config.mask_reproject)

    def take_up(self, keys: Sequence[Key]) -> None:
        """Go on with the automatic mask of a checkpoint, if it has one."""
        if keys:
            self.key = keys[0]

    @property
    def saved(self) -> list[Key]:
        """What a checkpoint must hold."""
        return [self.key] if self.key is not None and self.key != self._fixed else []

    def renew(
        self, cycle: int, residuals: Mapping[int, Key], models: Mapping[int, Key], shares: Sequence[float], total: float
    ) -> Found | None:
        """Make the automatic mask from the present residual and model, if it is due at this cycle.

        Parameters
        ----------
        cycle : int
            The cycle that is about to begin.
        residuals, models, shares, total
            As for `pfb.graph.masking.significant`.

        Returns
        -------
        Found or None
            None if the mask stays.
        """
        if self._search is None or cycle not in self._cycles:
            return None
        graph: Graph = {}
        names = self.names.within("mask", cycle)
        apparent = self.beams.seen_of(graph, names, "model", models)
        mask, key = builders.significant(graph, names, residuals, apparent, shares, total, self._search, self._fixed)
        self.engine.run(graph, [mask, key])
        found: Found = self.engine.fetch([key])[0]
        self.engine.drop([key, *self.saved])
        self.key = self.engine.detach([mask])[0]
        self._tell(cycle, found)
        return found

    def _tell(self, cycle: int, found: Found) -> None:
        if not found.islands:
            self.report.warning(
                f"nothing exceeds --auto-mask {self.config.auto_mask:g} times the noise at cycle {cycle}, so the model is empty: "
                "lower it if there should be sources"
            )
            return
        self.report.message(
            f"the mask of cycle {cycle} has {found.islands} island{'s' * (found.islands > 1)}, "
            f"{100 * found.fraction:.3g}% of the image; the local noise is {found.lowest:.3g} to {found.highest:.3g} Jy/beam"
        )


def _inside(mask: Mask, beam: Real, cutoff: float) -> Mask:
    return mask & (beam >= cutoff)


def _beam(psf: Real, cell: float) -> Beam | None:
    return fit_beam(psf, cell)
