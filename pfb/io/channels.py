"""Centres and widths of channels as a set states them: what is odd about them, and which widths are used."""

from __future__ import annotations

import numpy as np

from pfb.types import Real

# Of a channel's width: what is due to rounding of the stored frequencies.
_ROUNDING = 0.01


def usable_widths(freq: Real, width: Real) -> Real:
    """Return the (chan,) positive widths of channels in Hz.

    Parameters
    ----------
    freq, width
        (chan,) centres and widths as stored, in Hz.

    Returns
    -------
    (chan,) float64
        The moduli of the stored widths; if any is zero or not finite, the distance to the nearest channel for all: zero if
        there is none, or if it has the same frequency.
    """
    stored = np.abs(width)
    if (np.isfinite(stored) & (stored > 0)).all():
        return stored
    if len(freq) < 2:
        return np.zeros(len(freq))
    ordered = np.argsort(freq)
    gaps = np.diff(freq[ordered])
    nearest = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    found: Real = np.empty(len(freq))
    found[ordered] = nearest
    return found


def oddities(freq: Real, width: Real) -> list[str]:
    """Say in words what is odd about channels; parameters as of `usable_widths`."""
    found = []
    if not (np.isfinite(freq) & (freq > 0)).all():
        found.append(f"{np.count_nonzero(~(freq > 0))} channels have no positive frequency")
    if not (np.isfinite(width) & (width != 0)).all():
        found.append("CHAN_WIDTH is zero or not finite: the distances of the channels are taken")
        return found
    if len({*np.sign(width).tolist()}) > 1:
        found.append("CHAN_WIDTH has both signs")
    steps = np.diff(freq)
    if len(steps) and len({*np.sign(steps).tolist()}) > 1:
        found.append("channels are in no order of frequency")
    ordered = np.argsort(freq)
    between = np.diff(freq[ordered]) - (np.abs(width[ordered[:-1]]) + np.abs(width[ordered[1:]])) / 2
    slack = _ROUNDING * float(np.median(np.abs(width)))
    if (between > slack).any():
        lost = freq[ordered][int(between.argmax())]
        found.append(f"{np.count_nonzero(between > slack)} gaps between channels, the widest of {between.max() / 1e6:.4g} MHz "
                     f"above {lost / 1e6:.6g} MHz")  # fmt: skip
    if (between < -slack).any():
        found.append(f"{np.count_nonzero(between < -slack)} channels overlap the next")
    return found
