"""What a simulated observation looks like: its parameters, deliberate defects, and the fields, scans and windows they give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.io.simulated_array import RECEIVERS, dishes, mjd_seconds
from pfb.io.sky import Component, direction_cosines
from pfb.types import Real

LINEAR, CIRCULAR = (9, 10, 11, 12), (5, 6, 7, 8)
"""casacore's numbers of XX XY YX YY and RR RL LR LL."""

_SLEW = 20.0
_CALIBRATOR_MINUTES = 1.0
# Visibilities made at a time: some 100 MB with all their columns.
_BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Defects:
    """What real sets have, and readers must survive. Without any, a set is as MeerKAT writes it."""

    feeds: tuple[int, ...] = LINEAR
    """casacore's numbers of the correlations, e.g. `CIRCULAR` or (9, 12)."""
    receptor_angle: float = 0.0
    """Of all feeds in radians: FEED says so, and Q and U are seen in a frame that is turned by it."""
    frame: str = "J2000"
    """casacore's name of the frame that FIELD states; the geometry stays the same."""
    channels: tuple[int, ...] = ()
    """Channels of each spectral window instead of the same for all; cells then differ in shape."""
    descending: bool = False
    """Channels are stored from the highest frequency down, with negative widths."""
    unused_descriptions: bool = False
    """DATA_DESCRIPTION has rows that own no samples, and maps the others onto other ids of spectral windows and polarizations."""
    autocorrelations: bool = False
    shuffled: bool = False
    """Rows are in no order of time."""
    flagged_channels: tuple[int, ...] = ()
    """Stored channels of every spectral window that are flagged."""
    flagged_correlations: tuple[int, ...] = ()
    """Places of correlations that are flagged."""
    flagged_windows: tuple[int, ...] = ()
    all_flagged: bool = False
    flagged_rows: bool = False
    """Every third row has FLAG_ROW but not FLAG."""
    nan_in_flagged: bool = False
    nan_unflagged: bool = False
    """Every seventh row has visibilities that are not finite and not flagged."""
    nan_uvw: bool = False
    """Every fifth row has no uvw."""
    weight_spectrum: str = "normal"
    """``normal``, ``zero``, ``one``, ``negative`` (every fourth row) or ``absent``."""
    weight: str = "normal"
    """``normal`` or ``zero``."""
    infinite_weight: tuple[int, ...] = ()
    """Places of correlations that were not observed: zero with infinite weight."""
    corrected_data: bool = True
    model_data: bool = False
    """MODEL_DATA exists, with one channel too many."""
    zero_columns: tuple[str, ...] = ()
    """Visibility columns that were made but never filled."""
    empty_columns: tuple[str, ...] = ()
    """Optional columns that have no cells; their shape is free."""
    unflagged_rfi: float = 0.0
    """Fraction of the samples in the first quarter of every window's stored channels that have interference without a flag."""
    weight_factor: float = 1.0
    """Of all weights over what they should be."""
    flagged_below: float = 0.0
    """Baselines shorter than this, projected, in metres are flagged."""
    uvw_factor: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """What UVW is multiplied by when the visibilities have been made."""
    centre_error: float = 0.0
    """How far North of the truth, in degrees, FIELD says that the phase centre is."""
    time_shift: float = 0.0
    """Seconds that TIME is late."""
    duplicated_rows: bool = False
    """Every ninth row is the one before it once more."""
    zero_widths: bool = False
    """CHAN_WIDTH is zero."""
    dish_diameter: bool = True
    """Whether ANTENNA says how large the dishes are."""
    telescope: str = "MeerKAT"
    missing_tables: tuple[str, ...] = ()
    """Sub-tables that the set names but has not."""
    read_only: bool = False
    """Nobody may write to the set."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Parameters of a simulated observation."""

    nant: int
    """Dishes, 2 to 64."""
    nchan: int
    """Channels of each spectral window."""
    nspw: int
    """Spectral windows, which share the band."""
    band: str
    """``UHF``, ``L`` or ``S4``."""
    scans: int
    """Scans of the target."""
    scan_length: float
    """Length of each in minutes."""
    dump: float
    """Integration time in seconds."""
    ra: float
    """Right ascension of the target in degrees."""
    dec: float
    """Its declination in degrees."""
    start: str
    """ISO 8601, UTC."""
    sefd: float
    """System equivalent flux density in Jy; zero for no noise."""
    gain_error: float
    """RMS of the logarithm of the gains that are left in DATA."""
    rfi: float
    """Fraction of samples that interference spoils; they are flagged."""
    seed: int
    calibrators: bool = True
    """Whether calibrators are observed too."""
    beam_model: str = "none"
    """``katbeam``: the dishes see the sky through their primary beam, which turns with it."""
    defects: Defects = field(default_factory=Defects)


class SimulatedField(NamedTuple):
    """A field, and what is there."""

    name: str
    ra: float
    """Radians."""
    dec: float
    intent: str
    sky: tuple[Component, ...]


class SimulatedWindow(NamedTuple):
    """A spectral window and the data description that its rows have."""

    spw: int
    data_desc_id: int
    freq: Real
    """(chan,) Hz in the stored order."""
    width: float
    """Hz, negative if stored descending."""


