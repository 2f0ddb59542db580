"""What is in a measurement set: the words in which all readers of sets speak of them."""

from __future__ import annotations

from dataclasses import dataclass

from pfb.types import Real


@dataclass(frozen=True, kw_only=True)
class Field:
    """A row of FIELD."""

    id: int
    name: str
    ra: float
    """Right ascension of the phase centre in radians, 0 <= ra < 2 pi."""
    dec: float
    """Its declination in radians."""
    frame: str
    """``ICRS``, ``FK5`` or ``FK4``; any other frame under casacore's own name."""
    rows: int
    intents: tuple[str, ...]
    """Distinct values of STATE::OBS_MODE of its rows."""

    @property
    def is_target(self) -> bool:
        """Whether it was observed with the intent of a target."""
        return any("TARGET" in intent.upper() for intent in self.intents)


@dataclass(frozen=True, kw_only=True, eq=False)
class SpectralWindow:
    """A row of SPECTRAL_WINDOW."""

    id: int
    name: str
    freq: Real
    """(chan,) channel centres in Hz, in the stored order."""
    width: Real
    """(chan,) channel widths in Hz as stored, which may be negative."""
    rows: int
    correlations: tuple[int, ...]
    """casacore's numbers of the correlations that its rows hold."""


@dataclass(frozen=True, kw_only=True)
class DataDescription:
    """A row of DATA_DESCRIPTION that owns rows of the main table."""

    id: int
    spw: int
    correlations: tuple[int, ...]
    rows: int


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """The rows that one data description, field, scan and state have in common."""

    data_desc_id: int
    field: int
    scan: int
    state: int
    rows: int
    autocorrelations: int
    start: float
    """Earliest TIME, MJD seconds UTC."""
    end: float
    """Latest TIME, MJD seconds UTC."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """An array column of the main table."""

    name: str
    kind: str
    """casacore's name of its type: ``complex``, ``float``, ``boolean``, ..."""
    has_cells: bool
    """Whether any of a few rows spread over the table holds something."""


@dataclass(frozen=True, kw_only=True)
class SetDescription:
    """What is in a measurement set."""

    path: str
    stamp: int
    """When it was last written, in ns."""
    telescope: str
    observer: str
    antennas: int
    dish_diameter: float
    """Median over the antennas in metres; 0 if the set does not say."""
    fields: tuple[Field, ...]
    spectral_windows: tuple[SpectralWindow, ...]
    data_descriptions: tuple[DataDescription, ...]
    groups: tuple[RowGroup, ...]
    columns: tuple[Column, ...]
    rows: int
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Mean ITRF of the antennas in metres; zeros if the set does not say."""
    turning: bool = True
    """Whether its antennas are on alt-azimuth mounts, so that the sky turns in their beams."""

    @property
    def scans(self) -> tuple[int, ...]:
        """Scan numbers in ascending order."""
        return tuple(sorted({g.scan for g in self.groups}))

    @property
    def autocorrelations(self) -> int:
        """How many rows are of an antenna with itself."""
        return sum(g.autocorrelations for g in self.groups)

    @property
    def start(self) -> float:
        """Earliest TIME, MJD seconds UTC; 0 for a set without rows."""
        return min((g.start for g in self.groups), default=0.0)

    @property
    def end(self) -> float:
        """Latest TIME, MJD seconds UTC; 0 for a set without rows."""
        return max((g.end for g in self.groups), default=0.0)

    @property
    def visibility_columns(self) -> tuple[str, ...]:
        """Names of the complex columns that hold something."""
        return tuple(c.name for c in self.columns if "complex" in c.kind and c.has_cells)
