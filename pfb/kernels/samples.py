"""Small operations on the samples of a band."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfb.kernels.weighting import LIGHTSPEED
from pfb.types import Real, Visibilities


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


def coordinates(part: Visibilities) -> Real:
    """Return (u, v, w) in wavelengths of the samples with weight, (3, sample) float64, turned so that w >= 0.

    The sky is real, so a sample and the one opposite to it are the same.
    """
    rows, channels = np.nonzero(part.weight)
    out = np.ascontiguousarray(part.uvw[rows].T)
    out *= part.freq[channels] / LIGHTSPEED
    out *= np.where(out[2] < 0, -1.0, 1.0)
    return out
