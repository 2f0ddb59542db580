"""Catalogues of sources: a table (ECSV) with units, and regions of DS9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units as u
from astropy.coordinates import Angle
from astropy.table import Column, Table

_COLUMNS: dict[str, tuple[Any, str]] = {
    "name": (None, "position as IAU names have it"),
    "island": (None, "number of the island of emission"),
    "ra": (u.deg, "right ascension"),
    "ra_error": (u.arcsec, "of the position along right ascension, on the sky"),
    "dec": (u.deg, "declination"),
    "dec_error": (u.arcsec, "of the position along declination"),
    "peak": (u.Jy / u.beam, "peak brightness"),
    "peak_error": (u.Jy / u.beam, ""),
    "flux": (u.Jy, "integrated flux density"),
    "flux_error": (u.Jy, ""),
    "major": (u.arcsec, "fitted full width at half maximum"),
    "major_error": (u.arcsec, ""),
    "minor": (u.arcsec, "fitted full width at half maximum"),
    "minor_error": (u.arcsec, ""),
    "pa": (u.deg, "fitted position angle, North through East"),
    "pa_error": (u.deg, ""),
    "major_deconvolved": (u.arcsec, "full width at half maximum less the beam, 0 if not resolved"),
    "minor_deconvolved": (u.arcsec, "full width at half maximum less the beam, 0 if not resolved"),
    "pa_deconvolved": (u.deg, "position angle of what is resolved"),
    "alpha": (None, "spectral index, flux ~ frequency^alpha"),
    "alpha_error": (None, ""),
    "curvature": (None, "spectral curvature, of exponent alpha + curvature ln(frequency / reference)"),
    "curvature_error": (None, ""),
    "noise": (u.Jy / u.beam, "local noise"),
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A line of a catalogue; angles in radians, an unknown value NaN."""

    name: str
    island: int
    ra: float
    ra_error: float
    dec: float
    dec_error: float
    peak: float
    """Jy/beam, as its error and the noise."""
    peak_error: float
    flux: float
    """Jy, as its error."""
    flux_error: float
    major: float
    major_error: float
    minor: float
    minor_error: float
    pa: float
    pa_error: float
    major_deconvolved: float
    minor_deconvolved: float
    pa_deconvolved: float
    alpha: float
    alpha_error: float
    curvature: float
    curvature_error: float
    noise: float


def iau_name(ra: float, dec: float) -> str:
    """Return the name that a position in radians gives a source, such as J041316.0-451040."""
    right = Angle(ra, "rad").to_string("hourangle", sep="", precision=1, pad=True)
    return f"J{right}{Angle(dec, 'rad').to_string('deg', sep='', precision=0, pad=True, alwayssign=True)}"


def write_catalogue(path: str | Path, sources: Sequence[Source], meta: Mapping[str, Any]) -> None:
    """Write sources as an ECSV table with units; a file at `path` is replaced.

    Parameters
    ----------
    path : str or Path
        File to write.
    sources : sequence of Source
        In the order of the lines; spectral columns that no source has are left out.
    meta : mapping
        What else to say: the image, its beam, its frequency.
    """
    rows = [asdict(source) for source in sources]
    table = Table(meta=dict(meta))
    for field in fields(Source):
        unit, description = _COLUMNS[field.name]
        values = [row[field.name] for row in rows]
        if field.name.startswith(("alpha", "curvature")) and not np.isfinite(values).any():
            continue
        if unit in (u.deg, u.arcsec):
            values = (np.array(values, np.float64) * u.rad).to_value(unit)
        description = description or f"standard deviation of {field.name.removesuffix('_error')}"
        kind = {"name": "U20", "island": "i8"}.get(field.name, "f8")
        table[field.name] = Column(np.array(values, kind), unit=unit, description=description)
    table.write(path, format="ascii.ecsv", overwrite=True)


def write_regions(path: str | Path, sources: Sequence[Source], frame: str) -> None:
    """Write the ellipses at half maximum of sources as regions of DS9; a file at `path` is replaced.

    Parameters
    ----------
    path : str or Path
        File to write.
    sources : sequence of Source
        One region for each, with its name.
    frame : str
        ``ICRS``, ``FK5`` or ``FK4``.
    """
    lines = ["# Region file format: DS9 version 4.1", "global color=green", frame.lower()]
    for s in sources:
        # DS9 turns an ellipse whose first radius is across, and whose second is along North.
        radii = [f'{np.rad2deg(width) * 3600 / 2:.4f}"' for width in (s.minor, s.major)]
        place = f"{np.rad2deg(s.ra):.8f},{np.rad2deg(s.dec):.8f}"
        lines.append(f"ellipse({place},{','.join(radii)},{np.rad2deg(s.pa):.3f}) # text={{{s.name}}}")
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
