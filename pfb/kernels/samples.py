"""Small operations on the samples of a band."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.types import Visibilities


def concatenate(pieces: Sequence[Visibilities]) -> Visibilities:
    """Join pieces that have the same channels, row after row."""
    if len(pieces) == 1:
        return pieces[0]
    return Visibilities(
        np.concatenate([p.uvw for p in pieces]),
        pieces[0].freq,
        np.concatenate([p.vis for p in pieces]),
        np.concatenate([p.weight for p in pieces]),
    )


def clip_strongest(band: Sequence[Visibilities], fraction: float) -> tuple[Visibilities, ...]:
    """Give weight zero to the strongest samples of a band.

    Parameters
    ----------
    band : sequence of Visibilities
        Not changed.
    fraction : float
        Fraction of the samples with weight that is dropped, by their amplitude; 0 drops none.
    """
    if fraction == 0 or not band:
        return tuple(band)
    amplitudes = [np.abs(p.vis) for p in band]
    used = np.concatenate([a[p.weight > 0] for a, p in zip(amplitudes, band, strict=True)])
    if not used.size:
        return tuple(band)
    limit = np.quantile(used, 1 - fraction)
    out = []
    for part, amplitude in zip(band, amplitudes, strict=True):
        keep = amplitude <= limit
        out.append(part._replace(vis=np.where(keep, part.vis, 0), weight=np.where(keep, part.weight, 0)))
    return tuple(out)
