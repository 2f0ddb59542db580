"""Tasks that read a piece of a measurement set and turn it into Stokes visibilities."""

from __future__ import annotations

from pfb.io.measurement_set import Piece, read
from pfb.kernels.stokes import stokes_i
from pfb.types import Real, Visibilities


def load(piece: Piece, channels: slice, freq: Real, correlations: tuple[int, ...], rule: str) -> Visibilities:
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
    """
    raw = read(piece, channels)
    vis, weight = stokes_i(raw.vis, raw.weight, correlations, rule)
    return Visibilities(raw.uvw, freq, vis, weight)
