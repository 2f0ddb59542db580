"""Limits of the length of baselines, sqrt(u^2 + v^2), in metres or wavelengths."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.types import LIGHTSPEED, Real

_UNITS = {
    "": ("wavelengths", 1.0), "lambda": ("wavelengths", 1.0), "klambda": ("wavelengths", 1e3), "Mlambda": ("wavelengths", 1e6),
    "m": ("metres", 1.0), "km": ("metres", 1e3),
}  # fmt: skip


@dataclass(frozen=True)
class UVRange:
    """Lengths that are used, limits included.

    Parameters
    ----------
    metres, wavelengths : (float, float)
        Least and greatest; both pairs hold.
    """

    metres: tuple[float, float] = (0.0, np.inf)
    wavelengths: tuple[float, float] = (0.0, np.inf)

    def in_metres(self, lowest: float, highest: float) -> tuple[float, float]:
        """Return the least and greatest length of a row that has any sample in the range, for frequencies in Hz."""
        low, high = self.wavelengths
        return max(self.metres[0], low * LIGHTSPEED / highest), min(self.metres[1], high * LIGHTSPEED / lowest)

    def channels(self, length: Real, freq: Real) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first channel in the range of every row, and the one after the last; equal where there is none.

        Parameters
        ----------
        length
            (row,) metres, finite.
        freq
            (chan,) Hz, ascending.
        """
        low, high = self.wavelengths
        with np.errstate(divide="ignore", invalid="ignore"):
            per_wave = LIGHTSPEED / length
            first = np.searchsorted(freq, low * per_wave, side="left") if low else np.zeros(len(length), np.int64)
            after = np.searchsorted(freq, high * per_wave, side="right") if high < np.inf else np.full(len(length), len(freq))
        within = (length >= self.metres[0]) & (length <= self.metres[1])
        return first, np.where(within, np.maximum(first, after), first)

    def samples(self, uvw: Real, freq: Real) -> NDArray[np.bool_]:
        """Say which (row, chan) samples of (row, 3) baselines in metres are in the range."""
        first, after = self.channels(np.hypot(uvw[:, 0], uvw[:, 1]), freq)
        number = np.arange(len(freq))
        inside: NDArray[np.bool_] = (number >= first[:, None]) & (number < after[:, None])
        return inside


def parse_uv_range(low: str | None, high: str | None) -> UVRange | None:
    """Read the values of ``--min-uv`` and ``--max-uv``; None without either.

    Raises `InputError` for what is no length, and for a least length above the greatest of the same unit.
    """
    if low is None and high is None:
        return None
    limits = {"metres": (0.0, np.inf), "wavelengths": (0.0, np.inf)}
    for option, text, place in (("--min-uv", low, 0), ("--max-uv", high, 1)):
        if text is not None:
            unit, value = _length(text, option)
            limits[unit] = (value, limits[unit][1]) if place == 0 else (limits[unit][0], value)
    if any(least > greatest for least, greatest in limits.values()):
        raise InputError(f"--min-uv {low} is above --max-uv {high}, which leaves no baseline; exchange them")
    return UVRange(**limits)


def _length(text: str, option: str) -> tuple[str, float]:
    match = re.fullmatch(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2] not in _UNITS:
        raise InputError(
            f"{option}: cannot read {text!r}; write a length in wavelengths or metres, e.g. 100, 2klambda, 300m or 1.5km"
        )
    unit, factor = _UNITS[match[2]]
    return unit, float(match[1]) * factor
