"""Component lists as WSClean writes them, and DP3 and others read them: text, one component in a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from astropy.coordinates import Angle

from pfb.errors import InputError
from pfb.io.sky import Component

_LN10 = float(np.log(10))
_ARCSEC = float(np.deg2rad(1 / 3600))
_NEEDED = ("Type", "Ra", "Dec", "I")
_WRITTEN = ("Name", *_NEEDED, "SpectralIndex", "LogarithmicSI")
_USED = (*_WRITTEN, "Q", "U", "V", "ReferenceFrequency", "MajorAxis", "MinorAxis", "Orientation")
# A comma within brackets is none between fields.
_COMMA = re.compile(r",(?![^\[]*\])")


def is_component_list(path: str | Path) -> bool:
    """Say whether a file begins as a component list does, with the order of its fields."""
    try:
        with open(path, encoding="utf-8") as file:
            return any(_format_of(file.readline()) for _ in range(20))
    except (OSError, UnicodeDecodeError):
        return False


def read_components(path: str | Path) -> list[Component]:
    """Read a component list.

    Stokes Q, U and V, and fields that say nothing of the brightness (Patch), may be there. What a line leaves empty has the
    default that stands in the line that begins ``Format =``. An ordinary spectral polynomial has its coefficients in Jy; a
    logarithmic one, S (nu / nu0) ** (c0 + c1 log10(nu / nu0)), has two at most.

    Returns
    -------
    list of Component
        In the frame of the data that they are used with, since the list names none.

    Raises
    ------
    InputError
        If there is no such file, it has no line ``Format =``, or a line cannot be read; the line is named.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the component list {path} cannot be read ({error}); give a text file as WSClean writes it") from error
    fields: dict[str, str] | None = None
    components = []
    for number, line in enumerate(lines, 1):
        if found := _format_of(line):
            fields = found
        elif line.strip() and not line.lstrip().startswith("#"):
            if fields is None:
                raise InputError(f"the component list {path} has no line 'Format = ...' before line {number}; add it")
            values = _values(fields, line)
            # A line with a patch's name only is no component.
            if values.get("Type"):
                components.append(_component(f"line {number} of the component list {path}", values))
    if not components:
        raise InputError(f"the component list {path} holds no component; write one line for each after 'Format = ...'")
    return components


def write_components(path: str | Path, components: Iterable[Component], names: Sequence[str] | None = None) -> None:
    """Write a component list of Stokes I that `read_components`, WSClean and DP3 read; a file at `path` is replaced.

    A spectrum is logarithmic unless a component's is a polynomial. Angles have 1e-5 arcsec in right ascension and declination.

    Parameters
    ----------
    path : str or Path
        File to write.
    components : iterable of Component
        One at least.
    names : sequence of str, optional
        One for each; by default s0, s1 and so on.
    """
    made = list(components)
    ras, decs = (Angle([getattr(c, name) for c in made], "rad") for name in ("ra", "dec"))
    right = np.atleast_1d(ras.to_string("hourangle", sep=":", precision=7, pad=True))
    up = np.atleast_1d(decs.to_string("deg", sep=".", precision=6, pad=True, alwayssign=True))
    default = made[0].ref_freq if made else 1e9
    lines = [f"Format = {', '.join(_WRITTEN)}, ReferenceFrequency='{default!r}', MajorAxis, MinorAxis, Orientation"]
    for i, (c, ra, dec) in enumerate(zip(made, right, up, strict=True)):
        terms = list(c.polynomial) or [c.alpha, *[c.curvature * _LN10] * bool(c.curvature)]
        minor = c.fwhm if c.minor is None else c.minor
        shape = [f"{c.fwhm / _ARCSEC:.8g}", f"{minor / _ARCSEC:.8g}", f"{np.rad2deg(c.pa):.6g}"] if c.fwhm else ["", "", ""]
        line = [
            f"s{i}" if names is None else names[i], "GAUSSIAN" if c.fwhm else "POINT", ra, dec, repr(float(c.I)),
            f"[{','.join(repr(float(t)) for t in terms)}]", str(not c.polynomial).lower(), repr(float(c.ref_freq)), *shape,
        ]  # fmt: skip
        lines.append(",".join(line))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _format_of(line: str) -> dict[str, str] | None:
    """Read the names of the fields and their defaults; None if a line says nothing of them."""
    found = re.fullmatch(r"\s*#?\s*(?:format\s*=\s*(.*)|\((.*)\)\s*=\s*format)\s*", line, re.IGNORECASE)
    if not found:
        return None
    fields = {}
    for word in (found[1] or found[2]).split(","):
        name, _, default = word.partition("=")
        known = {used.lower(): used for used in _USED}
        fields[known.get(name.strip().lower(), name.strip())] = default.strip().strip("'\"")
    return fields