class Block(NamedTuple):
    """Some integrations of a scan in one spectral window."""

    scan: int
    field: int
    window: int
    times: Real
    """(time,) MJD seconds UTC."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """An observation ready to be written."""

    simulation: Simulation
    dishes: list[str]
    itrf: Real
    """(antenna, 3) metres."""
    antenna1: NDArray[np.int32]
    """(baseline,)."""
    antenna2: NDArray[np.int32]
    fields: tuple[SimulatedField, ...]
    windows: tuple[SimulatedWindow, ...]
    blocks: tuple[Block, ...]

    @property
    def rows(self) -> int:
        """Rows of the main table."""
        return sum(len(b.times) for b in self.blocks) * len(self.antenna1)

    @property
    def noise(self) -> float:
        """RMS of the real part of a visibility in Jy."""
        s = self.simulation
        return float(s.sefd / np.sqrt(2 * abs(self.windows[0].width) * s.dump))

    @property
    def start(self) -> float:
        """Beginning of the first integration, MJD seconds UTC."""
        return float(self.blocks[0].times[0]) - self.simulation.dump / 2

    @property
    def end(self) -> float:
        """End of the last integration, MJD seconds UTC."""
        return float(self.blocks[-1].times[-1]) + self.simulation.dump / 2


def lay_out(simulation: Simulation, sky: Sequence[Component]) -> Layout:
    """Plan an observation of a sky.

    Raises
    ------
    InputError
        If a component is 90 degrees or more from the target, or the start is no time.
    """
    ra, dec = np.deg2rad(simulation.ra % 360.0), np.deg2rad(simulation.dec)
    for i, c in enumerate(sky, 1):
        if direction_cosines(c.ra, c.dec, ra, dec)[2] <= 0:
            raise InputError(f"component {i} of the sky is 90 deg or more from the target; move it or --ra and --dec")
    names, itrf = dishes(simulation.nant)
    antenna1, antenna2 = np.triu_indices(len(names), 0 if simulation.defects.autocorrelations else 1)
    windows = _windows(simulation)
    fields = _fields(simulation, SimulatedField(_target_name(ra, dec), ra, dec, "TARGET", tuple(sky)))
    return Layout(
        simulation=simulation,
        dishes=names,
        itrf=itrf,
        antenna1=antenna1.astype(np.int32),
        antenna2=antenna2.astype(np.int32),
        fields=fields,
        windows=windows,
        blocks=tuple(_blocks(simulation, len(fields), len(antenna1), windows)),
    )


def _fields(simulation: Simulation, target: SimulatedField) -> tuple[SimulatedField, ...]:
    if not simulation.calibrators:
        return (target,)
    bandpass = Component(ra=np.deg2rad(294.854275), dec=np.deg2rad(-63.712674), I=14.9, alpha=-0.1)
    phase = Component(ra=np.deg2rad(62.084917), dec=np.deg2rad(-65.752522), I=17.0, alpha=-1.2)
    return (
        SimulatedField("J1939-6342", bandpass.ra, bandpass.dec, "CALIBRATE_BANDPASS,CALIBRATE_FLUX", (bandpass,)),
        target,
        SimulatedField("J0408-6545", phase.ra, phase.dec, "CALIBRATE_PHASE", (phase,)),
    )


def _target_name(ra: float, dec: float) -> str:
    """Name a direction after its hours and minutes, degrees and arcminutes."""
    minutes, arcminutes = int(np.rad2deg(ra) * 4 + 1e-9) % 1440, int(abs(np.rad2deg(dec)) * 60 + 1e-9)
    return f"T{minutes // 60:02d}{minutes % 60:02d}{'-' if dec < 0 else '+'}{arcminutes // 60:02d}{arcminutes % 60:02d}"


def _windows(simulation: Simulation) -> tuple[SimulatedWindow, ...]:
    defects = simulation.defects
    counts = defects.channels or (simulation.nchan,) * simulation.nspw
    low, high = RECEIVERS[simulation.band]
    width = (high - low) / sum(counts)
    centres = np.split(low + (np.arange(sum(counts)) + 0.5) * width, np.cumsum(counts)[:-1])
    windows = []
    for i, freq in enumerate(centres):
        spw, description = (len(counts) - i, i + 1) if defects.unused_descriptions else (i, i)
        windows.append(
            SimulatedWindow(spw, description, freq[::-1], -width) if defects.descending
            else SimulatedWindow(spw, description, freq, width)
        )  # fmt: skip
    return tuple(windows)


def _blocks(simulation: Simulation, fields: int, baselines: int, windows: tuple[SimulatedWindow, ...]) -> Iterator[Block]:
    target = (1 if simulation.calibrators else 0, simulation.scan_length)
    plan = [target] * simulation.scans
    if simulation.calibrators:
        plan = [(0, _CALIBRATOR_MINUTES)] + [scan for _ in range(simulation.scans) for scan in ((2, _CALIBRATOR_MINUTES), target)]
    samples = max(len(w.freq) for w in windows) * len(simulation.defects.feeds) * baselines
    dumps = max(1, _BLOCK // samples)
    t = mjd_seconds(simulation.start)
    for scan, (number, minutes) in enumerate(plan, 1):
        times = t + (np.arange(max(1, round(minutes * 60 / simulation.dump))) + 0.5) * simulation.dump
        t = times[-1] + simulation.dump / 2 + _SLEW
        for first in range(0, len(times), dumps):
            for window in range(len(windows)):
                yield Block(scan, number, window, times[first : first + dumps])
