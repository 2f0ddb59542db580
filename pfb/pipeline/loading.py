"""Tasks that read a piece of a measurement set, make Stokes visibilities of it, and average them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pfb.io.measurement_set import Piece, read
from pfb.io.time_axis import row_columns
from pfb.kernels.averaging import Averaging, Means, Rows, groups
from pfb.kernels.stokes import stokes_i
from pfb.types import Complex, Real, Visibilities

READ = 1 << 19
"""Samples that are read at a time to be averaged: 80 MiB while they are worked on."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Loader:
    """Read the Stokes I visibilities of some rows and channels.

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
    rule : str
        How the weights of the two hands are combined, see `stokes_i`.
    averaging : Averaging, optional
        How far samples are averaged.
    window : int
        Number of the window in its band.
    """

    piece: Piece
    channels: slice
    freq: Real
    correlations: tuple[int, ...]
    rule: str = "l2"
    averaging: Averaging | None = None
    window: int = 0

    def __call__(self) -> tuple[Visibilities, ...]:
        """Return the visibilities: one part, or those whose baselines average the same channels."""
        if self.averaging is None:
            return (Visibilities(*self._stokes(self.piece), self.window),)
        columns = Rows(*row_columns(self.piece))
        means = Means(groups(self.averaging, columns, self.freq), self.freq)
        step = max(READ // self.freq.size, 1)
        for first in range(self.piece.first, self.piece.last, step):
            some = replace(self.piece, first=first, last=min(first + step, self.piece.last))
            uvw, _, vis, weight = self._stokes(some)
            means.add(slice(first - self.piece.first, some.last - self.piece.first), uvw, vis, weight)
        return tuple(part._replace(window=self.window) for part in means.result())

    def _stokes(self, piece: Piece) -> tuple[Real, Real, Complex, Real]:
        raw = read(piece, self.channels)
        return raw.uvw, self.freq, *stokes_i(raw.vis, raw.weight, self.correlations, self.rule)