def _values(fields: dict[str, str], line: str) -> dict[str, str]:
    words = [word.strip() for word in _COMMA.split(line)]
    words += [""] * (len(fields) - len(words))
    return {name: word or default for (name, default), word in zip(fields.items(), words, strict=False)}


def _component(where: str, values: dict[str, str]) -> Component:
    if missing := [name for name in _NEEDED if not values.get(name)]:
        raise InputError(f"{where} has no {', '.join(missing)}; each component needs {', '.join(_NEEDED)}")
    kind = values["Type"].upper()
    if kind not in ("POINT", "GAUSSIAN"):
        raise InputError(f"{where} is a {kind} but only POINT and GAUSSIAN can be predicted; leave it out or image it")
    try:
        numbers = {name: float(values.get(name) or 0) for name in ("I", "Q", "U", "V", "MajorAxis", "MinorAxis", "Orientation")}
        terms = [float(word) for word in values.get("SpectralIndex", "").strip("[] ").split(",") if word.strip()]
        reference = float(values.get("ReferenceFrequency") or 0)
        ra, dec = _angle(values["Ra"], "hourangle"), _angle(values["Dec"], "deg")
    except ValueError as error:
        raise InputError(f"{where} cannot be read ({error}); write it as WSClean does") from error
    logarithmic = (values.get("LogarithmicSI") or "true").lower() == "true"
    if any(terms) and reference <= 0:
        raise InputError(f"{where} has a spectrum but no ReferenceFrequency; add it in Hz")
    if logarithmic and any(terms[2:]):
        raise InputError(f"{where} has {len(terms)} terms of a logarithmic spectrum but two are read; use an ordinary one")
    alpha, curvature = (terms + [0.0, 0.0])[:2] if logarithmic else (0.0, 0.0)
    major, minor, pa = numbers["MajorAxis"] * _ARCSEC, numbers["MinorAxis"] * _ARCSEC, np.deg2rad(numbers["Orientation"])
    if kind == "POINT":
        major = minor = pa = 0.0
    if min(major, minor) < 0:
        raise InputError(f"{where} has a negative axis; widths are positive")
    if minor > major:
        major, minor, pa = minor, major, pa + np.pi / 2
    return Component(
        ra=ra % (2 * np.pi), dec=dec, I=numbers["I"], Q=numbers["Q"], U=numbers["U"], V=numbers["V"],
        ref_freq=reference or 1e9, alpha=alpha, curvature=curvature / _LN10, polynomial=() if logarithmic else tuple(terms),
        fwhm=major, minor=minor if major else None, pa=float(pa),
    )  # fmt: skip


def _angle(text: str, unit: str) -> float:
    """Read ``08:28:05.152`` (hours), ``39.35.08.511`` (degrees, whose separators are points) or ``123.4deg``, in radians."""
    parts = re.fullmatch(r"([+-]?)(\d+)[.:](\d+)[.:](\d+(?:\.\d*)?)", text)
    if not parts:
        return float(Angle(text if re.search("[a-zA-Z]", text) else f"{text}d").rad)
    # Hours where colons separate, degrees where points do, whichever angle it is.
    whole = int(parts[2]) + int(parts[3]) / 60 + float(parts[4]) / 3600
    degrees = whole * 15 if unit == "hourangle" and ":" in text else whole
    return float(np.deg2rad(-degrees if parts[1] == "-" else degrees))
