"""Skies made of components: read from a file, drawn at random, written as the truth beside a simulated set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from astropy import units
from astropy.coordinates import Angle
from astropy.table import Column, Table

from pfb.errors import InputError
from pfb.types import LIGHTSPEED, Real

_UNITS = {
    "ra": units.deg,
    "dec": units.deg,
    "I": units.Jy,
    "Q": units.Jy,
    "U": units.Jy,
    "V": units.Jy,
    "ref_freq": units.Hz,
    "alpha": units.one,
    "curvature": units.one,
    "fwhm": units.arcsec,
    "minor": units.arcsec,
    "pa": units.deg,
    "rm": units.rad / units.m**2,
}
"""The columns of a file, and their units in a YAML file where none is written."""

_ANGLES = ("ra", "dec", "fwhm", "minor", "pa")
# Columns that are left out where no component has them.
_RARE = ("curvature", "minor", "pa", "rm")
_UNITLESS = ("alpha", "curvature")
# YAML takes 5e-4, which lacks a point, for text.
_PLAIN = re.compile(r"[-+]?[\d.]+([eE][-+]?\d+)?")
_NEEDED = ("ra", "dec", "I")

# East and north offset in arcminutes, Jy, FWHM in arcminutes, spectral index.
_EXTENDED = (
    (-9.0, 6.0, 0.60, 1.5, -0.9),
    (7.0, -11.0, 0.30, 0.8, -0.5),
    (12.0, 10.0, 0.20, 2.5, -0.7),
    (-3.0, -4.0, 0.15, 0.4, -1.1),
    (2.0, 14.0, 0.10, 1.0, -0.3),
)


@dataclass(frozen=True, kw_only=True)
class Component:
    r"""A point source or a Gaussian, whose spectrum is :math:`S \, (\nu/\nu_0)^{\alpha + \beta \ln(\nu/\nu_0)}`."""

    ra: float
    """Right ascension in radians, in the frame of the phase centre."""
    dec: float
    """Declination in radians."""
    I: float
    """Stokes I at `ref_freq` in Jy; for a Gaussian its integral."""
    Q: float = 0.0
    U: float = 0.0
    V: float = 0.0
    ref_freq: float = 1.284e9
    """In Hz; of no consequence where the spectrum is flat."""
    alpha: float = 0.0
    curvature: float = 0.0
    r"""The :math:`\beta` above."""
    fwhm: float = 0.0
    """Full width at half maximum of the major axis in radians; zero for a point."""
    minor: float | None = None
    """That of the minor axis; None: a circle."""
    pa: float = 0.0
    """Position angle of the major axis in radians, North through East."""
    rm: float = 0.0
    r"""Rotation measure in rad/m^2: Q + iU, as at `ref_freq`, turns by :math:`2\,\mathrm{RM}\,(\lambda^2 - \lambda_0^2)`."""
    polynomial: tuple[float, ...] = ()
    r"""In place of alpha and curvature: Stokes I is I plus these times :math:`(\nu/\nu_0 - 1)^k`, k = 1, 2 ..., in Jy."""

    def stokes(self, freq: Real) -> Real:
        """Return (4, chan) I, Q, U and V in Jy at the (chan,) frequencies in Hz."""
        x = np.asarray(freq, np.float64) / self.ref_freq
        fluxes = np.array([self.I, self.Q, self.U, self.V])
        if self.polynomial:
            flux = np.repeat(fluxes[:, None], len(x), axis=1)
            flux[0] += sum(c * (x - 1) ** k for k, c in enumerate(self.polynomial, 1))
            return flux
        flux = np.asarray(fluxes[:, None] * x ** (self.alpha + self.curvature * np.log(x)))
        if self.rm:
            turned = (flux[1] + 1j * flux[2]) * np.exp(2j * self.rm * (LIGHTSPEED / self.ref_freq) ** 2 * (x**-2 - 1))
            flux[1], flux[2] = turned.real, turned.imag
        return flux


def direction_cosines(ra: float, dec: float, ra0: float, dec0: float) -> tuple[float, float, float]:
    """Return (l, m, n) of a position as seen from a phase centre; l grows East, m North. All in radians."""
    d = ra - ra0
    l = np.cos(dec) * np.sin(d)
    m = np.sin(dec) * np.cos(dec0) - np.cos(dec) * np.sin(dec0) * np.cos(d)
    n = np.sin(dec) * np.sin(dec0) + np.cos(dec) * np.cos(dec0) * np.cos(d)
    return float(l), float(m), float(n)


def offset(ra0: float, dec0: float, l: float, m: float) -> tuple[float, float]:
    """Return the (ra, dec) whose direction cosines are (l, m): the inverse of `direction_cosines`; 0 <= ra < 2 pi."""
    n = np.sqrt(1 - l**2 - m**2)
    # arctan2 rather than arcsin, which loses half its digits at the poles.
    x, y, z = n * np.cos(dec0) - m * np.sin(dec0), l, n * np.sin(dec0) + m * np.cos(dec0)
    ra = (ra0 + np.arctan2(y, x)) % (2 * np.pi) % (2 * np.pi)
    return float(ra), float(np.arctan2(z, np.hypot(x, y)))


def random_sky(ra: float, dec: float, *, nsource: int, ref_freq: float, seed: int) -> list[Component]:
    """Draw point sources and put five Gaussians among them.

    The points lie within 0.45 degrees; their counts follow N(>S) proportional to 1/S from
    0.5 mJy to 0.3 Jy, their spectral indices are -0.7 +- 0.2.

    Parameters
    ----------
    ra, dec
        Centre in radians.
    nsource
        Number of points.
    ref_freq
        Frequency of the fluxes in Hz.
    seed
        Seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    sky = []
    for _ in range(nsource):
        r, angle = np.deg2rad(0.45) * np.sqrt(rng.random()), 2 * np.pi * rng.random()
        east, north = offset(ra, dec, r * np.cos(angle), r * np.sin(angle))
        flux = min(5e-4 / (1 - rng.random()), 0.3)
        alpha = -0.7 + 0.2 * rng.standard_normal()
        sky.append(Component(ra=east, dec=north, I=float(flux), ref_freq=ref_freq, alpha=float(alpha)))
    arcmin = np.deg2rad(1 / 60)
    for l, m, flux, fwhm, alpha in _EXTENDED:
        east, north = offset(ra, dec, l * arcmin, m * arcmin)
        sky.append(Component(ra=east, dec=north, I=flux, ref_freq=ref_freq, alpha=alpha, fwhm=fwhm * arcmin))
    return sky


