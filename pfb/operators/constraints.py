"""What a model may not be: negative, or outside of a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.types import Real

Mask = NDArray[np.bool_]

POSITIVITY = ("none", "clip", "joint")


@dataclass(frozen=True)
class Constraint:
    """A set C that the images of all bands must lie in, given by its projection.

    Parameters
    ----------
    positivity : str
        ``none``; ``clip``: no pixel is negative; ``joint``: a pixel that is negative in any band is
        zero in all of them.
    masked : bool
        There is a mask outside of which images are zero.

    Raises
    ------
    InputError
        If the name is unknown.
    """

    positivity: str = "none"
    masked: bool = False

    def __post_init__(self) -> None:
        if self.positivity not in POSITIVITY:
            raise InputError(f"positivity {self.positivity!r} is unknown; choose from {', '.join(POSITIVITY)}")

    def of(self, product: str) -> Constraint:
        """Return what the images of a Stokes product must obey: only I is never negative."""
        return self if product == "I" else replace(self, positivity="none")

    @property
    def active(self) -> bool:
        """Whether there is anything to obey."""
        return self.positivity != "none" or self.masked

    @property
    def positive(self) -> bool:
        """Whether no pixel may be negative."""
        return self.positivity != "none"

    @property
    def joint(self) -> bool:
        """Whether a band must know where the others are negative."""
        return self.positivity == "joint"

    def polar(self, x: Real, mask: Mask | None = None, negatives: Sequence[Mask] = ()) -> Real:
        """Return x less its projection onto C: for a convex C the projection onto the polar cone.

        Parameters
        ----------
        x : (..., nx, ny) float
            Images of some of the bands; not changed.
        mask : (nx, ny) bool, optional
            Where the images may differ from zero.
        negatives : sequence of (nx, ny) bool
            For ``joint``: where it is negative, of every band.

        Raises
        ------
        ValueError
            If it is joint and there are no negatives, or masked and there is no mask.
        """
        if self.masked and mask is None:
            raise ValueError("the constraint needs its mask")
        if self.joint:
            if not negatives:
                raise ValueError("the constraint 'joint' needs the negatives of all bands")
            kept = ~np.logical_or.reduce(negatives)
            return np.where(kept if mask is None else kept & mask, 0, x)
        inside = np.minimum(x, 0) if self.positivity == "clip" else np.zeros_like(x)
        return inside if mask is None else np.where(mask, inside, x)

