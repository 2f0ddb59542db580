"""Tasks that read a piece of a measurement set, make visibilities of the Stokes products of it, and average them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pfb import __version__
from pfb.io.feed_angles import feed_angles
from pfb.io.measurement_set import Piece, read
from pfb.io.time_axis import row_columns
from pfb.kernels.averaging import Averaging, Means, Rows, groups
from pfb.kernels.stokes import available, stokes
from pfb.types import Complex, Real, Visibilities

READ = 1 << 18
"""Samples that are read at a time where memory is short, and of the pieces on disk: 40 MiB while they are worked on."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Loader:
    """Read the visibilities of some rows and channels once for all Stokes products.

    Parameters
    ----------
    piece : Piece
        Rows of a window.
    channels : slice
        Channels of the window in ascending order.
    freq : (chan,) float64
        Their frequencies in Hz.
    correlations : tuple of int
        casacore's numbers of the stored correlations.
    products : str
        Some of ``IQUV``.
    rule : str
        How the weights of two correlations are combined, see `pfb.kernels.stokes.combine`.
    feed_angle : str
        How Q and U are turned, see `pfb.io.feed_angles.feed_angles`.
    centre : (float, float)
        Right ascension and declination of the phase centre in radians.
    averaging : Averaging, optional
        How far samples are averaged.
    window : int
        Number of the window in its band.
    """

    piece: Piece
    channels: slice
    freq: Real
    correlations: tuple[int, ...]
    products: str = "I"
    rule: str = "l2"
    feed_angle: str = "none"
    centre: tuple[float, float] = (0.0, 0.0)
    averaging: Averaging | None = None
    window: int = 0

    def __call__(self) -> tuple[tuple[Visibilities, ...], ...]:
        """Return the visibilities of each product: one part, or those whose baselines average the same channels.

        A product that the correlations do not give has none. Without averaging the products share their coordinates.
        """
        if self.averaging is None:
            uvw, made = self._stokes(self.piece)
            return tuple(() if one is None else (Visibilities(uvw, self.freq, *one, self.window),) for one in made)
        members = groups(self.averaging, Rows(*row_columns(self.piece)), self.freq)
        there = [available(product, self.correlations, self.feed_angle != "none") for product in self.products]
        means = [Means(members, self.freq) if own else None for own in there]
        step = max(READ // self.freq.size, 1)
        for first in range(self.piece.first, self.piece.last, step):
            some = replace(self.piece, first=first, last=min(first + step, self.piece.last))
            uvw, made = self._stokes(some)
            where = slice(first - self.piece.first, some.last - self.piece.first)
            for own, one in zip(means, made, strict=True):
                if own is not None and one is not None:
                    own.add(where, uvw, *one)
        return tuple(() if own is None else self._parts(own) for own in means)

    def _parts(self, means: Means) -> tuple[Visibilities, ...]:
        return tuple(part._replace(window=self.window) for part in means.result())

    def _stokes(self, piece: Piece) -> tuple[Real, list[tuple[Complex, Real] | None]]:
        raw = read(piece, self.channels)
        angle = feed_angles(piece, self.centre, self.feed_angle)
        return raw.uvw, stokes(raw.vis, raw.weight, self.correlations, self.products, self.rule, angle)

    def maker(self) -> dict[str, Any]:
        """Return all that decides what the visibilities are."""
        channels = np.arange(self.channels.start, self.channels.stop).tolist()
        return asdict(self.piece) | {
            "version": __version__, "selected": [channels[0], channels[-1]], "freq": self.freq, "window": self.window,
            "stokes": self.products, "stokes weight": self.rule, "centre": self.centre, "feed angle": self.feed_angle,
            "averaging": None if self.averaging is None else asdict(self.averaging),
        }  # fmt: skip
