"""Say what is in a measurement set, and how it could be imaged."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pfb.config import Imaging
from pfb.io.description import Field, RowGroup, SetDescription, SpectralWindow
from pfb.io.metadata import describe
from pfb.io.selection import list_ranges
from pfb.io.time_ranges import iso
from pfb.io.window import Baseline, flagged_fraction, longest_baseline, shortest_baseline, survey
from pfb.pipeline.planning import LARGEST_DEFAULT, default_cell, default_npix, first_null_width
from pfb.types import CORRELATION_NAMES

ReportTable = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """An image grid that the observation supports."""

    cell: float
    """Pixel size in arcsec that imaging takes by default, for the longest unflagged baseline."""
    fov: float | None
    """Width between the first nulls of the primary beam in degrees; None without the dishes' diameter."""
    npix: int | None
    """Pixels along an edge, an even number that is good for FFTs."""


@dataclass(frozen=True, kw_only=True)
class InfoReport:
    """What is in a measurement set."""

    description: SetDescription
    flagged: dict[int, float]
    """Flagged fraction of the cross-correlations, by id of the spectral window."""
    sampled: bool
    """Whether only some of the flags were read."""
    longest_baseline: float | None
    """Largest sqrt(u^2 + v^2) of an unflagged row in metres; None if all is flagged."""
    longest_baseline_wavelengths: float | None
    """Largest product of that, in any spectral window, with its highest frequency over c."""
    shortest: Baseline | None
    """Smallest that is not zero, at the lowest frequency; None if there is none."""
    suggestion: Suggestion | None
    """None if all is flagged, or no baseline has a length."""

    def tables(self) -> list[ReportTable]:
        """Return (title, columns, rows) of what there is to show, all of it text."""
        d = self.description
        fields = [_field_row(f) for f in d.fields]
        windows = [_window_row(w, self.flagged.get(w.id)) for w in d.spectral_windows]
        columns: list[tuple[str, ...]] = [(c.name, c.kind, "yes" if c.has_cells else "no") for c in d.columns]
        about = " (of a sample)" if self.sampled else ""
        return [
            (d.path, ("", ""), self._overview()),
            ("Fields", ("id", "name", "RA", "Dec", "frame", "rows", "intent"), fields),
            ("Spectral windows", ("id", "channels", "MHz", "width kHz", "correlations", "rows", f"flagged{about}"), windows),
            ("Scans", ("scan", "field", "spectral windows", "start UTC", "end UTC", "rows"), _scan_rows(d)),
            ("Columns", ("name", "type", "holds data"), columns),
        ]

    def _overview(self) -> list[tuple[str, ...]]:
        d = self.description
        rows: list[tuple[str, ...]] = [
            ("telescope", d.telescope),
            ("observer", d.observer),
            ("antennas", f"{d.antennas}, diameter {d.dish_diameter:g} m" if d.dish_diameter else f"{d.antennas}"),
            ("time", f"{iso(d.start)} to {iso(d.end)} UTC" if d.rows else ""),
            ("scans", list_ranges(d.scans)),
            ("rows", f"{d.rows}, {d.autocorrelations} of them autocorrelations"),
        ]
        if self.longest_baseline is None or self.longest_baseline_wavelengths is None:
            return [*rows, ("longest baseline", "none: all samples are flagged")]
        if self.suggestion is None:
            return [*rows, ("longest baseline", "0 m: UVW is zero in all rows")]
        s = self.suggestion
        rows.append(("longest baseline", f"{self.longest_baseline:.0f} m, {self.longest_baseline_wavelengths:.0f} wavelengths"))
        if self.shortest is not None:
            rows.append(("shortest baseline", f"{self.shortest.metres:.3g} m, {self.shortest.wavelengths:.3g} wavelengths"))
        rows.append(("suggested cell", f"{s.cell:.3g} arcsec"))
        if s.npix and s.npix <= LARGEST_DEFAULT:
            rows.append(("suggested size", f"{s.npix} pixels, {s.fov:.3g} deg"))
        elif s.npix:
            rows.append(("suggested size", f"that of your source: the primary beam is {s.npix} pixels wide, {s.fov:.3g} deg"))
        return rows