def polarised(sky: Iterable[Component], fraction: float, seed: int) -> list[Component]:
    """Return a sky whose components are linearly polarised by a fraction, at random angles, with some 30 rad/m^2 of rotation."""
    rng = np.random.default_rng([seed, 1])
    made = []
    for c in sky:
        turned, rm = fraction * c.I * np.exp(2j * np.pi * rng.random()), 30 * rng.standard_normal()
        made.append(replace(c, Q=float(turned.real), U=float(turned.imag), rm=float(rm)))
    return made


def read_sky(path: str | Path) -> list[Component]:
    """Read components from an ECSV table or a YAML list.

    Columns, or keys, are ra, dec and I, and if wanted Q, U, V, alpha, curvature, ref_freq, fwhm, minor, pa and rm.
    Every column of an ECSV table but alpha and curvature has a unit. In a YAML file a number is in deg,
    Jy, Hz, arcsec or rad/m^2; text carries its unit, e.g. ``I: 3 mJy`` or ``ra: 4h13m26s``.

    Raises
    ------
    InputError
        If there is no such file, it cannot be read, it holds no component, or a column or
        key is missing, unknown, without a unit or not a finite number.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"the sky {path} does not exist; give an ECSV or a YAML file")
    if path.suffix not in (".ecsv", ".yaml", ".yml"):
        raise InputError(f"the sky {path} ends in {path.suffix or 'nothing'}; give an .ecsv or a .yaml file")
    rows = _ecsv_rows(path) if path.suffix == ".ecsv" else _yaml_rows(path)
    if not rows:
        raise InputError(f"the sky {path} holds no component; write one row for each")
    return [_component(f"{path}, component {i}", row) for i, row in enumerate(rows, 1)]


def write_sky(path: str | Path, sky: Iterable[Component]) -> None:
    """Write components as an ECSV table that `read_sky` reads back; a file at `path` is replaced.

    Raises `InputError` for a spectrum that is a polynomial, which the table has no columns for.
    """
    rows = [asdict(component) for component in sky]
    if any(row["polynomial"] for row in rows):
        raise InputError(f"{path} cannot hold spectra that are polynomials; write a component list")
    table = Table()
    for name, unit in _UNITS.items():
        if name in _RARE and not any(row[name] for row in rows):
            continue
        filled = [row["fwhm"] if name == "minor" and row[name] is None else row[name] for row in rows]
        values = np.array(filled, dtype=np.float64)
        if name in _ANGLES:
            values = (values * units.rad).to_value(unit)
        table[name] = Column(values, unit=None if unit is units.one else unit)
    table.write(path, format="ascii.ecsv", overwrite=True)


def _ecsv_rows(path: Path) -> list[dict[str, Any]]:
    try:
        table = Table.read(path, format="ascii.ecsv")
    except Exception as error:  # astropy raises whatever its parsers do
        raise InputError(f"the sky {path} cannot be read as ECSV ({error}); write it with astropy") from error
    for name in table.colnames:
        if name in _UNITS and name not in _UNITLESS and table[name].unit is None:
            raise InputError(f"column {name} of the sky {path} has no unit; state one, e.g. {_UNITS[name]}")
    return [{name: _cell(row[name], table[name].unit) for name in table.colnames} for row in table]


def _cell(value: Any, unit: units.UnitBase | None) -> Any:
    """Return a cell with its unit; nan if it is empty."""
    value = np.nan if np.ma.is_masked(value) else value
    return value if unit is None else value * unit


def _yaml_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"the sky {path} cannot be read as YAML ({error}); write a list of components") from error
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"the sky {path} is no list of components; write entries such as - {{ra: 63.4, dec: -45.0, I: 0.1}}")
    return [dict(row) for row in rows]


def _component(where: str, row: Mapping[str, Any]) -> Component:
    missing = [name for name in _NEEDED if name not in row]
    if any(name in row for name in _UNITLESS) and "ref_freq" not in row:
        missing.append("ref_freq")
    if missing:
        raise InputError(f"{where} has no {', '.join(missing)}; each needs ra, dec and I, and ref_freq beside alpha or curvature")
    if unknown := [name for name in row if name not in _UNITS]:
        raise InputError(f"{where} has an unknown {', '.join(map(str, unknown))}; known are {', '.join(_UNITS)}")
    values: dict[str, Any] = {name: _number(where, name, value) for name, value in row.items()}
    for name in _ANGLES:
        if name in values:
            values[name] = float((values[name] * _UNITS[name]).to_value(units.rad))
    fwhm = values.get("fwhm", 0.0)
    axes = fwhm >= values.get("minor", 0.0) >= 0
    if abs(values["dec"]) > np.pi / 2 or fwhm < 0 or not axes or values.get("ref_freq", 1.0) <= 0:
        raise InputError(f"{where} needs |dec| <= 90 deg, fwhm >= 0, 0 <= minor <= fwhm and ref_freq > 0; it has {dict(row)}")
    return Component(**values)


def _number(where: str, name: str, value: Any) -> float:
    """Return a value in the unit of its column."""
    try:
        quantity = value
        if isinstance(value, str) and not _PLAIN.fullmatch(value):
            quantity = Angle(value) if name in ("ra", "dec") else units.Quantity(value)
        number = float(quantity.to_value(_UNITS[name]) if isinstance(quantity, units.Quantity) else quantity)
    except (TypeError, ValueError, units.UnitsError) as error:
        raise InputError(f"{where}: cannot read {name} {value!r} as a number in {_UNITS[name]}; write e.g. 1.5") from error
    if not np.isfinite(number):
        raise InputError(f"{where}: {name} is {number}; a finite number is needed")
    return number
