"""Images corrected for the primary beam, from the planes of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from pfb.config import PrimaryBeam
from pfb.errors import InputError
from pfb.io import dataset as store
from pfb.kernels.primary_beam import corrected
from pfb.pipeline.primary_beam import choose
from pfb.types import Plane, Real

KINDS = ("image-pbcor", "pb")
"""Products of a run with a primary beam: corrected images, and the beam."""


@dataclass(frozen=True)
class Primary:
    """The primary beams of a run's bands.

    Parameters
    ----------
    of : callable
        Returns the (nx, ny) power beam of a band.
    cutoff : float
        Corrected images are NaN where it is lower.
    wsum : sequence of float
        Sum of the weights of every band.
    """

    of: Callable[[int], Real]
    cutoff: float
    wsum: Sequence[float]

    @property
    def good(self) -> list[int]:
        """The bands that have data."""
        return [band for band, weight in enumerate(self.wsum) if weight > 0]

    @cached_property
    def effective(self) -> Real:
        r"""That of all bands together, :math:`\bar P = (\sum w P^2 / \sum w)^{1/2}`, made a band at a time."""
        total = sum(self.wsum)
        squares: Real = np.zeros(())
        for band in self.good:
            squares = squares + self.wsum[band] / total * np.square(self.of(band))
        mean: Real = np.sqrt(squares)
        return mean

    def mean(self, planes: Callable[[int], Real]) -> Real:
        """Return the sum over bands of beam times raw plane over the sum of all weights, (nx, ny)."""
        total: Real = np.zeros(())
        for band in self.good:
            total = total + self.of(band) * planes(band)
        return total / sum(self.wsum)

    def correct(self, image: Real, band: int | None = None) -> Real:
        """Divide a band's apparent image by its beam, or what `mean` restores to by the square of the effective one."""
        if band is not None:
            return corrected(image, self.of(band), self.cutoff)
        return corrected(corrected(image, self.effective, self.cutoff), self.effective, self.cutoff)


Correction = Callable[[str | Path, xr.Dataset, int], Primary | None]
"""Gives the beams for a store, its dataset of one Stokes product, and the place of that among those of the run."""


def stored(path: str | Path, ds: xr.Dataset, stokes: int) -> Primary | None:
    """Return the beams that a dataset holds, if it does."""
    facts = ds.attrs.get("primary_beam")
    if facts is None:
        return None
    return Primary(
        lambda band: store.read(path, "primary_beam", Plane(stokes, band)), facts["cutoff"], ds["wsum"].values.tolist()
    )


def asked_for(path: str | Path, config: PrimaryBeam) -> Correction | None:
    """Return what corrects with the beam of the options; None for that of the dataset, if it has one.

    Raises
    ------
    InputError
        If the model of the dataset is behind a beam already, or there is no such beam.
    """
    if not config.has_beam:
        return None
    ds = store.open_dataset(path)
    facts = ds.attrs.get("primary_beam", {})
    if facts.get("applied") == "model":
        raise InputError(
            f"{path} was deconvolved behind the beam {facts['model']}, which its model is corrected for: leave out --beam-model"
        )
    bands = store.bands(ds)
    model = choose(config, store.geometry(ds), store.observation(ds), bands)
    assert model is not None
    return lambda _, own, __: Primary(lambda band: model.image(bands[band].freq), config.beam_cutoff, own["wsum"].values.tolist())