def run(path: str) -> InfoReport:
    """Describe a measurement set, read its flags and suggest an image grid.

    Raises `InputError` if there is no set at `path`.
    """
    d = describe(path)
    windows = survey(d)
    fractions = [flagged_fraction(w) for w in windows]
    rows = {w.id: sum(x.rows for x in windows if x.spw == w.id) for w in d.spectral_windows}
    parts = [(w.spw, fraction * w.rows) for w, (fraction, _) in zip(windows, fractions, strict=True)]
    flagged = {spw: sum(part for owner, part in parts if owner == spw) / n for spw, n in rows.items() if n}
    used = [b for b in map(longest_baseline, windows) if b is not None]
    shortest = [b for b in map(shortest_baseline, windows) if b is not None]
    return InfoReport(
        description=d,
        flagged=flagged,
        sampled=not all(exact for _, exact in fractions),
        longest_baseline=max((b.metres for b in used), default=None),
        longest_baseline_wavelengths=max((b.wavelengths for b in used), default=None),
        shortest=min(shortest, key=lambda b: b.metres, default=None),
        suggestion=_suggest(d, max(b.wavelengths for b in used)) if used else None,
    )


def _suggest(d: SetDescription, wavelengths: float) -> Suggestion | None:
    if wavelengths == 0:
        return None
    cell = default_cell(wavelengths, Imaging.super_resolution)
    arcsec = float(np.rad2deg(cell)) * 3600
    if not d.dish_diameter:
        return Suggestion(cell=arcsec, fov=None, npix=None)
    fov = first_null_width(np.concatenate([w.freq for w in d.spectral_windows if w.rows]), d.dish_diameter)
    return Suggestion(cell=arcsec, fov=float(np.rad2deg(fov)), npix=default_npix(fov, cell))


def _scan_rows(d: SetDescription) -> list[tuple[str, ...]]:
    """Return a line for every scan of every field, in order of time."""
    spws = {x.id: x.spw for x in d.data_descriptions}
    parts: dict[tuple[int, int], list[RowGroup]] = {}
    for g in d.groups:
        parts.setdefault((g.scan, g.field), []).append(g)
    names = {f.id: f"{f.id} ({f.name})" for f in d.fields}
    lines: list[tuple[str, ...]] = []
    for (scan, field), own in sorted(parts.items(), key=lambda item: min(g.start for g in item[1])):
        # Outwards to whole seconds, so that what is shown selects the scan.
        start, end = iso(math.floor(min(g.start for g in own))), iso(math.ceil(max(g.end for g in own)))
        windows = list_ranges(spws[g.data_desc_id] for g in own if g.data_desc_id in spws)
        lines.append((str(scan), names.get(field, str(field)), windows, start, end, str(sum(g.rows for g in own))))
    return lines


def _field_row(f: Field) -> tuple[str, ...]:
    return (str(f.id), f.name, _sexagesimal(np.rad2deg(f.ra) / 15, "hms"), _sexagesimal(np.rad2deg(f.dec), "dms", sign=True),
            f.frame, str(f.rows), " ".join(f.intents))  # fmt: skip


def _window_row(w: SpectralWindow, flagged: float | None) -> tuple[str, ...]:
    if not len(w.freq):
        return (str(w.id), "0", "", "", "", str(w.rows), "")
    edges = f"{w.freq.min() / 1e6:.3f} to {w.freq.max() / 1e6:.3f}" if len(w.freq) > 1 else f"{w.freq[0] / 1e6:.3f}"
    share = "" if flagged is None else f"{100 * flagged:.1f}%"
    return (str(w.id), str(len(w.freq)), edges, f"{abs(w.width).mean() / 1e3:.6g}", _names(w.correlations), str(w.rows), share)


def _names(correlations: Iterable[int]) -> str:
    return " ".join(CORRELATION_NAMES.get(c, str(c)) for c in correlations)


def _sexagesimal(value: float, letters: str, sign: bool = False) -> str:
    """Write hours or degrees with two decimals of a second."""
    hundredths = round(abs(value) * 360000)
    minutes, rest = divmod(hundredths, 6000)
    whole, minutes = divmod(minutes, 60)
    mark = ("-" if value < 0 else "+") if sign else ""
    return f"{mark}{whole:02d}{letters[0]}{minutes:02d}{letters[1]}{rest / 100:05.2f}{letters[2]}"
